"""What the arguments of an op may be, by its manifest: values to try, which the contract then sorts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtypes import DTYPES
from ..errors import ContractError
from ..manifest import Arg
from ..opinfo import Op
from .cases import Case, Tensor

if TYPE_CHECKING:
    from ..api import Registry

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 31, 33, 64, 100, 255, 257, 768, 1000, 1023, 4096, 4097)
"""Awkward lengths: around the powers of two and the widths that kernels work in."""

MAX_RANK = 4

Shape = tuple[int, ...]


def ranks_of(shape: Shape) -> list[Shape]:
    """The shape with fewer leading dimensions, with more of them, and without zeros."""
    fewer = [shape[cut:] for cut in range(1, len(shape))]
    more = [(1,) * extra + shape for extra in range(1, MAX_RANK + 1 - len(shape))]
    found = [*fewer, *more]
    return found + [tuple(max(1, dim) for dim in other) for other in (shape, *found) if 0 in other]


def shapes_beside(shape: Shape) -> list[Shape]:
    """Shapes of another tensor beside one of this shape, always as many for one rank."""
    rank = range(len(shape))
    suffixes = [shape[cut:] for cut in range(1, len(shape))]
    leading_ones = [(1,) * cut + shape[cut:] for cut in rank if cut]
    one = [(*shape[:axis], 1, *shape[axis + 1 :]) for axis in rank]
    others_one = [(*(1 for _ in shape[:axis]), shape[axis], *(1 for _ in shape[axis + 1 :])) for axis in rank]
    return [shape, shape[-1:], *suffixes, *leading_ones, *one, *others_one, (1,), ()]


def attribute_values(op: Op, name: str) -> list[Any]:
    """Values for an attribute; None, the first, stands for leaving it out."""
    default = op.attributes.get(name)
    constraint = op.manifest.attribute_constraints.get(name)
    if constraint is not None and constraint.values is not None:
        return [None, *constraint.values]
    if isinstance(default, bool):
        return [None, not default]
    if isinstance(default, int):
        return [None, *range(-MAX_RANK - 1, MAX_RANK + 1)]
    if isinstance(default, float):
        return [None, 0.0, 1e-12, 1e-5, 0.1, 1e6, 3e38, -1.0]
    return [None]


def scalar_values(arg: Arg) -> list[Any]:
    """Values for a scalar argument; None stands for leaving it out."""
    values: dict[str, list[Any]] = {
        "u32": [1, 0, 7],
        "i32": [1, 0, -3],
        "f32": [1.0, 0.0, -2.5],
        "bool": [True, False],
        "string": list(arg.one_of or ["text"]),
    }
    return values[arg.kind] + ([] if arg.required else [None])


def dtypes_of(op: Op, variable: str) -> list[str]:
    """The dtypes of a type variable, or the dtype itself; float32 where anything goes."""
    return [dtype for dtype in op.allowed_dtypes(variable) if dtype in DTYPES] or ["float32"]


def complaint(registry: Registry, op: Op, case: Case) -> str | None:
    """The argument that the contract blames: empty when it names none, None when it takes the case."""
    try:
        registry.infer(op, **case.pairs())
    except ContractError as error:
        return error.argument or ""
    return None


def inferred(registry: Registry, op: Op, case: Case) -> dict[str, Tensor]:
    """The outputs of a legal case."""
    found = registry.infer(op, **case.pairs())
    return {role: Tensor(tuple(map(int, shape)), dtype) for role, (shape, dtype) in found.items()}
