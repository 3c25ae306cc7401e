"""Device time of every op by backend, beside a copy on the device and other implementations.

    python benchmarks/device.py --out results.jsonl
    python benchmarks/device.py --backends cuda --calls "layer norm" --hidden 768,1024 --dtypes float16

Times are medians of several runs of many launches, on CUDA of the replays of a graph, on WebGPU between two
timestamps; a row says where that could not be had. Tensors are larger than any cache, or take turns. The
fraction is that of a copy on the same device, timed before and after the call: bytes that must move / time /
bandwidth, both counting what is read and what is written. On WebGPU the copy is a compute shader's, for
drivers copy buffers slowly. Every variant is checked once per dtype, on some rows. Rows that lose, fail or
are not supported are kept. torch.compile and Liger are timed for one size and dtype, ONNX Runtime for a few.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from cases import CALLS, DTYPES, HIDDEN, LONG, TENSOR_BYTES, Case, cases
from ort import ort_times
from peers import peers
from system import keep, open_registry, system
from timing import Times, cuda_times, hold_clocks, torch_times, webgpu_times

import registry
from registry import Registry
from registry.errors import first_line

Call = Callable[[], Any]
TORCH_PEERS = ("torch eager", "torch.compile", "liger")
PEERS = (*TORCH_PEERS, "onnxruntime")
SLOW_TO_START = ("torch.compile", "liger")
FEW = (1024, "float16")
"""The hidden size and dtype for which those are timed."""

STEADY = 0.02
"""How much the copy's bandwidth may change while a call is timed: heat slows a device, and other work."""

TRIES = 4

WARM_SECONDS = 3.0
"""How long a device that was idle, and has lowered its clocks, may take to raise them."""

ROTATED_BYTES = 2**30
"""What the sets of tensors that take turns come to at least."""


def copy_call(reg: Registry, backend: str, nbytes: int) -> Call:
    """A copy on the device of that many bytes, read and written together."""
    copy = reg.catalog.backend(backend).copier(nbytes, reg.catalog.options(backend))
    assert copy is not None
    return copy


