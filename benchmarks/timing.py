"""Device time of calls, without the host's: CUDA graphs, and timestamps on WebGPU where there are any."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from registry import Registry
from registry.errors import first_line
from registry.measuring.timing import Times

Call = Callable[[], Any]
RUNS = 7
LAUNCHES = 20
FEWEST_LAUNCHES = 3
RUN_SECONDS = 0.02
"""What a run is meant to take: slow calls are launched fewer times."""


def hold_clocks() -> Any:
    """A CUDA context, where there can be one: without any, the driver leaves an H200 at the clocks of an idle
    device (465 of 1980 MHz) while Vulkan alone keeps it busy."""
    try:
        import cupy

        return cupy.zeros(1)
    except Exception:  # no CuPy, no device, no driver: then there is nothing to hold
        return None


def cuda_times(calls: Sequence[Call]) -> Times:
    """Calls on CuPy's current stream: replays of a graph of them all, or, where that cannot be captured,
    the calls themselves, which the host may hold up."""
    import cupy

    with cupy.cuda.Stream(non_blocking=True) as stream:

        def clock(launch: Call) -> float:
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            launch()
            end.record()
            end.synchronize()
            return float(cupy.cuda.get_elapsed_time(begin, end)) / 1000

        for call in calls:
            call()
        many = _Rounds(calls, clock(calls[0]))
        method = "graph"
        stream.begin_capture()
        try:
            many()
            replay = partial(stream.end_capture().launch, stream)
        except Exception as error:  # whatever a call does that no graph can hold
            if stream.is_capturing():
                stream.end_capture()
            method, replay = f"events, host included ({first_line(error)})", partial(many)
        replay()
        return Times(tuple(clock(replay) / many.count for _ in range(RUNS)), method)


def torch_times(calls: Sequence[Call]) -> Times:
    """The same for calls that work on torch's current stream."""
    import torch

    def clock(launch: Call) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        launch()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000

    with torch.no_grad():
        for call in calls:
            call()
        torch.cuda.synchronize()
        many = _Rounds(calls, clock(calls[0]))
        method = "graph"
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                many()
            replay = graph.replay
        except RuntimeError as error:
            torch.cuda.synchronize()
            method, replay = f"events, host included ({first_line(error)})", many
        replay()
        return Times(tuple(clock(replay) / many.count for _ in range(RUNS)), method)


def webgpu_times(reg: Registry, calls: Sequence[Call]) -> Times:
    """Calls on device tensors: timestamps around a batch of them; without those, the difference of two
    batches' lengths by the host's clock."""
    probe = reg.to_device(np.ones((1, 1, 4), np.float32), "webgpu")
    home = probe.home
    if "timestamp-query" in home.found.device.features:
        stamps = Stamps(home)
        for call in calls:
            call()
        many = _Rounds(calls, stamps.around(reg, calls[0]))
        stamps.around(reg, many)
        seconds = tuple(stamps.around(reg, many) / many.count for _ in range(RUNS))
        return Times(seconds, "timestamps")

    def clock(count: int) -> float:
        begin = time.perf_counter()
        with reg.batch():
            for turn in range(count):
                calls[turn % len(calls)]()
            last = reg.run("BiasAdd", X=probe, bias=probe.numpy()[0, 0], skip=probe, backend="webgpu")
        reg.host(last)
        return time.perf_counter() - begin

    clock(LAUNCHES)
    differences = tuple((clock(3 * LAUNCHES) - clock(LAUNCHES)) / (2 * LAUNCHES) for _ in range(RUNS))
    return Times(differences, "two batches by the host's clock")


class Stamps:
    """Two timestamps of a WebGPU device, each written by an empty compute pass."""

    def __init__(self, home: Any):
        self._home = home
        gpu = home.found.device
        self._queries = gpu.create_query_set(type="timestamp", count=2)
        self._resolved = gpu.create_buffer(size=16, usage="QUERY_RESOLVE | COPY_SRC")

    def around(self, reg: Registry, calls: Call) -> float:
        """Seconds between the last work before the calls and the last work of the calls."""
        with reg.batch():
            self._home.record("stamp", lambda recorder: self._mark(recorder, 0))
            calls()
            self._home.record("stamp", lambda recorder: self._mark(recorder, 1))
        data = self._home.found.device.queue.read_buffer(self._resolved)
        begin, end = np.frombuffer(data, np.uint64).tolist()
        return float(end - begin) / 1e9

    def _mark(self, recorder: Any, index: int) -> None:
        encoder = recorder.encoder("stamp")
        writes = {"query_set": self._queries, "beginning_of_pass_write_index": index}
        encoder.begin_compute_pass(timestamp_writes=writes).end()
        if index == 1:
            encoder.resolve_query_set(self._queries, 0, 2, self._resolved, 0)


class _Rounds:
    """Calls in turn, as often as a run of some length needs, each at least once."""

    def __init__(self, calls: Sequence[Call], seconds: float):
        wanted = round(RUN_SECONDS / max(seconds, 1e-6))
        self.count = max(FEWEST_LAUNCHES, min(LAUNCHES, wanted), len(calls))
        self._calls = calls

    def __call__(self) -> None:
        for turn in range(self.count):
            self._calls[turn % len(self._calls)]()
