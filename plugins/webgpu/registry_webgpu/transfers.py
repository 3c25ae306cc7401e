"""Host arrays as the device stores them: widened, dense, in whole words, in pieces that fit staging."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .staging import copy

Array = np.ndarray[Any, Any]

# Shaders have no narrow integers and no booleans in buffers: these take 32 bits an element there.
_WIDENED = {"bool": np.uint32, "uint8": np.uint32, "int8": np.int32, "int16": np.int32}


def padded(nbytes: int) -> int:
    """Bytes of a buffer that holds so many: a multiple of 4, at least 4."""
    return max(4, -(-nbytes // 4) * 4)


def words(array: Array) -> Array:
    """The array's bytes on the device, in row-major order, padded with zeros to whole words."""
    stored = array.astype(_WIDENED.get(array.dtype.name, array.dtype), copy=False)
    flat = np.ascontiguousarray(stored).reshape(-1).view(np.uint8)
    if flat.nbytes % 4 == 0:
        return flat
    whole = np.zeros(padded(flat.nbytes), np.uint8)
    whole[: flat.nbytes] = flat
    return whole


def staged(array: Array) -> Array:
    """Where a read-back of the array can be written: itself, or a dense array of the device's dtype."""
    dtype = _WIDENED.get(array.dtype.name, array.dtype)
    return array if array.flags.c_contiguous and dtype == array.dtype else np.empty(array.shape, dtype)


@dataclass(frozen=True)
class Piece:
    """Part of a read-back: ``size`` bytes from ``start`` in buffer and target, ``at`` in staging."""

    buffer: Any
    target: Array
    start: int
    size: int
    at: int

    def store(self, staging: Array) -> None:
        """Copies the piece out of the mapped staging bytes; padding stays behind."""
        flat = self.target.reshape(-1).view(np.uint8)
        count = min(self.size, flat.nbytes - self.start)
        copy(flat[self.start : self.start + count], staging[self.at : self.at + count])


def pieces(copies: Sequence[tuple[Any, Array]], limit: int) -> list[list[Piece]]:
    """Cuts read-backs of (buffer, dense target) into groups of at most ``limit`` bytes of staging."""
    groups: list[list[Piece]] = [[]]
    used = 0
    for buffer, target in copies:
        total = padded(target.nbytes)
        start = 0
        while start < total:
            if used >= limit:
                groups.append([])
                used = 0
            size = min(total - start, limit - used)
            groups[-1].append(Piece(buffer, target, start, size, used))
            start += size
            used += -(-size // 8) * 8  # copies begin at multiples of 8
    return [group for group in groups if group]
