"""ai.onnx::RMSNormalization: a tensor divided by its root mean square over ``axis`` to the last.

    Y = X / sqrt(mean(X**2) + epsilon) * scale

scale broadcasts to X. Formula: ONNX, operator RMSNormalization (opset 23).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from registry.accuracy import Expected

from .normalize import add_and_normalize
from .reference import added, simplified

Array = npt.NDArray[Any]

OP = "ai.onnx::RMSNormalization"
AXIS = -1
EPSILON = 1e-5


def reference(tensors: Mapping[str, Array], attrs: Mapping[str, Any]) -> dict[str, Expected]:
    """The float64 answer Y, by ONNX names."""
    values = added(tensors["X"]).value
    axis = attrs.get("axis", AXIS) % values.ndim
    output, _ = simplified(values, axis, tensors["scale"], attrs.get("epsilon", EPSILON))
    return {"Y": output}


def blocked(tensors: Mapping[str, Array], attrs: Mapping[str, Any], out: Mapping[str, Array]) -> None:
    """Compute Y into ``out["Y"]``, in cache-sized blocks of rows."""
    add_and_normalize(
        [tensors["X"]],
        attrs.get("axis", AXIS),
        normalized=out.get("Y"),
        scale=tensors["scale"],
        epsilon=attrs.get("epsilon", EPSILON),
        centre=False,
    )
