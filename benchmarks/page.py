"""Writes docs/performance.md from the result files in docs/performance/, and a plot for each.

python benchmarks/device.py --out docs/performance/DEVICE-device.jsonl
python benchmarks/host.py --out docs/performance/DEVICE-host.jsonl
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
`benchmarks/device.py` and `benchmarks/host.py` write: a line for each row, with its median, its range,
device, versions and date. Rows that lose are here too.

- **Device time** is shown as the fraction of a copy's bandwidth on the same device in the same run: the
  bytes that must be read and written, as the manifest says, over time and bandwidth. CUDA is timed by
  replays of a graph, WebGPU between two timestamps; each against its own copy. 1 is the memory's speed; a
  little more is possible, for calls that read more than they write.
- Tensors have 256 MiB each, or take turns; a hidden size of 16,777,216 is a single row.
- ONNX Runtime's WebGPU provider is timed by chains of nodes, on smaller tensors. torch.compile and Liger
  are timed for one size and dtype. An empty cell was not timed.
"""


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


def conditions(row: dict[str, Any]) -> str:
    """Device, versions and date of a row."""
    devices = "; ".join(
        f"{name}: {facts.get('adapter') or facts['name']}" for name, facts in row["devices"].items()
    )
    versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
    return f"\n{row['date'][:10]}, Python {row['python']}, {versions}. {devices}.\n"


def main() -> None:
    """Writes the page and its plots."""
    page = [INTRODUCTION]
    for file in sorted(RESULTS.glob("*-device.jsonl")):
        device = file.name.removesuffix("-device.jsonl")
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        page += [
            f"\n## {device}",
            conditions(rows[0]),
            f"![fractions of the copy's bandwidth](performance/{device}.png)",
        ]
        page += device_tables(rows)
        host = RESULTS / f"{device}-host.jsonl"
        if host.exists():
            page += host_table([json.loads(line) for line in host.read_text(encoding="utf-8").splitlines()])
        draw(rows, RESULTS / f"{device}.png")
    (DOCS / "performance.md").write_text("\n".join(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
