"""Buffers that are free to be used again."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any


class Pool:
    """Free buffers by size, at most ``limit`` bytes of them; sizes not wanted for longest go first.

    `put` may be called from any thread at any time, also by the garbage collector; the rest belongs under the
    device's lock.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self._free: OrderedDict[int, list[Any]] = OrderedDict()
        self._held = 0
        self._returned: deque[Any] = deque()
        self._tidying = False

    def put(self, buffer: Any) -> None:
        """Takes back a buffer that only recorded work still uses: what is recorded later may have it."""
        if buffer.size <= self._limit:
            self._returned.append(buffer)

    def take(self, size: int) -> Any:
        """A buffer of exactly that size, or None."""
        self.tidy()
        free = self._free.get(size)
        if not free:
            return None
        self._held -= size
        return free.pop()

    def tidy(self) -> None:
        """Sorts in what has come back, and lets go of what is over the limit."""
        if self._tidying:  # the garbage collector, which runs at any point below, gives back a buffer
            return
        self._tidying = True
        try:
            while self._returned:
                buffer = self._returned.popleft()
                size = buffer.size
                self._free.setdefault(size, []).append(buffer)
                self._free.move_to_end(size)
                self._held += size
            while self._held > self._limit:
                size, free = next(iter(self._free.items()))
                if free:
                    self._held -= size
                    free.pop()
                else:
                    del self._free[size]
        finally:
            self._tidying = False
