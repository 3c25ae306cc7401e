"""Decisions, comparisons and inventories as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from ..comparing import text as comparing_text
from ..comparing.replayed import DIFFERENCES, Replay
from ..comparing.replayed import HEADER as REPLAY_HEADER
from ..comparing.report import Report
from ..deciding.decision import HEADER as DECISION_HEADER
from ..deciding.decision import Decision

_VERDICT_STYLES = {
    "chosen": "bold green",
    "eligible": "green",
    "rejected": "red",
    "not tried": "dim",
}


WIDTH = 160
"""Columns when the output is no terminal, so that a redirected table is not cut to 80."""


def make_console(stderr: bool = False) -> Console:
    """A console for tables: as wide as the terminal, or ``WIDTH`` when there is none."""
    made = Console(highlight=False, stderr=stderr)
    return made if made.is_terminal else Console(highlight=False, stderr=stderr, width=WIDTH)


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a bar while something runs, on a terminal only; gives what moves it: done, of how many."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = make_console(stderr=True)
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def table(title: str | None, header: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """A plain table; its cells are text, never markup."""
    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_header=any(header),
        show_edge=False,
        pad_edge=False,
    )
    for name in header:
        made.add_column(name, overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    return made


def decision_table(decision: Decision) -> Group:
    """Every candidate with its verdict and reason, under the request; the verdict is coloured."""
    rows: list[Sequence[str | Text]] = [
        (*row[:3], Text(row[3], style=_VERDICT_STYLES.get(row[3], "")), *row[4:]) for row in decision.table()
    ]
    notes = (Text(f"note: {note}", style="dim italic") for note in decision.notes)
    # The request is no title of the table, which would be broken into lines of the table's width.
    return Group(Text(str(decision.request), style="bold"), table(None, DECISION_HEADER, rows), *notes)


def comparison_table(report: Report) -> Table:
    """Every output of every backend and variant against the reference, over all cases."""
    return table(f"against {report.against}", comparing_text.HEADER, _coloured(report.table()))


def histogram_table(report: Report) -> Table:
    """How many elements of each backend's outputs lie how many ULP from the right answer."""
    return table(None, *comparing_text.histograms(report))


def replay_tables(replay: Replay) -> list[Table]:
    """A bundle's outputs here and there, and what else differs."""
    made = [table(None, REPLAY_HEADER, _coloured(replay.table()))]
    return made + ([table(None, DIFFERENCES, replay.differences)] if replay.differences else [])


def _coloured(rows: Iterable[Sequence[str]]) -> list[Sequence[str | Text]]:
    """Rows of a comparison, whose fourth cell is the verdict."""
    return [
        (*row[:3], Text(row[3], style="green" if row[3] == "ok" else "bold red"), *row[4:]) for row in rows
    ]
