"""Arithmetic on shapes (lists of sizes), as expressions use it.

Axes wrap around modulo the rank in both directions: axis 3 of a rank-3 shape is its axis 0. Only
the functions that rearrange a shape insist on an axis within it. All raise EvaluationError for a
shape that is no list of numbers and, unless said otherwise, for an axis that is no integer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from .operators import multiply
from .values import (
    LIST,
    EvaluationError,
    Number,
    bounded,
    check_size,
    describe,
    is_number,
    json_text,
    tag,
    to_number,
)

Shape = Sequence[Any]


def _shape(value: Any, what: str = "a shape") -> Shape:
    if isinstance(value, LIST) and all(map(is_number, value)):
        return value
    raise EvaluationError(f"needs {what} (a list of numbers), found {describe(value)}")


def _integer(value: Any, what: str) -> int:
    number = to_number(value)
    if not math.isfinite(number) or number != math.floor(number):
        raise EvaluationError(f"needs an integer as {what}, found {describe(value)}")
    return int(number)


def _count(value: Any, what: str) -> int:
    count = _integer(value, what)
    if count < 0:
        raise EvaluationError(f"needs {what} of at least 0, found {count}")
    check_size(count, "list elements")
    return count


def _axis(value: Any, rank: int) -> int:
    axis = _integer(value, "axis")
    if not -rank <= axis < rank:
        raise EvaluationError(f"axis {axis} is outside [{-rank}, {rank - 1}]")
    return axis % rank


def _product(sizes: Shape) -> Number:
    product: Number = 1
    for size in sizes:
        product = multiply(product, size)
    return product


def numel(shape: Any) -> Number:
    """The number of elements; 1 for rank 0."""
    return _product(_shape(shape))


def dim(shape: Any, axis: Any) -> Number | None:
    """The size along an axis; null for rank 0 and for an axis that is no integer."""
    sizes, number = _shape(shape), to_number(axis)
    if not sizes or not math.isfinite(number) or number != math.floor(number):
        return None
    return sizes[int(number) % len(sizes)]  # type: ignore[no-any-return]


def rank(shape: Any) -> int:
    """The number of dimensions."""
    return len(_shape(shape))


def _around(shape: Any, axis: Any) -> tuple[Shape, Shape]:
    """The sizes before and after an axis."""
    sizes = _shape(shape)
    if not sizes:
        return [], []
    index = _integer(axis, "axis") % len(sizes)
    return sizes[:index], sizes[index + 1 :]


def rows(shape: Any, axis: Any) -> Number:
    """The product of all sizes but the axis's; 1 for rank 0."""
    before, after = _around(shape, axis)
    return multiply(_product(before), _product(after))


def outer(shape: Any, axis: Any) -> Number:
    """The product of the sizes before an axis; 1 for rank 0, and for an axis equal to it."""
    return _product(_around(shape, axis)[0])


def inner(shape: Any, axis: Any) -> Number:
    """The product of the sizes after an axis; 1 for rank 0."""
    return _product(_around(shape, axis)[1])


def prefix(shape: Any, count: Any) -> list[Any]:
    """The first ``count`` sizes."""
    return list(_shape(shape)[: max(0, _integer(count, "count"))])


def suffix(shape: Any, start: Any) -> list[Any]:
    """The sizes from position ``start`` on."""
    return list(_shape(shape)[max(0, _integer(start, "start")) :])


def fill(value: Any, count: Any) -> list[Any]:
    """A list of ``count`` copies of a value."""
    return list(bounded([value] * _count(count, "a count")))


def move_axis(shape: Any, source: Any, target: Any) -> list[Any]:
    """The shape with the axis ``source`` moved to position ``target``."""
    sizes = list(_shape(shape))
    moved = sizes.pop(_axis(source, len(sizes)))
    sizes.insert(_axis(target, len(sizes) + 1), moved)
    return sizes


def permute_shape(shape: Any, axes: Any) -> list[Any]:
    """The sizes in the order of ``axes``, which names every axis once."""
    sizes = _shape(shape)
    order = [_axis(axis, len(sizes)) for axis in _shape(axes, "axes")]
    if sorted(order) != list(range(len(sizes))):
        raise EvaluationError(f"axes {json_text(axes)} do not name every axis of {json_text(shape)} once")
    return [sizes[axis] for axis in order]


def reversed_axes(count: Any) -> list[int]:
    """``[count - 1, ..., 0]``."""
    return list(range(_count(count, "a rank")))[::-1]


def broadcast_shape(first: Any, second: Any) -> list[Any]:
    """The shape that two shapes broadcast to (NumPy's rule)."""
    pairs = zip_longest(reversed(_shape(first)), reversed(_shape(second)), fillvalue=1)
    result = []
    for a, b in pairs:
        if a != b and a != 1 and b != 1:
            raise EvaluationError(f"{json_text(first)} and {json_text(second)} do not broadcast")
        result.append(b if a == 1 else a)
    return result[::-1]


def matmul_shape(first: Any, second: Any) -> list[Any]:
    """The shape of the matrix product of two shapes (NumPy's rule, rank 1 included)."""
    a, b = list(_shape(first)), list(_shape(second))
    if not a or not b or a[-1] != b[max(0, len(b) - 2)]:
        raise EvaluationError(f"{json_text(first)} and {json_text(second)} cannot be multiplied as matrices")
    batch = broadcast_shape(a[:-2], b[:-2])
    return batch + a[-2:-1] + (b[-1:] if len(b) > 1 else [])


def broadcastable(shape: Any, target: Any) -> bool:
    """Whether ``shape`` broadcasts to ``target``: each trailing size is 1 or equal."""
    sizes, wanted = _shape(shape), _shape(target)
    pairs = zip(reversed(sizes), reversed(wanted), strict=False)
    return len(sizes) <= len(wanted) and all(size in (1, want) for size, want in pairs)


def same_shape(first: Any, second: Any) -> bool:
    """Whether two shapes have equal rank and sizes."""
    return list(_shape(first)) == list(_shape(second))


def _position(axes: Any, axis: Any, ndim: Any) -> int | None:
    number = _integer(ndim, "rank")
    if number == 0:
        return None
    wanted = _integer(axis, "axis") % number
    places = (place for place, each in enumerate(_shape(axes, "axes")) if each % number == wanted)
    return next(places, None)


def has_axis(axes: Any, axis: Any, ndim: Any) -> bool:
    """Whether ``axis`` is among ``axes``, all modulo the rank; false for rank 0."""
    return _position(axes, axis, ndim) is not None


def axis_value(values: Any, axes: Any, axis: Any, ndim: Any, default: Any = None) -> Any:
    """The value paired with ``axis`` in ``axes`` (modulo the rank), else ``default``."""
    place = _position(axes, axis, ndim)
    known = isinstance(values, LIST) and place is not None and place < len(values)
    return values[place] if known else default


def is_unique_int_list(values: Any, low: Any, high: Any, rank: Any = 0) -> bool:
    """Whether ``values`` are integers in [low, high), distinct modulo ``rank`` (unless it is 0)."""
    if not isinstance(values, LIST) or not all(map(is_number, (*values, low, high, rank))):
        return False
    numbers = [tag(value) for value in (*values, rank)]
    if not all(isinstance(number, int) and abs(number) < 2**53 for number in numbers):
        return False
    *integers, modulus = numbers
    distinct = {integer % modulus if modulus else integer for integer in integers}
    return len(distinct) == len(integers) and all(low <= integer < high for integer in integers)
