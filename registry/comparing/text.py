"""A comparison as text: its tables, and what stands below them."""

from __future__ import annotations

from ..judging.judge import skipped_lines
from ..judging.rounding import BUCKETS
from ..text import lay_out
from .records import Comparison
from .report import Report

HEADER = (
    "backend",
    "variant",
    "output",
    "verdict",
    "max abs",
    "mean abs",
    "max rel",
    "mean rel",
    "max ULP",
    "mean ULP",
    "share",
    "compared",
    "NaN",
    "Inf",
)

MAX_SHOWN = 5
"""So many wrong rows are shown with their inputs; of the others only the table tells."""


def lines(report: Report) -> list[str]:
    """The whole report, line by line."""
    below = [*missing_lines(report), *failure_lines(report), *verdict_lines(report)]
    return [
        report.request,
        f"  against {report.against}",
        *lay_out(HEADER, table(report)),
        *(lay_out(*plots) if (plots := histograms(report))[1] else ()),
        *(f"  {line}" for line in below),
    ]


def table(report: Report) -> list[tuple[str, ...]]:
    """A line for each output of each backend and variant, over all cases."""
    return [_cells(row) for row in report.totals]


def histograms(report: Report) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and lines: for each backend and output how many elements lie how many ULP from the answer.
    Buckets that are empty throughout are left out."""
    sums = report.histograms
    names = bucket_names()
    filled = [place for place in range(len(names)) if any(counts[place] for counts in sums.values())]
    heads = [names[place] for place in filled]
    header = (
        "backend",
        "output",
        "dtype",
        *(f"{'ULP ' if head is heads[0] else ''}{head}" for head in heads),
    )
    return header, [(*key, *(str(counts[place]) for place in filled)) for key, counts in sums.items()]


def bucket_names() -> list[str]:
    """The buckets of a histogram: ``0``, ``<=0.5``, ``<=1``, ..., ``beyond``."""
    return [f"{'<=' if limit else ''}{limit:g}" for limit in BUCKETS] + ["beyond"]


def missing_lines(report: Report) -> list[str]:
    """Who did not run, and why; and the cases in which nothing ran."""
    found = skipped_lines(report.skipped)
    nothing = [str(case.number) for case in report.cases if not case.rows]
    if nothing and len(report.cases) > 1:
        found.append(f"nothing ran in cases {', '.join(nothing)}: no backend accepts them")
    return found


def failure_lines(report: Report) -> list[str]:
    """The first wrong rows with their worst elements and the inputs around them."""
    several = len(report.cases) > 1
    by_number = {case.number: case for case in report.cases}
    found: list[str] = []
    for row in report.failures[:MAX_SHOWN]:
        place = f"case {row.case}: " if several else ""
        found.append(f"FAILS {place}{row.backend} {row.variant} {row.output}: {row.finding}")
        case = by_number[row.case]
        found += [f"    {case.request}"] if several else []
        found += [f"    {each}" for each in row.inputs]
        found += [f"    {case.command} --backend {row.backend}"] if case.command else []
    more = len(report.failures) - MAX_SHOWN
    return [*found, f"{more} more fail"] if more > 0 else found


def verdict_lines(report: Report) -> list[str]:
    """A line for each backend: whether it agrees, and what is worst."""
    found = [str(verdict) for verdict in report.backends]
    if not any(case.proves for case in report.cases):
        found.append("nothing is proved: " + ("no second result" if report.rows else "nothing ran"))
    return found


def number(value: float) -> str:
    """Three digits, without what an exponent does not need."""
    return f"{value:.3g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def _cells(row: Comparison) -> tuple[str, ...]:
    names = (row.backend, row.variant, row.output)
    v = row.verdict
    if v is None:
        return (*names, "failed", *[""] * (len(HEADER) - 4))
    errors = (v.max_abs, v.mean_abs, v.max_rel, v.mean_rel, v.max_ulp, v.mean_ulp, v.share)
    return (
        *names,
        "ok" if v.ok else "FAILS",
        *map(number, errors),
        str(v.compared),
        agreement(v.nan_actual, v.nan_expected, v.nan_matching),
        agreement(v.inf_actual, v.inf_expected, v.inf_matching),
    )


def agreement(actual: int, expected: int, matching: int) -> str:
    """How many NaN or infinities are where they should be."""
    if not actual and not expected:
        return "0"
    surplus = f", {actual - matching} too many" if actual > matching else ""
    return f"{matching} of {expected} match{surplus}"
