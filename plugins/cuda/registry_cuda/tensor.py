"""Device arrays of every kind: ours, CuPy's, torch's and whatever offers its device memory."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

import numpy as np

from registry.dtypes import numpy_dtype

from .launch import on_device

CUDA = (2, 13)
"""DLPack's device types for memory of a CUDA device: kDLCUDA, kDLCUDAManaged."""


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


def device_of(value: Any) -> int | None:
    """The index of the CUDA device on which a value lives, or None when it is no array on one."""
    kind = type(value)
    find = _FINDERS.get(kind)
    if find is None:
        find = _FINDERS[kind] = _finder(kind)
    return find(value)


def _finder(kind: type) -> Callable[[Any], int | None]:
    library = kind.__module__.partition(".")[0]
    if library == "cupy" and hasattr(kind, "data"):
        return _device_cupy
    if library == "torch" and hasattr(kind, "is_cuda"):
        return _device_torch
    if library not in ("numpy", "builtins") and hasattr(kind, "__dlpack_device__"):
        return _device_dlpack
    return _device_interface


def _device_cupy(value: Any) -> int | None:
    return int(value.data.device_id)


def _device_torch(value: Any) -> int | None:
    return int(value.device.index) if value.is_cuda else None


def _device_dlpack(value: Any) -> int | None:
    try:
        kind, index = value.__dlpack_device__()
    except Exception:  # whatever another library raises here
        return None
    return int(index) if int(kind) in CUDA else None


def _device_interface(value: Any) -> int | None:
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is None:
        return None
    import cupy

    return int(cupy.cuda.runtime.pointerGetAttributes(interface["data"][0]).device)


_FINDERS: dict[type, Callable[[Any], int | None]] = {Tensor: lambda tensor: _device_cupy(tensor.bits)}


def reader(kind: type) -> Callable[[Any], Hashable] | None:
    """What decides a plan, of the arrays of a type whose reading costs little."""
    if kind is Tensor:
        return lambda tensor: (tensor.bits.shape, tensor.bits.data.device_id)
    if kind.__module__.partition(".")[0] == "cupy":
        return lambda array: (array.dtype, array.shape, array.data.device_id)
    return None


def address(value: Any) -> int | None:
    """Where the elements of a device tensor begin; None when they have gaps, or only its library can tell."""
    kind = type(value)
    read = _ADDRESSES.get(kind)
    if read is None:
        library = root(value)
        read = _ADDRESSES[kind] = {"cupy": _address_cupy, "torch": _address_torch}.get(library, _unknown)
    return read(value)


def _address_cupy(value: Any) -> int | None:
    return value.data.ptr if value.flags.c_contiguous else None


def _address_torch(value: Any) -> int | None:
    return value.data_ptr() if value.is_contiguous() and not value.is_neg() else None


def _unknown(value: Any) -> int | None:
    return None


_ADDRESSES: dict[type, Callable[[Any], int | None]] = {Tensor: lambda tensor: _address_cupy(tensor.bits)}


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


def overlaps(one: Any, other: Any) -> bool:
    """Whether the bytes from the first to the last element of two tensors have any in common."""
    (a, b), (c, d) = _bounds(one), _bounds(other)
    return a < d and c < b


def _bounds(value: Any) -> tuple[int, int]:
    begin = address(value)
    if begin is not None:
        return begin, begin + value.nbytes
    array = as_cupy(value)
    if not array.size:
        return 0, 0
    begin = end = array.data.ptr
    for dim, step in zip(array.shape, array.strides, strict=True):
        if step > 0:
            end += (dim - 1) * step
        else:
            begin += (dim - 1) * step
    return begin, end + array.itemsize


def allocate(shape: tuple[int, ...], dtype: str) -> Any:
    """A CuPy array on the current device, or a `Tensor` of bfloat16."""
    import cupy

    if dtype == "bfloat16":
        return Tensor(cupy.empty(shape, np.uint16))
    return cupy.empty(shape, numpy_dtype(dtype))


def allocate_beside(first: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """A tensor of the kind of another one, on the current device."""
    library = root(first)
    if library == "torch":
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype), device=first.device)
    if library == "cupy" and dtype == "bfloat16":
        return allocate(shape, dtype).bits.view(numpy_dtype(dtype))
    made = allocate(shape, dtype)
    if library in ("cupy", "registry_cuda"):
        return made
    importer = getattr(sys.modules.get(library), "from_dlpack", None)
    return made if importer is None or dtype == "bfloat16" else importer(made)
