"""Mappable buffers by way of which large arrays go to a device and come from it, piece by piece.

While the device copies one piece, the host copies another. A buffer is taken out while it is in use: one that
an interrupt leaves mapped is never submitted again, which would end the process.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

BYTES = 32 * 1024 * 1024
"""Of a staging buffer."""

SMALL_BYTES = 64 * 1024
"""Of one for small read-backs."""

DEPTH = 2
"""Staging buffers of each direction."""

SHARED_FROM = 4 * 1024 * 1024
"""Bytes from which several threads copy for the host."""

THREADS = 8


class Staging:
    """The staging buffers of a device, used under its lock."""

    def __init__(self, gpu: Any, api: Any):
        self._gpu = gpu
        self._flags = api.BufferUsage
        self._up: deque[tuple[Any, Any]] = deque()
        self._down: list[Any] = []

    def writable(self) -> Any:
        """A mapped buffer to write into; waits until the device has read what was in it."""
        if len(self._up) < DEPTH:
            usage = self._flags.MAP_WRITE | self._flags.COPY_SRC
            return self._gpu.create_buffer(size=BYTES, usage=usage, mapped_at_creation=True)
        buffer, mapped = self._up.popleft()
        mapped.sync_wait()
        return buffer

    def written(self, buffer: Any) -> None:
        """Takes a buffer back whose reading has been submitted."""
        self._up.append((buffer, buffer.map_async("WRITE")))

    def readable(self, size: int) -> Any:
        """An unmapped buffer of at least that size (``BYTES`` at most) for the device to copy into."""
        for index, kept in enumerate(self._down):
            if kept.size >= size:
                return self._down.pop(index)
        usage = self._flags.MAP_READ | self._flags.COPY_DST
        return self._gpu.create_buffer(size=SMALL_BYTES if size <= SMALL_BYTES else BYTES, usage=usage)

    @contextmanager
    def reading(self, buffer: Any, size: int) -> Iterator[Array]:
        """The first bytes that the device has copied into a buffer, which is taken back afterwards."""
        buffer.map_async("READ_NOSYNC", 0, size).sync_wait()
        try:
            yield np.frombuffer(buffer.read_mapped(0, size, copy=False), np.uint8)
        finally:
            buffer.unmap()
        if sum(kept.size == buffer.size for kept in self._down) < DEPTH:
            self._down.append(buffer)


def fill(buffer: Any, data: Array) -> None:
    """Writes bytes to the beginning of a mapped buffer."""
    mapped = getattr(buffer, "_experimental_get_mapped_range", None)
    if mapped is None or data.nbytes < SHARED_FROM:
        buffer.write_mapped(data)
        return
    # What write_mapped does, by one thread alone.
    copy(np.frombuffer(mapped(0, data.nbytes), np.uint8), data)


def copy(target: Array, source: Array) -> None:
    """Copies bytes, many of them by several threads: fresh memory costs more than the copy."""
    if source.nbytes < SHARED_FROM:
        np.copyto(target, source)
        return
    parts = zip(np.array_split(target, _threads()), np.array_split(source, _threads()), strict=True)
    list(_pool(os.getpid()).map(lambda part: np.copyto(*part), parts))


@cache
def _threads() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return min(THREADS, len(affinity(0)) if affinity else os.cpu_count() or 1)


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """One for each process, for threads do not survive a fork."""
    return ThreadPoolExecutor(_threads(), "registry-webgpu")
