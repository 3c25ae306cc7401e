"""com.microsoft::SkipLayerNormalization: the sum of two tensors, normalized over its last axis.

    r = (input + skip) + bias
    output = (r - mean(r)) / sqrt(variance(r) + epsilon) * gamma + beta

input [S, H] or [B, S, H]; skip like input, or [S, H] or [1, S, H] under a three-dimensional input;
gamma, beta, bias [H]. Formula: ONNX Runtime, contrib operators, SkipLayerNormalization.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from registry import Expected

from .normalize import add_and_normalize
from .reference import added, normalized

Array = npt.NDArray[Any]

OP = "com.microsoft::SkipLayerNormalization"
EPSILON = 1e-12


def reference(tensors: Mapping[str, Array], attrs: Mapping[str, Any]) -> dict[str, Expected]:
    """The float64 answers output, mean, inv_std_var, input_skip_bias_sum, by ONNX names."""
    total = added(*addends(tensors))
    output, mean, inverse = normalized(
        total.value,
        total.value.ndim - 1,
        tensors["gamma"],
        tensors.get("beta"),
        attrs.get("epsilon", EPSILON),
    )
    return {"output": output, "mean": mean, "inv_std_var": inverse, "input_skip_bias_sum": total}


def blocked(tensors: Mapping[str, Array], attrs: Mapping[str, Any], out: Mapping[str, Array]) -> None:
    """Compute the outputs named in ``out`` into its arrays, in cache-sized blocks of rows."""
    add_and_normalize(
        addends(tensors),
        -1,
        total=out.get("input_skip_bias_sum"),
        normalized=out.get("output"),
        mean=out.get("mean"),
        inverse=out.get("inv_std_var"),
        scale=tensors["gamma"],
        shift=tensors.get("beta"),
        epsilon=attrs.get("epsilon", EPSILON),
    )


def addends(tensors: Mapping[str, Array]) -> list[Array]:
    """What r is the sum of, from left to right; bias may be left out."""
    return [tensors[name] for name in ("input", "skip", "bias") if name in tensors]
