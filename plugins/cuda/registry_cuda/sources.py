"""The kernels as data: how work is laid out over threads, and the source text of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2

    from .problem import Problem

ITEM_BYTES: Mapping[str, int] = MappingProxyType({"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8})
ACCESS_BYTES = 16
"""The most that a thread loads or stores at once."""

WARP = 32
BLOCK = 64
"""Threads of a block that holds several short rows."""

THREAD_BYTES = 32
"""Bytes of a row, as stored, that a thread takes, at least."""

MOST_LANES: Mapping[str, int] = MappingProxyType(
    {"float16": 256, "bfloat16": 256, "float32": 512, "float64": 512}
)
"""The most threads of a row that is read by full accesses, unless they would hold more than ``HELD``."""

HELD = 64
"""The most elements of a row that a thread holds."""

LONGEST: Mapping[str, int] = MappingProxyType(
    {"float16": 24576, "bfloat16": 24576, "float32": 24576, "float64": 12288}
)
"""The longest row in registers: beside as many numbers that are on their way in, its threads' numbers fill a
multiprocessor's registers."""

ACROSS_FROM = 128
"""The shortest row that is read and written by full accesses, when none divides it."""

MOST_STAGED_BYTES = 40 * 1024
"""The longest such row, for it goes through shared memory."""

SEGMENT_THREADS = 256
SEGMENT_BYTES = 64
"""Bytes a thread holds of a segment, as computed with, and at most ``SEGMENT_ITEMS`` vectors. A segment is
the piece of a long row that is measured at once."""

SEGMENT_ITEMS = 8

BLOCK_SEGMENTS = 1024
"""The most segments whose measures one block keeps in shared memory."""

BIAS_THREADS = 256
BIAS_ITEMS = 1
"""Vectors of a thread in BiasAdd."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One launch: the function's name in the source, blocks of one launch, threads of a block."""

    function: str
    grid: int
    threads: int


@dataclass(frozen=True, kw_only=True)
class KernelSource:
    """A template and what is baked into it."""

    template: str
    constants: Mapping[str, Any]

    def source(self, aligned: bool = True) -> str:
        """The CUDA C++. Without ``aligned`` it takes pointers of any alignment, to the same bits."""
        return _environment().get_template(self.template).render(**self.constants, aligned=aligned)


def vector_of(hidden: int, dtype: str) -> int:
    """Elements of one access: as many as fit one and divide the row, so that every row begins aligned."""
    return math.gcd(hidden, ACCESS_BYTES // ITEM_BYTES[dtype])


def _power_up(least: int) -> int:
    return 1 << max(0, least - 1).bit_length()


def _power_down(most: int) -> int:
    return 1 << max(0, most.bit_length() - 1)


def _row_constants(problem: Problem) -> dict[str, Any]:
    parts = problem.roles.keys()
    return {
        "dtype": problem.dtype,
        "hidden": problem.hidden,
        "vector": vector_of(problem.hidden, problem.dtype),
        "skip": "skip" in parts,
        "skip_repeats": problem.skip_repeats,
        "bias": "bias" in parts,
        "across": False,
        "centred": problem.centred,
        "scale": problem.scale,
        "shift": problem.shift,
        **{output: output in parts for output in ("y", "sum", "mean", "inverse")},
    }


@dataclass(frozen=True)
class Layout:
    """How rows in registers are laid out: threads of a row, rows of a block."""

    lanes: int
    rows: int


def layout_of(problem: Problem) -> Layout:
    """Two accesses a thread, or more for a row of many; a short row has a part of a warp, and company.

    A short row that no full access divides is read by narrow ones: it has as much of a warp as it fills.
    """
    row_bytes = problem.hidden * problem.item_bytes
    lanes = min(MOST_LANES[problem.dtype], _power_down(row_bytes // THREAD_BYTES))
    lanes = max(lanes, _power_up(-(-problem.hidden // HELD)))
    vector = vector_of(problem.hidden, problem.dtype)
    if vector < ACCESS_BYTES // problem.item_bytes and problem.hidden < ACROSS_FROM:
        lanes = min(WARP, _power_up(problem.hidden // vector))
    return Layout(lanes, max(1, BLOCK // lanes) if lanes < WARP else 1)


def rows_registers(problem: Problem, layout: Layout) -> KernelSource:
    """Rows in registers. Where full accesses do not divide a row, they go across the ends of rows."""
    constants = {**_row_constants(problem), **asdict(layout)}
    full = ACCESS_BYTES // problem.item_bytes
    row_bytes = problem.hidden * problem.item_bytes
    if constants["vector"] < full and problem.hidden >= ACROSS_FROM and row_bytes <= MOST_STAGED_BYTES:
        constants |= {"vector": full, "across": True}
    items = -(-problem.hidden // (constants["vector"] * layout.lanes))
    return KernelSource(template="rows.cu.jinja", constants={**constants, "items": items})


def rows_block(problem: Problem) -> KernelSource:
    """Long rows, a block each."""
    return _long_rows(problem, keeps_parts=True)


def rows_split(problem: Problem) -> KernelSource:
    """Long rows, each shared by several blocks, in two launches."""
    return _long_rows(problem, keeps_parts=False)


def _long_rows(problem: Problem, keeps_parts: bool) -> KernelSource:
    constants = _row_constants(problem)
    constants |= {
        "threads": SEGMENT_THREADS,
        "items": _segment_items(problem),
        "keeps_parts": keeps_parts,
    }
    return KernelSource(template="long_rows.cu.jinja", constants=constants)


def _segment_items(problem: Problem) -> int:
    computed = 8 if problem.dtype == "float64" else 4
    vector = vector_of(problem.hidden, problem.dtype)
    return min(SEGMENT_ITEMS, SEGMENT_BYTES // computed // vector)


def segments_of(problem: Problem) -> int:
    """Into how many segments a long row is cut."""
    vector = vector_of(problem.hidden, problem.dtype)
    return -(-problem.hidden // (SEGMENT_THREADS * _segment_items(problem) * vector))


def bias_add(problem: Problem) -> KernelSource:
    """Sums alone: the tensors are flat, so that their vectors need not end where a row ends."""
    constants = {
        "dtype": problem.dtype,
        "hidden": problem.hidden,
        "vector": ACCESS_BYTES // problem.item_bytes,
        "wide": problem.rows * problem.hidden >= 2**31,
        "threads": BIAS_THREADS,
        "items": BIAS_ITEMS,
    }
    return KernelSource(template="bias_add.cu.jinja", constants=constants)


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, "templates"),
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: str(value).lower() if isinstance(value, bool) else value,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
