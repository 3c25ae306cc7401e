"""Rows added up and normalized, block by block: the fast form that all ops share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt

from .blocks import Index, at, quietly, run, scratch, split, thread_count
from .halves import narrow, widen

Array = npt.NDArray[Any]

BLOCK = 1 << 19  # elements of a block, at least: 2 MiB of float32 stay in cache, and outlast a thread switch
LONGEST = 1 << 20  # elements of a row beyond which it is read in pieces instead of held
SCRATCH_BYTES = 36  # held for an element of a block, at most: sum, widened operand, rounding, float64 rows
OVERHEAD_BYTES = 1 << 16  # what belongs to a block and not to its elements
PART = 1024  # elements summed by one dot product, at most; the sums of the parts are added pairwise

NEAR = 1.0  # squared mean, relative to the variance, up to which its rounding does not show
NEAR_FLOAT16 = 0.0  # steps near zero are finer there than the rounding errors of float32
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_ONES = {wide: np.ones(PART, wide) for wide in (FLOAT32, FLOAT64)}
# The least variance whose digits a dtype holds; rows with less, or too much, go to float64.
_SMALLEST = {FLOAT32: 1e-30, FLOAT64: 0.0}


class _Operands(NamedTuple):
    """Tensors that broadcast to one shape; mean and inverse have normalized axes of size 1."""

    addends: tuple[Array, ...]
    scale: Array | None
    shift: Array | None
    total: Array | None
    normalized: Array | None
    mean: Array | None
    inverse: Array | None

    def map(self, change: Callable[[Array], Array]) -> _Operands:
        """The same operands, each present one changed."""
        addends, *others = self
        return _Operands(
            tuple([change(addend) for addend in addends]),
            *[None if other is None else change(other) for other in others],
        )


def add_and_normalize(
    addends: Sequence[Array],
    axis: int,
    *,
    total: Array | None = None,
    normalized: Array | None = None,
    mean: Array | None = None,
    inverse: Array | None = None,
    scale: Array | None = None,
    shift: Array | None = None,
    epsilon: float = 0.0,
    centre: bool = True,
) -> None:
    """Write the sum of the addends, and its layer normalization from ``axis`` to the last axis.

    Without ``centre`` nothing is subtracted: rows are divided by their root mean square, and
    ``mean`` has to be None.

    The first addend has the full shape; other addends, ``scale`` and ``shift`` broadcast to it.
    They share one dtype of float16, bfloat16, float32, float64, in any strides. Outputs that are
    not None are written, in any strides: ``total`` and ``normalized`` of the full shape, ``mean``
    and ``inverse`` (1 over the deviation or root mean square) float32 with the normalized axes of size 1.
    Arithmetic is float32, for float64 tensors float64. The bits of a row depend on its values,
    length and dtype alone, not on other rows, strides or threads.
    """
    shape = addends[0].shape
    if 0 in shape:
        return
    axis %= len(shape)
    lead, norm = shape[:axis], shape[axis:]
    length = math.prod(norm)
    size = math.prod(shape)
    wide = FLOAT64 if addends[0].dtype == FLOAT64 else FLOAT32
    epsilon = float(np.float32(epsilon))

    operands = _Operands(tuple(addends), scale, shift, total, normalized, mean, inverse)
    if size < 2 * BLOCK:
        quietly(length, lambda: _block(operands, length, wide, epsilon, centre))
        return
    lead, norm, operands = _merged(lead, norm, operands)
    trailing = len(norm)

    def step(index: Index) -> None:
        part = operands.map(lambda operand: at(operand, index, trailing))
        if length > LONGEST:
            _long_row(part, norm, wide, epsilon, centre)
        else:
            _block(part, length, wide, epsilon, centre)

    rows = _rows_of_a_block(size, length)
    run(step, list(np.ndindex(lead)) if length > LONGEST else split(lead, rows), length)


def scratch_bytes(shape: Sequence[int], axis: int) -> int:
    """The most memory that `add_and_normalize` holds at once for tensors of that shape, outputs not counted.

    A bound for every dtype, and for rows that need float64; the usual case takes a third of it or less.
    """
    size, length = math.prod(shape), math.prod(shape[axis:])
    if size < 2 * BLOCK:
        return SCRATCH_BYTES * size + OVERHEAD_BYTES
    rows = _rows_of_a_block(size, length)
    block = BLOCK if length > LONGEST else min(rows * length, size)
    return thread_count() * (SCRATCH_BYTES * block + OVERHEAD_BYTES)


def _rows_of_a_block(size: int, length: int) -> int:
    """So many that every thread gets as many blocks, of at least BLOCK elements and less than twice as many.

    Smaller ones cost more than a second thread gains: the interpreter's lock changes hands in every call
    of NumPy, and `vecdot` keeps it while it makes 500 dot products or fewer.
    """
    blocks = max(size // BLOCK, 1)
    blocks -= blocks % min(thread_count(), blocks)
    return -(-(size // length) // blocks)


def _merged(
    lead: tuple[int, ...], norm: tuple[int, ...], operands: _Operands
) -> tuple[tuple[int, ...], tuple[int, ...], _Operands]:
    """One leading and one normalized dimension, where every operand's memory allows it.

    Blocks then need not end where an outer dimension ends, and inner loops are as long as can be.
    """
    count, length, trailing = math.prod(lead), math.prod(norm), len(norm)

    def inner(operand: Array) -> int:
        return math.prod(operand.shape[-trailing:])

    def merges(operand: Array) -> bool:
        return (
            operand.flags.c_contiguous
            and inner(operand) in (1, length)
            and operand.size // inner(operand) in (1, count)
        )

    addends, *others = operands
    if all(merges(operand) for operand in (*addends, *others) if operand is not None):
        operands = operands.map(lambda operand: operand.reshape(-1, inner(operand)))
        return (count,), (length,), operands
    return lead, norm, operands


def _block(part: _Operands, length: int, wide: np.dtype[Any], epsilon: float, centre: bool) -> None:
    """Sum and normalize rows that fit in scratch memory."""
    total, normalized = part.total, part.normalized
    home = total if _is_plain(total, wide) else normalized if _is_plain(normalized, wide) else None
    summed = _summed(part.addends, wide, "rows", home)
    if total is not None and summed is not total:
        narrow(summed, total)
    if normalized is None and part.mean is None and part.inverse is None:
        return

    rows = summed.reshape(-1, length)
    # All steps take place in the output where that can be; else in scratch, where the sum may lie already.
    direct = normalized if _is_plain(normalized, wide) else None
    work = scratch("rows", rows.shape, wide) if direct is None else direct.reshape(rows.shape)
    near = NEAR_FLOAT16 if part.addends[0].dtype == np.float16 else NEAR
    values, mean, spread = _measured(rows, work, epsilon, centre, near)
    inverse = np.reciprocal(np.sqrt(spread))
    if normalized is not None:
        np.multiply(values, inverse[:, None], out=work)
    sound = np.isfinite(spread)
    if epsilon < _SMALLEST[wide]:
        sound &= spread > _SMALLEST[wide]
    if np.count_nonzero(sound) < len(sound):
        hard = ~sound
        again = _summed(part.addends, wide, "again", None).reshape(-1, length)[hard].astype(FLOAT64)
        values, mean64, spread64 = _measured(again, again, epsilon, centre, NEAR)
        inverse64 = np.reciprocal(np.sqrt(spread64))
        inverse[hard] = inverse64
        if mean is not None:
            mean[hard] = mean64
        if normalized is not None:
            work[hard] = values * inverse64[:, None]

    if part.mean is not None:
        assert mean is not None
        np.copyto(part.mean, mean.reshape(part.mean.shape), casting="same_kind")
    if part.inverse is not None:
        np.copyto(part.inverse, inverse.reshape(part.inverse.shape), casting="same_kind")
    if normalized is not None:
        assert part.scale is not None
        result = work.reshape(summed.shape)
        np.multiply(result, _widened(part.scale, wide, "other"), out=result)
        if part.shift is not None:
            np.add(result, _widened(part.shift, wide, "other"), out=result)
        if direct is None:
            narrow(result, normalized)


def _is_plain(array: Array | None, wide: np.dtype[Any]) -> TypeGuard[Array]:
    """Whether a tensor is there and arithmetic can take place in its memory."""
    return array is not None and array.dtype == wide and bool(array.flags.c_contiguous)


def _long_row(
    row: _Operands, norm: tuple[int, ...], wide: np.dtype[Any], epsilon: float, centre: bool
) -> None:
    """Sum and normalize one row, reading its pieces again for every step, statistics in float64."""
    pieces = split(norm, BLOCK)
    length = math.prod(norm)

    def values(piece: Index) -> Array:
        addends = [at(addend, piece, 0) for addend in row.addends]
        return _summed(addends, wide, "rows", None).astype(FLOAT64)

    if row.total is not None:
        for piece in pieces:
            np.copyto(at(row.total, piece, 0), values(piece), casting="unsafe")
    if row.normalized is None and row.mean is None and row.inverse is None:
        return
    mean = left = 0.0
    if centre:
        mean = sum(values(piece).sum() for piece in pieces) / length
        left = sum((values(piece) - mean).sum() for piece in pieces) / length
    variance = sum(np.square(values(piece) - mean - left).sum() for piece in pieces) / length
    inverse = 1.0 / np.sqrt(variance + epsilon)
    if row.mean is not None:
        row.mean[...] = mean
    if row.inverse is not None:
        row.inverse[...] = inverse
    if row.normalized is not None:
        assert row.scale is not None
        for piece in pieces:
            result = (values(piece) - mean - left) * inverse
            result *= at(row.scale, piece, 0).astype(FLOAT64)
            if row.shift is not None:
                result += at(row.shift, piece, 0).astype(FLOAT64)
            np.copyto(at(row.normalized, piece, 0), result, casting="unsafe")


def _summed(addends: Sequence[Array], wide: np.dtype[Any], slot: str, target: Array | None) -> Array:
    """The sum from left to right, C-ordered: in ``target``, else in scratch ``slot``.

    A single addend that needs no change is returned as it is, and must not be written to.
    """
    first, *others = addends
    if not others and first.dtype == wide and first.flags.c_contiguous:
        return first
    out = scratch(slot, first.shape, wide) if target is None else target
    if first.dtype != wide or not others:
        widen(first, out)
        first = out
    for other in others:
        first = np.add(first, _widened(other, wide, "other"), out=out)
    return out


def _widened(operand: Array, wide: np.dtype[Any], slot: str) -> Array:
    if operand.dtype == wide:
        return operand
    out = scratch(slot, operand.shape, wide)
    widen(operand, out)
    return out


def _measured(
    rows: Array, out: Array, epsilon: float, centre: bool, near: float
) -> tuple[Array, Array | None, Array]:
    """What is to be scaled, its mean and its mean square + epsilon, for rows [n, length].

    The last two are [n]. Without ``centre`` the rows themselves are to be scaled and there is no
    mean; with it, ``out`` gets rows - mean, and may be ``rows``. A rounded mean leaves a rest in
    every element. Where it may show, for the squared mean is over ``near`` times the spread, the row
    is centred once more and measured again. The decision is each row's own.
    """
    least = _constant(epsilon, rows.dtype)
    if not centre:
        return rows, None, _mean_squares(rows) + least
    mean = _means(rows)
    np.subtract(rows, mean[:, None], out=out)
    spread = _mean_squares(out)
    spread += least
    far = mean * mean > near * spread
    if np.count_nonzero(far):
        left = np.where(far, _means(out), 0)
        out -= left[:, None]
        mean += left
        spread = np.where(far, _mean_squares(out) + least, spread)
    return out, mean, spread


def _means(rows: Array) -> Array:
    """The means over the last axis, [n]."""
    ones = _ONES[rows.dtype]
    return _by_parts(rows, lambda part: np.vecdot(part, ones[: part.shape[-1]]))


def _mean_squares(rows: Array) -> Array:
    """The means of the squares over the last axis, [n]."""
    return _by_parts(rows, lambda part: np.vecdot(part, part))


def _by_parts(rows: Array, sums: Callable[[Array], Array]) -> Array:
    """``sums`` over the last axis, [n, length] to [n], by the length: of equal parts of a row, and the rest.

    One dot product a row and part. Unlike a matrix product it does not depend on the number of
    rows, and unlike one long dot product its rounding errors do not grow with the length.
    """
    count, length = rows.shape
    parts = -(-length // PART)
    if parts == 1:
        total = sums(rows)
    else:
        part = length // parts
        whole = parts * part
        total = sums(rows[:, :whole].reshape(count, parts, part)).sum(axis=-1)
        if whole < length:
            total += sums(rows[:, whole:])
    # A true division, so that equal elements have exactly their own mean.
    total /= _constant(length, rows.dtype)
    return total


@lru_cache(maxsize=256)
def _constant(value: float, wide: np.dtype[Any]) -> Array:
    """A number as an array of no dimension, which NumPy takes much faster than Python's number."""
    return np.array(value, wide)
