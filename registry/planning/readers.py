"""Tells the kinds of a call's arguments apart, as cheaply as each type allows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from operator import attrgetter, call
from typing import Any

import numpy as np

from ..calling import arrays
from ..catalog import Catalog

Reader = Callable[[Any], Hashable]
"""Tells what of an argument decides the plan, beside its type."""


MAX_TYPES = 1024
"""The readers of so many types are kept."""


class Readers:
    """The reader of each type. Thread-safe."""

    def __init__(self, catalog: Catalog):
        self._catalog = catalog
        self._known: dict[type, Reader] = {
            np.ndarray: _read_array,
            **dict.fromkeys((str, bool, int, float, type(None)), _read_scalar),
            **dict.fromkeys((tuple, list), self._read_sequence),
        }

    def of(self, kind: type) -> Reader:
        """The reader of a type. It raises ContractError or TypeError for what is expensive to read."""
        known = self._known.get(kind)
        if known is None:
            known = self._find(kind)
            if len(self._known) < MAX_TYPES:  # programs may make types without end, which it would keep
                self._known[kind] = known
        return known

    def _find(self, kind: type) -> Reader:
        """The reader of a type that was not met before, from the backend that has one."""
        backends = self._catalog.plugins.backends.values()
        found = next((reader for each in backends if (reader := each.reader(kind)) is not None), None)
        if found is None and kind.__module__.partition(".")[0] == "torch":
            found = _read_torch
        return found or self._read_other

    def _read_all(self, values: tuple[Any, ...]) -> Hashable:
        kinds = tuple(map(type, values))
        return kinds, tuple(map(call, map(self.of, kinds), values))

    def _read_other(self, value: Any) -> Hashable:
        if isinstance(value, np.generic | np.ndarray) and not value.dtype.hasobject and not value.shape:
            return (value.dtype, value.tobytes())
        if isinstance(value, tuple | list):
            return self._read_sequence(value)
        if isinstance(value, Mapping):
            return (tuple(value), self._read_all(tuple(value.values())))
        return self._read_described(value)

    def _read_sequence(self, value: Any) -> Hashable:
        if type(value) is tuple and _are_texts(value):
            return value
        return self._read_described(value) if arrays.is_pair(value) else self._read_all(tuple(value))

    def _read_described(self, value: Any) -> Hashable:
        kind = arrays.describe(value, "argument", self._catalog.location)
        if not kind.shape:
            raise TypeError("the value of a scalar of another library is not read for a key")
        return kind


def _are_texts(values: tuple[Any, ...]) -> bool:
    try:
        "".join(values)  # the quickest way to ask all of them
    except TypeError:
        return False
    return True


def _read_array(value: Any) -> Hashable:
    shape = value.shape
    if shape:
        return (value.dtype, shape)
    if value.dtype.hasobject:
        raise TypeError("an object array is not read for a key")
    return (value.dtype, value.tobytes())  # it may be an attribute as well as a tensor, so the value counts


_torch_kind = attrgetter("dtype", "shape", "device", "requires_grad", "layout")


def _read_torch(value: Any) -> Hashable:
    if not value.shape:
        raise TypeError("the value of a scalar of another library is not read for a key")
    return _torch_kind(value)


def _read_scalar(value: Any) -> Hashable:
    return value  # type: ignore[no-any-return]
