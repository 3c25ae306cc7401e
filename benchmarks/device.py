"""Device time of every op by backend, beside a copy on the device and other implementations.

    python benchmarks/device.py --out results.jsonl
    python benchmarks/device.py --backends cuda --calls "layer norm" --hidden 768,1024 --dtypes float16

Times are medians of several runs of many launches, on CUDA by events around a graph, on WebGPU by the
host's clock over batches of two lengths. Tensors are larger than any cache, or take turns. The fraction is
that of a copy on the same device in the same run: bytes that must move / time / bandwidth, both counting
what is read and what is written. Every result is checked on some rows before it is timed. Rows that lose,
fail or are not supported are kept.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np
from cases import CALLS, DTYPES, HIDDEN, LONG, TENSOR_BYTES, Case, cases
from peers import peers

import registry
import registry_cuda
import registry_manifests
import registry_numpy
import registry_webgpu
from registry import Registry

Call = Callable[[], Any]
PLUGINS = (registry_manifests, registry_numpy, registry_cuda, registry_webgpu)
PEERS = ("torch eager", "torch.compile", "liger")
RUNS = 7
LAUNCHES = 20
ROTATED_BYTES = 2**30
"""What the sets of tensors that take turns come to at least."""

VERSIONS = (
    "kernel-registry",
    "numpy",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "torch",
    "triton",
    "liger-kernel",
    "wgpu",
)


def cuda_times(calls: Sequence[Call]) -> list[float]:
    """Seconds of a launch, by events around a graph of many, several times."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        for call in calls:
            call()
        stream.synchronize()
        stream.begin_capture()
        for turn in range(LAUNCHES):
            calls[turn % len(calls)]()
        graph = stream.end_capture()
        return _event_times(lambda: graph.launch(stream))


def torch_times(calls: Sequence[Call]) -> list[float]:
    """The same for calls that work on torch's current stream."""
    import torch

    with torch.no_grad():
        for call in calls:
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for turn in range(LAUNCHES):
                calls[turn % len(calls)]()
    return _event_times(graph.replay)


def _event_times(launch: Call) -> list[float]:
    import cupy

    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    times = []
    for run in range(RUNS + 1):
        begin.record()
        launch()
        end.record()
        end.synchronize()
        if run:  # the first warms up
            times.append(cupy.cuda.get_elapsed_time(begin, end) / 1000 / LAUNCHES)
    return times


def batch_times(reg: Registry, backend: str, calls: Sequence[Call]) -> list[float]:
    """Seconds of a dispatch: the difference of two batches by the host's clock, several times."""
    small = reg.to_device(np.ones((1, 1, 4), np.float32), backend)
    vector = reg.to_device(np.ones(4, np.float32), backend)

    def clock(count: int) -> float:
        begin = time.perf_counter()
        with reg.batch():
            for turn in range(count):
                calls[turn % len(calls)]()
            last = reg.run("BiasAdd", X=small, bias=vector, skip=small)
        reg.host(last)
        return time.perf_counter() - begin

    clock(LAUNCHES)
    return [(clock(3 * LAUNCHES) - clock(LAUNCHES)) / (2 * LAUNCHES) for _ in range(RUNS)]


