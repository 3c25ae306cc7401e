"""The command ``registry test``: conformance by the manifest."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.text import Text

from ..conformance import read_case, replay, run
from ..conformance.report import HEADER, ConformanceReport
from ..deciding.selection import claims_fault
from ..errors import ContractError
from ..opinfo import Op
from ..packaging.test_json import Outcome, run_cases
from .options import find_op, frozen_option, json_option, shared
from .printing import print_json, print_text

if TYPE_CHECKING:
    from ..catalog import Catalog
from .tables import make_console, progress_bar, table


@click.command("test")
@click.argument("op")
@click.option(
    "--cases",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="So many legal requests, and as many illegal ones; 0: a package's own tests alone.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="One seed, the same requests."
)
@click.option("--backend", help="One backend, in place of all that are available, software adapters too.")
@click.option("--variant", help="One variant, in place of all.")
@click.option("--case", metavar="JSON", help="Run this request only, as a failure prints it.")
@frozen_option
@json_option
def test_command(
    op: str,
    cases: int,
    seed: int,
    backend: str | None,
    variant: str | None,
    case: str | None,
    frozen: bool,
    as_json: bool,
) -> None:
    """Check an operator with requests drawn from its manifest. OP is a name or a package folder.

    Legal requests run on every backend and variant that accepts them and are judged against the float64
    reference; illegal ones must be refused. What fails is shrunk and printed with a command to repeat it.
    A package's own tests (test.json) run too, if their form is known.
    """
    registry = shared()
    target = find_op(registry, op, frozen)
    report = None
    if case is not None:
        report = replay(registry, target, read_case(case), backend, variant)
    elif cases == 0 and target.package is None:
        raise ContractError(f"{target.id} is no package with tests of its own; needed: --cases 1 or more")
    elif cases:
        with progress_bar("requests") as progress:
            report = run(
                registry,
                target,
                cases=cases,
                seed=seed,
                backend=backend,
                variant=variant,
                progress=lambda done: progress(done, 2 * cases),
            )
    brought: tuple[Outcome, ...] | str = ()
    if target.package is not None and case is None:
        brought = run_cases(registry, target, backend)
    if as_json:
        told = brought if isinstance(brought, str) else [asdict(outcome) for outcome in brought]
        print_json({**(report.as_dict() if report else {}), **({"test.json": told} if told else {})})
    else:
        if report is not None:
            _show(report)
        _show_brought(brought)
    broken = _broken(registry.catalog, target, backend)
    for line in broken:
        print_text(line, "bold red", stderr=as_json)
    failed = bool(broken) or any(
        isinstance(outcome, Outcome) and outcome.state == "failed" for outcome in brought
    )
    ok = report.ok if report is not None else not isinstance(brought, str)
    if failed or not ok:
        sys.exit(1)


def _broken(catalog: Catalog, op: Op, backend: str | None) -> list[str]:
    """Why the claims of backends that were to run cannot be read, and why one that is named cannot run."""
    found = []
    for name in catalog.plugins.backends if backend is None else (catalog.known(backend),):
        here = catalog.availability(name)
        if cause := claims_fault(catalog, name, op):
            found.append(f"{name}: its claims for {op.id} are broken: {cause}")
        elif backend is not None and not here.available:
            found.append(f"{name}: {here.condition}: {here.found}; needed: {here.needed}")
    return found


def _show(report: ConformanceReport) -> None:
    console = make_console()
    console.print(Text(report.title, style="bold"))
    if report.backends:
        console.print(table(None, HEADER, report.table()))
    for line in report.lines():
        console.print(Text(line, style="dim"))
    for failure in report.failures:
        print_text(f"FAILS {failure}", "bold red")


def _show_brought(brought: tuple[Outcome, ...] | str) -> None:
    if isinstance(brought, str):
        print_text(f"its own tests: {brought}", "dim")
    elif brought:
        counts = Counter(outcome.state for outcome in brought)
        states = ", ".join(f"{count} {state}" for state, count in counts.items())
        print_text(f"its own tests ({len({o.case for o in brought})} cases): {states}")
        for outcome in brought:
            if outcome.state != "passed":
                style = "bold red" if outcome.state == "failed" else "dim"
                where = " ".join(filter(None, (outcome.backend, outcome.variant)))
                print_text(f"{outcome.state} {outcome.case} {where}: {outcome.reason}", style)
