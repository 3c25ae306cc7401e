"""ai.onnx::LayerNormalization: a tensor normalized over its axes from ``axis`` to the last.

    Y = (X - mean(X)) / sqrt(variance(X) + epsilon) * Scale + B

Scale and B broadcast to X. Formula: ONNX, operator LayerNormalization (opset 17).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from registry import Expected

from .normalize import add_and_normalize
from .reference import added, normalized

Array = npt.NDArray[Any]

OP = "ai.onnx::LayerNormalization"
AXIS = -1
EPSILON = 1e-5


def reference(tensors: Mapping[str, Array], attrs: Mapping[str, Any]) -> dict[str, Expected]:
    """The float64 answers Y, Mean, InvStdDev, by ONNX names."""
    values = added(tensors["X"]).value
    output, mean, inverse = normalized(
        values,
        attrs.get("axis", AXIS) % values.ndim,
        tensors["Scale"],
        tensors.get("B"),
        attrs.get("epsilon", EPSILON),
    )
    return {"Y": output, "Mean": mean, "InvStdDev": inverse}


def blocked(tensors: Mapping[str, Array], attrs: Mapping[str, Any], out: Mapping[str, Array]) -> None:
    """Compute the outputs named in ``out`` into its arrays, in cache-sized blocks of rows."""
    add_and_normalize(
        [tensors["X"]],
        attrs.get("axis", AXIS),
        normalized=out.get("Y"),
        mean=out.get("Mean"),
        inverse=out.get("InvStdDev"),
        scale=tensors["Scale"],
        shift=tensors.get("B"),
        epsilon=attrs.get("epsilon", EPSILON),
    )
