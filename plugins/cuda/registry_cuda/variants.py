"""The variants: which kernel each is, when it may run, and over what grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from registry import Claim, Predicate, Request

from . import sources
from .problem import Problem, read_problem
from .sources import KernelSource, Launch, Layout

SPLIT_BLOCKS = 16
"""Blocks of a row that is split, for each multiprocessor, at most."""


@dataclass(frozen=True)
class Variant:
    """A kernel of a problem, its launches for a number of rows, and the blocks that share one of them.

    ``launches(problem, rows, multiprocessors)``. ``parts`` are the numbers of scratch a row needs.
    """

    kernel: Callable[[Problem], KernelSource]
    launches: Callable[[Problem, int, int], tuple[Launch, ...]]
    pieces: Callable[[Problem, int, int], int] = lambda problem, rows, multiprocessors: 1
    parts: Callable[[Problem], int] = lambda problem: 0

    def scratch_bytes(self, problem: Problem, rows: int) -> int:
        """Bytes that a run over a number of rows needs beside its tensors."""
        return self.parts(problem) * rows * (8 if problem.dtype == "float64" else 4)


def rows_registers(layout_of: Callable[[Problem], Layout]) -> Variant:
    """Rows in registers, laid out over threads as a rule says."""

    def launches(problem: Problem, rows: int, multiprocessors: int) -> tuple[Launch, ...]:
        layout = layout_of(problem)
        grid = -(-rows // layout.rows)
        return (Launch(function="rows_registers", grid=grid, threads=layout.lanes * layout.rows),)

    return Variant(lambda problem: sources.rows_registers(problem, layout_of(problem)), launches)


def _block(problem: Problem, rows: int, multiprocessors: int) -> tuple[Launch, ...]:
    return (Launch(function="rows_block", grid=rows, threads=sources.SEGMENT_THREADS),)


def _pieces(problem: Problem, rows: int, multiprocessors: int) -> int:
    return min(sources.segments_of(problem), max(1, SPLIT_BLOCKS * multiprocessors // max(1, rows)))


def _split(problem: Problem, rows: int, multiprocessors: int) -> tuple[Launch, ...]:
    grid = rows * _pieces(problem, rows, multiprocessors)
    names = ("measure_segments", "normalize_segments")
    return tuple(Launch(function=name, grid=grid, threads=sources.SEGMENT_THREADS) for name in names)


def _bias_add(problem: Problem, rows: int, multiprocessors: int) -> tuple[Launch, ...]:
    vector = sources.ACCESS_BYTES // problem.item_bytes
    share = sources.BIAS_THREADS * sources.BIAS_ITEMS * vector
    grid = -(-rows * problem.hidden // share)
    return (Launch(function="bias_add", grid=grid, threads=sources.BIAS_THREADS),)


VARIANTS: Mapping[str, Variant] = MappingProxyType(
    {
        "rows_registers": rows_registers(sources.layout_of),
        "rows_split": Variant(
            sources.rows_split, _split, _pieces, lambda problem: 3 * sources.segments_of(problem)
        ),
        "rows_block": Variant(sources.rows_block, _block),
        "bias_add": Variant(sources.bias_add, _bias_add),
    }
)


def _holds(request: Request, device: Mapping[str, Any]) -> str | None:
    problem = read_problem(request)
    return (
        None
        if problem.hidden <= sources.LONGEST[problem.dtype]
        else f"{problem.hidden} elements of {problem.dtype}"
    )


def _measures_fit(request: Request, device: Mapping[str, Any]) -> str | None:
    segments = sources.segments_of(read_problem(request))
    return None if segments <= sources.BLOCK_SEGMENTS else f"{segments} segments"


def _rows_suffice(request: Request, device: Mapping[str, Any]) -> str | None:
    problem = read_problem(request)
    if _measures_fit(request, device) is not None:
        return "rows too long for one block"
    count = device["multiProcessorCount"]
    return None if problem.rows >= count else f"{problem.rows} rows for {count} multiprocessors"


ROWS: Sequence[Claim] = (
    Claim(
        "rows_registers",
        priority=3,
        when=(
            Predicate(
                "a block's registers hold a row",
                f"at most {sources.LONGEST['float32']} elements (float64: {sources.LONGEST['float64']})",
                _holds,
            ),
        ),
    ),
    Claim(
        "rows_split",
        priority=2,
        demote_when=(Predicate("a block for each row fills the device", "fewer rows", _rows_suffice),),
    ),
    Claim(
        "rows_block",
        priority=1,
        when=(
            Predicate(
                "a block's shared memory holds the measures of a row",
                f"at most {sources.BLOCK_SEGMENTS} segments",
                _measures_fit,
            ),
        ),
    ),
)
FLAT: Sequence[Claim] = (Claim("bias_add"),)