class Tensors:
    """Device tensors of one size, made once for all calls of that size."""

    def __init__(self, reg: Registry, backend: str):
        self._reg = reg
        self._backend = backend
        self._size: tuple[int, int, str] | None = None
        self._made: dict[Any, Any] = {}

    def sets(self, case: Case) -> tuple[list[dict[str, Any]], list[list[Any]]]:
        """Input sets that take turns, and outputs for each."""
        size = (case.rows, case.hidden, case.dtype)
        if size != self._size:
            self._made.clear()
            self._size = size
        count = min(16, max(1, -(-ROTATED_BYTES // case.bytes_moved(self._reg))))
        shapes = case.shapes()
        inputs = [
            {
                role: self._once(
                    ("in", shapes[role], place, turn), lambda r=role, t=turn: self._input(case, r, t)
                )
                for place, role in enumerate(shapes)
            }
            for turn in range(count)
        ]
        outputs = case.request(self._reg).outputs
        outs = [
            [
                self._once(("out", outputs[role].shape, place, turn), lambda r=role: self._output(outputs[r]))
                for place, role in enumerate(case.outputs)
            ]
            for turn in range(count)
        ]
        return inputs, outs

    def _once(self, key: Any, make: Call) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _input(self, case: Case, role: str, turn: int) -> Any:
        return self._reg.to_device(case.input(role, turn), self._backend)

    def _output(self, kind: Any) -> Any:
        return self._reg.empty(kind.shape, kind.dtype, self._backend)


def as_torch(tensor: Any) -> Any:
    """A torch tensor on the memory of one of the CUDA backend's."""
    import torch

    bits = getattr(tensor, "bits", None)
    if bits is not None:
        return torch.from_dlpack(bits.view(np.int16)).view(torch.bfloat16)
    return torch.from_dlpack(tensor)


class Measurements:
    """Rows of one backend, beside a copy that moves ``copied`` bytes."""

    def __init__(self, reg: Registry, backend: str, copied: int, wanted: Sequence[str]):
        self._reg = reg
        self._backend = backend
        self._copied = copied
        self._wanted = wanted
        self._copy = copy_call(reg, backend, copied)
        self._tensors = Tensors(reg, backend)
        self._checked: set[tuple[str, str]] = set()
        self._timed = cuda_times if backend == "cuda" else partial(webgpu_times, reg)
        self._best = 0.0
        self._awake(at_once=False)

    def rows(self, case: Case) -> Iterator[dict[str, Any]]:
        """A row for ours and for each peer."""
        try:
            sets, outs = self._tensors.sets(case)
            plan = self._reg.prepare(case.op, inputs=sets[0], outputs=case.outputs, backend=self._backend)
            plan(inputs=sets[0], out=outs[0])
            reason = self._check(case, plan.variant, outs[0])
        except registry.RegistryError as error:
            yield self._row(case, self._awake(), "registry", reason=first_line(error))
            return
        calls = [partial(plan, inputs=s, out=o) for s, o in zip(sets, outs, strict=True)]
        times, bandwidth, unsteady = self._steadily(calls)
        row = partial(self._row, case, bandwidth)
        yield row("registry", times, plan.variant, "; ".join(filter(None, (reason, unsteady))))
        if self._backend == "cuda":
            yield from (row(*found) for found in self._torch_peers(case, sets))
        elif "onnxruntime" in self._wanted:
            smaller = replace(case, rows=max(1, case.rows // 4))  # what a run uploads is noise
            found = ort_times(smaller)
            if found is not None:
                failed = isinstance(found, str)
                row = partial(self._row, smaller, bandwidth, "onnxruntime")
                yield row(reason=found) if failed else row(found)

    def _bandwidth(self) -> float:
        found = self._copied / self._timed([self._copy]).median
        self._best = max(self._best, found)
        return found

    def _awake(self, at_once: bool = True) -> float:
        """The copy's bandwidth, once it is near the best that was seen, or after some seconds: between
        calls a device lowers its clocks."""
        until = time.perf_counter() + WARM_SECONDS
        while True:
            found = self._bandwidth()
            ready = at_once and found >= (1 - STEADY) * self._best
            if ready or time.perf_counter() > until:
                return found

    def _steadily(self, calls: Sequence[Call]) -> tuple[Times, float, str]:
        """The times of calls and the copy's bandwidth around them, again while that changes; and what it
        still did the last time."""
        for _ in range(TRIES):
            before = self._awake()
            times = self._timed(calls)
            after = self._bandwidth()
            if abs(after - before) <= STEADY * before:
                return times, (before + after) / 2, ""
        change = f"the copy's bandwidth changed by {(after - before) / before:+.0%} meanwhile"
        return times, (before + after) / 2, change

    def _check(self, case: Case, variant: str, results: Sequence[Any]) -> str:
        """What is wrong with some rows of the results of a variant that was not met before."""
        key = (variant, case.dtype)
        if key in self._checked:
            return ""
        self._checked.add(key)
        inputs = {role: case.input(role, 0) for role in case.shapes()}
        return case.wrong(self._reg, inputs, [self._reg.host(item) for item in results])

    def _torch_peers(self, case: Case, sets: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Any, ...]]:
        """What, times, variant and reason of implementations that work on torch's tensors."""
        few = (case.hidden, case.dtype) == FEW
        names = tuple(name for name in self._wanted if few or name not in SLOW_TO_START)
        if not set(names) & set(TORCH_PEERS):
            return
        tensors = [{role: as_torch(value) for role, value in given.items()} for given in sets]
        for name, found in peers(case, tensors, names).items():
            yield (name, None, "", found) if isinstance(found, str) else (name, torch_times(found))

    def _row(
        self,
        case: Case,
        bandwidth: float,
        what: str,
        times: Times | None = None,
        variant: str = "",
        reason: str = "",
    ) -> dict[str, Any]:
        nbytes = case.bytes_moved(self._reg)
        return {
            **{"backend": self._backend, "what": what, "variant": variant, "call": case.name, "op": case.op},
            **{"dtype": case.dtype, "rows": case.rows, "hidden": case.hidden, "bytes": nbytes},
            "us": times and 1e6 * times.median,
            "us_low": times and 1e6 * min(times.seconds),
            "us_high": times and 1e6 * max(times.seconds),
            "method": times and times.method,
            "copy_tbps": bandwidth / 1e12,
            "fraction": times and nbytes / times.median / bandwidth,
            "reason": reason,
        }


def main() -> None:
    """Measures, prints a table and writes a line of JSON for every row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backends", default="cuda,webgpu")
    parser.add_argument("--calls", nargs="*", default=list(CALLS), choices=list(CALLS), metavar="CALL")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--hidden", default=",".join(map(str, (*HIDDEN, LONG))))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--mib", type=int, default=TENSOR_BYTES // 2**20, help="MiB of the largest tensor")
    parser.add_argument("--out", help="file for the rows, a line of JSON each")
    given = parser.parse_args()
    reg = open_registry()
    facts = system(reg)
    print(json.dumps(facts))
    held = hold_clocks()
    rows = []
    for backend in given.backends.split(","):
        status = next(s for s in reg.backends() if s.name == backend)
        if not status.available:
            print(f"{backend}: {status.because}: {status.found}")
            continue
        measured = Measurements(reg, backend, 2 * given.mib * 2**20, given.peers.split(","))
        sizes = [int(size) for size in given.hidden.split(",")]
        for case in cases(given.calls, given.dtypes.split(","), sizes, given.mib * 2**20):
            for row in measured.rows(case):
                rows.append(row)
                print(_line(row), flush=True)
                keep(given.out, row, facts)
    del held
    ours = [row["fraction"] for row in rows if row["what"] == "registry" and row["fraction"]]
    if ours:
        print(
            f"{len(ours)} measured; fraction of the copy: lowest {min(ours):.3f}, "
            f"median {statistics.median(ours):.3f}"
        )


def _line(row: Mapping[str, Any]) -> str:
    what = " ".join((row["backend"], row["what"], row["variant"]))
    where = f"{row['call']:32} {row['dtype']:9} {row['rows']:7} x {row['hidden']:8}"
    if row["us"] is None:
        return f"{where}  {what:36} {row['reason']}"
    spread = (row["us_high"] - row["us_low"]) / row["us"]
    figures = (
        f"{row['us']:9.1f} us  {row['fraction']:.3f} of {row['copy_tbps']:.2f} TB/s  spread {spread:.1%}"
    )
    notes = "  ".join(
        text for text in (row["method"], row["reason"]) if text not in ("graph", "timestamps", "")
    )
    return f"{where}  {what:36} {figures}  {notes}"


if __name__ == "__main__":
    main()
