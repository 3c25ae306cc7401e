"""Remembers the plan for each kind of call, so that a call of a known kind only runs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import arrays
from .call import OPTIONS
from .catalog import Catalog

if TYPE_CHECKING:
    from .op import Op
    from .plan import Plan

SIZE = 1024

Reader = Callable[[Any], Hashable]
"""Tells what of an argument decides the plan, beside its type."""


class Memo:
    """Routes by the key of a call; the least recently used goes first. Thread-safe.

    ``generation`` counts how often it was cleared: a plan that was being made meanwhile is not kept.
    """

    def __init__(self, size: int = SIZE) -> None:
        self.generation = 0
        self._size = size
        self._lock = threading.Lock()
        self._routes: OrderedDict[Hashable, Route] = OrderedDict()

    def get(self, key: Hashable) -> Route | None:
        """The route for a key."""
        with self._lock:
            route = self._routes.get(key)
            if route is not None:
                self._routes.move_to_end(key)
            return route

    def put(self, key: Hashable, route: Route, generation: int) -> None:
        """Keeps a route that was begun in that generation."""
        with self._lock:
            if generation == self.generation:
                self._routes[key] = route
                if len(self._routes) > self._size:
                    self._routes.popitem(last=False)

    def clear(self) -> None:
        """Forgets all routes."""
        with self._lock:
            self.generation += 1
            self._routes.clear()


@dataclass(frozen=True)
class Route:
    """Where the tensors of a call of a known kind are, and the plan they go to.

    ``positional`` has the role of each argument by position, None for an absent tensor; ``named``, ``mapped``
    and ``out`` pair keywords, keys of ``inputs`` and keys or places of ``out`` with roles.
    """

    plan: Plan
    positional: tuple[str | None, ...]
    named: tuple[tuple[str, str], ...]
    mapped: tuple[tuple[str, str], ...]
    out: tuple[tuple[Any, str], ...]

    def run(self, tensors: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Runs the plan with the tensors of a call."""
        inputs = {role: value for role, value in zip(self.positional, tensors, strict=True) if role}
        for name, role in self.named:
            inputs[role] = named[name]
        if self.mapped:
            given = named["inputs"]
            for name, role in self.mapped:
                inputs[role] = given[name]
        if not self.out:
            return self.plan.execute(inputs, {})
        places = named["out"]
        out = {role: places if place is None else places[place] for place, role in self.out}
        return self.plan.execute(inputs, out, known=True)


def make_route(plan: Plan, tensors: Sequence[Any], named: Mapping[str, Any]) -> Route:
    """The route of a call that has been read, and found right, for the plan made of it."""
    op, asked = plan.request.op, plan.request.asked
    roles = op.input_names
    given = named.get("inputs") or {}
    out = named.get("out")
    if out is None:
        places: list[tuple[Any, str]] = []
    elif isinstance(out, Mapping):
        places = [(name, op.output_names[name]) for name, value in out.items() if value is not None]
    elif isinstance(out, list | tuple):
        places = list(enumerate(asked))
    else:
        places = [(None, asked[0])]
    return Route(
        plan,
        tuple(s.role if v is not None else None for s, v in zip(op.inputs, tensors, strict=False)),
        tuple((n, roles[n]) for n in _tensor_names(op, named) if named[n] is not None),
        tuple((name, roles[name]) for name, value in given.items() if value is not None),
        tuple(places),
    )


def _tensor_names(op: Op, named: Mapping[str, Any]) -> Iterator[str]:
    return (name for name in named if name in op.input_names and name not in OPTIONS)


class Keys:
    """Makes the key of a call: for each argument its type, and what its reader says. Thread-safe."""

    def __init__(self, catalog: Catalog):
        self._catalog = catalog
        self._readers: dict[type, Reader] = {
            np.ndarray: _read_array,
            **dict.fromkeys((str, bool, int, float, type(None)), _read_scalar),
            **dict.fromkeys((tuple, list), self._read_sequence),
        }

    def of(self, op: Hashable, tensors: Sequence[Any], named: Mapping[str, Any]) -> Hashable:
        """The key of a call.

        Raises:
            ContractError, TypeError: an argument is none of what a call takes, or cannot be told apart
                cheaply.
        """
        key: list[Any] = [op]
        readers = self._readers
        for value in tensors:
            kind = type(value)
            key += (kind, (readers.get(kind) or self._find(kind))(value))
        for name, value in named.items():
            kind = type(value)
            key += (name, kind, (readers.get(kind) or self._find(kind))(value))
        return tuple(key)

    def _find(self, kind: type) -> Reader:
        """The reader of a type that was not met before, from the backend that has one."""
        backends = self._catalog.plugins.backends.values()
        found = next((reader for each in backends if (reader := each.reader(kind)) is not None), None)
        if found is None and kind.__module__.partition(".")[0] == "torch":
            found = _read_torch
        reader = self._readers[kind] = found or self._read_other
        return reader

    def _read_other(self, value: Any) -> Hashable:
        if isinstance(value, np.generic | np.ndarray) and not value.dtype.hasobject and not value.shape:
            return (value.dtype, value.tobytes())
        if isinstance(value, tuple | list):
            return self._read_sequence(value)
        if isinstance(value, Mapping):
            return self.of(None, (), value)
        return self._read_array(value)

    def _read_sequence(self, value: Any) -> Hashable:
        if type(value) is tuple and all(type(item) is str for item in value):
            return value
        return self._read_array(value) if arrays.is_pair(value) else self.of(None, value, {})

    def _read_array(self, value: Any) -> Hashable:
        kind = arrays.describe(value, "argument", self._catalog.location)
        if not kind.shape:
            raise TypeError("the value of a scalar of another library is not read for a key")
        return kind


def _read_array(value: Any) -> Hashable:
    if value.ndim:
        return (value.dtype, value.shape)
    if value.dtype.hasobject:
        raise TypeError("an object array is not read for a key")
    return (value.dtype, value.tobytes())  # it may be an attribute as well as a tensor, so the value counts


def _read_torch(value: Any) -> Hashable:
    if not value.shape:
        raise TypeError("the value of a scalar of another library is not read for a key")
    return (value.dtype, value.shape, value.device, value.requires_grad, value.layout)


def _read_scalar(value: Any) -> Hashable:
    return value  # type: ignore[no-any-return]
