"""The kernel: rows are added up, measured and normalized, each read from memory once and written once.

A row stays in the first cache between its steps. Sums of inputs are rounded to the tensors' dtype at each
addition; statistics take two passes over the row: its mean, then mean and squares of what is left. A row's
bits depend on its own elements and their number alone, for each is summed by one thread in one order.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import from_dtype, njit, prange, types

CHUNK = 128  # elements added up in the tensors' dtype; their sums are added in float64

# Summation in the order that suits vector registers, the same for rows of one length. Nothing else is
# reordered: the roundings of (input + skip) + bias are part of the answer.
_sums = njit(fastmath={"reassoc", "nsz"}, inline="never", cache=True)


@_sums
def _sum(row):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(row.size):
        total += np.float64(row[j])
    return total


@njit(fastmath=False, cache=True)  # said, for else it is the caller's
def _minus(value, middle):  # type: ignore[no-untyped-def]
    return value - middle


@_sums
def _moments(row, middle):  # type: ignore[no-untyped-def]
    total, squares = 0.0, 0.0
    for start in range(0, row.size, CHUNK):
        some = some_squares = row.dtype.type(0)
        for j in range(start, min(start + CHUNK, row.size)):
            left = _minus(row[j], middle)
            some += left
            some_squares += left * left
        total += np.float64(some)
        squares += np.float64(some_squares)
    return total / row.size, squares / row.size


def _normalize(x, skip, bias, scale, shift, total, y, mean, inverse, epsilon, centre):  # type: ignore[no-untyped-def]
    """Fills ``total`` = (x + skip) + bias, ``y`` = its normalization, ``mean``, ``inverse`` = 1 / deviation.

    ``x`` is [rows, length]; ``skip`` [rows that ``x`` repeats, length]; ``bias``, ``scale`` and ``shift``
    [length]; ``total`` and ``y`` like ``x``; ``mean`` and ``inverse`` [rows], float32. What is absent has no
    elements; without ``skip`` there is neither ``bias`` nor ``total``. A sum that nobody asks for is kept
    apart, which is quicker than in ``y``.
    Without ``centre`` nothing is subtracted, and rows are divided by their root mean square.
    """
    rows, length = x.shape
    for i in prange(rows):
        row = x[i]
        spare = np.empty(length if skip.size and not total.size else 0, x.dtype)
        if skip.size:
            held = total[i] if total.size else spare
            other = skip[i % skip.shape[0]]
            if bias.size:
                for j in range(length):
                    held[j] = (row[j] + other[j]) + bias[j]
            else:
                for j in range(length):
                    held[j] = row[j] + other[j]
            row = held
        exact = _sum(row) / length  # the quickest way to have the row in the cache, for its own sake too
        if not centre:
            exact = 0.0
        middle = x.dtype.type(exact)
        left, variance = _moments(row, middle)
        # A rounded mean leaves a rest in every element.
        rest = x.dtype.type(0)
        if centre:
            rest = x.dtype.type(left)
            variance -= left * left
        precise = 1.0 / np.sqrt(variance + epsilon)
        factor = x.dtype.type(precise)
        if mean.size:
            mean[i] = exact
        if inverse.size:
            inverse[i] = precise
        if y.size:
            out = y[i]
            if shift.size:
                for j in range(length):
                    out[j] = ((row[j] - middle) - rest) * factor * scale[j] + shift[j]
            else:
                for j in range(length):
                    out[j] = ((row[j] - middle) - rest) * factor * scale[j]


@cache
def compiled(dtype: np.dtype[Any]) -> Any:
    """`_normalize` for tensors of a dtype: machine code, kept on disk from one process to the next.

    One signature for all calls, with inputs that may be read-only: else each mixture were compiled anew.
    """
    element = from_dtype(dtype)

    def array(kind: Any, ndim: int, readonly: bool = False) -> Any:
        return types.Array(kind, ndim, "C", readonly=readonly)

    signature = types.void(
        *(array(element, ndim, readonly=True) for ndim in (2, 2, 1, 1, 1)),
        *(array(element, 2) for _ in range(2)),
        *(array(types.float32, 1) for _ in range(2)),
        types.float64,
        types.boolean,
    )
    return njit(signature, parallel=True, cache=True, error_model="numpy")(_normalize)
