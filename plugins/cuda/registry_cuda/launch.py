"""Kernels on a device: loaded once per source, launched with one packed argument."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, reduce
from operator import or_
from typing import Any

from .compiler import compile_source
from .devices import Profile

POINTERS = ("x", "skip", "bias", "scale", "shift", "y", "sum", "mean", "inverse", "parts")
"""The pointers of the kernels' argument, in order; then come ``INTEGERS`` and epsilon."""

INTEGERS = ("first_row", "rows", "skip_rows", "pieces")


def pointer_format(parts: Collection[str]) -> str:
    """The beginning of the kernels' argument for ``struct``: its pointers, those of absent parts 0."""
    return "=" + "".join("Q" if part in parts else "8x" for part in POINTERS)


def argument_struct(parts: Collection[str], wide: bool) -> struct.Struct:
    """The kernels' argument: pointers of the parts, ``INTEGERS``, epsilon. ``wide``: computed in double."""
    return struct.Struct(f"{pointer_format(parts)}{len(INTEGERS)}q{'d' if wide else 'f4x'}")


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


@cache
def driver() -> Any:
    """The driver's functions, as CuPy has them."""
    from cupy_backends.cuda.api import driver

    return driver


class Launches:
    """What a run over a number of rows enqueues, settled but for the addresses. Thread-safe.

    Args:
        load: the functions, for aligned addresses or any, each with its blocks and the threads of a block.
        unaligned: bits of an address that are 0 where a whole access is aligned.
        parts: which of ``POINTERS`` there are, in that order.
        constants: ``INTEGERS`` but the first, and epsilon.
        wide: the kernels compute in double.
    """

    def __init__(
        self,
        load: Callable[[bool], Sequence[tuple[Any, int, int]]],
        unaligned: int,
        parts: Collection[str],
        constants: Sequence[float],
        wide: bool,
    ):
        self._launch = driver().launchKernel
        self._load = load
        self._unaligned = unaligned
        self._functions: list[Any] = []
        self._aligned_launches = self._pointers(True)
        argument = argument_struct(parts, wide)
        self._memory = ctypes.create_string_buffer(argument.pack(*[0] * len(parts), 0, *constants))
        self._address = (ctypes.c_void_p * 1)(ctypes.addressof(self._memory))
        self._parameters = ctypes.addressof(self._address)
        self._pack = struct.Struct(f"{pointer_format(parts)}q").pack_into
        self._lock = threading.Lock()

    @cached_property
    def _unaligned_launches(self) -> Sequence[tuple[int, int, int]]:
        return self._pointers(False)

    def _pointers(self, aligned: bool) -> Sequence[tuple[int, int, int]]:
        """Each launch's function as the driver knows it, blocks and threads of a block."""
        found = self._load(aligned)
        self._functions += [function for function, _, _ in found]  # which keep their modules loaded
        return [(function.ptr, grid, threads) for function, grid, threads in found]

    def __call__(self, addresses: Sequence[int], first_row: int, stream: int) -> None:
        """Enqueues on a stream of the current device. The first row has that number in the whole call."""
        unaligned = reduce(or_, addresses) & self._unaligned
        launches = self._unaligned_launches if unaligned else self._aligned_launches
        launch, parameters = self._launch, self._parameters
        with self._lock:  # the driver copies the argument during the launch
            self._pack(self._memory, 0, *addresses, first_row)
            for function, grid, threads in launches:
                launch(function, grid, 1, 1, threads, 1, 1, 0, stream, parameters, 0)


@contextmanager
def on_device(index: int) -> Iterator[None]:
    """Makes a device the current one, its context bound to this thread, and puts the caller's back.

    It is set also where it is the current one already: a thread that has only been given device memory has
    no context yet, and the driver then neither loads nor launches.
    """
    from cupy.cuda import runtime

    context, device = driver().ctxGetCurrent(), runtime.getDevice()
    runtime.setDevice(index)
    try:
        yield
    finally:
        if context:
            driver().ctxSetCurrent(context)
        elif device != index:
            runtime.setDevice(device)


def on_stream(pointer: int) -> AbstractContextManager[object]:
    """Makes a stream of any library, by its pointer, CuPy's current one."""
    from cupy.cuda import ExternalStream, Stream, get_current_stream

    if get_current_stream().ptr == pointer:
        return nullcontext()
    adopt = getattr(Stream, "from_external", None)  # newer CuPy's way, which made the other one deprecated
    found: AbstractContextManager[object] = adopt(_Foreign(pointer)) if adopt else ExternalStream(pointer)
    return found


@dataclass(frozen=True)
class _Foreign:
    """A stream as CUDA's stream protocol has it."""

    pointer: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer
