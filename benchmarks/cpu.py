"""The NumPy backend beside ONNX Runtime's CPU kernels: time of a call, and how many times theirs it is.

    python benchmarks/cpu.py --out docs/performance/MACHINE-cpu.jsonl
    python benchmarks/cpu.py --calls "layer norm" --sizes 768x1366 --dtypes float16 --threads 1

A plan is called against a session, both with the same number of threads, in turns: some calls of one, some
of the other, several times. A ratio is ONNX Runtime's time over ours within a turn, so that what else the
machine does at the time hurts both; given are the middle, lowest and highest of the turns. Both sides run
with fresh outputs (``session.run``) and with outputs given (``out=``; ``run_with_iobinding``). Inputs take
turns: 128 MiB of them, or 64 sets. Before each side's calls there is a pause until every thread of the
process rests, for those of ONNX Runtime go on spinning for 40 ms after a call. Outputs of both are checked
outside of the timed calls. Rows that lose are kept, and those where ONNX Runtime has no kernel, with what it
said. A line of `numpy.copyto` beside every size says what the memory can do.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from cases import CALLS, DTYPES, Case
from ort_cpu import ort_calls
from system import keep, open_registry, system

from registry import Registry
from registry.dtypes import numpy_dtype

Array = np.ndarray[Any, Any]
Call = Callable[[], Any]

TURNS = 9
FEW_TURNS, LARGE = 3, 2**26
"""For tensors that large, whose calls are long enough in themselves."""
TURN_SECONDS = 0.03
PAUSE_SECONDS, MOST_PAUSES = 0.01, 100
ROTATED_BYTES = 2**27
MOST_SETS = 64
HALF_SIZES = ((8, 768), (1366, 768), (4096, 1024))
SIZES = (
    *((rows, 768) for rows in (8, 22, 86, 342, 1024, 1366, 5462, 21846, 87382)),
    *((1024, 1023), (4096, 1024), (4096, 1023), (2048, 4096)),
)
"""Rows and hidden size of the tensors, from 24 KiB to 256 MiB of float32."""


def wanted(names: Sequence[str], dtypes: Sequence[str], sizes: Sequence[tuple[int, int]]) -> Iterator[Case]:
    """Every call at every size in float32, half types at some; those asked for by name at all."""
    for rows, hidden in sizes:
        for dtype in dtypes:
            if dtype == "float32" or (rows, hidden) in HALF_SIZES or sizes is not SIZES:
                for name in names:
                    yield Case(name, dtype, rows, hidden)


def tensors(case: Case, reg: Registry) -> tuple[list[dict[str, Array]], dict[str, Array]]:
    """Input sets that take turns, and outputs."""
    first = {role: case.input(role, 0) for role in case.shapes()}
    held = sum(array.nbytes for array in first.values())
    count = min(MOST_SETS, max(1, -(-ROTATED_BYTES // held)))
    kinds = case.request(reg).outputs
    out = {role: np.ones(kinds[role].shape, numpy_dtype(kinds[role].dtype)) for role in case.outputs}
    return [first, *({role: a.copy() for role, a in first.items()} for _ in range(count - 1))], out


def rest() -> None:
    """Waits until the process uses no processor: a thread that spins would take one from what is timed."""
    for _ in range(MOST_PAUSES):
        begin = time.process_time()
        time.sleep(PAUSE_SECONDS)
        if time.process_time() - begin < PAUSE_SECONDS / 10:
            return
    raise RuntimeError(f"a thread of this process still works after {PAUSE_SECONDS * MOST_PAUSES:g} s")


class Bursts:
    """Some calls in turn, timed together: seconds of one."""

    def __init__(self, calls: Sequence[Call]):
        self._calls = calls
        for call in calls[:3]:
            call()
        self._count = 1
        self._count = max(1, min(10_000, round(TURN_SECONDS / max(self(), 1e-7))))

    def __call__(self) -> float:
        rest()
        calls = [self._calls[turn % len(self._calls)] for turn in range(self._count)]
        begin = time.perf_counter()
        for call in calls:
            call()
        return (time.perf_counter() - begin) / self._count


def spread(name: str, values: Sequence[float], scale: float = 1.0) -> dict[str, float]:
    """The middle, lowest and highest."""
    return {
        name: statistics.median(values) * scale,
        f"{name}_low": min(values) * scale,
        f"{name}_high": max(values) * scale,
    }


def measure(reg: Registry, case: Case, threads: int) -> Iterator[dict[str, Any]]:
    """A row with fresh outputs and one with outputs given."""
    sets, out = tensors(case, reg)
    plan = reg.prepare(case.op, **sets[0], outputs=case.outputs, backend="numpy")
    fresh, placed = [partial(plan, **s) for s in sets], [partial(plan, **s, out=out) for s in sets]
    notes = [case.wrong(reg, sets[0], as_tuple(fresh[0]())), case.wrong(reg, sets[0], as_tuple(placed[0]()))]
    theirs = ort_calls(case, reg.op(case.op), sets, out, threads)
    peer_note = theirs if isinstance(theirs, str) else ""
    if not isinstance(theirs, str):
        for array in out.values():
            array.fill(7)
        theirs[1][0]()
        peer_note = case.wrong(reg, sets[0], list(out.values()))
    ways = {"fresh outputs": fresh, "outputs given": placed}
    for place, (way, calls) in enumerate(ways.items()):
        mine = Bursts(calls)
        other = None if isinstance(theirs, str) else Bursts(theirs[place])
        turns = FEW_TURNS if sets[0][next(iter(sets[0]))].nbytes >= LARGE else TURNS
        pairs = [(mine(), other() if other else math.nan) for _ in range(turns)]
        row = {"what": "registry", "call": case.name, "op": case.op, "dtype": case.dtype, "rows": case.rows}
        row |= {"hidden": case.hidden, "bytes": case.bytes_moved(reg), "threads": threads, "way": way}
        row |= {"wrong": notes[place], "peer_wrong": peer_note}
        row |= spread("us", [pair[0] for pair in pairs], 1e6)
        if other:
            row |= spread("peer_us", [pair[1] for pair in pairs], 1e6)
            row |= spread("ratio", [pair[1] / pair[0] for pair in pairs])
        yield row


def as_tuple(result: Any) -> tuple[Array, ...]:
    """The outputs of a plan, one or several."""
    return (result,) if isinstance(result, np.ndarray) else tuple(result)


def copy_row(rows: int, hidden: int) -> dict[str, Any]:
    """A copy of a float32 tensor of that size by one thread."""
    source = np.ones((rows, hidden), np.float32)
    count = min(MOST_SETS, max(1, ROTATED_BYTES // source.nbytes))
    targets = [np.ones_like(source) for _ in range(count)]
    burst = Bursts([partial(np.copyto, target, source) for target in targets])
    seconds = [burst() for _ in range(TURNS)]
    row = {"what": "numpy.copyto", "rows": rows, "hidden": hidden, "bytes": 2 * source.nbytes}
    return {**row, **spread("us", seconds, 1e6), "gbps": 2e-9 * source.nbytes / statistics.median(seconds)}


def text(row: Mapping[str, Any]) -> str:
    """A row for the terminal."""
    size = f"{row['rows']:6} x {row['hidden']:<5}"
    if row["what"] != "registry":
        return f"{row['what']:34}{size}{'':9}{row['us']:10.1f} us   {row['gbps']:.1f} GB/s"
    line = f"{row['call']:34}{size}{row['dtype']:9}{row['threads']} {row['way']:14}{row['us']:10.1f} us"
    if "ratio" in row:
        line += (
            f"{row['peer_us']:10.1f} us  x{row['ratio']:.2f}  {row['ratio_low']:.2f}-{row['ratio_high']:.2f}"
        )
    return f"{line}  {row['wrong'] and 'WRONG ' + row['wrong']}  {row['peer_wrong'][:90]}"


def main() -> None:
    """Measures, prints a table and writes a line of JSON for every row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", help="names of calls, with semicolons between; default: all")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--sizes", help="ROWSxHIDDEN, with commas between")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--out", help="file for the rows, a line of JSON each")
    given = parser.parse_args()
    names = given.calls.split(";") if given.calls else list(CALLS)
    sizes = SIZES
    if given.sizes:
        sizes = tuple(tuple(map(int, size.split("x"))) for size in given.sizes.split(","))

    def results() -> Iterator[dict[str, Any]]:
        for size in sizes:
            yield copy_row(*size)
        for threads in map(int, given.threads.split(",")):
            os.environ["REGISTRY_NUM_THREADS"] = str(threads)
            reg = open_registry()
            for case in wanted(names, given.dtypes.split(","), sizes):
                yield from measure(reg, case, threads)

    facts = system(open_registry())
    print(json.dumps(facts))
    for row in results():
        print(text(row), flush=True)
        keep(given.out, row, facts)


if __name__ == "__main__":
    main()
