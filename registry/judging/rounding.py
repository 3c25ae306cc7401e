"""Rounding to a dtype, and distances in its representable numbers."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import finfo, numpy_dtype

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

BUCKETS = (0.0, 0.5, *(2.0**power for power in range(11)))
"""Upper limits of the buckets of a histogram of distances in ULP; above the last is one bucket more."""


def ulps(actual: Array, expected: Array, dtype: str) -> npt.NDArray[np.float64]:
    """Distance between two arrays of one shape in units in the last place of ``dtype``.

    Both are rounded to ``dtype`` first (see :func:`round_to`). The distance counts representable
    numbers: through zero, from denormals, and one step from the largest finite number to infinity.
    0 between NaN and NaN, infinite between NaN and anything else.
    """
    left, right = round_to(actual, dtype), round_to(expected, dtype)
    high, low = _ordinal(left), _ordinal(right)
    # Modulo 2**64 the difference of two int64 is right although it may not fit int64.
    forward = high.astype(np.uint64) - low.astype(np.uint64)
    distance = np.where(high >= low, forward, np.uint64(0) - forward).astype(np.float64)
    nan_left, nan_right = np.isnan(left), np.isnan(right)
    result: npt.NDArray[np.float64] = np.where(
        nan_left | nan_right, np.where(nan_left & nan_right, 0.0, np.inf), distance
    )
    return result


def round_to(value: Array, dtype: str) -> Array:
    """``value`` rounded once, to nearest and ties to even, to the NumPy dtype named ``dtype``."""
    kind = numpy_dtype(dtype)
    if value.dtype == kind:
        return value
    with np.errstate(all="ignore"):
        if dtype == "bfloat16" and value.dtype == np.float64:
            value = _to_odd_float32(value)
        return value.astype(kind)


def _to_odd_float32(value: Array) -> Array:
    """float64 to float32, inexact results made odd: rounding on to bfloat16 is then as if direct.

    Rounding to odd: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008.
    """
    near = np.atleast_1d(value.astype(np.float32))
    wide = np.atleast_1d(value)
    above = np.abs(near).astype(np.float64) > np.abs(wide)
    near[above] = np.nextafter(near[above], np.float32(0))
    near.view(np.uint32)[...] |= (near.astype(np.float64) != wide) & ~np.isnan(wide)
    return near.reshape(value.shape)


def _ordinal(value: Array) -> npt.NDArray[np.int64]:
    """Integers in the order of the numbers, neighbours one apart, both zeros 0."""
    bits = np.ascontiguousarray(value).view(f"i{value.dtype.itemsize}").astype(np.int64)
    lowest = -(1 << (8 * value.dtype.itemsize - 1))
    result: npt.NDArray[np.int64] = np.where(bits < 0, lowest - bits, bits).reshape(value.shape)
    return result


def units(size: Array, dtype: str) -> Floats:
    """The unit in the last place of ``dtype`` for numbers of these sizes."""
    eps, smallest = _smallest(dtype)
    found: Floats = np.maximum(np.ldexp(eps, np.frexp(size)[1] - 1), smallest)
    return found


@cache
def _smallest(dtype: str) -> tuple[float, float]:
    """The unit in the last place of 1, and of the smallest numbers."""
    limits = finfo(numpy_dtype(dtype))
    return float(limits.eps), float(limits.smallest_subnormal)


def histogram(actual: Array, value: Array, rounded: Array, distance: Floats) -> tuple[int, ...]:
    """How many elements lie how many ULP from the right answer itself, by bucket of ``BUCKETS``.

    Args:
        actual: finite numbers of one dtype.
        value: the right answers, float64; ``rounded`` are they in that dtype, all finite.
        distance: the steps from ``rounded`` to ``actual``, as `ulps` gives them.

    A correctly rounded element lies at most half a unit off, an exact one not at all.
    """
    with np.errstate(all="ignore"):
        near = rounded.astype(np.float64)
        rest = (value - near) / units(near, actual.dtype.name)
        off = np.abs(np.copysign(distance, actual.astype(np.float64) - near) - rest)
    counts = np.bincount(np.searchsorted(BUCKETS, off.ravel()), minlength=len(BUCKETS) + 1)
    return tuple(int(count) for count in counts)
