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
_NARROWING = np.float32(2.0**-112)
_SHORT = 8192  # elements below which the steps cost more than they save
_EXPONENT = np.int32(0x7F800000)
_SIGN = np.int32(0x8000)
# What is added to 2**e and taken off again so that it rounds to float16's ten bits of fraction, whatever
# the sign; never less than what rounds to its least step, 2**-24.
_ROUNDING, _LEAST_ROUNDING = np.float32(1.5 * 2.0**13), np.float32(1.5 * 2.0**-1)
_INFINITY = np.float32(np.inf)
_TOO_LARGE = np.float32(1.5 * 2.0 ** (13 + 16))  # what belongs to 2**16, above which nothing is finite


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

    Uses the scratch slots "other" and "bits".
    """
    if source.dtype != np.float32 or out.dtype != np.float16 or source.size < _SHORT:
        np.copyto(out, source, casting="unsafe")
        return
    bits = source.view(np.int32)
    step = scratch("other", source.shape, np.float32)
    rounded = scratch("bits", source.shape, np.float32)
    step_bits, rounded_bits = step.view(np.int32), rounded.view(np.int32)
    np.bitwise_and(bits, _EXPONENT, out=step_bits)
    np.multiply(step, _ROUNDING, out=step)
    np.clip(step, _LEAST_ROUNDING, _INFINITY, out=step)  # np.maximum of a number takes three times as long
    np.add(source, step, out=rounded)
    np.subtract(rounded, step, out=rounded)
    # Floats compare as their bits do, which is faster.
    special = step >= _TOO_LARGE if step_bits.max() >= _TOO_LARGE.view(np.int32) else None
    # From here on exact: the exponent as float16 counts it, then everything to its place.
    np.multiply(rounded, _NARROWING, out=rounded)
    np.right_shift(rounded_bits, 13, out=rounded_bits)
    np.right_shift(bits, 16, out=step_bits)
    np.bitwise_and(step_bits, _SIGN, out=step_bits)
    np.bitwise_or(rounded_bits, step_bits, out=rounded_bits)
    np.copyto(out.view(np.int16), rounded_bits, casting="unsafe")
    if special is not None:
        out[special] = source[special]
