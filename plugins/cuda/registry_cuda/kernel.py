"""A variant made ready on a device: its functions, and what a run does."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from .devices import Profile
from .launch import POINTERS, launch, load_function, on_device
from .problem import OUTPUTS, Problem
from .staging import run_staged
from .tensor import address, as_cupy, root
from .variants import Variant


class Kernel:
    """Runs one problem on one device. Device tensors stay where they are, host tensors are staged."""

    def __init__(self, problem: Problem, variant: Variant, profile: Profile):
        assert profile.index is not None
        self.problem = problem
        self.index = profile.index
        self._profile = profile
        self._variant = variant
        self._wide = problem.dtype == "float64"
        self.scratch_bytes = self._scratch(problem.rows)
        kernel = variant.kernel(problem)
        # Bits of an address that are 0 where a whole access is aligned.
        self._unaligned = kernel.constants["vector"] * problem.item_bytes - 1
        self._sources = {aligned: kernel.source(aligned) for aligned in (True, False)}
        # What does not change from run to run; the pointers of absent tensors are 0.
        self._order = tuple((POINTERS.index(part), part, role) for part, role in problem.roles.items())
        self._all = self._launches(problem.rows)
        with on_device(self.index):
            self._functions(True)

    def _scratch(self, rows: int) -> int:
        return self._variant.parts(self.problem) * rows * (8 if self._wide else 4)

    def _launches(self, rows: int) -> tuple[tuple[str, int, int], ...]:
        found = self._variant.launches(self.problem, rows, self._profile.multiprocessors)
        return tuple((item.function, item.grid, item.threads) for item in found)

    def _functions(self, aligned: bool) -> list[Any]:
        return [load_function(self._sources[aligned], name, self._profile) for name, _, _ in self._all]

    def __call__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Enqueues the launches on the stream of the first tensor's library; waits only for host tensors."""
        values = [(outputs if part in OUTPUTS else inputs)[role] for _, part, role in self._order]
        with on_device(self.index):
            if any(isinstance(value, np.ndarray) for value in values):
                run_staged(self, {part: v for (_, part, _), v in zip(self._order, values, strict=True)})
            else:
                self._run(values)

    def _run(self, values: Sequence[Any]) -> None:
        pointers = [0] * len(POINTERS)
        kept: list[Any] = []  # copies, until the launches are enqueued
        late: list[tuple[Any, Any]] = []  # outputs with gaps, and what is to be copied into them
        for (place, part, _), value in zip(self._order, values, strict=True):
            found = address(value)
            if found is None:
                dense = self._dense(value, part, late)
                kept.append(dense)
                found = dense.data.ptr
            pointers[place] = found
        self.enqueue(pointers, self.problem.rows, 0, stream_of(values[0], self.index))
        for array, dense in late:
            array[...] = dense

    def _dense(self, value: Any, part: str, late: list[tuple[Any, Any]]) -> Any:
        import cupy

        array = as_cupy(value)
        if part not in OUTPUTS:
            return cupy.ascontiguousarray(array)
        if array.flags.c_contiguous:
            return array
        late.append((array, cupy.empty(array.shape, array.dtype)))
        return late[-1][1]

    def enqueue(self, pointers: list[int], rows: int, first_row: int, stream: int) -> None:
        """Launches on dense device memory of the current device.

        ``pointers`` holds an address for each of ``POINTERS``, 0 where there is none; the last is filled in.
        ``rows`` rows begin at the addresses; the first is number ``first_row`` of the call.
        """
        together = 0
        for pointer in pointers:
            together |= pointer
        launches = self._all if rows == self.problem.rows else self._launches(rows)
        size = self._scratch(rows)
        scratch = _allocate(size, stream) if size else None
        if scratch is not None:
            pointers[-1] = scratch.ptr
        pieces = self._variant.pieces(self.problem, rows, self._profile.multiprocessors)
        integers = (rows, first_row, self.problem.skip_rows, pieces)
        functions = self._functions(not together & self._unaligned)
        for function, (_, grid, threads) in zip(functions, launches, strict=True):
            launch(function, grid, threads, stream, pointers, integers, self.problem.epsilon, self._wide)


def stream_of(first: Any, index: int) -> int:
    """The current stream of the library that a tensor comes from, CuPy's for all but torch."""
    if root(first) == "torch":
        return int(sys.modules["torch"].cuda.current_stream(index).cuda_stream)
    import cupy

    return int(cupy.cuda.get_current_stream().ptr)


def _allocate(size: int, stream: int) -> Any:
    """Memory from CuPy's pool that may be let go once work on that stream is enqueued."""
    import cupy

    here = cupy.cuda.get_current_stream().ptr == stream
    with nullcontext() if here else cupy.cuda.ExternalStream(stream):
        return cupy.cuda.alloc(size)
