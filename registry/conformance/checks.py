"""Runs a legal case on every backend and variant that accepts it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from ..calling.arrays import NumpyArray, overlaps
from ..calling.call import parse_call
from ..calling.parts import samples
from ..calling.request import Request
from ..dtypes import FLOATS
from ..errors import ContractError, typed_line
from ..judging.accuracy import Expected
from ..judging.judge import (
    NOT_JUDGED,
    NOT_PROMISED,
    Judge,
    available,
    decide_each,
    make_judge,
    other_bits,
    run_poisoned,
)
from ..judging.rounding import units
from ..opinfo import Op
from .cases import Case

if TYPE_CHECKING:
    from ..api import Registry

Place = tuple[str, str]
"""A backend and a variant."""

Check = Literal["contract", "accuracy", "determinism", "batch-invariance", "refusal"]
"""What is checked: that a run keeps to the request and leaves its inputs alone; that results are right; that
a second run gives the same bits; that fewer rows give the same bits; that illegal requests are refused."""
CHECKS: tuple[Check, ...] = get_args(Check)

ALONE = "no reference and no second result: held against itself"


@dataclass(frozen=True)
class Fault:
    """What is wrong with one output; ``output`` is empty when the whole call is meant.

    ``check`` says what was checked; None when it did not come to that, for the call failed.
    """

    output: str
    reason: str
    check: Check | None


@dataclass(frozen=True)
class CaseOutcome:
    """How one backend and variant did on a case.

    ``worst`` is the largest error by dtype, in units in the last place of a number as large as the terms
    that the answer is made of. ``notes`` are deviations that nothing promises against.
    """

    backend: str
    variant: str
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    worst: Mapping[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


@dataclass(frozen=True)
class ReadyCase:
    """A case made ready: its request, who takes it and who does not (backend, variant), and its judge.

    ``invariant`` are the candidates whose bits are promised not to depend on the number of rows.
    """

    registry: Registry
    op: Op
    case: Case
    request: Request
    candidates: tuple[Place, ...]
    rejected: tuple[Place, ...]
    judge: Judge
    invariant: frozenset[Place]


def check(
    registry: Registry, op: str | Op, case: Case, backend: str | None = None, variant: str | None = None
) -> tuple[CaseOutcome, ...]:
    """Runs a legal case on every available backend and variant that accepts it, or on those that are named.

    Each runs twice: once as the case says, layouts and ``out`` included, and once on plain copies into
    poisoned outputs. The second result is judged against the float64 reference, or where there is none,
    against the first backend's; the first result has the same bits, the inferred shapes and dtypes, and no
    memory of the inputs, which are as before. Where rows do not depend on each other, the last one by itself
    and the first half of them have the bits that they have among all.

    Raises:
        ContractError: the case breaks the contract; no such op, backend or variant.
    """
    ready = make_ready(registry, registry.op(op), case, backend, variant)
    outcomes = []
    first: dict[str, NumpyArray] = {}
    for candidate in ready.candidates:
        outcome, values = try_candidate(ready, *candidate, first)
        first = first or values
        outcomes.append(outcome)
    return tuple(outcomes)


def make_ready(registry: Registry, op: Op, case: Case, backend: str | None, variant: str | None) -> ReadyCase:
    """See `ReadyCase`. Raises as `check`."""
    call = case.call()
    names = (backend,) if backend else available(registry)
    decisions = decide_each(registry, op, (), {**call, "variant": variant}, names)
    if not decisions:
        raise ContractError("no backend is available; `registry backends` says why")
    request = decisions[0].request
    arrays = {role: registry.host(value) for role, value in parse_call(op, (), call).tensors.items()}
    return ReadyCase(
        registry,
        op,
        case,
        request,
        tuple((row.backend, row.variant) for d in decisions for row in d.eligible),
        tuple((row.backend, row.variant) for d in decisions for row in d.rejected if row.claim),
        make_judge(registry, op, arrays, request.attrs, extremes(op, case, arrays)),
        frozenset(
            (row.backend, row.variant)
            for d in decisions
            for row in d.eligible
            if row.claim and row.claim.batch_invariant
        ),
    )


def try_candidate(
    ready: ReadyCase,
    backend: str,
    variant: str,
    first: Mapping[str, NumpyArray],
    checks: Collection[Check] = CHECKS,
) -> tuple[CaseOutcome, dict[str, NumpyArray]]:
    """How one backend and variant does, and its outputs. ``first`` judges where there is no reference.

    Findings are those of ``checks`` alone, and that a call failed.
    """
    pinned = {"backend": backend, "variant": variant}
    try:
        values, faults = _run_as_asked(ready, pinned)
        plain = _plain_call(ready)
        again = run_poisoned(ready.registry, ready.op, (), {**plain, **pinned}, ready.request)
        if "batch-invariance" in checks and (backend, variant) in ready.invariant:
            faults += _fewer_rows(ready, pinned, plain, again)
    except Exception as error:  # whatever a backend raises is its result here
        return CaseOutcome(backend, variant, (Fault("", typed_line(error), None),)), {}
    notes: list[str] = []
    worst: dict[str, float] = {}
    for role, value in again.items():
        dtype = ready.request.outputs[role].dtype
        target = ready.registry.catalog.backend(backend)
        verdict = ready.judge.fair_verdict(target, role, value, dtype, first.get(role, value))
        notes += [verdict.note] if verdict.note in (NOT_JUDGED, NOT_PROMISED) else []
        if ready.judge.expected is None:
            notes += [] if first else [ALONE]
        else:
            ulp = _worst_ulp(value, ready.judge.expected[role], dtype)
            worst[dtype] = max(ulp, worst.get(dtype, 0.0))
        if not verdict.ok:
            faults.append(Fault(role, str(verdict.reason), "accuracy"))
        different = _different(values[role], value)
        if different:
            reason = f"a second run gives other bits in {different} of {value.size} elements"
            faults.append(Fault(role, reason, "determinism"))
    wanted = tuple(fault for fault in faults if fault.check in (None, *checks))
    return CaseOutcome(backend, variant, wanted, tuple(dict.fromkeys(notes)), worst), again


def _fewer_rows(
    ready: ReadyCase, pinned: Mapping[str, Any], plain: Mapping[str, Any], whole: Mapping[str, NumpyArray]
) -> Iterator[Fault]:
    """Where rows have other bits among fewer; nothing where the candidate does not take so few."""
    for part in samples(ready.request):
        inputs = {name: part.of(array) for name, array in plain["inputs"].items()}
        call = {**plain, "inputs": inputs, **pinned}
        if ready.registry.explain(ready.op, **call).chosen is None:
            continue
        some = run_poisoned(ready.registry, ready.op, (), call, part.request)
        for role, value in some.items():
            among = part.of(whole[role])
            if different := _different(value, among):
                rows = " x ".join(f"{len(range(*each.indices(each.stop)))}" for each in part.index)
                reason = f"{rows} of the rows give other bits in {different} of {value.size} elements"
                yield Fault(role, reason, "batch-invariance")


def _run_as_asked(ready: ReadyCase, pinned: Mapping[str, Any]) -> tuple[dict[str, NumpyArray], list[Fault]]:
    call = ready.case.call()
    before = {name: _memory(array) for name, array in call["inputs"].items()}
    result = ready.registry.run(ready.op, **call, **pinned)
    placed = {ready.op.output_names[name]: array for name, array in call.get("out", {}).items()}
    values = dict(zip(ready.request.asked, result, strict=True))
    faults = [
        Fault("", f"the input {name} was modified", "contract")
        for name, array in call["inputs"].items()
        if _memory(array) != before[name]
    ]
    for role, value in values.items():
        tensor = ready.request.outputs[role]
        found = (value.shape, value.dtype.name)
        if found != (tensor.shape, tensor.dtype):
            inferred = f"{tensor.dtype} {list(tensor.shape)}"
            faults.append(Fault(role, f"is {found[1]} {list(found[0])}; inferred: {inferred}", "contract"))
        if value is not placed.get(role, value):
            faults.append(Fault(role, "is not the array that was given to write", "contract"))
        shared = [name for name, array in call["inputs"].items() if overlaps(value, array)]
        faults += [Fault(role, f"shares memory with the input {name}", "contract") for name in shared]
    return values, faults


def _plain_call(ready: ReadyCase) -> dict[str, Any]:
    call = ready.case.call()
    call.pop("out", None)
    call["inputs"] = {
        name: np.array(array, array.dtype.newbyteorder("=") if array.dtype.kind != "V" else None, order="C")
        for name, array in call["inputs"].items()
    }
    return {**call, "outputs": ready.request.asked}


def _memory(array: NumpyArray) -> bytes:
    """What lies in an array's memory, its gaps included."""
    whole = array if array.base is None else array.base
    return whole.tobytes() if isinstance(whole, np.ndarray) else array.tobytes()


