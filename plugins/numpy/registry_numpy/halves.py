"""float16 to float32 and back in whole-array steps, several times as fast as NumPy's own casts.

NumPy converts float16 one element at a time. The few special elements still go that way; short
arrays and the other dtypes do altogether.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .blocks import scratch

Array = npt.NDArray[Any]

_SIGN_AND_VALUE = np.int32(-0x70002000)  # 0x8fffe000: the sign, five bits of exponent, ten of fraction
_EXPONENT_GAP = np.float32(2.0**112)  # between the exponent biases, 127 - 15
_SHORT = 4096  # elements below which the steps cost more than they save
_LEAST_NORMAL = 0x38800000  # bits of 2**-14 in float32
_OVERFLOW = 0x477FF000  # bits of 65520, the least float32 that rounds to infinity


def widen(source: Array, out: Array) -> None:
    """Convert a half type into the float32 or float64 array ``out`` of one shape, exactly."""
    if source.dtype != np.float16 or out.dtype != np.float32 or source.size < _SHORT:
        np.copyto(out, source)
        return
    half = source.view(np.int16)
    bits = out.view(np.int32)
    np.copyto(bits, half)  # extends the sign
    np.left_shift(bits, 13, out=bits)
    np.bitwise_and(bits, _SIGN_AND_VALUE, out=bits)
    np.multiply(out, _EXPONENT_GAP, out=out)
    # Infinities and NaN have the largest bits of either sign.
    if half.max() >= 0x7C00 or half.view(np.uint16).max() >= 0xFC00:
        np.copyto(out, source)


def narrow(source: Array, out: Array) -> None:
    """Convert float32 or float64 into ``out`` of one shape, rounded to nearest, ties to even.

    Uses the scratch slots "other", "bits" and "special".
    """
    if source.dtype != np.float32 or out.dtype != np.float16 or source.size < _SHORT:
        np.copyto(out, source, casting="unsafe")
        return
    bits = source.view(np.uint32)
    magnitude = scratch("other", source.shape, np.uint32)
    extra = scratch("bits", source.shape, np.uint32)
    np.bitwise_and(bits, 0x7FFFFFFF, out=magnitude)
    # Normal numbers within reach; as unsigned, what is below the least wraps around to the top.
    np.subtract(magnitude, _LEAST_NORMAL, out=extra)
    special = scratch("special", source.shape, np.bool_)
    np.greater_equal(extra, _OVERFLOW - _LEAST_NORMAL, out=special)
    # Adding 0xfff and the lowest kept bit carries into the kept bits when that rounds to nearest.
    np.right_shift(magnitude, 13, out=extra)
    np.bitwise_and(extra, 1, out=extra)
    np.add(magnitude, extra, out=magnitude)
    np.subtract(magnitude, (112 << 23) - 0xFFF, out=magnitude)
    np.right_shift(magnitude, 13, out=magnitude)
    np.right_shift(bits, 16, out=extra)
    np.bitwise_and(extra, 0x8000, out=extra)
    np.bitwise_or(magnitude, extra, out=magnitude)
    np.copyto(out.view(np.uint16), magnitude, casting="unsafe")
    if np.count_nonzero(special):
        out[special] = source[special]
