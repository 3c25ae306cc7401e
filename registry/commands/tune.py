"""The commands ``registry tune`` and ``registry bench``: what is measured, and what is kept of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from ..deciding.tuned import Store
from ..errors import ContractError
from ..measuring.benchmark import HEADER as BENCH_HEADER
from ..measuring.benchmark import bench
from ..measuring.tuning import HEADER, tune
from .options import call_options, read_call, shared
from .printing import print_json
from .tables import make_console, progress_bar, table

_STYLES = {"chosen": "bold green", "ok": "green", "wrong": "bold red", "failed": "bold red"}


@click.command("tune", short_help="Measure what is fastest for a call, and keep the choice.")
@call_options(data=True, op_required=False, pinned=False)
@click.option("--on", "place", metavar="DEVICE", help="Measure with the tensors on this device.")
@click.option("--list", "listed", is_flag=True, help="Show the choices that are kept, of OP or all.")
@click.option("--clear", is_flag=True, help="Forget the choices that are kept, of OP or all.")
def tune_command(
    as_json: bool, op: str | None, place: str | None, listed: bool, clear: bool, **options: Any
) -> None:
    """Measure which backend, variant and tunables are fastest for a call, and keep the choice.

    Later calls of the same class follow it: op, dtypes, shape of a row, attributes and outputs the same, and
    as many rows to the next power of two; on this machine, with these devices, drivers and sources. Results
    are judged first. The static choice stays where nothing is faster by more than the spread.
    """
    if listed and clear:
        raise click.UsageError("--list and --clear: one or the other.")
    registry = shared()
    if listed or clear:
        identity = None if op is None else registry.op(op).id
        (_clear if clear else _list)(registry.catalog.store, identity, as_json)
        return
    if op is None:
        raise click.UsageError("Missing argument 'OP'.")
    target, named = read_call(True, op, **options)
    if place is not None:
        named["inputs"] = {role: registry.to_device(value, place) for role, value in named["inputs"].items()}
    with progress_bar("samples") as progress:
        found = tune(registry, target, (), named, progress=progress)
    if as_json:
        print_json(found.as_dict())
    else:
        _show(found.request, found.against, HEADER, found.table(), found.lines())
    if found.choice is None:
        sys.exit(1)


@click.command("bench")
@call_options(data=True)
@click.option("--variants", is_flag=True, help="Time all variants, not only those that would run.")
@click.option("--plot", metavar="FILE", help="Draw the times, as PNG, PDF or SVG by the file's name.")
def bench_command(as_json: bool, variants: bool, plot: str | None, **options: Any) -> None:
    """Time a call on every available backend, side by side.

    With host arrays, their way to a device and back included, and with tensors on the device. Results are
    judged first; what is wrong or fails is shown with its reason.
    """
    registry = shared()
    target, named = read_call(True, **options)
    with progress_bar("samples") as progress:
        found = bench(registry, target, (), named, variants, progress=progress)
    if as_json:
        print_json(found.as_dicts())
    else:
        _show(found.request, found.against, BENCH_HEADER, found.table(), found.lines())
    if plot is not None:  # last: a plot that cannot be drawn must not lose what was measured
        from ..measuring.plotting import draw

        draw(found, plot)
    if not found.ok:
        sys.exit(1)


def _show(
    request: str, against: str, header: Sequence[str], rows: Sequence[Sequence[str]], lines: Sequence[str]
) -> None:
    console = make_console()
    verdict = header.index("verdict")
    styled: list[Sequence[str | Text]] = [
        (*row[:verdict], Text(row[verdict], style=_STYLES.get(row[verdict], "")), *row[verdict + 1 :])
        for row in rows
    ]
    console.print(Text(request, style="bold"))
    console.print(table(f"results judged by {against}", header, styled))
    for line in lines:
        console.print(Text(line, style="dim" if line.startswith("skipped") else "bold"))


def _list(store: Store, op: str | None, as_json: bool) -> None:
    entries = [entry for entry in store.entries() if op in (None, entry.key["op"])]
    if as_json:
        found = [{**entry.key, "choice": asdict(entry.choice), "digest": entry.digest} for entry in entries]
        print_json(found)
        return
    rows: list[Sequence[str | Text]] = [
        (
            str(entry.key["op"]),
            "\n".join(f"{role} {kind}" for role, kind in entry.key["class"]["tensors"].items()),
            "\n".join(": ".join((name, facts[0])) for name, facts in entry.key["devices"].items()),
            str(entry.choice.chosen),
            f"{entry.choice.us:.1f} us",
            entry.choice.day,
        )
        for entry in entries
    ]
    console = make_console()
    console.print(table(str(store.folder), ("op", "tensors", "among", "choice", "median", "date"), rows))


def _clear(store: Store, op: str | None, as_json: bool) -> None:
    try:
        count = store.clear(op)
    except OSError as error:
        raise ContractError(f"--clear: {store.folder} cannot be cleared ({error})") from error
    if as_json:
        print_json({"removed": count})
    else:
        click.echo(f"{count} removed from {store.folder}")