def copy_calls(reg: Registry, backend: str, nbytes: int) -> list[Call]:
    """Copies on the device of that many bytes, read and written together."""
    if backend == "cuda":
        import cupy

        source = cupy.asarray(np.random.default_rng(0).integers(0, 256, 2**20, np.uint8))
        source = cupy.resize(source, nbytes // 2)
        target = cupy.empty_like(source)
        size = source.nbytes
        here = cupy.cuda.get_current_stream
        return [lambda: target.data.copy_from_device_async(source.data, size, here())]
    shape = (nbytes // 8,)
    source, target = (reg.to_device(np.ones(shape, np.float32), backend) for _ in range(2))
    return [
        lambda: source.home.record(
            lambda encoder: encoder.copy_buffer_to_buffer(source.buffer, 0, target.buffer, 0, 4 * shape[0])
        )
    ]


def our_sets(
    reg: Registry, backend: str, case: Case
) -> tuple[list[dict[str, Any]], list[Any], dict[str, Any]]:
    """Input sets on the device that take turns, outputs for each, and the first set on the host."""
    count = min(16, max(1, -(-ROTATED_BYTES // case.bytes_moved(reg))))
    first = case.inputs(0)
    sets = [
        {
            role: reg.to_device(value, backend)
            for role, value in (case.inputs(turn) if turn else first).items()
        }
        for turn in range(count)
    ]
    outputs = case.request(reg).outputs
    outs = [[reg.empty(outputs[r].shape, outputs[r].dtype, backend) for r in case.outputs] for _ in sets]
    return sets, outs, first


def as_torch(tensor: Any) -> Any:
    """A torch tensor on the memory of one of the CUDA backend's."""
    import torch

    bits = getattr(tensor, "bits", None)
    if bits is not None:
        return torch.from_dlpack(bits.view(np.int16)).view(torch.bfloat16)
    return torch.from_dlpack(tensor)


def measure(
    reg: Registry, backend: str, case: Case, wanted: tuple[str, ...], copied: int
) -> Iterator[dict[str, Any]]:
    """A row for ours and for each peer, beside a copy that moves ``copied`` bytes."""
    timed = cuda_times if backend == "cuda" else lambda calls: batch_times(reg, backend, calls)
    nbytes = case.bytes_moved(reg)
    bandwidth = copied / statistics.median(timed(copy_calls(reg, backend, copied)))

    def row(what: str, variant: str, times: Sequence[float], reason: str = "") -> dict[str, Any]:
        middle = statistics.median(times) if times else None
        return {
            **{"backend": backend, "what": what, "variant": variant, "call": case.name, "op": case.op},
            **{"dtype": case.dtype, "rows": case.rows, "hidden": case.hidden, "bytes": nbytes},
            "us": middle and 1e6 * middle,
            "us_low": 1e6 * min(times) if times else None,
            "us_high": 1e6 * max(times) if times else None,
            "copy_tbps": bandwidth / 1e12,
            "fraction": middle and nbytes / middle / bandwidth,
            "reason": reason,
        }

    try:
        sets, outs, host = our_sets(reg, backend, case)
        plan = reg.prepare(case.op, inputs=sets[0], outputs=case.outputs, backend=backend)
        plan(inputs=sets[0], out=outs[0])
        reason = case.wrong(reg, host, [reg.host(item) for item in outs[0]])
    except registry.RegistryError as error:
        yield row("registry", "", [], str(error).splitlines()[0])
        return
    calls = [lambda s=s, o=o: plan(inputs=s, out=o) for s, o in zip(sets, outs, strict=True)]
    yield row("registry", plan.variant, timed(calls), reason)
    if backend == "cuda" and wanted:
        tensors = [{role: as_torch(value) for role, value in given.items()} for given in sets]
        for name, found in peers(case, tensors, wanted).items():
            times: list[float] = []
            reason = found if isinstance(found, str) else ""
            try:
                times = [] if isinstance(found, str) else torch_times(found)
            except RuntimeError as error:  # what cannot be captured in a graph
                reason = str(error).splitlines()[0]
            yield row(name, "", times, reason)


def conditions(reg: Registry) -> dict[str, Any]:
    """What the results hold for: devices, drivers, versions and the date."""
    versions = {}
    for name in VERSIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    devices = {s.name: {"name": s.device, **s.details} for s in reg.backends() if s.available}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"date": now, "python": platform.python_version(), "versions": versions, "devices": devices}


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
    reg = Registry(PLUGINS, entry_points=False)
    facts = conditions(reg)
    print(json.dumps(facts))
    rows = []
    for backend in given.backends.split(","):
        status = next(s for s in reg.backends() if s.name == backend)
        if not status.available:
            print(f"{backend}: {status.because}: {status.found}")
            continue
        copied = 2 * given.mib * 2**20
        wanted = tuple(name for name in given.peers.split(",") if name)
        sizes = [int(size) for size in given.hidden.split(",")]
        for case in cases(given.calls, given.dtypes.split(","), sizes, given.mib * 2**20):
            for row in measure(reg, backend, case, wanted, copied):
                rows.append(row)
                print(_line(row), flush=True)
                if given.out:
                    with open(given.out, "a", encoding="utf-8") as file:
                        file.write(json.dumps({**row, **facts}) + "\n")
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
    return f"{where}  {what:36} {figures}  {row['reason']}"


if __name__ == "__main__":
    main()
