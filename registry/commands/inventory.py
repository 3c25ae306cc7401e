"""The commands ``registry ops``, ``registry op`` and ``registry backends``: what there is."""

from __future__ import annotations

from collections.abc import Iterator

import click
import msgspec
from rich.table import Table
from rich.text import Text

import registry

from ..errors import RegistryError
from ..opinfo import Op
from ..status import faults
from .options import find_op, frozen_option, json_option, shared
from .packages import locked_ops
from .printing import print_json, print_text
from .tables import make_console, table

SLOW_SECONDS = 1.0
"""From how long on it is told what a plugin took to load."""


@click.command("ops", short_help="List the operators.")
@json_option
def ops_command(as_json: bool) -> None:
    """List the operators: those of plugins, and the packages of registry.lock."""
    every = []
    for name in registry.ops():
        try:
            every.append(registry.op(name))
        except RegistryError as error:  # a stranger's manifest must not hide the others
            print_text(f"left out: {error}", stderr=True)
    every += locked_ops()
    if as_json:
        facts = ((op.id, len(op.variants), op.file, _provenance(op)) for op in every)
        names = ("op", "variants", "file", "from")
        print_json([dict(zip(names, each, strict=True)) for each in facts])
        return
    packaged = any(op.package for op in every)
    rows = [
        (
            op.id,
            ", ".join(s.role if s.required else f"{s.role}?" for s in op.inputs),
            ", ".join(s.role if s.required else f"{s.role}?" for s in op.outputs),
            str(len(op.variants)),
            *((op.package.origin.short if op.package and op.package.origin else "",) if packaged else ()),
        )
        for op in every
    ]
    header = ("op", "inputs", "outputs", "shader variants", *(("package",) if packaged else ()))
    make_console().print(table(None, header, rows))


def _or_default(value: float | None) -> str:
    return "default" if value is None else f"{value:g}"


def _provenance(op: Op) -> str:
    return op.package.provenance if op.package else op.file


@click.command("op")
@click.argument("name")
@frozen_option
@json_option
def op_command(name: str, frozen: bool, as_json: bool) -> None:
    """Show an operator: its contract and its variants. NAME is an op, a package folder or its name."""
    target = find_op(shared(), name, frozen)
    manifest = target.manifest
    if as_json:
        print_json(msgspec.to_builtins(manifest))
        return
    console = make_console()
    console.print(
        Text(target.id, style="bold"),
        Text(f"since version {manifest.since_version}  {_provenance(target)}"),
    )
    console.print(Text(manifest.description))
    for number, part in enumerate(_parts(target)):
        if number:
            console.print()
        console.print(part)


def _parts(op: Op) -> Iterator[Table]:
    """An op's manifest as tables; what it has not is left out."""
    m = op.manifest
    yield table("Tensors", ("", "name", "also", "dtypes", "presence", "what"), _tensors(op))
    if op.attribute_names:
        texts = m.attribute_descriptions
        rows = [
            (name, str(op.attributes.get(name, "none")), texts.get(name, "")) for name in op.attribute_names
        ]
        yield table("Attributes", ("name", "default", "what"), rows)
    if m.registry.contract:
        rows = [(rule.argument, rule.needed, rule.rule) for rule in m.registry.contract]
        yield table("Contract", ("argument", "needed", "rule"), rows)
    if m.registry.tolerance:
        said = m.registry.tolerance.items()
        rows = [(dtype, _or_default(each.relative), _or_default(each.steps)) for dtype, each in said]
        yield table("Tolerance", ("dtype", "relative", "ULP"), rows)
    if m.derive:
        yield table(
            "Derived values", ("name", "is"), [(name, str(value)) for name, value in m.derive.items()]
        )
    variants = [
        (v.id, f"{v.priority:g}", ", ".join(p.template for p in v.passes), "\n".join(v.when or ()))
        for v in sorted(op.variants.values(), key=lambda v: -v.priority)
    ]
    yield table("Shader variants", ("id", "priority", "template", "when"), variants)


def _tensors(op: Op) -> Iterator[tuple[str, ...]]:
    for direction, specs in (("input", op.inputs), ("output", op.outputs)):
        for spec in specs:
            dtypes = ", ".join(op.allowed_dtypes(spec.dtype)) or "any"
            presence = "required" if spec.required else "optional"
            yield direction, spec.role, spec.arg, dtypes, presence, spec.description


@click.command("backends", short_help="Which backends run here, and what is missing.")
@json_option
def backends_command(as_json: bool) -> None:
    """Doctor: which backends can run here, on which device, and what is missing."""
    found = registry.backends()
    broken = faults(shared().catalog)
    if as_json:
        print_json(
            [
                {**vars(status), "details": dict(status.details), "fault": broken.get(status.name, "")}
                for status in found
            ]
        )
        return
    rows = []
    for status in found:
        state = Text("no", style="bold red")
        if status.available:
            state = (
                Text("yes", style="bold green") if status.automatic else Text("by name only", style="yellow")
            )
        about = status.device if status.available else f"{status.because}: {status.found}"
        priority = "" if status.priority is None else f"{status.priority:g}"
        rows.append((status.name, priority, status.distribution, state, about, status.needed))
    console = make_console()
    header = ("backend", "priority", "from", "runs", "device or reason", "what would help")
    console.print(table(None, header, rows))
    for status in found:
        if status.details:
            console.print()
            facts = [
                (key, ", ".join(v) if isinstance(v, list) else str(v)) for key, v in status.details.items()
            ]
            console.print(table(status.name, ("", ""), facts))
    for name, fault in broken.items():
        origin = next(s.distribution for s in found if s.name == name)
        console.print(Text(f"\n{name} of {origin}: {fault}", style="red"), soft_wrap=True)
    for status in found:
        if status.seconds >= SLOW_SECONDS:
            what = f"{status.name} of {status.distribution} took {status.seconds:.1f} s to load"
            console.print(Text(f"\n{what}", style="yellow"), soft_wrap=True)
    if any(s.available and not s.automatic for s in found):
        console.print("\nA software adapter runs when it is named, and never wins an automatic choice.")
