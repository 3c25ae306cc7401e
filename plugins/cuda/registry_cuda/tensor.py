"""Device arrays of every kind: ours, and any other seen as CuPy's."""

from __future__ import annotations

import math
import sys
from functools import cache
from typing import Any

import numpy as np

from registry.dtypes import numpy_dtype

from .launch import on_device


class Tensor:
    """A dense, row-major tensor of bfloat16, which not every CuPy has as an element type.

    Attributes: ``shape``, ``dtype`` (``bfloat16``), ``bits`` (the CuPy array of uint16 that it is kept in).
    """

    dtype = "bfloat16"

    def __init__(self, bits: Any):
        self.bits = bits

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        found: tuple[int, ...] = self.bits.shape
        return found

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return 2 * self.size

    @property
    def device(self) -> str:
        """Where it lives: ``cuda:0``."""
        return device_name(self.bits.device.id)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy on the host."""
        bits: np.ndarray[Any, Any] = self.bits.get()
        return bits.view(numpy_dtype("bfloat16"))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """A copy on the host, for ``numpy.asarray``."""
        if copy is False:
            raise ValueError("a device tensor cannot be seen without a copy")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __repr__(self) -> str:
        return f"<{self.device} tensor bfloat16 {list(self.shape)}>"


@cache
def device_name(index: int) -> str:
    """``cuda:0``."""
    return f"cuda:{index}"


def root(value: object) -> str:
    """The library a value's type comes from."""
    return type(value).__module__.partition(".")[0]


def as_cupy(value: Any) -> Any:
    """A CuPy array on the memory of any device array; of uint16 for bfloat16."""
    import cupy

    if isinstance(value, Tensor):
        return value.bits
    if root(value) == "torch":
        plain = value.resolve_neg() if value.is_neg() else value
        if plain.dtype == sys.modules["torch"].bfloat16:
            return cupy.from_dlpack(plain.view(sys.modules["torch"].int16)).view(np.uint16)
        return cupy.from_dlpack(plain)
    if isinstance(value, cupy.ndarray):
        array = value
    else:
        array = cupy.from_dlpack(value) if hasattr(value, "__dlpack__") else cupy.asarray(value)
    return array.view(np.uint16) if array.dtype.kind == "V" else array  # bfloat16


def to_host(value: Any) -> np.ndarray[Any, Any]:
    """A copy of any device array on the host."""
    array = as_cupy(value)
    with on_device(array.device.id):
        found: np.ndarray[Any, Any] = array.get()
    return found.view(numpy_dtype("bfloat16")) if str(value.dtype).endswith("bfloat16") else found


def allocate(shape: tuple[int, ...], dtype: str) -> Any:
    """A CuPy array on the current device, or a `Tensor` of bfloat16."""
    import cupy

    if dtype == "bfloat16":
        return Tensor(cupy.empty(shape, np.uint16))
    return cupy.empty(shape, numpy_dtype(dtype))
