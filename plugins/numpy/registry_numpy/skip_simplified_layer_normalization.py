"""com.microsoft::SkipSimplifiedLayerNormalization: a sum divided by its root mean square.

    r = (input + skip) + bias
    output = r / sqrt(mean(r**2) + epsilon) * gamma,  over the last axis

input [S, H] or [B, S, H]; skip like input, or [S, H] or [1, S, H] under a three-dimensional input;
gamma, bias [H]; there is no beta. Formula: ONNX Runtime, contrib operators,
SkipSimplifiedLayerNormalization.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from registry import Expected

from .normalize import add_and_normalize
from .reference import added, simplified
from .skip_layer_normalization import addends

Array = npt.NDArray[Any]

OP = "com.microsoft::SkipSimplifiedLayerNormalization"
EPSILON = 1e-12


def reference(tensors: Mapping[str, Array], attrs: Mapping[str, Any]) -> dict[str, Expected]:
    """The float64 answers output, mean, inv_std_var, input_skip_bias_sum, by ONNX Runtime's names.

    No mean is subtracted, so the mean is 0 whatever the row.
    """
    total = added(*addends(tensors))
    last = total.value.ndim - 1
    output, inverse = simplified(total.value, last, tensors["gamma"], attrs.get("epsilon", EPSILON))
    zero = np.zeros_like(inverse.value)
    mean = Expected(zero, zero, zero)
    return {"output": output, "mean": mean, "inv_std_var": inverse, "input_skip_bias_sum": total}


def blocked(tensors: Mapping[str, Array], attrs: Mapping[str, Any], out: Mapping[str, Array]) -> None:
    """Compute the outputs named in ``out`` into its arrays, in cache-sized blocks of rows."""
    if "mean" in out:
        out["mean"].fill(0)
    add_and_normalize(
        addends(tensors),
        -1,
        total=out.get("input_skip_bias_sum"),
        normalized=out.get("output"),
        inverse=out.get("inv_std_var"),
        scale=tensors["gamma"],
        epsilon=attrs.get("epsilon", EPSILON),
        centre=False,
    )
