"""RMSNormalization: Y = X / sqrt(mean(X * X) + epsilon) * scale, over the dimensions from ``axis`` on.

The formula, the tensors' names and the defaults are those of SimplifiedLayerNormalization, without its
statistics.

https://onnx.ai/onnx/operators/onnx__RMSNormalization.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from registry import Expected

from . import simplified_layer_normalization
from .simplified_layer_normalization import blocked

__all__ = ["OP", "blocked", "reference"]

OP = "ai.onnx::RMSNormalization"


def reference(tensors: Mapping[str, npt.NDArray[Any]], attrs: Mapping[str, Any]) -> dict[str, Expected]:
    """The float64 answer Y, by ONNX names."""
    return {"Y": simplified_layer_normalization.reference(tensors, attrs)["Y"]}
