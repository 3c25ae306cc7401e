"""Kernels on a device: loaded once per source, launched with one packed argument."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from .compiler import compile_source
from .devices import Profile

POINTERS = ("x", "skip", "bias", "scale", "shift", "y", "sum", "mean", "inverse", "parts")
"""The pointers of the kernels' argument, in order; then come ``INTEGERS`` and epsilon."""

INTEGERS = ("rows", "first_row", "skip_rows", "pieces")

_ARGUMENT = {
    wide: struct.Struct(f"={len(POINTERS)}Q{len(INTEGERS)}q{'d' if wide else 'f4x'}")
    for wide in (False, True)
}


class _Argument(threading.local):
    """Where a thread packs the argument: the driver copies it during the launch."""

    def __init__(self) -> None:
        self.memory = ctypes.create_string_buffer(max(item.size for item in _ARGUMENT.values()))
        self.address = (ctypes.c_void_p * 1)(ctypes.addressof(self.memory))
        self.parameters = ctypes.addressof(self.address)


_argument = _Argument()


@lru_cache(maxsize=512)
def load_function(source: str, name: str, profile: Profile) -> Any:
    """A function of a source on a device, which must be the current one. It keeps its module alive.

    Raises:
        BackendError: it does not compile.
    """
    from cupy.cuda.function import Module

    module = Module()
    module.load(compile_source(source, profile.capability))
    return module.get_function(name)


def pack(memory: Any, pointers: Sequence[int], integers: Sequence[int], epsilon: float, wide: bool) -> None:
    """Writes the kernels' argument into a buffer. ``wide`` tells that they compute in double."""
    _ARGUMENT[wide].pack_into(memory, 0, *pointers, *integers, epsilon)


def launch(
    function: Any,
    grid: int,
    threads: int,
    stream: int,
    pointers: Sequence[int],
    integers: Sequence[int],
    epsilon: float,
    wide: bool,
) -> None:
    """Enqueues a kernel on a stream of the current device; the argument as for `pack`."""
    from cupy_backends.cuda.api import driver

    pack(_argument.memory, pointers, integers, epsilon, wide)
    driver.launchKernel(function.ptr, grid, 1, 1, threads, 1, 1, 0, stream, _argument.parameters, 0)


@contextmanager
def on_device(index: int) -> Iterator[None]:
    """Makes a device the current one, and puts the caller's back."""
    from cupy.cuda import runtime

    before = runtime.getDevice()
    if before == index:
        yield
        return
    runtime.setDevice(index)
    try:
        yield
    finally:
        runtime.setDevice(before)
