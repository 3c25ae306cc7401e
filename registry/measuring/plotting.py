"""Draws what ``registry bench`` has measured, by matplotlib."""

from __future__ import annotations

from ..errors import ContractError
from .benchmark import Benchmark


def draw(benchmark: Benchmark, file: str) -> None:
    """A point for the median of each row that was timed, with its quartiles.

    Raises:
        ContractError: matplotlib is not installed, nothing was timed, or the file cannot be written.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ContractError("--plot needs matplotlib: pip install 'kernel-registry[bench]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [(row, row.times) for row in benchmark.rows if row.times is not None]
    if not rows:
        raise ContractError("--plot: nothing was timed, so there is nothing to draw")
    names = [f"{row.candidate}\n{row.place}" for row, _ in rows]
    medians = [1e6 * times.median for _, times in rows]
    below = [1e6 * (times.median - times.low) for _, times in rows]
    above = [1e6 * (times.high - times.median) for _, times in rows]
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.5 * len(rows)), layout="constrained")
    axes.errorbar(medians, names, xerr=(below, above), fmt="o", capsize=3)
    axes.invert_yaxis()
    axes.set(xlabel="microseconds: median and quartiles", xscale="log", title=benchmark.request)
    axes.title.set_fontsize("small")
    try:
        figure.savefig(file, dpi=120)
    except (OSError, ValueError) as error:
        raise ContractError(f"--plot {file}: cannot be written ({error})") from error
    finally:
        pyplot.close(figure)