def _different(left: NumpyArray, right: NumpyArray) -> int:
    """Elements that differ in their bits; NaN has many, all the same here."""
    if (left.shape, left.dtype) != (right.shape, right.dtype):
        return max(left.size, right.size, 1)
    differ = other_bits(left, right)
    if left.dtype.name in FLOATS:
        differ &= ~(np.isnan(left) & np.isnan(right))
    return int(np.count_nonzero(differ))


def _worst_ulp(value: NumpyArray, expected: Expected, dtype: str) -> float:
    if dtype not in FLOATS or value.shape != expected.value.shape:
        return 0.0
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(expected.value), expected.magnitude + expected.floor)
        found = np.abs(value.astype(np.float64) - expected.value) / units(size, dtype)
    return float(found.max(initial=0.0, where=np.isfinite(found)))


def extremes(op: Op, case: Case, arrays: Mapping[str, NumpyArray]) -> dict[str, NumpyArray]:
    """By input, which elements of a case are NaN, infinite or meant to be subnormal."""
    made = {op.input_names[name]: tensor for name, tensor in case.inputs.items()}
    return {
        role: ~np.isfinite(array) | (made[role].special == "subnormal")
        if array.dtype.name in FLOATS
        else np.zeros(array.shape, bool)
        for role, array in arrays.items()
    }
