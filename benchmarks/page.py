"""Writes docs/performance.md from the result files in docs/performance/, and a plot for each.

python benchmarks/device.py --out docs/performance/DEVICE-device.jsonl
python benchmarks/host.py --out docs/performance/DEVICE-host.jsonl
python benchmarks/cpu.py --out docs/performance/MACHINE-cpu.jsonl
python benchmarks/start.py --out docs/performance/MACHINE-start.jsonl
python benchmarks/page.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plot import draw

DOCS = Path(__file__).parent.parent / "docs"
RESULTS = DOCS / "performance"
DTYPES = ("float32", "float16", "bfloat16")

INTRODUCTION = """\
# Performance

Made by `python benchmarks/page.py` from the result files in [performance/](performance/), which
`benchmarks/device.py`, `host.py`, `cpu.py` and `start.py` write: a line for each row, with its median, its
range, device, versions and date. Rows that lose are here too.

- **Device time** is shown as the fraction of a copy's bandwidth on the same device in the same run: the
  bytes that must be read and written, as the manifest says, over time and bandwidth. CUDA is timed by
  replays of a graph, WebGPU between two timestamps; each against its own copy. 1 is the memory's speed; a
  little more is possible, for calls that read more than they write.
- Tensors have 256 MiB each, or take turns; a hidden size of 16,777,216 is a single row.
- Each row has its own date, and says so where the copy changed by more than 2 % while it was timed. The
  H200's driver leaves the device at a quarter of its clocks while Vulkan alone keeps it busy; an idle CUDA
  context is held while WebGPU is timed, and the copy then has its full speed.
- ONNX Runtime's WebGPU provider is timed by chains of nodes, on smaller tensors. torch.compile and Liger
  are timed for one size and dtype. An empty cell was not timed.
- **On the CPU** the NumPy backend is measured beside ONNX Runtime, in turns within one run, with the same
  number of threads: a cell is ONNX Runtime's time over ours, so 2 is twice as fast and 0.5 half as fast.
"""

CPU_NOTE = """\
`fresh outputs`: a plan against `session.run`; `outputs given`: a plan with `out=` against
`run_with_iobinding`. Cells are medians of 9 turns, 3 for tensors of 64 MiB and more; the result file has the
times and their range. "-": ONNX Runtime has no kernel on the CPU; BiasAdd is two additions there. A copy of a
tensor (`numpy.copyto`, one thread, read and written) ran at {slow:.0f} to {fast:.0f} GB/s.

NumPy wins where ONNX Runtime's kernel works element by element: SkipLayerNormalization, and bfloat16. It
loses where that is vectorized and takes one or two passes over a row, for NumPy takes one for each step,
seven or so, and eleven more to round to float16, for which it has no instruction. Two threads of NumPy need
a processor each: what else runs on the machine is in these numbers."""


def device_tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A table for each call: a line for each hidden size, columns for each implementation and dtype."""
    for call in dict.fromkeys(row["call"] for row in rows):
        mine = {
            (row["hidden"], row["backend"], row["what"], row["dtype"]): row["fraction"]
            for row in rows
            if row["call"] == call and row["fraction"] is not None
        }
        columns = list(dict.fromkeys(key[1:] for key in mine))
        yield f"\n### {call}\n"
        yield " | ".join(("| hidden", *map(head, columns))) + " |"
        yield "|---" * (1 + len(columns)) + "|"
        for hidden in sorted({key[0] for key in mine}):
            fractions = [mine.get((hidden, *column)) for column in columns]
            cells = ["" if fraction is None else f"{fraction:.2f}" for fraction in fractions]
            yield " | ".join((f"| {hidden}", *cells)) + " |"
        reasons = {(row["what"], row["reason"]) for row in rows if row["call"] == call and row["reason"]}
        yield from (f"\n{what}: {reason}." for what, reason in sorted(reasons))


def head(column: tuple[str, str, str]) -> str:
    """The heading of a backend's, or another implementation's, column."""
    backend, what, dtype = column
    return f"{backend if what == 'registry' else what} {dtype}"


