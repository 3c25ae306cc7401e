"""Shapes with names in place of sizes: what comes out of a call whose batch or length is not known yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .arrays import is_pair
from .call import Call, wrong
from .request import Request

Shape = tuple[int | str, ...]


class Symbol(int):
    """A dimension with a name and, while a shape is being inferred, a size that stands for it."""

    name: str

    def __new__(cls, name: str, size: int) -> Symbol:
        """A symbol of that name, computing like ``size``."""
        symbol = super().__new__(cls, size)
        symbol.name = name
        return symbol

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


def infer(bind: Callable[[Call], Request], call: Call) -> dict[str, tuple[Shape, str]]:
    """The shape and dtype of each output asked for; ``bind`` makes a request of a call.

    A name in a shape is a size of at least 2 that differs from all other names and numbers. The call is bound
    with two sets of such sizes: an output dimension that is one of the names comes back as it, one that is
    computed from them is refused.

    Raises:
        ContractError: the call breaks the contract, or a dimension of an output is computed from names.
    """
    first = bind(_with_sizes(call, 10_007))
    second = bind(_with_sizes(call, 20_011))
    return {role: (_shape(call, role, first, second), first.outputs[role].dtype) for role in first.asked}


def _shape(call: Call, role: str, first: Request, second: Request) -> Shape:
    dims: list[int | str] = []
    for one, other in zip(first.outputs[role].shape, second.outputs[role].shape, strict=True):
        if not isinstance(one, Symbol) and one != other:
            raise wrong(call.op, f"a dimension of {role} is computed from names; give numbers instead", role)
        dims.append(one.name if isinstance(one, Symbol) else one)
    return tuple(dims)


def _with_sizes(call: Call, least: int) -> Call:
    """The call with odd numbers from ``least`` on in place of names; numbers that it holds are left out."""
    pairs = [value for value in (*call.tensors.values(), *call.out.values()) if is_pair(value)]
    dims = [dim for shape, _ in pairs for dim in shape]
    names = list(dict.fromkeys(dim for dim in dims if isinstance(dim, str) and dim))
    taken = {dim for dim in dims if isinstance(dim, int)}
    free = (size for size in range(least, least + 2 * (len(names) + len(taken)) + 1, 2) if size not in taken)
    symbols = {name: Symbol(name, size) for name, size in zip(names, free, strict=False)}

    def named(values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            role: (
                tuple(symbols.get(dim, dim) if isinstance(dim, str) else dim for dim in value[0]),
                value[1],
            )
            if is_pair(value)
            else value
            for role, value in values.items()
        }

    return replace(call, tensors=named(call.tensors), out=named(call.out))
