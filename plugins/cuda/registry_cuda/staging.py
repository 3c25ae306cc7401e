"""Host tensors on their way through a device: in chunks of rows, by pinned memory that is used again.

While one lane's chunk is uploaded, computed and downloaded, the host fills and empties the other's memory.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .tensor import as_cupy

if TYPE_CHECKING:
    from .kernel import Kernel

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

CHUNK_BYTES = 8 * 1024 * 1024
"""Bytes of the rows of one chunk, inputs and outputs together. One row may be longer."""

KEPT_BYTES = 4 * CHUNK_BYTES
"""Larger memory, for a very long row, goes when the call ends."""

LANES = 2
APART = 256
"""Tensors begin at multiples of this in a lane's memory."""

INPUTS = ("x", "skip")
"""The parts of a problem that have rows to upload; the outputs have rows to download."""


class Lane:
    """A stream, pinned memory and device memory of one size."""

    def __init__(self) -> None:
        import cupy

        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.size = 0
        self.pending: list[tuple[Bytes, Bytes]] = []
        self._pinned: Any = None
        self._memory: Any = None

    def resize(self, size: int) -> None:
        """At least that many bytes on both sides; 0 lets go of them."""
        import cupy

        if size == 0 or size > self.size:
            self._memory = self._pinned = None
            self.size = size
            if size:
                self._pinned = cupy.cuda.alloc_pinned_memory(size)
                self._memory = cupy.cuda.alloc(size)

    @property
    def host(self) -> Bytes:
        """The pinned memory."""
        return np.frombuffer(self._pinned, np.uint8, self.size)

    @property
    def address(self) -> int:
        """The device memory."""
        return int(self._memory.ptr)

    def copy(self, begin: int, end: int, upload: bool) -> None:
        """Enqueues the transfer of a range of bytes."""
        from cupy.cuda import runtime

        if end > begin:
            host, device = self._pinned.ptr + begin, self._memory.ptr + begin
            kind = runtime.memcpyHostToDevice if upload else runtime.memcpyDeviceToHost
            to, source = (device, host) if upload else (host, device)
            runtime.memcpyAsync(to, source, end - begin, kind, self.stream.ptr)

    def finish(self) -> None:
        """Waits for the lane's work and moves its results to where they belong."""
        self.stream.synchronize()
        for target, source in self.pending:
            np.copyto(target, source)
        self.pending.clear()


class _Lanes:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lanes = [Lane() for _ in range(LANES)]


@cache
def _lanes(index: int) -> _Lanes:
    """The lanes of a device, which must be the current one."""
    return _Lanes()


def run_staged(kernel: Kernel, values: Mapping[str, Any]) -> None:
    """Runs a kernel on tensors some or all of which are on the host, and waits for the results."""
    import cupy

    problem = kernel.problem
    resident: dict[str, int] = {}  # device addresses of tensors that are there whole
    hosts: dict[str, Bytes] = {}  # rows on the host, as bytes
    kept: list[Any] = []
    late: list[tuple[Any, Any]] = []
    for part, value in values.items():
        if not isinstance(value, np.ndarray):
            dense = as_cupy(value)
            if not dense.flags.c_contiguous:
                dense = cupy.ascontiguousarray(dense)
                if part in problem.outputs:
                    late.append((as_cupy(value), dense))
        elif part in problem.by_row:
            dense = np.ascontiguousarray(value)
            if dense is not value and part in problem.outputs:
                late.append((value, dense))
            hosts[part] = dense.reshape(-1).view(np.uint8)
            continue
        else:
            dense = cupy.asarray(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
        kept.append(dense)
        resident[part] = dense.data.ptr
    ready = cupy.cuda.get_current_stream().record()
    pool = _lanes(kernel.index)
    with pool.lock:
        try:
            _run_chunks(kernel, pool.lanes, resident, hosts, ready)
        finally:
            for lane in pool.lanes:
                lane.stream.synchronize()
                lane.pending.clear()
                if lane.size > KEPT_BYTES:
                    lane.resize(0)
    for array, dense in late:
        array[...] = dense


def _run_chunks(
    kernel: Kernel, lanes: list[Lane], resident: Mapping[str, int], hosts: Mapping[str, Bytes], ready: Any
) -> None:
    from cupy.cuda import alloc

    rows = kernel.problem.rows
    row_bytes = {part: data.size // rows for part, data in hosts.items()}
    chunk = max(1, min(rows, CHUNK_BYTES // max(1, sum(row_bytes.values()))))
    begins: dict[str, int] = {}
    end_of_inputs = end = 0
    for part in sorted(hosts, key=lambda part: part not in INPUTS):  # inputs first: one transfer each way
        begins[part] = end
        end = -(-(end + chunk * row_bytes[part]) // APART) * APART
        if part in INPUTS:
            end_of_inputs = end
    for turn, first in enumerate(range(0, rows, chunk)):
        lane = lanes[turn % len(lanes)]
        lane.finish()
        if turn < len(lanes):
            lane.resize(max(end, 1))
            lane.stream.wait_event(ready)
        count = min(chunk, rows - first)
        staged = lane.host
        addresses = {}
        for part, base in resident.items():
            step = kernel.problem.row_bytes(part) if part in kernel.problem.by_row else 0
            addresses[part] = base + first * step
        for part, data in hosts.items():
            size = count * row_bytes[part]
            begin = begins[part]
            rows_here = data[first * row_bytes[part] :][:size]
            addresses[part] = lane.address + begin
            if part in INPUTS:
                np.copyto(staged[begin : begin + size], rows_here)
            else:
                lane.pending.append((rows_here, staged[begin : begin + size]))
        lane.copy(0, end_of_inputs, upload=True)
        ordered = [addresses[part] for part in kernel.parts]
        if size := kernel.scratch(count):
            with lane.stream:
                scratch = alloc(size)  # from the pool, where it may be let go once the work is enqueued
            ordered.append(scratch.ptr)
        kernel.launches(count)(ordered, first, lane.stream.ptr)
        lane.copy(end_of_inputs, end, upload=False)
    for lane in lanes:
        lane.finish()
