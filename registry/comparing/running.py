"""Runs every eligible backend and variant on the same inputs and judges each against the reference."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..calling.arrays import NumpyArray, is_pair
from ..calling.call import parse_call, wrong
from ..calling.parts import of_row, row_at
from ..calling.request import Request
from ..conformance import Case, draw
from ..conformance.checks import extremes
from ..conformance.report import command_name
from ..dtypes import DTYPES
from ..errors import ContractError, first_line, shorten
from ..judging.accuracy import Verdict
from ..judging.judge import Judge, backends_of, decide_each, make_judge, run_poisoned, skipped
from ..opinfo import Op
from ..system import system
from .records import CaseReport, Comparison, Evidence, Excerpt
from .report import Report

if TYPE_CHECKING:
    from ..api import Registry

MAX_KEPT_BYTES = 128 * 1024 * 1024
"""So many bytes of right outputs are kept of a case, and as many more of wrong ones; the rest by digest."""

MAX_KEPT_CASES = 5
"""Among several cases the data of so many that fail is kept, and of the first."""

SHOWN = 16
"""So many elements of an input are shown around the place of a wrong one."""

WITH_DRAWN = ("backend", "variant", "device", "tunables")
"""What a call may say beside cases that are drawn."""


def compare(
    registry: Registry,
    op: Op,
    tensors: Sequence[Any],
    named: Mapping[str, Any],
    cases: int | Sequence[Mapping[str, Any] | Case] | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """See ``Registry.compare``; ``progress`` gets the number of cases done, and of all."""
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise wrong(op, f"seed={seed!r}; needed: an integer of at least 0")
    seed, cases = int(seed), int(cases) if isinstance(cases, np.integer) else cases
    found: list[CaseReport] = []
    kept = 0
    total, calls = _calls(registry, op, tensors, named, cases, seed)
    for number, (arguments, case) in enumerate(calls):
        try:
            one = compare_one(registry, op, *arguments, number, case)
        except ContractError as error:
            if cases is None:
                raise
            raise ContractError(f"case {number}: {error}", op=error.op, argument=error.argument) from error
        keep = number == 0 or bool(one.failures and kept < MAX_KEPT_CASES)
        kept += bool(one.failures)
        found.append(one if keep else replace(one, decisions=(), evidence=None))
        if progress is not None:
            progress(number + 1, total)
    facts = system_of(registry, named.get("device"))
    return Report(op.id, tuple(found), facts, seed if isinstance(cases, int) else None)


def system_of(registry: Registry, device: str | None) -> dict[str, Any]:
    """What a comparison holds for; of a backend whose device is named, that device."""
    facts = system(registry)
    if device is not None:
        backend = registry.catalog.split_device(device)[0]
        here = registry.catalog.availability(backend, device)
        facts["devices"][backend] = {"name": here.name, **here.details}
    return facts


Arguments = tuple[Sequence[Any], Mapping[str, Any]]


def _calls(
    registry: Registry,
    op: Op,
    tensors: Sequence[Any],
    named: Mapping[str, Any],
    cases: int | Sequence[Mapping[str, Any] | Case] | None,
    seed: int,
) -> tuple[int, Iterator[tuple[Arguments, Case | None]]]:
    """How many calls there are, and each with the case that it is made of, if any."""
    if cases is None:
        return 1, iter([((tensors, named), None)])
    if isinstance(cases, int) and not isinstance(cases, bool):
        if cases < 1:
            raise wrong(op, f"cases={cases}; needed: an integer of at least 1")
        parse_call(op, (), {name: named.get(name) for name in WITH_DRAWN})  # says what is wrong of these
        others = [name for name, value in named.items() if name not in WITH_DRAWN and not _absent(value)]
        if "inputs" in others:
            others = [*(name for name in others if name != "inputs"), *map(str, named["inputs"])]
        if tensors or others:
            what = ", ".join(others) or "tensors"
            raise wrong(op, f"cases={cases} draws the arguments itself; remove {what}")
        backend, variant = named.get("backend"), named.get("variant")
        drawn = draw(registry, op, cases=cases, seed=seed, backend=backend, variant=variant)
        return cases, ((((), {**named, **_arguments(case)}), case) for case in drawn)
    if not isinstance(cases, Sequence) or isinstance(cases, str) or not cases:
        found = f"a {type(cases).__name__}" if isinstance(cases, Mapping) else shorten(repr(cases), 80)
        raise wrong(op, f"cases= is {found}; needed: a number, or a sequence of mappings of arguments")
    return len(cases), (_given(op, tensors, named, case) for case in cases)


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping) and not value)


def _given(op: Op, tensors: Sequence[Any], named: Mapping[str, Any], case: Any) -> tuple[Arguments, Any]:
    if isinstance(case, Case):
        return ((), {**named, **_arguments(case)}), case
    if not isinstance(case, Mapping):
        raise wrong(op, f"cases= holds {shorten(repr(case), 80)}; needed: a mapping of arguments")
    return (tensors, {**named, **case}), None


def _arguments(case: Case) -> dict[str, Any]:
    call = case.call()
    call.pop("out", None)
    return call


def compare_one(
    registry: Registry,
    op: Op,
    tensors: Sequence[Any],
    named: Mapping[str, Any],
    number: int,
    case: Case | None,
    judge: Judge | None = None,
    first: Mapping[str, NumpyArray] | None = None,
) -> CaseReport:
    """One call on every candidate that accepts it.

    Args:
        case: what the call was made of, if it was drawn; then it is judged as fairly as `registry test` does.
        judge: of its results (default: the op's own).
        first: what judges without a reference (default: the first result).
    """
    call = parse_call(op, tensors, named)
    for name in ("out", "profile"):
        if named.get(name) is not None:
            allocates = "compare allocates its own outputs, on this machine"
            raise wrong(op, f"{allocates}; remove {name}=", name)
    for role, value in call.tensors.items():
        if is_pair(value):
            raise wrong(op, f"{role} is a (shape, dtype) pair; a comparison needs an array", role)
    options = {name: value for name, value in named.items() if name != "backend"}
    decisions = decide_each(registry, op, tensors, options, backends_of(registry, call))
    if not decisions:
        return CaseReport(number, op.id, "nothing: no backend is available", ())
    request = decisions[0].request
    hosts = {role: registry.host(value) for role, value in call.tensors.items()}
    if judge is None:
        marked = None if case is None else extremes(op, case, hosts)
        judge = make_judge(registry, op, hosts, request.attrs, marked)
    alone = judge.expected is None and not first
    rows: list[Comparison] = []
    keeper = Keeper()
    for candidate in (each for decision in decisions for each in decision.eligible):
        pinned = {**options, "backend": candidate.backend, "variant": candidate.variant}
        place = (candidate.backend, candidate.variant)
        try:
            actual = run_poisoned(registry, op, tensors, {**pinned, "outputs": request.asked}, request)
        except Exception as error:  # whatever a backend raises is its result here
            text = first_line(error)
            rows += [Comparison(*place, role, None, text, number) for role in request.asked]
            continue
        first = first or actual
        for role, value in actual.items():
            dtype = request.outputs[role].dtype
            if judge.fair:
                backend = registry.catalog.backend(candidate.backend)
                verdict = judge.fair_verdict(backend, role, value, dtype, first.get(role, value))
            else:
                verdict = judge.verdict(role, value, dtype, first.get(role, value))
            inputs = excerpts(request, hosts, verdict)
            digest = keeper.keep(value, verdict.ok)
            rows.append(Comparison(*place, role, verdict, "", number, dtype, inputs, digest))
    against = judge.against
    if alone and len(rows) == len(request.asked):
        against += ", held against itself"
    missed = tuple(skip for decision in decisions for skip in skipped(decision))
    evidence = Evidence(registry, op, request, hosts, judge, keeper.found, call.device)
    drawn = str(case) if case is not None else ""
    again = shlex.join(["registry", "compare", command_name(op), "--case", drawn]) if drawn else ""
    return CaseReport(
        number, str(request), against, tuple(rows), missed, tuple(decisions), drawn, again, evidence
    )


class Keeper:
    """Keeps outputs by the digests of their bits, one of each, as long as there is room."""

    def __init__(self) -> None:
        self.found: dict[str, NumpyArray] = {}
        self._bytes = 0

    def keep(self, value: NumpyArray, ok: bool) -> str:
        """The digest of an output, which is kept if there is room; empty for a dtype that no tensor has."""
        if value.dtype.name not in DTYPES:
            return ""
        digest = digest_of(value)
        limit = MAX_KEPT_BYTES if ok else 2 * MAX_KEPT_BYTES
        if digest not in self.found and self._bytes + value.nbytes <= limit:
            self.found[digest] = value
            self._bytes += value.nbytes
        return digest


def digest_of(value: NumpyArray) -> str:
    """The SHA-256 of an array's dtype, shape and bits, in hexadecimal."""
    made = hashlib.sha256(f"{value.dtype.name}{list(value.shape)}".encode())
    made.update(np.ascontiguousarray(value).view(np.uint8).data if value.size else b"")
    return made.hexdigest()


def excerpts(request: Request, tensors: Mapping[str, NumpyArray], verdict: Verdict) -> tuple[Excerpt, ...]:
    """The inputs around the worst element of a verdict; none where nothing deviates."""
    if verdict.worst is None or not tensors:
        return ()
    row = row_at(request, verdict.worst)
    return tuple(
        _excerpt(role, tensor, of_row(tensor, row, request), verdict.worst)
        for role, tensor in tensors.items()
        if tensor.size
    )


def _excerpt(role: str, tensor: NumpyArray, seen: NumpyArray, worst: tuple[int, ...]) -> Excerpt:
    """Along the last axis, around the element at the output's index; axes are aligned from the last."""
    aligned = (0,) * tensor.ndim + worst
    index = [
        min(at, size - 1)
        for at, size in zip(aligned[len(aligned) - tensor.ndim :], tensor.shape, strict=True)
    ]
    place = ""
    values = tensor
    if tensor.ndim:
        start = max(0, min(index[-1] - SHOWN // 2, tensor.shape[-1] - SHOWN))
        stop = min(start + SHOWN, tensor.shape[-1])
        values = tensor[(*index[:-1], slice(start, stop))]
        place = f"[{', '.join([*map(str, index[:-1]), f'{start}:{stop}'])}]"
    with np.errstate(all="ignore"):
        wide = seen.astype(np.float64)
        low, high, mean = (float(f(wide)) for f in (np.min, np.max, np.mean))
    shown = tuple(float(value) for value in np.atleast_1d(values))
    return Excerpt(role, place, shown, seen.size, low, high, mean)
