"""Runs the comparison of a bundle on this machine: is it right here, and are the bits the same?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import NumpyArray
from ..call import parse_call
from ..errors import ContractError, PackageError, shorten
from ..judging import Judge, Skip, skipped_lines, tolerances
from ..opinfo import Op
from ..planning import bind_call
from ..text import lay_out
from .bundle import Found, manifest_digest, rendered
from .reading import Opened, read_bundle
from .records import CaseReport, Comparison, Evidence
from .report import Report
from .running import compare_one, conditions_of
from .text import number

if TYPE_CHECKING:
    from ..dispatch import Registry

HEADER = ("backend", "variant", "output", "verdict", "share", "max ULP", "there", "bits")

DIFFERENCES = ("differs", "there", "here")

Difference = tuple[str, str, str]
"""What differs between there and here, and both."""


@dataclass(frozen=True)
class Replayed:
    """One output, computed here: how it is judged, and what it was where the bundle was made.

    Attributes:
        comparison: against the bundle's expected values.
        there: ``ok``, ``FAILS`` or ``failed``; empty where this backend and variant did not run there.
        same: whether it has the bits that were found there; None where that cannot be said.
        different: how many of its elements have other bits; None where there is nothing to count.
    """

    comparison: Comparison
    there: str
    same: bool | None
    different: int | None

    @property
    def bits(self) -> str:
        """The same in words."""
        if self.same is None:
            return "not run there" if not self.there else "nothing to hold them against"
        if self.same:
            return "the same"
        return "other" if self.different is None else f"other in {self.different}"

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        names = ("there", "same", "different")
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
            "missing": [
                dict(zip(("backend", "variant", "reason"), each, strict=True)) for each in self.missing
            ],
            "differences": [dict(zip(("what", "there", "here"), d, strict=True)) for d in self.differences],
            "conditions": dict(self.report.conditions),
        }

    def table(self) -> list[tuple[str, ...]]:
        """The rows for printing."""
        return [_cells(row) for row in self.rows]

    def lines(self) -> list[str]:
        """What stands below the table."""
        from .text import failure_lines, verdict_lines

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


def replay(
    registry: Registry,
    path: Path,
    backend: str | Sequence[str] | None = None,
    variant: str | None = None,
    device: str | None = None,
    op: str | Op | None = None,
) -> Replay:
    """See ``Registry.replay``."""
    opened = read_bundle(path)
    index = opened.index
    target = _op(registry, opened, op)
    if unknown := [name for name in index.args if name not in target.scalars]:
        raise PackageError(f"{path}: {target.id} has no scalar argument {shorten(unknown[0], 40)!r}")
    named = {
        **index.args,
        "inputs": {role: opened.array(stored) for role, stored in index.inputs.items()},
        "attrs": index.attrs,
        "tunables": index.tunables,
        "outputs": index.outputs,
        **({"backend": backend} if backend is not None else {}),
        "variant": variant,
        "device": device,
    }
    judge, first = _judge(registry, target, opened)
    _check_outputs(registry, target, opened, named, judge, first)
    case = compare_one(registry, target, (), named, 0, None, judge, first)
    report = Report(target.id, (case,), conditions_of(registry, device))
    ran = {row.candidate for row in case.rows}
    reasons = {skip[:2]: skip[2] for skip in case.skipped}
    gone = {(each.backend, each.variant) for each in index.found} - ran
    if any(each is not None for each in (backend, variant, device)):
        gone = {place for place in gone if place in reasons}
    available = {status.name for status in registry.backends() if status.available}
    missing = tuple(
        (
            *place,
            reasons.get(place, "not offered" if place[0] in available else "the backend is not available"),
        )
        for place in sorted(gone)
    )
    differences = (*_differences(index.conditions, report.conditions), *_sources(opened, target, case))
    found = {(each.backend, each.variant, each.output): each for each in index.found}
    rows = tuple(_beside(opened, case, row, found.get((*row.candidate, row.output))) for row in case.rows)
    return Replay(path, str(index.conditions.get("date", "")), report, rows, missing, differences)


def _op(registry: Registry, opened: Opened, op: str | Op | None) -> Op:
    index = opened.index
    if op is not None:
        target = registry.op(op)
        if target.id != index.op:
            raise ContractError(f"{opened.path} is of {index.op}; op= is {target.id}")
        return target
    if not index.package:
        return registry.op(index.op)
    for handle in registry.packages():
        if handle.id == index.op and manifest_digest(handle.op) == index.manifest:
            return handle.op
    where = shorten(index.package, 200)
    raise ContractError(f"{opened.path} is of a package, {where}; load it first and pass it as op=")


def _judge(registry: Registry, op: Op, opened: Opened) -> tuple[Judge, Mapping[str, NumpyArray]]:
    """Who judges: the bundle's expected values, or without them the first result that it has."""
    index = opened.index
    allowed = tolerances(registry.catalog, op)
    expected = opened.expected()
    first: dict[str, NumpyArray] = {}
    for each in index.found:
        if each.array is not None and each.output not in first:
            first[each.output] = opened.array(each.array)
    if expected is not None:
        touched = {role: opened.array(mask) for role, mask in index.touched.items()}
        if any(mask.dtype != np.bool_ for mask in touched.values()):
            raise PackageError(f"{opened.path}: a mask that is no bool")
        against = f"the bundle's expected values ({shorten(index.against, 100)})"
        return Judge(expected, against, allowed, touched, index.fair), first
    return Judge(None, "the bundle's first result", allowed), first


