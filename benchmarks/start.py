"""What a cold process takes: to import the library, and to have a first result.

    python benchmarks/start.py --out docs/performance/MACHINE-start.jsonl

Every time is that of new processes, less the time of an empty one: medians, lowest and highest of several,
the programs taking turns. The bytecode of every module is cached by a first round. On WebGPU the time in
calls into wgpu is told apart: opening the adapter and the device, compiling, and waiting for results.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from system import keep, open_registry, system

ROUNDS = 11
ARRAY = "import numpy\nx = numpy.ones((8, 768), numpy.float32)\n"
LAYER = 'registry.run("LayerNormalization", X=x, Scale=x[0], backend={!r})\n'
SKIP = 'registry.run("SkipLayerNormalization", input=x, skip=x, gamma=x[0], backend={!r})\n'

# The driver's share: all time in functions of wgpu's own modules that calls from elsewhere enter.
DRIVER = """
import atexit, functools, sys, time
spent, inside = 0.0, False
def timed(function):
    @functools.wraps(function)
    def call(*args, **named):
        global spent, inside
        if inside:
            return function(*args, **named)
        inside, begin = True, time.perf_counter()
        try:
            return function(*args, **named)
        finally:
            inside, spent = False, spent + time.perf_counter() - begin
    return call
begin = time.perf_counter()
import wgpu, wgpu.backends.wgpu_native as native
imported = time.perf_counter() - begin
for module in (native._api, wgpu._classes):
    for kind in list(vars(module).values()):
        if isinstance(kind, type) and kind.__name__.startswith("GPU"):
            for name, member in list(vars(kind).items()):
                if callable(member) and not isinstance(member, type) and not name.startswith("__"):
                    setattr(kind, name, timed(member))
wgpu.gpu.enumerate_adapters_sync = timed(wgpu.gpu.enumerate_adapters_sync)
wgpu.gpu.request_adapter_sync = timed(wgpu.gpu.request_adapter_sync)
atexit.register(lambda: print(imported, spent))
"""

PROGRAMS = {
    "an empty process": "",
    "import numpy": "import numpy",
    "import registry": "import registry",
    "first LayerNormalization on numpy": f"{ARRAY}import registry\n{LAYER.format('numpy')}",
    "first SkipLayerNormalization on numpy": f"{ARRAY}import registry\n{SKIP.format('numpy')}",
    "first LayerNormalization on webgpu": f"{ARRAY}import registry\n{LAYER.format('webgpu')}",
    "first SkipLayerNormalization on webgpu": f"{ARRAY}import registry\n{SKIP.format('webgpu')}",
}


def seconds(code: str) -> tuple[float, str]:
    """Of a new process that runs the code, and what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    return time.perf_counter() - begin, done.stdout


def main() -> None:
    """Measures, prints a table and writes a line of JSON for every row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", help="file for the rows, a line of JSON each")
    given = parser.parse_args()
    reg = open_registry()
    facts = system(reg)
    programs = dict(PROGRAMS)
    if not next(status for status in reg.backends() if status.name == "webgpu").available:
        programs = {name: code for name, code in programs.items() if "webgpu" not in name}
    times: dict[str, list[float]] = {name: [] for name in programs}
    shares: dict[str, list[tuple[float, float]]] = {}
    for turn in range(given.rounds + 1):
        empty = seconds("")[0]
        for name, code in programs.items():
            taken = seconds(code)[0] - (empty if code else 0.0)
            if turn:
                times[name].append(taken)
            if turn and "webgpu" in name:
                found = [float(word) for word in seconds(DRIVER + code)[1].split()]
                shares.setdefault(name, []).append((found[0], found[1]))
    for name, values in times.items():
        row: dict[str, Any] = {"what": name, "ms": 1e3 * statistics.median(values)}
        row |= {"ms_low": 1e3 * min(values), "ms_high": 1e3 * max(values)}
        if name in shares:
            row["import_ms"] = 1e3 * statistics.median(pair[0] for pair in shares[name])
            row["driver_ms"] = 1e3 * statistics.median(pair[1] for pair in shares[name])
        share = (
            f"   wgpu: import {row['import_ms']:.0f}, calls {row['driver_ms']:.0f}" if name in shares else ""
        )
        print(
            f"{name:42}{row['ms']:8.0f} ms   {row['ms_low']:.0f} to {row['ms_high']:.0f}{share}", flush=True
        )
        keep(given.out, row, facts)


if __name__ == "__main__":
    main()
