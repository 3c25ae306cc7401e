"""The report of a comparison: its cases, and what they come to."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import ContractError
from ..judging.accuracy import combine
from ..judging.judge import Skip
from ..text import counted
from .records import CaseReport, Comparison


@dataclass(frozen=True)
class BackendVerdict:
    """How one backend did over all cases; ``worst`` is what came nearest to the edge, or went over it."""

    backend: str
    cases: int
    results: int
    failed: int
    worst: Comparison

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.failed

    def as_dict(self) -> dict[str, Any]:
        """The verdict as plain data, for JSON."""
        names = ("backend", "ok", "cases", "results", "failed")
        worst = {name: getattr(self.worst, name) for name in ("case", "variant", "output", "finding")}
        return {**{name: getattr(self, name) for name in names}, "worst": worst}

    def __str__(self) -> str:
        count = (f"{self.failed} of " if self.failed else "") + counted(self.results, "result")
        cases = f" in {self.cases} cases" if self.cases > 1 else ""
        where = f"case {self.worst.case}, " if self.cases > 1 else ""
        verdict = "agrees" if self.ok else "fails"
        place = f"{where}{self.worst.variant} {self.worst.output}"
        return f"{self.backend} {verdict}: {count}{cases}; worst: {place}, {self.worst.finding}"


@dataclass(frozen=True)
class Report:
    """All comparisons of one call, or of several cases of one op. ``str()`` prints it.

    ``system`` are what it holds for: date, machine, versions, devices with their drivers.
    """

    op: str
    cases: tuple[CaseReport, ...]
    system: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None

    @property
    def request(self) -> str:
        """The one request, or how many there are."""
        if len(self.cases) == 1:
            return self.cases[0].request
        seed = "" if self.seed is None else f", drawn with seed {self.seed}"
        return f"{self.op}  {len(self.cases)} cases{seed}"

    @property
    def against(self) -> str:
        """What results were judged by."""
        return "; ".join(dict.fromkeys(case.against for case in self.cases))

    @property
    def rows(self) -> tuple[Comparison, ...]:
        """The comparisons of all cases."""
        return tuple(row for case in self.cases for row in case.rows)

    @property
    def skipped(self) -> tuple[Skip, ...]:
        """The candidates that do not accept the call; of several cases, those that accept none."""
        ran = {row.candidate for row in self.rows} if len(self.cases) > 1 else set()
        every = (skip for case in self.cases for skip in case.skipped)
        by_candidate = {skip.candidate: skip for skip in every if skip.candidate not in ran}
        return tuple(by_candidate.values())

    @property
    def failures(self) -> tuple[Comparison, ...]:
        """The rows that are wrong, or failed to run."""
        return tuple(row for case in self.cases for row in case.failures)

    @property
    def ok(self) -> bool:
        """Whether everything that is eligible ran and agrees.

        False when nothing ran, and when every result was held against itself for want of a reference.
        """
        return any(case.proves for case in self.cases) and not self.failures

    @cached_property
    def totals(self) -> tuple[Comparison, ...]:
        """A row for each output of each backend and variant, over all cases."""
        groups: dict[tuple[str, str, str], list[Comparison]] = {}
        for row in self.rows:
            groups.setdefault((*row.candidate, row.output), []).append(row)
        backends = list(dict.fromkeys(row.backend for row in self.rows))
        return tuple(_total(groups[key]) for key in sorted(groups, key=lambda key: backends.index(key[0])))

    @cached_property
    def histograms(self) -> Mapping[tuple[str, str, str], tuple[int, ...]]:
        """For each backend, output and dtype how many elements lie how many ULP from the answer."""
        sums: dict[tuple[str, str, str], tuple[int, ...]] = {}
        for row in self.rows:
            if row.verdict is not None and row.verdict.histogram:
                key, counts = (row.backend, row.output, row.dtype), row.verdict.histogram
                sums[key] = tuple(map(sum, zip(counts, sums.get(key, (0,) * len(counts)), strict=True)))
        backends = list(dict.fromkeys(row.backend for row in self.rows))
        return {key: sums[key] for key in sorted(sums, key=lambda key: backends.index(key[0]))}

    @cached_property
    def backends(self) -> tuple[BackendVerdict, ...]:
        """How each backend that ran did."""
        groups: dict[str, list[Comparison]] = {}
        for row in self.rows:
            groups.setdefault(row.backend, []).append(row)
        return tuple(_verdict(name, rows) for name, rows in groups.items())

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, for JSON."""
        return {
            **{name: getattr(self, name) for name in ("op", "request", "against", "ok")},
            "cases": [
                {"case": case.number, "request": case.request, "drawn": case.drawn, "ok": not case.failures}
                for case in self.cases
            ],
            "rows": [row.as_dict() for row in self.rows],
            "skipped": [skip._asdict() for skip in self.skipped],
            "backends": [verdict.as_dict() for verdict in self.backends],
            "system": dict(self.system),
        }

    def table(self) -> list[tuple[str, ...]]:
        """The rows for printing: one for each output of each backend and variant, over all cases."""
        from .text import table

        return table(self)

    def save(self, path: str | Path, case: int | None = None) -> Path:
        """Writes a case with all that it takes to run it again elsewhere into one file, a bundle.

        Args:
            path: where to; a file that is there is replaced.
            case: which (default: the first that fails, else the first).

        Raises:
            ContractError: no such case, its data was not kept, or the file cannot be written.
        """
        from ..files import path_of
        from .bundle import write_bundle

        target = path_of(path, "path")
        write_bundle(self, self._chosen(case), target)
        return target

    def save_failures(self, folder: str | Path) -> list[Path]:
        """Saves every failing case whose data is kept, the first few of many, into a folder, by names that
        are the same for the same failure. Raises as ``save``."""
        from ..files import path_of

        place = path_of(folder, "folder")
        kept = [case for case in self.cases if case.failures and case.evidence is not None]
        return [self.save(place / f"{_name(self.op, case)}.zip", case.number) for case in kept]

    def html(self) -> str:
        """The report as one HTML page that needs no other file."""
        from .html import page

        return page(self)

    def _chosen(self, number: int | None) -> CaseReport:
        kept = {case.number: case for case in self.cases if case.evidence is not None}
        if number is None:
            found = next((case for case in kept.values() if case.failures), None) or next(
                iter(kept.values()), None
            )
        else:
            found = kept.get(number)
        if found is None:
            asked = "no case has data" if number is None else f"case {number} has no data here"
            raise ContractError(f"{asked}; kept: {', '.join(map(str, kept)) or 'none'}; compare it alone")
        return found

    def __str__(self) -> str:
        from .text import lines

        return "\n".join(lines(self))


def _name(op: str, case: CaseReport) -> str:
    seen = "".join([case.request, *(f"{row.candidate}{row.output}{row.digest}" for row in case.rows)])
    return f"{op.partition('::')[2]}-{hashlib.sha256(seen.encode()).hexdigest()[:12]}"


def _worst(rows: Sequence[Comparison]) -> Comparison:
    return max(rows, key=lambda row: (row.severity, row.verdict.share if row.verdict else math.inf))


def _total(rows: Sequence[Comparison]) -> Comparison:
    worst = _worst(rows)
    verdicts = [row.verdict for row in rows if row.verdict is not None]
    if worst.verdict is None or len(rows) == 1:
        return worst
    return replace(worst, verdict=combine(verdicts))


def _verdict(backend: str, rows: Sequence[Comparison]) -> BackendVerdict:
    cases = len({row.case for row in rows})
    return BackendVerdict(backend, cases, len(rows), sum(not row.ok for row in rows), _worst(rows))
