"""The command line: ``registry`` or ``python -m registry``."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NoReturn

import click
import numpy as np
from rich.text import Text

import registry

from .commands.card import card_command
from .commands.compare import compare_command, replay_command
from .commands.conformance import test_command
from .commands.decisions import check_command, freeze_command
from .commands.options import call_options, find_op, frozen_option, json_option, read_call
from .commands.packages import export_command, lock_command, locked_ops
from .commands.plugin import new_plugin_command
from .commands.tune import bench_command, tune_command
from .errors import ContractError, RegistryError
from .opinfo import Op
from .status import faults
from .tables import decision_table, make_console, table

console = make_console()

SLOW_SECONDS = 1.0
"""From how long on it is told what a plugin took to load."""


class _Group(click.Group):
    """Prints our errors as one message and leaves with status 2; a traceback is for bugs."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except RegistryError as error:
            make_console(stderr=True).print(Text(f"{type(error).__name__}: {error}"), soft_wrap=True)
            sys.exit(2)

    def main(self, *arguments: Any, **options: Any) -> Any:
        """The command line; where there is no room for what it prints, it says so."""
        try:
            try:
                return super().main(*arguments, **options)
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
        except OSError as error:
            if error.errno not in _NOT_WRITTEN or error.filename is not None:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's own last flush
            if error.errno == errno.EPIPE:  # nobody reads on, which is no fault
                sys.exit(1)
            click.echo(f"what is printed cannot be written: {error.strerror}", err=True)
            sys.exit(2)


_NOT_WRITTEN = (errno.EPIPE, errno.ENOSPC, errno.EFBIG, errno.EIO)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(registry.__version__, prog_name="registry")
def main() -> None:
    """Runs ONNX-style operators on the best backend, and says why."""


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    make_console(stderr=True).print(Text(f"warning: {message}"), soft_wrap=True)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, default=_plain))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return str(value)


@main.command(short_help="List the operators.")
@json_option
def ops(as_json: bool) -> None:
    """List the operators: those of plugins, and the packages of registry.lock."""
    every = []
    for name in registry.ops():
        try:
            every.append(registry.op(name))
        except RegistryError as error:  # a stranger's manifest must not hide the others
            make_console(stderr=True).print(Text(f"left out: {error}"), soft_wrap=True)
    every += locked_ops()
    if as_json:
        facts = ((op.id, len(op.variants), op.file, _provenance(op)) for op in every)
        names = ("op", "variants", "file", "from")
        _print_json([dict(zip(names, each, strict=True)) for each in facts])
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
    console.print(table(None, header, rows))


def _or_default(value: float | None) -> str:
    return "default" if value is None else f"{value:g}"


def _provenance(op: Op) -> str:
    return op.package.provenance if op.package else op.file


@main.command()
@click.argument("name")
@frozen_option
@json_option
def op(name: str, frozen: bool, as_json: bool) -> None:
    """Show an operator: its contract and its variants. NAME is an op, a package folder or its name."""
    import msgspec

    target = find_op(registry._shared, name, frozen)
    manifest = target.manifest
    if as_json:
        _print_json(msgspec.to_builtins(manifest))
        return
    console.print(
        Text(target.id, style="bold"),
        Text(f"since version {manifest.since_version}  {_provenance(target)}"),
    )
    console.print(Text(manifest.description), "")
    rows = [
        (
            direction,
            s.role,
            s.arg,
            ", ".join(target.allowed_dtypes(s.dtype)) or "any",
            "required" if s.required else "optional",
            s.description,
        )
        for direction, specs in (("input", target.inputs), ("output", target.outputs))
        for s in specs
    ]
    console.print(table("Tensors", ("", "name", "also", "dtypes", "presence", "what"), rows), "")
    if target.attribute_names:
        described = manifest.attribute_descriptions
        attributes = [
            (n, str(target.attributes.get(n, "none")), described.get(n, "")) for n in target.attribute_names
        ]
        console.print(table("Attributes", ("name", "default", "what"), attributes), "")
    rules = [(rule.argument, rule.needed, rule.rule) for rule in manifest.registry.contract]
    if rules:
        console.print(table("Contract", ("argument", "needed", "rule"), rules), "")
    if manifest.registry.tolerance:
        said = manifest.registry.tolerance.items()
        allowed = [(dtype, _or_default(each.relative), _or_default(each.steps)) for dtype, each in said]
        console.print(table("Tolerance", ("dtype", "relative", "ULP"), allowed), "")
    if manifest.derive:
        derived = [(name, str(value)) for name, value in manifest.derive.items()]
        console.print(table("Derived values", ("name", "is"), derived), "")
    variants = sorted(target.variants.values(), key=lambda v: -v.priority)
    shown = [
        (
            str(v.id),
            f"{v.priority:g}",
            ", ".join(p.template for p in v.passes),
            "\n".join(v.when or ()),
        )
        for v in variants
    ]
    console.print(table("Shader variants", ("id", "priority", "template", "when"), shown))


