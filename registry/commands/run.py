"""The commands of one call: ``registry run``, ``registry explain`` and ``registry render``."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NoReturn

import click
import numpy as np
from rich.text import Text

import registry

from ..errors import ContractError
from ..opinfo import Op
from .options import call_options, read_call
from .printing import print_json
from .tables import decision_table, make_console, table


@click.command("run")
@call_options(data=True)
@click.option("--save", metavar="FILE.npz", help="Write the outputs to an archive.")
def run_command(as_json: bool, save: str | None, **options: Any) -> None:
    """Run an operator and show what came out."""
    op, named = read_call(True, **options)
    result = registry.run(op, **named)
    plan = registry.last()
    assert plan is not None
    values = dict(zip(plan.request.asked, (result,) if plan.call.single else result, strict=True))
    if save is not None:
        try:
            np.savez(save, **values)
        except OSError as error:
            raise ContractError(f"--save {save}: cannot be written ({error})") from error
    facts = [_facts(name, np.asarray(value)) for name, value in values.items()]
    if as_json:
        print_json({"op": op.id, "backend": plan.backend, "variant": plan.variant, "outputs": facts})
        return
    console = make_console()
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


@click.command("explain")
@call_options(data=False)
def explain_command(as_json: bool, **options: Any) -> None:
    """Say which candidate would run, and why the others would not."""
    op, named = read_call(False, **options)
    decision = registry.explain(op, **named)
    if as_json:
        print_json(decision.as_dict())
    else:
        make_console().print(decision_table(decision))
    if decision.chosen is None:
        sys.exit(1)


@click.command("render")
@call_options(data=False)
@click.option(
    "--lint", is_flag=True, help="Print what compilers or devices disagree on in it instead; status 1 if any."
)
def render_command(as_json: bool, lint: bool, **options: Any) -> None:
    """Print the source that would run."""
    op, named = read_call(False, **options)
    if lint:
        _lint(op, named, as_json)
        return
    passes = registry.render(op, **named)
    if as_json:
        print_json([{name: _thawed(value) for name, value in vars(item).items()} for item in passes])
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
        print_json(rows)
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


def _thawed(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
