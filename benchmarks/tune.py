"""Device time of the CUDA kernel for rows in registers by its layout, beside a copy.

    python benchmarks/tune.py --out tune.jsonl
    python benchmarks/tune.py --calls "layer norm" --hidden 1023 --dtypes float16

For every call, size and dtype: threads of a row and rows of a block; each candidate's fraction of the copy's
bandwidth, the best ones first. The present choice is marked by a star.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any

from cases import CALLS, DTYPES, HIDDEN, TENSOR_BYTES, Case, cases
from device import Tensors, copy_call
from system import keep, open_registry, system
from timing import cuda_times

from registry import BackendError
from registry.errors import first_line
from registry_cuda import sources, variants
from registry_cuda.compiler import compile_source
from registry_cuda.devices import open_profile
from registry_cuda.kernel import Kernel
from registry_cuda.problem import Problem, read_problem
from registry_cuda.sources import Layout

TUNED = ("skip layer norm, sum", "layer norm")
BLOCKS = (32, 64, 128, 256)
"""Threads of a block, where several rows share one."""

MOST_LANES = 512
MOST_HELD = 68
"""Elements of a row in a thread's registers."""


def layouts(problem: Problem) -> Iterator[Layout]:
    """Candidates: from a quarter to four times the threads of the present choice."""
    chosen = sources.layout_of(problem)
    for lanes in sorted({chosen.lanes * 2**power // 4 for power in range(5)}):
        if 0 < lanes <= MOST_LANES and problem.hidden <= MOST_HELD * lanes:
            rows = {max(1, block // lanes) for block in BLOCKS}
            yield from (Layout(lanes, count) for count in sorted(rows) if lanes * count >= sources.WARP)


def main() -> None:
    """Measures, prints the best of every case and writes a line of JSON for every candidate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", nargs="*", default=list(TUNED), choices=list(CALLS), metavar="CALL")
    parser.add_argument("--dtypes", default=",".join(DTYPES[:2]))
    parser.add_argument("--hidden", default=",".join(map(str, HIDDEN)))
    parser.add_argument("--mib", type=int, default=TENSOR_BYTES // 2**20, help="MiB of the largest tensor")
    parser.add_argument("--best", type=int, default=6, help="how many are printed of each case")
    parser.add_argument("--out", help="file for the rows, a line of JSON each")
    given = parser.parse_args()
    reg = open_registry()
    facts = system(reg)
    print(json.dumps(facts))
    copied = 2 * given.mib * 2**20
    copy = copy_call(reg, "cuda", copied)
    tensors = Tensors(reg, "cuda")
    profile = open_profile(None)
    sizes = [int(size) for size in given.hidden.split(",")]
    for case in cases(given.calls, given.dtypes.split(","), sizes, given.mib * 2**20):
        problem = read_problem(case.request(reg))
        bandwidth = copied / cuda_times([copy]).median
        sets, outs = tensors.sets(case)
        named = [dict(zip(case.outputs, out, strict=True)) for out in outs]
        rows = []
        _compile(problem, profile.capability)
        for layout in layouts(problem):
            row = _measure(case, problem, layout, sets, named)
            row["fraction"] = row["us"] and case.bytes_moved(reg) / (row["us"] / 1e6) / bandwidth
            rows.append(row)
            keep(given.out, row, facts)
        present = asdict(sources.layout_of(problem))
        rows.sort(key=lambda row: row["us"] or float("inf"))
        print(f"{case.name} {case.dtype} {case.rows} x {case.hidden}, copy {bandwidth / 1e12:.2f} TB/s")
        for place, row in enumerate(rows):
            if place < given.best or row["layout"] == present or row["us"] is None:
                print(f"  {'*' if row['layout'] == present else ' '} {_line(row)}", flush=True)


def _compile(problem: Problem, capability: tuple[int, int]) -> None:
    """Every candidate at once; one that fails does so again where it is measured."""
    texts = {sources.rows_registers(problem, layout).source() for layout in layouts(problem)}
    with ThreadPoolExecutor() as pool:
        for future in [pool.submit(compile_source, source, capability) for source in texts]:
            future.exception()


def _measure(case: Case, problem: Problem, layout: Layout, sets: Any, outs: Any) -> dict[str, Any]:
    times, reason = None, ""
    try:
        kernel = Kernel(problem, variants.rows_registers(lambda problem: layout), open_profile(None))
        times = cuda_times([partial(kernel, *pair) for pair in zip(sets, outs, strict=True)])
    except (BackendError, RuntimeError) as error:  # too many registers or too much shared memory
        reason = first_line(error)
    return {
        **{"call": case.name, "dtype": case.dtype, "rows": case.rows, "hidden": case.hidden},
        "layout": asdict(layout),
        "us": times and 1e6 * times.median,
        "reason": reason,
    }


def _line(row: dict[str, Any]) -> str:
    layout = row["layout"]
    where = f"{layout['lanes']:5} lanes {layout['rows']:3} rows"
    return f"{where} {row['us']:8.1f} us  {row['fraction']:.3f}" if row["us"] else f"{where} {row['reason']}"


if __name__ == "__main__":
    main()
