"""A request as the kernels see it: which tensor plays which part, over how many rows of which length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from registry import Request

from .sources import ITEM_BYTES

# The roles of each op's tensors, by the part they play in the kernels.
_SKIP_INPUTS = {"x": "input", "skip": "skip", "bias": "bias", "scale": "gamma"}
_SKIP_OUTPUTS = {"y": "output", "sum": "input_skip_bias_sum", "mean": "mean", "inverse": "inv_std_var"}
PARTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "com.microsoft::SkipLayerNormalization": {**_SKIP_INPUTS, "shift": "beta", **_SKIP_OUTPUTS},
        "com.microsoft::SkipSimplifiedLayerNormalization": {**_SKIP_INPUTS, **_SKIP_OUTPUTS},
        "ai.onnx::LayerNormalization": {
            **{"x": "X", "scale": "Scale", "shift": "B"},
            **{"y": "Y", "mean": "Mean", "inverse": "InvStdDev"},
        },
        "ai.onnx::SimplifiedLayerNormalization": {
            **{"x": "X", "scale": "scale", "y": "Y", "inverse": "inv_std_var"},
        },
        "ai.onnx::RMSNormalization": {"x": "X", "scale": "scale", "y": "Y"},
        "com.microsoft::BiasAdd": {"x": "X", "bias": "bias", "skip": "skip", "y": "Y"},
    }
)
OUTPUTS = frozenset({"y", "sum", "mean", "inverse"})
NORMALIZATIONS = tuple(op for op in PARTS if not op.endswith("::BiasAdd"))


@dataclass(frozen=True)
class Problem:
    """``rows`` rows of ``hidden`` elements of ``dtype``.

    ``roles`` maps each part that takes part to its tensor's role: ``x``, ``skip``, ``bias`` (the sum),
    ``scale``, ``shift``, and the outputs ``y``, ``sum``, ``mean``, ``inverse``. ``skip`` has ``skip_rows``
    rows and starts again after its last. ``scale`` and ``shift`` say which element of that tensor belongs to
    a place, in C++ over ``number`` (of the row) and ``column``; plain ``column`` is one element a column.
    ``by_row`` are the parts that have rows of their own; the others serve all rows.
    """

    dtype: str
    rows: int
    hidden: int
    skip_rows: int
    epsilon: float
    centred: bool
    roles: Mapping[str, str]
    scale: str
    shift: str | None
    by_row: frozenset[str]

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return ITEM_BYTES[self.dtype]

    @property
    def outputs(self) -> frozenset[str]:
        """The parts that are written."""
        return frozenset(OUTPUTS & self.roles.keys())

    def row_bytes(self, part: str) -> int:
        """Bytes of a part's tensor that belong to one row."""
        return 4 if part in ("mean", "inverse") else self.hidden * self.item_bytes

    @property
    def skip_repeats(self) -> bool:
        """Whether several rows share one of skip."""
        return self.skip_rows < self.rows


def read_problem(request: Request) -> Problem:
    """The problem of a request for one of the ops in ``PARTS``."""
    tensors = {**request.inputs, **{role: request.outputs[role] for role in request.asked}}
    roles = {part: role for part, role in PARTS[request.op.id].items() if role in tensors}
    shape = request.inputs[roles["x"]].shape
    axis = request.attrs.get("axis", -1) % len(shape)
    rows, hidden = math.prod(shape[:axis]), math.prod(shape[axis:])
    skip_rows = request.inputs[roles["skip"]].size // max(1, hidden) if "skip" in roles else rows
    shapes = {part: request.inputs[role].shape for part, role in roles.items() if role in request.inputs}
    scale = element_of(shapes["scale"], shape, axis) if "scale" in shapes else "column"
    shift = element_of(shapes["shift"], shape, axis) if "shift" in shapes else None
    by_row = {"x", "y", "sum", "mean", "inverse"} | ({"skip"} if skip_rows == rows else set())
    return Problem(
        dtype=request.inputs[roles["x"]].dtype,
        rows=rows,
        hidden=hidden,
        skip_rows=skip_rows,
        epsilon=float(np.float32(request.attrs.get("epsilon", 0.0))),
        centred="Simplified" not in request.op.id and "RMS" not in request.op.id,
        roles=roles,
        scale=scale,
        shift=shift,
        by_row=frozenset(by_row & roles.keys()),
    )


def element_of(shape: Sequence[int], full: Sequence[int], axis: int) -> str:
    """Which element of a tensor that broadcasts to ``full`` belongs to a place of it, as C++.

    ``number`` counts the positions before ``axis``, ``column`` those from it on.
    """
    padded = (1,) * (len(full) - len(shape)) + tuple(shape)
    if math.prod(padded[:axis]) == 1 and math.prod(padded) == math.prod(full[axis:]):
        return "column"
    terms = []
    for name, begin, end in (("number", 0, axis), ("column", axis, len(full))):
        step = 1  # how far apart positions of this dimension are, counted by the name
        for place in reversed(range(begin, end)):
            if padded[place] > 1:
                within = f"{name} / {step}" if step > 1 else name
                if place > begin:  # the outermost dimension needs no remainder, and bakes no batch size
                    within = f"({within}) % {full[place]}"
                terms.append(f"({within}) * {math.prod(padded[place + 1 :])}")
            step *= full[place]
    return " + ".join(terms) or "0"
