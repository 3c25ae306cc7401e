"""Bind groups, made once for each combination of buffers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

MAX_GROUPS = 4096


@dataclass(frozen=True, eq=False)
class Shape:
    """What bind groups of several buffers have in common: layout, and the bytes bound of each buffer."""

    layout: Any
    sizes: tuple[int, ...]


class BindGroups:
    """Keeps bind groups as long as their shape and every buffer they bind is there, none of which they hold
    alive on our side.

    Belongs under the device's lock, but for the end of a buffer, which may come at any time.
    """

    def __init__(self, make: Callable[[Shape, Sequence[Any]], Any]):
        self._make = make
        self._groups: dict[tuple[int, ...], Any] = {}
        self._watched: dict[int, tuple[weakref.ref[Any], set[tuple[int, ...]]]] = {}

    def get(self, shape: Shape, buffers: Sequence[Any]) -> Any:
        """The bind group of a shape with buffers in its order."""
        key = (id(shape), *map(id, buffers))
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= MAX_GROUPS:
                self._groups.clear()
                self._watched.clear()
            group = self._groups[key] = self._make(shape, buffers)
            for item in (shape, *buffers):
                self._watch(item).add(key)
        return group

    def _watch(self, item: Any) -> set[tuple[int, ...]]:
        identity = id(item)
        if identity not in self._watched:
            gone = weakref.ref(item, lambda _: self._forget(identity))
            self._watched[identity] = (gone, set())
        return self._watched[identity][1]

    def _forget(self, identity: int) -> None:
        _, keys = self._watched.pop(identity, (None, ()))
        for key in tuple(keys):
            self._groups.pop(key, None)
