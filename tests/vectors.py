"""Reads the test vectors under data/vectors: published cases of an op as NumPy arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from registry.dtypes import numpy_dtype

FOLDER = Path(__file__).parent / "data" / "vectors"


@dataclass(frozen=True)
class Vector:
    """One case. ``tolerance`` is (atol, rtol) by output; ``expect_error`` says what is wrong with a
    case that has to be refused, and is None for the others."""

    name: str
    attrs: Mapping[str, Any]
    inputs: Mapping[str, npt.NDArray[Any]]
    outputs: Mapping[str, npt.NDArray[Any]]
    tolerance: Mapping[str, tuple[float, float]]
    expect_error: str | None

    @property
    def mixed(self) -> bool:
        """Whether the inputs are of more than one dtype."""
        return len({array.dtype for array in self.inputs.values()}) > 1


def load_vectors(op: str) -> list[Vector]:
    """The cases of an op by its bare name."""
    return [read_vector(case) for case in json.loads((FOLDER / f"{op}.json").read_text(encoding="utf-8"))]


def read_vector(case: Mapping[str, Any]) -> Vector:
    """A case from its JSON: tensors as dtype, shape and flat data, infinities and NaN as texts."""
    return Vector(
        case["name"],
        {name: _number(value) for name, value in case["attrs"].items()},
        {name: _array(tensor) for name, tensor in case["inputs"].items()},
        {name: _array(tensor) for name, tensor in case["outputs"].items()},
        {name: (t["atol"], t["rtol"]) for name, t in case.get("tolerance", {}).items()},
        case.get("expect_error"),
    )


def _array(tensor: Mapping[str, Any]) -> npt.NDArray[Any]:
    numbers = np.array([_number(value) for value in tensor["data"]], np.float64)
    return numbers.astype(numpy_dtype(tensor["dtype"])).reshape(tensor["shape"])


def _number(value: Any) -> Any:
    return float(value) if value in ("inf", "-inf", "nan") else value
