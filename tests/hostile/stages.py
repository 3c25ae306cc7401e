"""Every stage of an op from strange hands, one after another: a fault must come as one of our errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import registry_manifests
import registry_numpy
import registry_webgpu
from registry import Registry, RegistryError, RegistryWarning
from registry.language.expressions import evaluate, parse
from registry.language.functions import FUNCTIONS, device_functions
from registry.language.reasons import why_false
from registry.language.templates import parse_template
from registry.language.values import Features
from registry.loading.loader import load_manifest
from registry.opinfo import Op

PROFILE = {"webgpu": {"features": ["shader-f16"], "limits": {"maxStorageBuffersPerShaderStage": 10}}}
RANKS = ((3, 3), (3, 1), (1, 1), (2, 0))
"""Ranks of the first input and of the others, in calls that are made up."""

SCOPE: Mapping[str, Any] = {
    **FUNCTIONS,
    **device_functions(Features(["shader-f16"])),
    "shapes": {"x": [2, 3, 8], "y": [], "z": [0, 1]},
    "ranks": {"x": 3, "y": 0},
    "present": {"x": True, "y": False},
    "attrs": {"axis": -1, "epsilon": 1e-5, "mode": "none", "list": [1, 2.5, "a", None]},
    "device": {"features": Features(["shader-f16"]), "limits": {"maxBufferSize": 2**31}, "adapterInfo": {}},
    "n": 7,
    "t": "a text, with words",
    "l": [3, 1, 2],
    "o": {"a": 1, "b": [1, {"c": None}]},
}
"""Names that expressions and templates see here."""


def make_registry() -> Registry:
    """A registry of the built-in plugins that need no device."""
    return Registry([registry_manifests, registry_numpy, registry_webgpu], entry_points=False)


def calls(op: Op) -> Iterator[dict[str, Any]]:
    """A few calls of an op, as pairs, by its contract as far as it tells."""
    for first, others in RANKS:
        inputs = {}
        for place, spec in enumerate(op.inputs):
            rank = others if place else first
            dtype = next(iter(op.allowed_dtypes(spec.dtype)), "float32")
            if spec.required or rank == 3:
                inputs[spec.role] = ((2, 3, 8)[3 - rank :], dtype)
        args = {name: {"bool": True, "string": "a"}.get(arg.kind, 1) for name, arg in op.scalars.items()}
        yield {"inputs": inputs, **args}


def steps(reg: Registry, op: Op) -> Iterator[Callable[[], Any]]:
    """Everything that can be asked of an op without data and without a device."""
    yield lambda: (str(op), op.id, op.inputs, op.outputs, op.variants, op.attributes)
    for named in calls(op):
        yield lambda named=named: reg.infer(op, **named)
        yield lambda named=named: str(reg.explain(op, **named, backend="webgpu", profile=PROFILE))
        yield lambda named=named: reg.render(op, **named, backend="webgpu", profile=PROFILE)
        yield lambda named=named: reg.lint(op, **named, backend="webgpu", profile=PROFILE)
        yield lambda named=named: reg.peak_memory(op, **named, backend="webgpu", profile=PROFILE)


@dataclass(frozen=True)
class Outcome:
    """What a step came to: empty, or what our error said; and the processor time that it took."""

    text: str
    seconds: float


def ours(step: Callable[[], Any]) -> Outcome:
    """Takes a step; any exception that is not ours passes through."""
    begin, text = process_time(), ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RegistryWarning)
            step()
    except RegistryError as error:
        text = f"{type(error).__name__}: {error}"
        text.encode()  # an error that cannot be printed is none
    return Outcome(text, process_time() - begin)


def walk(reg: Registry, load: Callable[[], Op]) -> list[Outcome]:
    """Loads an op and takes every step with it."""
    made: list[Op] = []
    outcomes = [ours(lambda: made.append(load()))]
    return outcomes + [ours(step) for op in made for step in steps(reg, op)]


def walk_manifest(reg: Registry, file: Path) -> list[Outcome]:
    """A manifest as a plugin brings it."""
    return walk(reg, lambda: load_manifest(file))


def walk_package(reg: Registry, folder: Path) -> list[Outcome]:
    """A package as a user loads it."""
    return walk(reg, lambda: reg.load(folder).op)


def walk_expression(text: str) -> list[Outcome]:
    """An expression, its value, and the explanation of why it is not true."""

    def explain() -> None:
        leaf = why_false(parse(text), SCOPE, {"n": "rank(shapes.x) > 3", "t": text[:200]})
        assert all(isinstance(part, str) for part in (leaf.condition, leaf.found, leaf.needed))

    return [ours(lambda: evaluate(text, SCOPE)), ours(explain)]


def walk_template(text: str) -> list[Outcome]:
    """A template of ours and of a package, which may print what is undefined."""
    return [
        ours(lambda: parse_template(text).render(SCOPE)),
        ours(lambda: parse_template(text).render(SCOPE, [])),
    ]
