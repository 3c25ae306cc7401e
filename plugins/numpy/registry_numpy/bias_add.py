"""com.microsoft::BiasAdd: Y = (X + bias) + skip, X and skip [N, S, C], bias [C].

Formula: ONNX Runtime, contrib operators, BiasAdd.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from registry import Expected

from .normalize import add_and_normalize
from .reference import added

Array = npt.NDArray[Any]

OP = "com.microsoft::BiasAdd"


def reference(tensors: Mapping[str, Array], attrs: Mapping[str, Any]) -> dict[str, Expected]:
    """The float64 answer Y, by ONNX names. There are no attributes."""
    return {"Y": added(tensors["X"], tensors["bias"], tensors["skip"])}


def blocked(tensors: Mapping[str, Array], attrs: Mapping[str, Any], out: Mapping[str, Array]) -> None:
    """Compute Y into ``out["Y"]``, in cache-sized blocks of rows."""
    add_and_normalize([tensors["X"], tensors["bias"], tensors["skip"]], -1, total=out.get("Y"))
