"""How far a result is from the right answer, and whether that is near enough.

The right answer is computed in float64 (:class:`Expected`) and compared element by element. NaN
only matches NaN, nothing is broadcast, and every verdict says how much was really compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import FLOATS, numpy_dtype
from .rounding import histogram, round_to, ulps

__all__ = [
    "Expected",
    "Tolerance",
    "Verdict",
    "combine",
    "default_tolerance",
    "judge",
    "judge_pair",
    "round_to",
    "ulps",
]

Array = npt.NDArray[Any]

# Share of the magnitude that an answer may be off, by dtype.
RELATIVE = {"float16": 2e-6, "bfloat16": 2e-6, "float32": 2e-6, "float64": 1e-12}
# Units in the last place that are near enough whatever the magnitude.
STEPS = {"float16": 1.0, "bfloat16": 1.0, "float32": 0.0, "float64": 0.0}


@dataclass(frozen=True)
class Tolerance:
    """How far off a result may be: a share of the magnitude, or so many units in the last place."""

    relative: float
    steps: float


def default_tolerance(dtype: str) -> Tolerance:
    """The tolerance of a floating-point dtype where the op's manifest has none of its own."""
    return Tolerance(RELATIVE[dtype], STEPS[dtype])


@dataclass(frozen=True)
class Expected:
    """A right answer, not rounded to the dtype of the tensor that will hold it.

    Attributes:
        value: float64, the shape of the output.
        magnitude: float64, broadcasts to ``value``: the size of the terms the answer is made of,
            |n * gamma| + |beta| for normalized values n. The tolerance grows with it.
        floor: float64, broadcasts to ``value``: added to the magnitude, so that the tolerance does
            not vanish where an answer happens to be near zero; 0 where there is none.
    """

    value: Array
    magnitude: Array
    floor: Array


@dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison.

    Attributes:
        ok: whether the result is near enough everywhere.
        reason: why it is not (shape, dtype, NaN, infinity or tolerance), else None.
        note: what is worth knowing although it did not decide, else None.
        compared: pairs of finite numbers compared; 0 for empty tensors.
        max_abs, max_rel, max_ulp: largest distances among them: absolute, relative to the right
            answer, and in units in the last place of the dtype, from the correctly rounded answer.
        mean_abs, mean_rel, mean_ulp: the means of the same; relative ones where the right answer is not 0.
        histogram: how many of them lie how many ULP from the answer before it is rounded, by the buckets of
            `registry.judging.rounding.BUCKETS`; empty where elements are no floating-point numbers.
        share: the largest part of its tolerance that an element takes: above 1 fails, infinite where only
            one side is NaN or infinite.
        worst: index of the element that takes most of its tolerance, None if none takes any.
        worst_actual, worst_expected: both numbers there.
        nan_actual, nan_expected, nan_matching: NaN on either side, and on both at one place.
        inf_actual, inf_expected, inf_matching: the same for infinities, matching with their sign.
    """

    ok: bool
    reason: str | None = None
    note: str | None = None
    compared: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    max_ulp: float = 0.0
    mean_abs: float = 0.0
    mean_rel: float = 0.0
    mean_ulp: float = 0.0
    histogram: tuple[int, ...] = ()
    share: float = 0.0
    worst: tuple[int, ...] | None = None
    worst_actual: float | None = None
    worst_expected: float | None = None
    nan_actual: int = 0
    nan_expected: int = 0
    nan_matching: int = 0
    inf_actual: int = 0
    inf_expected: int = 0
    inf_matching: int = 0


def judge(
    actual: Array,
    expected: Expected,
    dtype: str,
    *,
    tolerance: Tolerance | None = None,
) -> Verdict:
    """Whether ``actual`` is near enough to the right answer for a tensor of ``dtype``.

    With a relative tolerance t (default: 2e-6; float64: 1e-12), an element passes when
    |actual - value| <= t * (floor + magnitude), or when it is the correctly rounded value. With a
    tolerance in steps (default: 1 for float16 and bfloat16, 0 for the others) it also passes within so
    many units in the last place of that, where infinity counts as one step above the largest finite
    number. Without, an infinity matches where the value rounds to it. NaN matches NaN and nothing else.
    Integers and booleans have to be equal.

    An ``actual`` of another dtype fails.
    """
    other_form = _form(actual, expected.value.shape, numpy_dtype(dtype))
    if other_form is not None:
        return other_form
    if dtype not in FLOATS:
        return _equal(actual, expected.value)
    allowed = tolerance or default_tolerance(dtype)
    limit = allowed.relative * (expected.floor + expected.magnitude)
    return _verdict(actual, expected.value, dtype, limit, allowed.steps)


def judge_pair(actual: Array, other: Array, *, tolerance: Tolerance | None = None) -> Verdict:
    """Whether two results agree, where no right answer is known. ``other`` counts as expected.

    Each may be off by the tolerance of :func:`judge`, so twice that is allowed between them, the
    larger of the two for the magnitude and 1 for the floor of float32 and float64. Infinity only
    matches the same infinity, NaN only NaN. Integers and booleans have to be equal.

    Two dtypes are a failure.
    """
    other_form = _form(actual, other.shape, other.dtype)
    if other_form is not None:
        return other_form
    dtype = actual.dtype.name
    if dtype not in FLOATS:
        return _equal(actual, other)
    value = other.astype(np.float64)
    magnitude = np.maximum(np.abs(actual.astype(np.float64)), np.abs(value))
    floor = 0.0 if STEPS[dtype] else 1.0
    allowed = tolerance or default_tolerance(dtype)
    limit = 2 * allowed.relative * (floor + magnitude)
    return _verdict(actual, value, dtype, limit, 2 * allowed.steps, next_to_infinity=False)


def combine(verdicts: Sequence[Verdict]) -> Verdict:
    """Several verdicts as one: the worst element of all, largest and mean errors over all, counts added."""
    worst = max(verdicts, key=lambda verdict: (not verdict.ok, verdict.share))
    compared = sum(verdict.compared for verdict in verdicts)

    changed: dict[str, Any] = {"compared": compared}
    for name in Verdict.__dataclass_fields__:
        values = [getattr(verdict, name) for verdict in verdicts]
        if name.startswith("max_"):
            changed[name] = max(values)
        elif name.startswith("mean_"):
            weighted = (v * each.compared for v, each in zip(values, verdicts, strict=True))
            changed[name] = sum(weighted) / max(compared, 1)
        elif name.startswith(("nan_", "inf_")):
            changed[name] = sum(values)
        elif name == "histogram":
            changed[name] = tuple(map(sum, zip(*filter(None, values), strict=True)))
    return replace(worst, **changed)


def _form(actual: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Verdict | None:
    """The verdict where shape or dtype differ, else None."""
    if actual.shape != shape:
        return Verdict(False, f"shape {list(actual.shape)}, expected {list(shape)}")
    if actual.dtype != dtype:
        return Verdict(False, f"dtype {actual.dtype.name}, expected {dtype.name}")
    return None


def _equal(actual: Array, other: Array) -> Verdict:
    differs = actual != other
    if not differs.any():
        return Verdict(True, compared=actual.size)
    index = _index(np.argmax(differs), actual.shape)
    return Verdict(
        False,
        f"{np.count_nonzero(differs)} of {actual.size} elements differ",
        compared=actual.size,
        worst=index,
        worst_actual=float(actual[index]),
        worst_expected=float(other[index]),
    )


def _verdict(
    actual: Array,
    value: Array,
    dtype: str,
    limit: Array,
    steps: float,
    *,
    next_to_infinity: bool = True,
) -> Verdict:
    """Judge by ``excess``, each element's distance in units of what is allowed: above 1 fails.

    ``next_to_infinity``: whether infinity counts as the step above the largest finite number.
    """
    wide = actual.astype(np.float64)
    rounded = round_to(value, dtype)
    distance = ulps(actual, rounded, dtype)
    nan_actual, nan_expected = np.isnan(wide), np.isnan(value)
    inf_actual, inf_expected = np.isinf(wide), np.isinf(rounded)
    finite = np.isfinite(wide) & np.isfinite(value) & ~inf_expected
    inf_matching = inf_actual & inf_expected & (distance == 0)
    with np.errstate(all="ignore"):
        error = np.where(finite, np.abs(wide - value), 0.0)
        relative = np.where(error > 0, error / np.abs(value), 0.0)
        # The correctly rounded value is right whatever the tolerance: denormals are that coarse.
        excess = np.where((error > 0) & (distance > 0), error / limit, 0.0)
        if steps:
            excess = np.fmin(excess, distance / steps)
    rest = ~finite & ~(nan_actual & nan_expected) & ~inf_matching
    excess = np.where(rest, np.inf, excess)
    if steps and next_to_infinity:
        excess = np.where(rest & ~nan_actual & ~nan_expected, distance / steps, excess)
    excess = np.where(np.isnan(excess), np.inf, excess)

    worst, reason = None, None
    note = None if excess.size else "0 elements compared"
    if excess.size:
        index = _index(np.argmax(excess), excess.shape)
        worst = index if excess[index] > 0 else None
        if excess[index] > 1:
            reason = _reason(wide[index], value[index], excess[index], int((excess > 1).sum()))
            reason += f" of {excess.size} elements fail, worst at {list(index)}"
    return Verdict(
        ok=reason is None,
        reason=reason,
        note=note,
        compared=int(finite.sum()),
        max_abs=float(error.max(initial=0.0)),
        max_rel=float(relative.max(initial=0.0)),
        max_ulp=float(distance.max(initial=0.0, where=finite)),
        mean_abs=_mean(error[finite]),
        mean_rel=_mean(relative[finite & (value != 0)]),
        mean_ulp=_mean(distance[finite]),
        histogram=histogram(actual[finite], value[finite], rounded[finite], distance[finite]),
        share=float(excess.max(initial=0.0)),
        worst=worst,
        worst_actual=None if worst is None else float(wide[worst]),
        worst_expected=None if worst is None else float(value[worst]),
        nan_actual=int(nan_actual.sum()),
        nan_expected=int(nan_expected.sum()),
        nan_matching=int((nan_actual & nan_expected).sum()),
        inf_actual=int(inf_actual.sum()),
        inf_expected=int(inf_expected.sum()),
        inf_matching=int(inf_matching.sum()),
    )


def _mean(values: Array) -> float:
    with np.errstate(over="ignore"):
        return float(values.sum()) / max(values.size, 1)


def _reason(actual: float, expected: float, excess: float, count: int) -> str:
    if np.isnan(actual) or np.isnan(expected):
        kind = "NaN on one side only"
    elif np.isinf(actual) or np.isinf(expected):
        kind = "infinity on one side only"
    else:
        kind = f"{excess:.3g} times the tolerance"
    return f"{kind}: {actual:.9g}, expected {expected:.9g}; {count}"


def _index(flat: np.intp, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(position) for position in np.unravel_index(flat, shape))
