"""Host arrays to a device and back, beside what the WebGPU library's own calls and the host's memory reach.

    python benchmarks/transfers.py --out transfers.jsonl
    python benchmarks/transfers.py --mib 64

GB/s of the bytes of one tensor, medians of several. The library's own calls are ``queue.write_buffer`` and
``queue.read_buffer``. Read-backs go into memory that was used before, and into fresh memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from system import keep, open_registry, system

from registry import Registry

RUNS = 7

Call = Callable[[], Any]


def calls(reg: Registry, count: int) -> Iterator[tuple[str, str, Call]]:
    """Backend, what is measured, and the call that moves that many float32."""
    host = np.resize(np.random.default_rng(0).standard_normal(2**20, np.float32), count)
    target = np.zeros_like(host)
    yield "host", "a copy to used memory", lambda: np.copyto(target, host)
    yield "host", "a copy to fresh memory", lambda: host.copy()
    for status in reg.backends():
        if not status.available or status.name not in ("webgpu", "cuda"):
            continue
        name, backend = status.name, reg.catalog.backend(status.name)
        tensor = reg.to_device(host, name)

        def up(name: str = name, backend: Any = backend) -> None:
            reg.to_device(host, name)
            backend.wait({})

        yield name, "to_device", up
        yield name, "host", lambda tensor=tensor: reg.host(tensor)
        if name == "webgpu":
            gpu = tensor.home.found.device

            def write(gpu: Any = gpu, tensor: Any = tensor, backend: Any = backend) -> None:
                gpu.queue.write_buffer(tensor.buffer, 0, host)
                backend.wait({})

            yield name, "queue.write_buffer", write
            yield (
                name,
                "queue.read_buffer",
                lambda gpu=gpu, tensor=tensor: gpu.queue.read_buffer(tensor.buffer),
            )
            x = host.reshape(1, -1, 1024)
            bias, out = np.ones(1024, np.float32), target.reshape(x.shape)
            yield (
                name,
                "run on host arrays, out= (3 tensors)",
                lambda x=x, bias=bias, out=out: reg.run(
                    "BiasAdd", X=x, bias=bias, skip=x, out=out, backend="webgpu"
                ),
            )


def main() -> None:
    """Measures, prints a table and writes a line of JSON for every row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=256, help="MiB of the tensor")
    parser.add_argument("--out", help="file for the rows, a line of JSON each")
    given = parser.parse_args()
    reg = open_registry()
    facts = system(reg)
    print(json.dumps(facts))
    nbytes = given.mib * 2**20
    for backend, what, call in calls(reg, nbytes // 4):
        moved = 3 * nbytes if "3 tensors" in what else nbytes
        call()
        seconds = []
        for _ in range(RUNS):
            begin = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - begin)
        rates = sorted(moved / each / 1e9 for each in seconds)
        row = {
            **{"backend": backend, "what": what, "bytes": moved, "gbps": statistics.median(rates)},
            **{"gbps_low": rates[0], "gbps_high": rates[-1]},
        }
        print(f"{backend:8} {what:40} {row['gbps']:7.2f} GB/s  {rates[0]:.2f} to {rates[-1]:.2f}", flush=True)
        keep(given.out, row, facts)


if __name__ == "__main__":
    main()
