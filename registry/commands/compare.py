"""The commands ``registry compare`` and ``registry replay``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from ..api import Registry
from ..comparing.report import Report
from ..comparing.running import compare
from ..comparing.text import failure_lines, missing_lines, verdict_lines
from ..conformance import Case, read_case
from ..errors import ContractError
from ..files import path_of, write_whole
from ..opinfo import Op
from .inputs import read_settings, read_tensors
from .options import call_options, find_op, json_option, read_call, shared
from .printing import print_json, print_text
from .tables import comparison_table, histogram_table, make_console, progress_bar, replay_tables


@click.command("compare", short_help="Judge every backend and variant by the reference.")
@call_options(data=True)
@click.option(
    "--case",
    "case_texts",
    multiple=True,
    metavar="'NAME=SHAPE ...'|JSON",
    help="One more case: tensors and attributes, or a request as `registry test` prints it.",
)
@click.option(
    "--cases",
    "count",
    type=click.IntRange(1),
    help="Draw so many cases from the manifest, the requests of `registry test` with the same seed.",
)
@click.option("--save", metavar="FILE", help="Keep a case, the first that fails, for `registry replay`.")
@click.option("--html", metavar="FILE", help="Write the report as a page that needs no other file.")
def compare_command(
    as_json: bool,
    case_texts: tuple[str, ...],
    count: int | None,
    save: str | None,
    html: str | None,
    **options: Any,
) -> None:
    """Run every eligible backend and variant and judge each against the float64 reference."""
    if save is not None and html is not None and Path(save).resolve() == Path(html).resolve():
        raise click.UsageError(f"--save and --html: two files; both are {save!r}.")
    registry = shared()
    target, named = read_call(True, **options)
    cases = _cases(target, named, case_texts, count, options["seed"])
    with progress_bar("cases") as progress:
        report = compare(registry, target, (), named, cases, options["seed"], progress)
    notes = _keep(registry, report, save)
    if html is not None:
        try:
            write_whole(path_of(html, "--html"), report.html().encode("utf-8", "backslashreplace"))
        except OSError as error:
            raise ContractError(f"--html {html}: cannot be written ({error})") from error
        notes.append(f"page: {html}")
    if as_json:
        print_json(report.as_dict())
    else:
        _show(report, notes)
    if not report.ok:
        sys.exit(1)


@click.command("replay", short_help="Run the comparison of a bundle on this machine.")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--backend", help="A backend, or several separated by commas (default: all that are here).")
@click.option("--variant", help="One variant, in place of all.")
@click.option("--device", help="name, name:0 or name:part of the adapter's name.")
@click.option("--op", "name", help="The op to run, such as the folder of the package it was made with.")
@json_option
def replay_command(
    bundle: Path,
    backend: str | None,
    variant: str | None,
    device: str | None,
    name: str | None,
    as_json: bool,
) -> None:
    """Run the comparison that BUNDLE holds on this machine, and say what is the same.

    Results are judged by the bundle's expected values, and held against the bits that were found there.
    """
    registry = shared()
    names = None if backend is None else [each.strip() for each in backend.split(",")]
    op = None if name is None else find_op(registry, name, False)
    found = registry.replay(bundle, backend=names, variant=variant, device=device, op=op)
    if as_json:
        print_json(found.as_dict())
    else:
        console = make_console()
        console.print(Text(found.report.request, style="bold"), Text(found.judged), sep="\n")
        for each in replay_tables(found):
            console.print(each)
        _print_lines(found.lines())
    if not found.ok:
        sys.exit(1)


def _cases(
    op: Op, named: dict[str, Any], texts: tuple[str, ...], count: int | None, seed: int
) -> int | list[dict[str, Any] | Case] | None:
    if count is not None:
        if texts:
            raise click.UsageError("--case and --cases: one or the other.")
        return count
    if not texts:
        return None
    cases: list[dict[str, Any] | Case] = [{}] if named["inputs"] else []
    for text in texts:
        cases.append(read_case(text) if text.lstrip().startswith("{") else _read(op, named, text, seed))
    if named["inputs"]:
        cases[0] = {"inputs": named.pop("inputs")}
    return cases


def _read(op: Op, named: dict[str, Any], text: str, seed: int) -> dict[str, Any]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ContractError(f"--case {text!r}: {error}") from error
    names = (*op.attribute_names, *op.scalars)
    settings = [word for word in words if word.partition("=")[0] in names]
    given = read_settings(settings, names, f"{op.id}: no attribute")
    attrs = {name: value for name, value in given.items() if name in op.attribute_names}
    return {
        **{name: value for name, value in given.items() if name in op.scalars},
        "attrs": {**named["attrs"], **attrs},
        "inputs": read_tensors(op, [word for word in words if word not in settings], (), seed),
    }


def _keep(registry: Registry, report: Report, save: str | None) -> list[str]:
    """Saves what is asked for, or what fails where there is a folder for it; says what and how to go on."""
    if save is not None:
        return [f"saved: {report.save(save)}; registry replay {shlex.quote(save)} runs it again"]
    folder = registry.catalog.environment.bundles
    if report.failures and folder is not None:
        paths = report.save_failures(folder)
        return [f"saved: {path}; registry replay {shlex.quote(str(path))} runs it again" for path in paths]
    return ["--save FILE keeps it for registry replay"] if report.failures else []


def _show(report: Report, notes: list[str]) -> None:
    console = make_console()
    console.print(Text(report.request, style="bold"))
    console.print(comparison_table(report))
    if any(row.verdict and row.verdict.histogram for row in report.rows):
        console.print(histogram_table(report))
    _print_lines([*missing_lines(report), *failure_lines(report), *verdict_lines(report), *notes])


def _print_lines(lines: list[str]) -> None:
    for line in lines:
        wrong = line.startswith("FAILS") or " fails: " in line
        quiet = line.startswith(("skipped", "not run here", "nothing ran"))
        print_text(line, "bold red" if wrong else "dim" if quiet else "")
