"""The element types: their names, their NumPy types and their names in shaders."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

# Logical dtype -> (bytes per element in a device buffer, scalar type in a shader).
# The narrow integers and bool are widened to 32 bits on the device; bfloat16 and float64 have no
# scalar type in WGSL, their names here only serve as labels in conditions.
STORAGE: dict[str, tuple[int, str]] = {
    "float16": (2, "f16"),
    "float32": (4, "f32"),
    "float64": (8, "f64"),
    "bfloat16": (2, "bf16"),
    "int8": (4, "i32"),
    "int16": (4, "i32"),
    "int32": (4, "i32"),
    "int64": (8, "vec2<u32>"),
    "uint8": (4, "u32"),
    "uint32": (4, "u32"),
    "bool": (4, "u32"),
}

DTYPES = tuple(STORAGE)
"""The logical dtypes."""

FLOATS = ("float16", "bfloat16", "float32", "float64")
"""Those of floating-point numbers."""

SHORT_NAMES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}
"""Names for tables and the command line."""

LONG_NAMES = {short: name for name, short in SHORT_NAMES.items()}

# The largest double that rounds to a finite float32.
MAX_FLOAT32 = math.nextafter(2.0**128 - 2.0**103, 0)
SCALAR_RANGES = {
    "u32": (0, 2**32 - 1),
    "i32": (-(2**31), 2**31 - 1),
    "f32": (-MAX_FLOAT32, MAX_FLOAT32),
}
"""What a scalar argument or a uniform of each kind holds."""


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The native NumPy dtype of a logical dtype; bfloat16 comes from ml_dtypes, imported on first use.

    Raises:
        KeyError: the name is not one of ``DTYPES``.
    """
    if name not in DTYPES:
        raise KeyError(name)
    if name == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)


def finfo(dtype: np.dtype[Any]) -> Any:
    """Like ``numpy.finfo``, which does not know bfloat16."""
    import ml_dtypes

    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
