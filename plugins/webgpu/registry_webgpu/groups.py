"""Bind groups, made once for each combination of buffers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

MAX_GROUPS = 4096

Entry = tuple[Any, int]
"""A buffer and how many of its bytes are bound."""


class BindGroups:
    """Keeps bind groups as long as their layout and every buffer they bind is there, none of which they hold
    alive on our side.

    Belongs under the device's lock, but for the end of a buffer, which may come at any time.
    """

    def __init__(self, make: Callable[[Any, Sequence[Entry]], Any]):
        self._make = make
        self._groups: dict[tuple[int, ...], Any] = {}
        self._watched: dict[int, tuple[weakref.ref[Any], set[tuple[int, ...]]]] = {}

    def get(self, layout: Any, entries: Sequence[Entry]) -> Any:
        """The bind group of a layout and entries in its order."""
        key = (id(layout), *[part for buffer, size in entries for part in (id(buffer), size)])
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= MAX_GROUPS:
                self._groups.clear()
                self._watched.clear()
            group = self._groups[key] = self._make(layout, entries)
            for item in (layout, *(buffer for buffer, _ in entries)):
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
