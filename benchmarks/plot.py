"""Draws the fraction of the copy's bandwidth from rows that device.py wrote.

python benchmarks/plot.py results.jsonl results.png
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any


def draw(rows: list[dict[str, Any]], target: Path) -> None:
    """A panel for each call and dtype, a line for each implementation, over the hidden size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    calls = list(dict.fromkeys(row["call"] for row in rows))
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    size = (4 * len(dtypes), 2.6 * len(calls))
    figure, panels = pyplot.subplots(
        len(calls), len(dtypes), figsize=size, sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for line, call in zip(panels, calls, strict=True):
        for panel, dtype in zip(line, dtypes, strict=True):
            points: dict[str, list[tuple[int, float]]] = defaultdict(list)
            for row in rows:
                if row["call"] == call and row["dtype"] == dtype and row["fraction"] is not None:
                    name = row["backend"] if row["what"] == "registry" else row["what"]
                    points[name].append((row["hidden"], row["fraction"]))
            for name, found in points.items():
                panel.plot(*zip(*sorted(found), strict=True), marker="o", label=name)
            panel.set(title=f"{call}, {dtype}", xscale="log", ylim=(0, 1.1))
            panel.axhline(1, color="grey", linewidth=0.5)
    panels[0][0].legend(fontsize="small")
    figure.supxlabel("hidden size")
    figure.supylabel("fraction of the bandwidth of a copy on the device")
    figure.savefig(target, dpi=120)


if __name__ == "__main__":
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    draw([json.loads(line) for line in lines], Path(sys.argv[2]))
