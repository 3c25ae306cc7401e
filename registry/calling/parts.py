"""A request cut into parts that are computed one after another, where the whole does not fit a device.

An op's manifest says by ``registry: independentAxes`` along how many leading dimensions its results do not
depend on each other; only those are cut.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..dtypes import STORAGE
from ..language.expressions import EvaluationError
from .arrays import NumpyArray
from .request import Request, TensorType
from .scope import contract_scope, evaluate_derived

Index = tuple[slice, ...]
"""Ranges of the leading dimensions; the others are whole."""


@dataclass(frozen=True)
class Part:
    """A request for a range of another one's leading dimensions; ``rank`` is that of its first input."""

    request: Request
    index: Index
    rank: int

    def of(self, tensor: NumpyArray) -> NumpyArray:
        """What the part sees of a tensor: a view."""
        return tensor[_own(tensor.shape, self.index, self.rank)]


def cut(request: Request, limit: int) -> tuple[Part, ...]:
    """Parts of which no tensor has more than ``limit`` bytes; one, the request itself, where it fits.

    Empty where a tensor is larger however the request is cut.
    """
    if largest(request) <= limit:
        return (Part(request, (), _rank(request)),)
    lead, least = _smallest(request)
    if not lead or least > limit:
        return ()
    return tuple(_part(request, index) for index in _ranges(lead, limit // least))


def fits_in_parts(request: Request, limit: int) -> bool:
    """Whether ``cut`` gives any part, without making them."""
    if largest(request) <= limit:
        return True
    lead, least = _smallest(request)
    return bool(lead) and least <= limit


def _smallest(request: Request) -> tuple[Sequence[int], int]:
    """The dimensions that may be cut, and the bytes of the largest tensor of the smallest part."""
    lead = next(iter(request.inputs.values())).shape[: _independent_axes(request)]
    return lead, largest(_part(request, tuple(slice(0, 1) for _ in lead)).request)


def samples(request: Request) -> tuple[Part, ...]:
    """The last row by itself, and the first half of the rows; none where there are fewer than two."""
    lead = next(iter(request.inputs.values())).shape[: _independent_axes(request)]
    if math.prod(lead) < 2:
        return ()
    last = tuple(slice(size - 1, size) for size in lead)
    axis = next(axis for axis, size in enumerate(lead) if size > 1)
    half = tuple(slice(0, size if at != axis else size // 2) for at, size in enumerate(lead))
    return tuple(_part(request, index) for index in (last, half))


def row_at(request: Request, index: Sequence[int]) -> Index:
    """The leading dimensions of one row: that of an output's element, by the element's index."""
    return tuple(slice(at, at + 1) for at in index[: _independent_axes(request)])


def of_row(tensor: NumpyArray, row: Index, request: Request) -> NumpyArray:
    """What a row sees of an input: a view. A tensor that does not vary with rows is seen whole."""
    return tensor[_own(tensor.shape, row, _rank(request))]


def split_rows(request: Request) -> dict[str, tuple[int, tuple[int, ...]]]:
    """The number of rows of each tensor by role, and the dimensions of one: what is left of its shape
    without the leading dimensions along which results do not depend on each other."""
    rank, count = _rank(request), _independent_axes(request)
    found = {}
    for role, tensor in request.tensors.items():
        own = max(0, count - (rank - len(tensor.shape)))  # a tensor that broadcasts may lack leading ones
        found[role] = (math.prod(tensor.shape[:own]), tensor.shape[own:])
    return found


def device_bytes(tensor: TensorType) -> int:
    """The bytes of a tensor."""
    return tensor.size * STORAGE[tensor.dtype][0]


def largest(request: Request) -> int:
    """The bytes of the largest tensor of a request."""
    return max(device_bytes(tensor) for tensor in request.tensors.values())


def _rank(request: Request) -> int:
    return len(next(iter(request.inputs.values())).shape)


def _independent_axes(request: Request) -> int:
    op = request.op
    scope = contract_scope(op, request.tensors, request.dtypes, request.attrs, request.args)
    count = evaluate_derived(op, op.manifest.registry.independent_axes, scope)
    if not isinstance(count, int) or not 0 <= count <= _rank(request):
        raise EvaluationError(f"registry.independentAxes is {count!r}; needed: 0 to {_rank(request)}")
    return count


def _part(whole: Request, index: Index) -> Part:
    rank = _rank(whole)

    def types(tensors: Mapping[str, TensorType]) -> dict[str, TensorType]:
        return {
            role: TensorType(_part_shape(tensor.shape, index, rank), tensor.dtype)
            for role, tensor in tensors.items()
        }

    request = replace(whole, inputs=types(whole.inputs), outputs=types(whole.outputs))
    return Part(request, index, rank)


def _own(shape: Sequence[int], index: Index, rank: int) -> Index:
    """The index for a tensor that broadcasts: it may lack leading dimensions, or have size 1 there."""
    missing = rank - len(shape)
    return tuple(
        each if size > 1 else slice(None) for size, each in zip(shape, index[missing:], strict=False)
    )


def _part_shape(shape: Sequence[int], index: Index, rank: int) -> tuple[int, ...]:
    own = _own(shape, index, rank)
    cut_sizes = [len(range(*each.indices(size))) for size, each in zip(shape, own, strict=False)]
    return (*cut_sizes, *shape[len(own) :])


def _ranges(lead: Sequence[int], count: int) -> list[Index]:
    """Ranges that cut the dimensions ``lead`` into blocks of at most ``count`` positions, in order."""
    whole = len(lead)  # this many dimensions are cut: the last of them in ranges, those before singly
    inner = 1
    while whole > 1 and inner * lead[whole - 1] <= count:
        whole -= 1
        inner *= lead[whole]
    *outer, size = lead[:whole]
    step = max(1, count // inner)
    tail = tuple(slice(0, n) for n in lead[whole:])
    return [
        (*(slice(at, at + 1) for at in places), slice(start, min(start + step, size)), *tail)
        for places in np.ndindex(*outer)
        for start in range(0, size, step)
    ]
