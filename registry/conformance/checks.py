"""Runs a legal case on every backend and variant that accepts it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from ..accuracy import RELATIVE, Expected, Verdict, judge, judge_pair, round_to
from ..arrays import NumpyArray, overlaps
from ..call import parse_call
from ..comparison import decide_each, expected_outputs, run_poisoned
from ..dispatch import Registry
from ..dtypes import finfo, numpy_dtype
from ..errors import ContractError
from ..opinfo import Op
from ..parts import samples
from ..request import Request
from .cases import Case, Tensor

Place = tuple[str, str]
"""A backend and a variant."""

Check = Literal["contract", "accuracy", "determinism", "batch-invariance", "refusal"]
"""What is checked: that a run keeps to the request and leaves its inputs alone; that results are right; that
a second run gives the same bits; that fewer rows give the same bits; that illegal requests are refused."""
CHECKS: tuple[Check, ...] = get_args(Check)

NOT_JUDGED = "elements without a finite right answer were not judged"
NOT_PROMISED = "elements that NaN, infinity or subnormal numbers reach came out wrong, which nobody promised"
ALONE = "no reference and no second result: held against itself"


@dataclass(frozen=True)
class Finding:
    """What is wrong with one output; ``output`` is empty when the whole call is meant.

    ``check`` says what was checked; None when it did not come to that, for the call failed.
    """

    output: str
    reason: str
    check: Check | None


@dataclass(frozen=True)
class Outcome:
    """How one backend and variant did on a case.

    ``worst`` is the largest error by dtype, in units in the last place of a number as large as the terms
    that the answer is made of. ``notes`` are deviations that nothing promises against.
    """

    backend: str
    variant: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    worst: Mapping[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


@dataclass(frozen=True)
class Trial:
    """A case made ready: its request, who takes it and who does not (backend, variant), the right answer.

    ``touched`` marks the elements that NaN, infinity or a tensor of subnormal numbers reaches; ``invariant``
    are the candidates whose bits are promised not to depend on the number of rows.
    """

    registry: Registry
    op: Op
    case: Case
    request: Request
    candidates: tuple[Place, ...]
    rejected: tuple[Place, ...]
    expected: Mapping[str, Expected] | None
    touched: Mapping[str, NumpyArray]
    invariant: frozenset[Place]


def check(
    registry: Registry, op: str | Op, case: Case, backend: str | None = None, variant: str | None = None
) -> tuple[Outcome, ...]:
    """Runs a legal case on every available backend and variant that accepts it, or on those that are named.

    Each runs twice: once as the case says, layouts and ``out`` included, and once on plain copies into
    poisoned outputs. The second result is judged against the float64 reference, or where there is none,
    against the first backend's; the first result has the same bits, the inferred shapes and dtypes, and no
    memory of the inputs, which are as before. Where rows do not depend on each other, the last one by itself
    and the first half of them have the bits that they have among all.

    Raises:
        ContractError: the case breaks the contract; no such op, backend or variant.
    """
    trial = make_trial(registry, registry.op(op), case, backend, variant)
    outcomes = []
    first: dict[str, NumpyArray] = {}
    for candidate in trial.candidates:
        outcome, values = try_candidate(trial, *candidate, first)
        first = first or values
        outcomes.append(outcome)
    return tuple(outcomes)


def make_trial(registry: Registry, op: Op, case: Case, backend: str | None, variant: str | None) -> Trial:
    """See `Trial`. Raises as `check`."""
    call = case.call()
    names = [status.name for status in registry.backends() if status.available]
    decisions = decide_each(registry, op, (), {**call, "variant": variant}, [backend] if backend else names)
    if not decisions:
        raise ContractError("no backend is available; `registry backends` says why")
    request = decisions[0].request
    arrays = {role: registry.host(value) for role, value in parse_call(op, (), call).tensors.items()}
    expected = expected_outputs(registry, op, arrays, request.attrs)[0]
    touched = {}
    made = {op.input_names[name]: tensor for name, tensor in case.inputs.items()}
    extremes = {role: _extremes(made[role], array) for role, array in arrays.items()}
    if expected and any(mask.any() for mask in extremes.values()):
        unknown = {
            role: np.where(extremes[role], array.dtype.type(np.nan), array) for role, array in arrays.items()
        }
        spread = expected_outputs(registry, op, unknown, request.attrs)[0] or {}
        touched = {role: np.isnan(value.value) for role, value in spread.items()}
    return Trial(
        registry,
        op,
        case,
        request,
        tuple((row.backend, row.variant) for d in decisions for row in d.eligible),
        tuple((row.backend, row.variant) for d in decisions for row in d.rejected if row.claim),
        expected,
        touched,
        frozenset(
            (row.backend, row.variant)
            for d in decisions
            for row in d.eligible
            if row.claim and row.claim.batch_invariant
        ),
    )


def try_candidate(
    trial: Trial,
    backend: str,
    variant: str,
    first: Mapping[str, NumpyArray],
    checks: Collection[Check] = CHECKS,
) -> tuple[Outcome, dict[str, NumpyArray]]:
    """How one backend and variant does, and its outputs. ``first`` judges where there is no reference.

    Findings are those of ``checks`` alone, and that a call failed.
    """
    pinned = {"backend": backend, "variant": variant}
    try:
        values, findings = _run_as_asked(trial, pinned)
        plain = _plain_call(trial)
        again = run_poisoned(trial.registry, trial.op, (), {**plain, **pinned}, trial.request)
        if "batch-invariance" in checks and (backend, variant) in trial.invariant:
            findings += _fewer_rows(trial, pinned, plain, again)
    except Exception as error:  # whatever a backend raises is its result here
        text = str(error).splitlines()[0] if str(error) else ""
        return Outcome(backend, variant, (Finding("", f"{type(error).__name__}: {text}", None),)), {}
    notes: list[str] = []
    worst: dict[str, float] = {}
    for role, value in again.items():
        dtype = trial.request.outputs[role].dtype
        if trial.expected is None:
            verdict = judge_pair(value, first.get(role, value))
            notes += [] if first else [ALONE]
        else:
            verdict, note = _judge(trial, backend, role, value, dtype)
            notes += [note] if note else []
            ulp = _worst_ulp(value, trial.expected[role], dtype)
            worst[dtype] = max(ulp, worst.get(dtype, 0.0))
        if not verdict.ok:
            findings.append(Finding(role, str(verdict.reason), "accuracy"))
        different = _different(values[role], value)
        if different:
            reason = f"a second run gives other bits in {different} of {value.size} elements"
            findings.append(Finding(role, reason, "determinism"))
    wanted = tuple(finding for finding in findings if finding.check in (None, *checks))
    return Outcome(backend, variant, wanted, tuple(dict.fromkeys(notes)), worst), again


def _fewer_rows(
    trial: Trial, pinned: Mapping[str, Any], plain: Mapping[str, Any], whole: Mapping[str, NumpyArray]
) -> Iterator[Finding]:
    """Where rows have other bits among fewer; nothing where the candidate does not take so few."""
    for part in samples(trial.request):
        inputs = {name: part.of(array) for name, array in plain["inputs"].items()}
        call = {**plain, "inputs": inputs, **pinned}
        if trial.registry.explain(trial.op, **call).chosen is None:
            continue
        some = run_poisoned(trial.registry, trial.op, (), call, part.request)
        for role, value in some.items():
            among = part.of(whole[role])
            if different := _different(value, among):
                rows = " x ".join(f"{len(range(*each.indices(each.stop)))}" for each in part.index)
                reason = f"{rows} of the rows give other bits in {different} of {value.size} elements"
                yield Finding(role, reason, "batch-invariance")


def _run_as_asked(trial: Trial, pinned: Mapping[str, Any]) -> tuple[dict[str, NumpyArray], list[Finding]]:
    call = trial.case.call()
    before = {name: _memory(array) for name, array in call["inputs"].items()}
    result = trial.registry.run(trial.op, **call, **pinned)
    placed = {trial.op.output_names[name]: array for name, array in call.get("out", {}).items()}
    values = dict(zip(trial.request.asked, result, strict=True))
    findings = [
        Finding("", f"the input {name} was modified", "contract")
        for name, array in call["inputs"].items()
        if _memory(array) != before[name]
    ]
    for role, value in values.items():
        tensor = trial.request.outputs[role]
        found = (value.shape, value.dtype.name)
        if found != (tensor.shape, tensor.dtype):
            inferred = f"{tensor.dtype} {list(tensor.shape)}"
            findings.append(
                Finding(role, f"is {found[1]} {list(found[0])}; inferred: {inferred}", "contract")
            )
        if value is not placed.get(role, value):
            findings.append(Finding(role, "is not the array that was given to write", "contract"))
        shared = [name for name, array in call["inputs"].items() if overlaps(value, array)]
        findings += [Finding(role, f"shares memory with the input {name}", "contract") for name in shared]
    return values, findings


def _plain_call(trial: Trial) -> dict[str, Any]:
    call = trial.case.call()
    call.pop("out", None)
    call["inputs"] = {
        name: np.array(array, array.dtype.newbyteorder("=") if array.dtype.kind != "V" else None, order="C")
        for name, array in call["inputs"].items()
    }
    return {**call, "outputs": trial.request.asked}


def _memory(array: NumpyArray) -> bytes:
    """What lies in an array's memory, its gaps included."""
    whole = array if array.base is None else array.base
    return whole.tobytes() if isinstance(whole, np.ndarray) else array.tobytes()


