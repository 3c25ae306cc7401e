"""What is measured: calls of every op at a size, their tensors, and the bytes that they must move."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from registry import Registry
from registry.calling.call import parse_call
from registry.calling.request import Request, bind
from registry.calling.scope import bytes_moved
from registry.dtypes import numpy_dtype
from registry.judging.accuracy import round_to
from registry.judging.judge import make_judge

Array = np.ndarray[Any, Any]

HIDDEN = (768, 1000, 1023, 1024, 4096, 8192)
LONG = 2**24
DTYPES = ("float32", "float16", "bfloat16")
TENSOR_BYTES = 256 * 2**20
CHECKED_ROWS = 16

# Name: op, inputs of the full shape, inputs of one row, outputs.
CALLS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "skip layer norm, sum": (
        "com.microsoft::SkipLayerNormalization",
        ("input", "skip"),
        ("gamma", "beta", "bias"),
        ("output", "input_skip_bias_sum"),
    ),
    "skip layer norm": (
        "com.microsoft::SkipLayerNormalization",
        ("input", "skip"),
        ("gamma", "beta"),
        ("output",),
    ),
    "layer norm": ("ai.onnx::LayerNormalization", ("X",), ("Scale", "B"), ("Y",)),
    "layer norm, statistics": (
        "ai.onnx::LayerNormalization",
        ("X",),
        ("Scale", "B"),
        ("Y", "Mean", "InvStdDev"),
    ),
    "bias add": ("com.microsoft::BiasAdd", ("X", "skip"), ("bias",), ("Y",)),
    "rms norm": ("ai.onnx::RMSNormalization", ("X",), ("scale",), ("Y",)),
    "simplified layer norm": (
        "ai.onnx::SimplifiedLayerNormalization",
        ("X",),
        ("scale",),
        ("Y", "inv_std_var"),
    ),
    "skip simplified layer norm, sum": (
        "com.microsoft::SkipSimplifiedLayerNormalization",
        ("input", "skip"),
        ("gamma",),
        ("output", "input_skip_bias_sum"),
    ),
}


@dataclass(frozen=True)
class Case:
    """One call at one size."""

    name: str
    dtype: str
    rows: int
    hidden: int

    @property
    def op(self) -> str:
        """The id of its op."""
        return CALLS[self.name][0]

    @property
    def outputs(self) -> tuple[str, ...]:
        """What it computes."""
        return CALLS[self.name][3]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every input by role."""
        _, full, vectors, _ = CALLS[self.name]
        shape = (1, self.rows, self.hidden) if self.op.endswith("::BiasAdd") else (self.rows, self.hidden)
        return {**dict.fromkeys(full, shape), **dict.fromkeys(vectors, (self.hidden,))}

    def request(self, reg: Registry) -> Request:
        """The call as data."""
        pairs = {role: (shape, self.dtype) for role, shape in self.shapes().items()}
        return bind(parse_call(reg.op(self.op), (), {"inputs": pairs, "outputs": self.outputs}))

    def bytes_moved(self, reg: Registry) -> int:
        """The bytes that must be read and written, as the op's manifest says."""
        found = bytes_moved(self.request(reg))
        assert found is not None
        return found

    def input(self, role: str, seed: int) -> Array:
        """Normal numbers, off-centre, by the place of the role in the call; large tensors repeat a block."""
        shape = self.shapes()[role]
        draw = np.random.default_rng((seed, tuple(self.shapes()).index(role)))
        block = round_to(draw.standard_normal(min(math.prod(shape), 2**20 + 7)) * 1.5 + 0.5, self.dtype)
        return np.resize(block, math.prod(shape)).reshape(shape)

    def wrong(self, reg: Registry, inputs: dict[str, Array], results: Sequence[Array]) -> str:
        """What is wrong with some rows of the results; empty when they are right."""
        full = CALLS[self.name][1]
        picked = np.unique(np.linspace(0, self.rows - 1, CHECKED_ROWS, dtype=int))

        def rows_of(array: Array) -> Array:
            flat: Array = array.reshape(self.rows, -1)[picked]
            return flat.reshape(1, *flat.shape) if array.ndim == 3 else flat

        few = {role: rows_of(value) if role in full else value for role, value in inputs.items()}
        op = reg.op(self.op)
        judge = make_judge(reg, op, few, op.attributes)
        for role, result in zip(self.outputs, results, strict=True):
            dtype = self.dtype if result.dtype == numpy_dtype(self.dtype) else "float32"
            found = rows_of(result)
            verdict = judge.verdict(role, found, dtype, found)
            if not verdict.ok:
                return f"{role}: {verdict}"
        return ""


def cases(
    names: Sequence[str], dtypes: Sequence[str], hidden: Sequence[int], tensor_bytes: int
) -> Iterator[Case]:
    """Every combination, the tensors at least that large, those of one size in a row; LONG is one row."""
    for size in hidden:
        for dtype in dtypes:
            rows = 1 if size == LONG else -(-tensor_bytes // (size * numpy_dtype(dtype).itemsize))
            for name in names:
                yield Case(name, dtype, rows, size)
