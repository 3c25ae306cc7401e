"""What became of a bundle here, as plain records that print themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..judging.judge import Skip, skipped_lines
from ..text import lay_out
from .records import Comparison
from .report import Report
from .text import failure_lines, number, verdict_lines

HEADER = ("backend", "variant", "output", "verdict", "share", "max ULP", "there", "bits")

DIFFERENCES = ("differs", "there", "here")


class Difference(NamedTuple):
    """What differs between there and here, and both."""

    what: str
    there: str
    here: str


@dataclass(frozen=True)
class Replayed:
    """One output, computed here: how it is judged, and what it was where the bundle was made.

    Attributes:
        comparison: against the bundle's expected values.
        there: ``ok``, ``FAILS`` or ``failed``; empty where this backend and variant did not run there.
        same: whether it has the bits that were found there; None where that cannot be said.
        different: how many of its ``size`` elements have other bits; None where there is nothing to count.
    """

    comparison: Comparison
    there: str
    same: bool | None
    different: int | None
    size: int

    @property
    def bits(self) -> str:
        """The same in words."""
        if self.same is None:
            return "not run there" if not self.there else "nothing to hold them against"
        if self.same:
            return "the same"
        return "other" if self.different is None else f"other in {self.different} of {self.size}"

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        names = ("there", "same", "different", "size")
        return {**self.comparison.as_dict(), **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True)
class Replay:
    """What became of a bundle here. ``str()`` prints it.

    Attributes:
        path: the bundle; ``made`` is the date of it (UTC).
        report: the comparison here, against the bundle's expected values.
        rows: its rows beside what the bundle has.
        missing: candidates of the bundle that did not run here.
        differences: what is not as it was there: versions, devices, manifest, sources.
    """

    path: Path
    made: str
    report: Report
    rows: tuple[Replayed, ...]
    missing: tuple[Skip, ...] = ()
    differences: tuple[Difference, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether everything that ran here agrees with the expected values."""
        return self.report.ok

    @property
    def same(self) -> bool:
        """Whether everything that ran both here and there has the same bits, and something did."""
        known = [row.same for row in self.rows if row.same is not None]
        return bool(known) and all(known)

    @property
    def judged(self) -> str:
        """What results were judged by, and when the bundle was made."""
        return f"against {self.report.against}, made {self.made or 'at an unknown date'}"

    def as_dict(self) -> dict[str, Any]:
        """The replay as plain data, for JSON."""
        return {
            "bundle": str(self.path),
            "made": self.made,
            "request": self.report.request,
            "against": self.report.against,
            "ok": self.ok,
            "same": self.same,
            "rows": [row.as_dict() for row in self.rows],
            "missing": [skip._asdict() for skip in self.missing],
            "differences": [difference._asdict() for difference in self.differences],
            "system": dict(self.report.system),
        }

    def table(self) -> list[tuple[str, ...]]:
        """The rows for printing."""
        return [_cells(row) for row in self.rows]

    def lines(self) -> list[str]:
        """What stands below the table."""
        missing = [line.replace("skipped", "not run here", 1) for line in skipped_lines(self.missing)]
        return [*missing, *failure_lines(self.report), *verdict_lines(self.report)]

    def __str__(self) -> str:
        return "\n".join(
            [
                self.report.request,
                f"  {self.judged}",
                *lay_out(HEADER, self.table()),
                *(lay_out(DIFFERENCES, self.differences) if self.differences else ()),
                *(f"  {line}" for line in self.lines()),
            ]
        )


def _cells(row: Replayed) -> tuple[str, ...]:
    one = row.comparison
    names = (one.backend, one.variant, one.output)
    if one.verdict is None:
        return (*names, "failed", "", "", row.there, row.bits)
    verdict = "ok" if one.ok else "FAILS"
    return (*names, verdict, number(one.verdict.share), number(one.verdict.max_ulp), row.there, row.bits)
