"""Runs the comparison of a bundle on this machine: is it right here, and are the bits the same?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..calling.arrays import NumpyArray
from ..calling.call import parse_call
from ..errors import ContractError, PackageError
from ..judging.judge import Judge, Skip, available, other_bits, tolerances
from ..opinfo import Op
from ..planning.making import bind_call
from ..text import leaves
from .bundle import Found, manifest_digest, rendered
from .reading import Opened, read_bundle, told
from .records import CaseReport, Comparison, Evidence
from .replayed import Difference, Replay, Replayed
from .report import Report
from .running import compare_one, digest_of, system_of

if TYPE_CHECKING:
    from ..api import Registry


MAX_FACTS = 500
"""So many facts of a bundle's environment, and candidates of it, are held against those here."""


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
        raise PackageError(f"{path}: {target.id} has no scalar argument {told(unknown[0], 40)!r}")
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
    report = Report(target.id, (case,), system_of(registry, device))
    ran = {row.candidate for row in case.rows}
    reasons = {skip.candidate: skip.because for skip in case.skipped}
    gone = {(each.backend, each.variant) for each in index.found} - ran
    if any(each is not None for each in (backend, variant, device)):
        gone = {place for place in gone if place in reasons}
    if not ran:
        gone |= reasons.keys()
    here = available(registry)
    why = {False: "the backend is not available", True: "not offered"}
    missing = tuple(
        Skip(told(place[0], 40), told(place[1], 80), reasons.get(place, why[place[0] in here]))
        for place in sorted(gone)[:MAX_FACTS]
    )
    differences = (*_differences(index.system, report.system), *_sources(opened, target, case))
    found = {(each.backend, each.variant, each.output): each for each in index.found}
    rows = tuple(_beside(opened, case, row, found.get((*row.candidate, row.output))) for row in case.rows)
    return Replay(path, told(str(index.system.get("date", "")), 40), report, rows, missing, differences)


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
    where = told(index.package, 200)
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
        against = f"the bundle's expected values ({told(index.against, 100)})"
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
    here = case.evidence.found.get(row.digest) if case.evidence else None
    size = 0 if here is None else here.size
    there = "" if found is None else "failed" if found.error else "ok" if found.ok else "FAILS"
    if found is None or not found.digest or not row.digest:
        return Replayed(row, there, None, None, size)
    before = None if found.array is None else opened.array(found.array)
    if before is not None and digest_of(before) != found.digest:
        place = told(f"{found.backend} {found.variant} {found.output}", 120)
        raise PackageError(f"{opened.path}: the output of {place} is not that of its digest")
    return Replayed(row, there, found.digest == row.digest, _different(before, here), size)


def _different(before: NumpyArray | None, here: NumpyArray | None) -> int | None:
    if before is None or here is None or (before.shape, before.dtype) != (here.shape, here.dtype):
        return None
    return int(np.count_nonzero(other_bits(before, here)))


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[Difference]:
    before, now = dict(islice(_flat(there), MAX_FACTS)), dict(_flat(here))
    for name in (*before, *(name for name in now if name not in before)):
        if name != "date" and before.get(name) != now.get(name):
            yield Difference(name, before.get(name, "none"), now.get(name, "none"))


def _flat(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for path, leaf in leaves(value):
        text = ", ".join(map(str, leaf)) if isinstance(leaf, list | tuple) else str(leaf)
        yield told(" ".join(path), 80), told(text, 200)


def _sources(opened: Opened, op: Op, case: CaseReport) -> Iterator[Difference]:
    index = opened.index
    if manifest_digest(op) != index.manifest:
        yield Difference("manifest", told(index.manifest[:12], 12), manifest_digest(op)[:12])
    kept = {(each.backend, each.variant): each for each in index.candidates}
    for place in dict.fromkeys(row.candidate for row in case.rows):
        if place not in kept or case.evidence is None or kept[place].error:
            continue
        before = [opened.members.get(item.file) for item in kept[place].passes]
        now = _rendered(case.evidence, *place)
        if before != now:
            yield Difference(f"source of {' '.join(place)}", _size(before), _size(now))


def _rendered(evidence: Evidence, backend: str, variant: str) -> list[bytes | None]:
    try:
        return [item.source.encode() for item in rendered(evidence, backend, variant)]
    except Exception:  # a stranger's render
        return []


def _size(sources: Sequence[bytes | None]) -> str:
    return f"{len(sources)} passes, {sum(len(text or b'') for text in sources)} bytes"