def _judge(
    trial: Trial, backend: str, role: str, value: NumpyArray, dtype: str
) -> tuple[Verdict, str | None]:
    """The verdict, which leaves out what nobody promises, and a note when that made the difference."""
    assert trial.expected is not None
    expected = trial.expected[role]
    verdict = judge(value, expected, dtype)
    if verdict.ok or value.shape != expected.value.shape:
        return verdict, None
    touched = trial.touched.get(role, np.zeros((), bool))
    excused = {NOT_JUDGED: ~np.isfinite(expected.value) & ~touched}
    if not trial.registry.catalog.backend(backend).extremes_promised:
        excused[NOT_PROMISED] = touched & np.ones(value.shape, bool)
    right = round_to(expected.value, dtype)
    for note, mask in excused.items():
        value = np.where(mask, right, value)
        verdict = judge(value, expected, dtype)
        if verdict.ok:
            return verdict, note
    return verdict, None


def _different(left: NumpyArray, right: NumpyArray) -> int:
    """Elements that differ in their bits; NaN has many, all the same here."""
    if (left.shape, left.dtype) != (right.shape, right.dtype):
        return max(left.size, right.size, 1)
    bits = f"u{left.dtype.itemsize}"
    differ = np.ascontiguousarray(left).view(bits) != np.ascontiguousarray(right).view(bits)
    if left.dtype.name in RELATIVE:
        differ = differ.reshape(left.shape) & ~(np.isnan(left) & np.isnan(right))
    return int(np.count_nonzero(differ))


def _worst_ulp(value: NumpyArray, expected: Expected, dtype: str) -> float:
    if dtype not in RELATIVE or value.shape != expected.value.shape:
        return 0.0
    limits = finfo(numpy_dtype(dtype))
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(expected.value), expected.magnitude + expected.floor)
        unit = np.ldexp(float(limits.eps), np.frexp(size)[1] - 1)
        error = np.abs(value.astype(np.float64) - expected.value)
        found = error / np.maximum(unit, float(limits.smallest_subnormal))
    return float(found.max(initial=0.0, where=np.isfinite(found)))


def _extremes(made: Tensor, array: NumpyArray) -> NumpyArray:
    """Which elements are NaN, infinite or meant to be subnormal."""
    if array.dtype.name not in RELATIVE:
        return np.zeros(array.shape, bool)
    return ~np.isfinite(array) | (made.special == "subnormal")