def host_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each way to call."""
    yield "\n### Host time of a call on a small tensor\n"
    yield "| backend | what | microseconds | range |"
    yield "|---|---|---|---|"
    for row in rows:
        low, high = row["us_low"], row["us_high"]
        yield f"| {row['backend']} | {row['what']} | {row['us']:.1f} | {low:.1f} to {high:.1f} |"


def transfer_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each way in and out."""
    yield "\n### Host arrays to the device and back\n"
    yield "| backend | what | MiB | GB/s | range |"
    yield "|---|---|---|---|---|"
    for row in rows:
        rates = f"{row['gbps']:.1f} | {row['gbps_low']:.1f} to {row['gbps_high']:.1f}"
        yield f"| {row['backend']} | {row['what']} | {row['bytes'] / 2**20:.0f} | {rates} |"


def cpu_tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A table for each number of threads and way of calling: lines by call and dtype, columns by size."""
    calls = [row for row in rows if row["what"] == "registry"]
    yield "\n### NumPy and ONNX Runtime\n"
    speeds = [row["gbps"] for row in rows if row["what"] == "numpy.copyto"]
    yield CPU_NOTE.format(slow=min(speeds), fast=max(speeds))
    sizes = sorted({(row["rows"] * row["hidden"], row["rows"], row["hidden"]) for row in calls})
    for threads, way in dict.fromkeys((row["threads"], row["way"]) for row in calls):
        mine = {
            (row["call"], row["dtype"], row["rows"], row["hidden"]): row
            for row in calls
            if (row["threads"], row["way"]) == (threads, way)
        }
        yield f"\n#### {way}, {threads} thread{'s' * (threads > 1)}\n"
        yield " | ".join(("| call | dtype", *(f"{r} x {h}" for _, r, h in sizes))) + " |"
        yield "|---" * (2 + len(sizes)) + "|"
        for call, dtype in sorted(
            {key[:2] for key in mine}, key=lambda pair: (DTYPES.index(pair[1]), pair[0])
        ):
            cells = [ratio(mine.get((call, dtype, r, h))) for _, r, h in sizes]
            yield " | ".join((f"| {call} | {dtype}", *cells)) + " |"


def ratio(row: dict[str, Any] | None) -> str:
    """A cell: how many times as fast as ONNX Runtime."""
    if row is None:
        return ""
    return f"{row['ratio']:.2f}" if "ratio" in row else "-"


def start_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each program."""
    yield "\n### Start\n"
    yield "Milliseconds of a new process, less those of an empty one; what wgpu takes, from other runs.\n"
    yield "| program | ms | range | import of wgpu | calls into wgpu and the driver |"
    yield "|---|---|---|---|---|"
    for row in rows:
        share = [f"{row[name]:.0f}" if name in row else "" for name in ("import_ms", "driver_ms")]
        times = f"{row['ms']:.0f} | {row['ms_low']:.0f} to {row['ms_high']:.0f}"
        yield f"| {row['what']} | {times} | {share[0]} | {share[1]} |"


def conditions(row: dict[str, Any]) -> str:
    """Device, versions and date of a row."""
    devices = "; ".join(
        f"{name}: {facts.get('adapter') or facts['name']}" for name, facts in row["devices"].items()
    )
    versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
    machine = f"{row['machine']}, " if "machine" in row else ""
    return f"\n{row['date'][:10]}, {machine}Python {row['python']}, {versions}. {devices}.\n"


def read(file: Path) -> list[dict[str, Any]]:
    """The rows of a result file; none when there is no file."""
    return (
        [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    )


def main() -> None:
    """Writes the page and its plots."""
    page = [INTRODUCTION]
    for device in sorted({file.stem.rpartition("-")[0] for file in RESULTS.glob("*.jsonl")}):
        kinds = {
            kind: read(RESULTS / f"{device}-{kind}.jsonl")
            for kind in ("device", "host", "transfers", "cpu", "start")
        }
        first = next(rows[0] for rows in kinds.values() if rows)
        page += [f"\n## {device}", conditions(first)]
        if kinds["device"]:
            page += [f"![fractions of the copy's bandwidth](performance/{device}.png)"]
            page += device_tables(kinds["device"])
            draw(kinds["device"], RESULTS / f"{device}.png")
        if kinds["host"]:
            page += host_table(kinds["host"])
        if kinds["transfers"]:
            page += transfer_table(kinds["transfers"])
        if kinds["cpu"]:
            page += cpu_tables(kinds["cpu"])
        if kinds["start"]:
            page += start_table(kinds["start"])
    (DOCS / "performance.md").write_text("\n".join(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
