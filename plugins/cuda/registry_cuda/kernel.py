"""A variant made ready on a device, and what a run does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import numpy as np

from .devices import Profile
from .launch import POINTERS, Launches, driver, load_function, on_device, on_stream
from .libraries import Library, addresses_of, library_of
from .problem import OUTPUTS, Problem
from .staging import run_staged
from .tensor import as_cupy
from .variants import Variant


class Kernel:
    """Runs one problem on one device. Device tensors stay where they are, host tensors are staged."""

    def __init__(self, problem: Problem, variant: Variant, profile: Profile):
        assert profile.index is not None
        self.problem = problem
        self.index = profile.index
        self.parts = tuple(part for part in POINTERS if part in problem.roles)
        self._inputs = tuple(problem.roles[part] for part in self.parts if part not in OUTPUTS)
        self._outputs = tuple(problem.roles[part] for part in self.parts if part in OUTPUTS)
        self._variant = variant
        self._profile = profile
        self._current_context = driver().ctxGetCurrent
        self._kernel = variant.kernel(problem)
        self.launches = lru_cache(maxsize=4)(self._launches)
        self._scratch = self.scratch(problem.rows)
        with on_device(self.index):
            self._context = self._current_context()
            self._whole = self._launches(problem.rows)

    def scratch(self, rows: int) -> int:
        """Bytes that a run over a number of rows needs beside its tensors."""
        return self._variant.scratch_bytes(self.problem, rows)

    def _launches(self, rows: int) -> Launches:
        """What runs a number of the problem's rows. The kernel's device must be the current one.

        It takes the addresses of ``parts`` in that order, and that of the scratch when there is any.
        """
        problem, count = self.problem, self._profile.multiprocessors

        def load(aligned: bool) -> list[tuple[Any, int, int]]:
            source = self._kernel.source(aligned)
            return [
                (load_function(source, item.function, self._profile), item.grid, item.threads)
                for item in self._variant.launches(problem, rows, count)
            ]

        return Launches(
            load,
            self._kernel.constants["vector"] * problem.item_bytes - 1,
            (*self.parts, "parts") if self.scratch(rows) else self.parts,
            (rows, problem.skip_rows, self._variant.pieces(problem, rows, count), problem.epsilon),
            problem.dtype == "float64",
        )

    def __call__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Enqueues the launches on the stream of the first tensor's library; waits only for host tensors."""
        values = [*map(inputs.__getitem__, self._inputs), *map(outputs.__getitem__, self._outputs)]
        if self._current_context() != self._context:
            with on_device(self.index):
                self._run(values)
            return
        self._run(values)

    def _run(self, values: Sequence[Any]) -> None:
        library = library_of(values[0])
        addresses = addresses_of(values, library)
        if addresses is not None:
            self._enqueue(addresses, library)
            return
        # What CuPy copies from here on has to be in the order of the tensors' own stream.
        first = next((value for value in values if not isinstance(value, np.ndarray)), None)
        with nullcontext() if first is None else on_stream(library_of(first).stream(self.index)):
            if any(isinstance(value, np.ndarray) for value in values):
                run_staged(self, dict(zip(self.parts, values, strict=True)))
            else:
                self._run_gathered(values)

    def _enqueue(self, addresses: list[int], library: Library) -> None:
        if self._scratch:
            _kept, address = library.scratch(self._scratch)
            addresses.append(address)
        self._whole(addresses, 0, library.stream(self.index))

    def _run_gathered(self, values: Sequence[Any]) -> None:
        """Runs on tensors some of which have gaps, or can be read by DLPack alone."""
        import cupy

        dense = []  # kept until the launches are enqueued
        late = []  # outputs with gaps, and what is to be copied into them
        for part, value in zip(self.parts, values, strict=True):
            array = as_cupy(value)
            if part not in OUTPUTS:
                dense.append(cupy.ascontiguousarray(array))
            elif array.flags.c_contiguous:
                dense.append(array)
            else:
                dense.append(cupy.empty(array.shape, array.dtype))
                late.append((array, dense[-1]))
        self._enqueue([array.data.ptr for array in dense], library_of(values[0]))
        for array, made in late:
            array[...] = made