def _check_outputs(
    registry: Registry,
    op: Op,
    opened: Opened,
    named: Mapping[str, Any],
    judge: Judge,
    first: Mapping[str, NumpyArray],
) -> None:
    """A bundle must not make us compute what is larger than itself."""
    request = bind_call(registry.catalog, parse_call(op, (), named))
    for role in request.asked:
        tensor = request.outputs[role]
        answer = (judge.expected or {}).get(role)
        known = first.get(role) if answer is None else answer.value
        mask = judge.touched.get(role, known)
        if known is None or mask is None or known.shape != tensor.shape or mask.shape != tensor.shape:
            found = "none" if known is None else str(list(known.shape))
            raise PackageError(
                f"{opened.path}: an expected value of shape {found} for {role}; "
                f"needed: {list(tensor.shape)}, as {op.id} infers it"
            )


def _beside(opened: Opened, case: CaseReport, row: Comparison, found: Found | None) -> Replayed:
    if found is None:
        return Replayed(row, "", None, None)
    there = "failed" if found.error else "ok" if found.ok else "FAILS"
    if not found.digest or not row.digest:
        return Replayed(row, there, None, None)
    return Replayed(row, there, found.digest == row.digest, _different(opened, case, row, found))


def _different(opened: Opened, case: CaseReport, row: Comparison, found: Found) -> int | None:
    here = case.evidence.found.get(row.digest) if case.evidence else None
    if here is None or found.array is None:
        return None
    before = opened.array(found.array)
    if (before.shape, before.dtype) != (here.shape, here.dtype):
        return None
    bits = f"u{here.dtype.itemsize}"
    pair = (np.ascontiguousarray(array).reshape(-1).view(bits) for array in (before, here))
    return int(np.count_nonzero(np.not_equal(*pair)))


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[Difference]:
    before, now = dict(_flat(there)), dict(_flat(here))
    for name in (*before, *(name for name in now if name not in before)):
        if name != "date" and before.get(name) != now.get(name):
            yield name, before.get(name, "none"), now.get(name, "none")


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{name} {key}".strip())
    else:
        text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        yield name, shorten(text, 200)


def _sources(opened: Opened, op: Op, case: CaseReport) -> Iterator[Difference]:
    index = opened.index
    if manifest_digest(op) != index.manifest:
        yield "manifest", index.manifest[:12], manifest_digest(op)[:12]
    kept = {(each.backend, each.variant): each for each in index.candidates}
    for place in dict.fromkeys(row.candidate for row in case.rows):
        if place not in kept or case.evidence is None or kept[place].error:
            continue
        before = [opened.members.get(item.file) for item in kept[place].passes]
        now = _rendered(case.evidence, *place)
        if before != now:
            yield f"source of {' '.join(place)}", _size(before), _size(now)


def _rendered(evidence: Evidence, backend: str, variant: str) -> list[bytes | None]:
    try:
        return [item.source.encode() for item in rendered(evidence, backend, variant)]
    except Exception:  # a stranger's render
        return []


def _size(sources: Sequence[bytes | None]) -> str:
    return f"{len(sources)} passes, {sum(len(text or b'') for text in sources)} bytes"


def _cells(row: Replayed) -> tuple[str, ...]:
    one = row.comparison
    names = (one.backend, one.variant, one.output)
    if one.verdict is None:
        return (*names, "failed", "", "", row.there, row.bits)
    verdict = "ok" if one.ok else "FAILS"
    return (*names, verdict, number(one.verdict.share), number(one.verdict.max_ulp), row.there, row.bits)