@main.command(short_help="Which backends run here, and what is missing.")
@json_option
def backends(as_json: bool) -> None:
    """Doctor: which backends can run here, on which device, and what is missing."""
    found = registry.backends()
    broken = faults(registry._shared.catalog)
    if as_json:
        _print_json(
            [
                {
                    name: dict(getattr(s, name)) if name == "details" else getattr(s, name)
                    for name in s.__dataclass_fields__
                }
                | {"fault": broken.get(s.name, "")}
                for s in found
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
    console.print(
        table(
            None,
            ("backend", "priority", "from", "runs", "device or reason", "what would help"),
            rows,
        )
    )
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


@main.command()
@call_options(data=True)
@click.option("--save", metavar="FILE.npz", help="Write the outputs to an archive.")
def run(as_json: bool, save: str | None, **options: Any) -> None:
    """Run an operator and show what came out."""
    op, named = read_call(True, **options)
    result = registry.run(op, **named)
    plan = registry.last()
    assert plan is not None
    values = dict(zip(plan.request.asked, (result,) if plan.single else result, strict=True))
    if save is not None:
        try:
            np.savez(save, **values)
        except OSError as error:
            raise ContractError(f"--save {save}: cannot be written ({error})") from error
    facts = [_facts(name, np.asarray(value)) for name, value in values.items()]
    if as_json:
        _print_json({"op": op.id, "backend": plan.backend, "variant": plan.variant, "outputs": facts})
        return
    console.print(Text(f"{op.id} on {plan.backend}, variant {plan.variant}", style="bold"))
    header = ("output", "shape", "dtype", "min", "max", "mean", "first")
    console.print(table(None, header, [tuple(str(fact[name]) for name in header) for fact in facts]))


def _short(value: float | None) -> float | str | None:
    """Seven digits; what JSON cannot hold becomes a text."""
    if value is None or not math.isfinite(value):
        return value if value is None else str(value)
    return float(f"{value:.7g}")


def _facts(name: str, value: np.ndarray[Any, Any]) -> dict[str, Any]:
    wide = value.astype(np.float64)
    with np.errstate(all="ignore"):
        numbers = [float(f(wide)) if wide.size else None for f in (np.min, np.max, np.mean)]
    low, high, mean = (_short(n) for n in numbers)
    return {
        "output": name,
        "shape": list(value.shape),
        "dtype": value.dtype.name,
        "min": low,
        "max": high,
        "mean": mean,
        "first": [_short(float(v)) for v in wide.reshape(-1)[:4]],
    }


@main.command()
@call_options(data=False)
def explain(as_json: bool, **options: Any) -> None:
    """Say which candidate would run, and why the others would not."""
    op, named = read_call(False, **options)
    decision = registry.explain(op, **named)
    if as_json:
        _print_json(decision.as_dict())
    else:
        console.print(decision_table(decision))
    if decision.chosen is None:
        sys.exit(1)


@main.command()
@call_options(data=False)
@click.option(
    "--lint", is_flag=True, help="Print what compilers or devices disagree on in it instead; status 1 if any."
)
def render(as_json: bool, lint: bool, **options: Any) -> None:
    """Print the source that would run."""
    op, named = read_call(False, **options)
    if lint:
        _lint(op, named, as_json)
        return
    passes = registry.render(op, **named)
    if as_json:
        _print_json([{name: _thaw(getattr(p, name)) for name in p.__dataclass_fields__} for p in passes])
        return
    if not passes:
        _no_source(op, named)
    for item in passes:
        click.echo(
            f"// pass {item.id}: {item.shader}, {item.dispatch} workgroups, uniforms {dict(item.uniforms)}"
        )
        click.echo(item.source)


def _lint(op: Op, named: Mapping[str, Any], as_json: bool) -> None:
    found = registry.lint(op, **named)
    rows = [{"pass": name, **asdict(finding)} for name, findings in found.items() for finding in findings]
    if as_json:
        _print_json(rows)
    elif not found:
        _no_source(op, named)
    else:
        for row in rows:
            click.echo("{pass}:{line}: {rule}: {text}".format(**row))
        if not rows:
            click.echo(f"nothing found in {', '.join(found)}")
    if rows:
        sys.exit(1)


def _no_source(op: Op, named: Mapping[str, Any]) -> NoReturn:
    chosen = registry.explain(op, **named).backend
    click.echo(f"{chosen} has no source text; name another with --backend.", err=True)
    sys.exit(1)


def _thaw(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value


COMMANDS = (
    card_command,
    compare_command,
    replay_command,
    test_command,
    tune_command,
    bench_command,
    freeze_command,
    check_command,
    lock_command,
    export_command,
    new_plugin_command,
)
for command in COMMANDS:
    main.add_command(command)


if __name__ == "__main__":
    main()
