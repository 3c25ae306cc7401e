"""The arguments of commands that take a call: what ``run``, ``explain``, ``render`` and ``compare`` share."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import registry

from ..api import Registry
from ..errors import ContractError
from ..opinfo import Op
from .inputs import read_settings, read_tensors

TENSORS = """Tensors go by name, as files (X=x.npy) or as shapes (X=2x8x768, X=2x8x768:f16) of which normal
numbers are drawn."""
"""What the help of such a command ends with."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
frozen_option = click.option("--frozen", is_flag=True, help="Take packages by name from registry.lock alone.")


def shared() -> Registry:
    """The registry of the process, whose methods are the functions of ``registry``."""
    return registry._shared


def find_op(reg: Registry, name: str, frozen: bool) -> Op:
    """The op of a name, or of a package: a folder, or ``owner/name`` with ``@v1``, ``@<commit>`` or a lock.

    Raises:
        ContractError, PackageError, ManifestError: there is none, or it is wrong.
    """
    if "/" in name or (name and Path(name).is_dir()):
        return reg.load(name, frozen=frozen or None).op
    return reg.op(name)


_PINS = (
    click.option("--variant", help="Pin one variant."),
    click.option(
        "--tunable",
        "tunables",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a tunable of the manifest.",
    ),
)


def call_options(
    data: bool, op_required: bool = True, profile: bool = True, pinned: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of every command that takes a call; ``pinned``: a variant and tunables, too."""
    options = [
        click.argument("op", required=op_required),
        click.argument("tensors", nargs=-1, metavar="[NAME=FILE.npy|NAME=SHAPE[:DTYPE]]..."),
        click.option(
            "--from",
            "files",
            multiple=True,
            metavar="FILE.npz",
            help="Take tensors by name from an archive.",
        ),
        click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set an attribute."),
        click.option("--outputs", help="Outputs, separated by commas."),
        click.option("--backend", help="A backend, or several separated by commas, in order."),
        *(_PINS if pinned else ()),
        click.option("--device", help="name, name:0 or name:part of the adapter's name."),
        click.option(
            "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of drawn tensors."
        ),
        frozen_option,
        json_option,
    ]
    if not data and profile:
        options.insert(
            -1,
            click.option(
                "--profile",
                type=click.Path(exists=True, dir_okay=False),
                help="JSON file of devices by backend, in place of this machine's.",
            ),
        )

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{TENSORS}"
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def read_call(
    data: bool,
    op: str,
    tensors: tuple[str, ...],
    files: tuple[str, ...],
    settings: tuple[str, ...],
    outputs: str | None,
    backend: str | None,
    device: str | None,
    seed: int,
    frozen: bool,
    variant: str | None = None,
    tunables: tuple[str, ...] = (),
    profile: str | None = None,
) -> tuple[Op, dict[str, Any]]:
    """The op and the keyword arguments of a call, from what the command line gave.

    ``op`` is as for ``find_op``; ``data`` draws tensors where only their shapes are given.

    Raises:
        ContractError, PackageError: a file, a name or a value is wrong.
    """
    target = find_op(shared(), op, frozen)
    names = (*target.attribute_names, *target.scalars)
    given = read_settings(settings, names, f"{target.id}: no attribute")
    named: dict[str, Any] = {
        **{name: value for name, value in given.items() if name in target.scalars},
        "attrs": {name: value for name, value in given.items() if name not in target.scalars},
        "inputs": read_tensors(target, tensors, files, seed, data),
        "variant": variant,
        "tunables": read_settings(tunables, tuple(target.tunables), f"{target.id}: no tunable"),
        "device": device,
    }
    if outputs is not None:
        named["outputs"] = _names(outputs)
    if backend is not None:
        named["backend"] = _names(backend)
    if profile is not None:
        named["profile"] = _read_profile(profile)
    return target, named


def _names(text: str) -> str | list[str]:
    """One name, or several separated by commas."""
    names = [name.strip() for name in text.split(",")]
    return names if len(names) > 1 else names[0]


def _read_profile(file: str) -> dict[str, Any]:
    try:
        profile = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ContractError(f"{file}: cannot be read as JSON ({error})") from error
    if not isinstance(profile, dict):
        raise ContractError(f"{file}: needed: a JSON object of devices by backend")
    return profile
