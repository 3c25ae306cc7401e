"""ai.onnx::SimplifiedLayerNormalization: ONNX Runtime's RMSNormalization, with its statistics.

    Y = X / sqrt(mean(X**2) + epsilon) * scale,  over the axes from ``axis`` to the last

scale broadcasts to X. Formula: ONNX Runtime, operator SimplifiedLayerNormalization of the ONNX
domain (version 1), which ONNX itself does not define.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from registry import Expected

from .normalize import add_and_normalize
from .reference import added, simplified

Array = npt.NDArray[Any]

OP = "ai.onnx::SimplifiedLayerNormalization"
AXIS = -1
EPSILON = 1e-5


def reference(tensors: Mapping[str, Array], attrs: Mapping[str, Any]) -> dict[str, Expected]:
    """The float64 answers Y, inv_std_var, by ONNX Runtime's names."""
    values = added(tensors["X"]).value
    axis = attrs.get("axis", AXIS) % values.ndim
    output, inverse = simplified(values, axis, tensors["scale"], attrs.get("epsilon", EPSILON))
    return {"Y": output, "inv_std_var": inverse}


def blocked(tensors: Mapping[str, Array], attrs: Mapping[str, Any], out: Mapping[str, Array]) -> None:
    """Compute the outputs named in ``out`` into its arrays, in cache-sized blocks of rows."""
    add_and_normalize(
        [tensors["X"]],
        attrs.get("axis", AXIS),
        normalized=out.get("Y"),
        inverse=out.get("inv_std_var"),
        scale=tensors["scale"],
        epsilon=attrs.get("epsilon", EPSILON),
        centre=False,
    )
