"""The libraries that device arrays come from: how each type is read, and how memory is had beside it.

What a run asks of every tensor is settled once per type: these functions are most of what a launch costs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from registry.dtypes import numpy_dtype

from .launch import on_device
from .tensor import Tensor, allocate, as_cupy

CUDA = (2, 13)
"""DLPack's device types for memory of a CUDA device: kDLCUDA, kDLCUDAManaged."""


@dataclass(frozen=True)
class Library:
    """How arrays of one type are read, and memory made beside them.

    ``device(array)``: the index of its CUDA device, or None. ``address(array)``: where its elements begin;
    None when they have gaps, are on the host, or only the library can tell. ``addresses(arrays)``: the same
    of several, or None when one has none; AttributeError when one is of another library.
    ``stream(index)``: the current stream of a device. ``beside(array, shape, dtype)``: an array of undefined
    contents on its device. ``scratch(size)``: memory of the current device that may go when work on the
    current stream is enqueued, as an object with an address, and the address. ``gaps(array)``: whether a run
    has to make it dense first.
    """

    device: Callable[[Any], int | None]
    address: Callable[[Any], int | None]
    addresses: Callable[[Sequence[Any]], list[int] | None]
    stream: Callable[[int], int]
    beside: Callable[[Any, tuple[int, ...], str], Any]
    scratch: Callable[[int], tuple[Any, int]]
    gaps: Callable[[Any], bool]


def library_of(value: object) -> Library:
    """The library of a value's type."""
    kind = type(value)
    return _KNOWN.get(kind) or _find(kind)


_KNOWN: dict[type, Library] = {}
_ADDRESSES: dict[type, Callable[[Any], int | None]] = {}


def _find(kind: type) -> Library:
    name = kind.__module__.partition(".")[0]
    if kind is Tensor:
        found = _ours()
    elif name == "cupy" and hasattr(kind, "data"):
        found = _cupy(kind)
    elif name == "torch" and hasattr(kind, "is_cuda"):
        found = _torch()
    elif name not in ("numpy", "builtins") and hasattr(kind, "__dlpack_device__"):
        found = _other(name, _device_dlpack)
    else:
        found = _other(name, _device_interface)
    _KNOWN[kind], _ADDRESSES[kind] = found, found.address
    return found


def device_of(value: object) -> int | None:
    """The index of the CUDA device on which a value lives, or None when it is no array on one."""
    return library_of(value).device(value)


def addresses_of(values: Sequence[Any], library: Library) -> list[int] | None:
    """The `Library.address` of each, or None when one has none; the first is of that library."""
    try:
        return library.addresses(values)
    except AttributeError:  # of several libraries
        known = _ADDRESSES
        found = [(known.get(type(value)) or library_of(value).address)(value) for value in values]
        return None if None in found else found  # type: ignore[return-value]


def overlaps(one: Any, other: Any) -> bool:
    """Whether the bytes from the first to the last element of two tensors have any in common."""
    begin = (_ADDRESSES.get(type(one)) or library_of(one).address)(one)
    start = (_ADDRESSES.get(type(other)) or library_of(other).address)(other)
    if begin is None or start is None:
        (begin, end), (start, stop) = _bounds(one), _bounds(other)
        return begin < stop and start < end
    return bool(start < begin + one.nbytes if begin <= start else begin < start + other.nbytes)


def _bounds(value: Any) -> tuple[int, int]:
    begin = library_of(value).address(value)
    if begin is not None:
        return begin, begin + value.nbytes
    array = as_cupy(value)
    if not array.size:
        return 0, 0
    begin = end = int(array.data.ptr)
    for dim, step in zip(array.shape, array.strides, strict=True):
        if step > 0:
            end += (dim - 1) * step
        else:
            begin += (dim - 1) * step
    return begin, end + array.itemsize


def reader(kind: type) -> Callable[[Any], Hashable] | None:
    """What decides a plan, of the arrays of a type whose reading costs little."""
    if kind is Tensor:
        return lambda tensor: (tensor.bits.shape, tensor.bits.data.device_id)
    if kind.__module__.partition(".")[0] == "cupy":
        return attrgetter("dtype", "shape", "data.device_id")
    return None


def _cupy(kind: type) -> Library:
    from cupy import ndarray
    from cupy.cuda import alloc, get_current_stream, runtime

    current = runtime.getDevice

    def address(array: Any) -> int | None:
        return array.data.ptr if array.flags.c_contiguous else None

    def addresses(arrays: Sequence[Any]) -> list[int] | None:
        found = [address(array) for array in arrays]
        return None if None in found else found  # type: ignore[return-value]

    # The same by what the flag reads, at a tenth of its cost.
    def quick_address(array: Any) -> int | None:
        return array.data.ptr if array._c_contiguous else None

    def quick_addresses(arrays: Sequence[Any]) -> list[int] | None:
        found = [array.data.ptr for array in arrays if array._c_contiguous]
        return found if len(found) == len(arrays) else None

    quick = hasattr(kind, "_c_contiguous")

    def beside(first: Any, shape: tuple[int, ...], dtype: str) -> Any:
        if dtype == "bfloat16":
            return allocate_on(first.data.device_id, shape, dtype).bits.view(numpy_dtype(dtype))
        index = first.data.device_id
        if index == current():
            return ndarray(shape, numpy_dtype(dtype))  # empty() without its questions
        return allocate_on(index, shape, dtype)

    def scratch(size: int) -> tuple[Any, int]:
        memory = alloc(size)
        return memory, memory.ptr

    return Library(
        device=attrgetter("data.device_id"),
        address=quick_address if quick else address,
        addresses=quick_addresses if quick else addresses,
        stream=lambda index: get_current_stream().ptr,
        beside=beside,
        scratch=scratch,
        gaps=lambda array: not array.flags.c_contiguous,
    )


def allocate_on(index: int, shape: tuple[int, ...], dtype: str) -> Any:
    """A CuPy array, or a `Tensor` of bfloat16, on a device."""
    with on_device(index):
        return allocate(shape, dtype)


def _ours() -> Library:
    import cupy

    bits = _cupy(cupy.ndarray)
    return Library(
        device=attrgetter("bits.data.device_id"),
        address=lambda tensor: bits.address(tensor.bits),
        addresses=lambda tensors: bits.addresses([tensor.bits for tensor in tensors]),
        stream=bits.stream,
        beside=lambda first, shape, dtype: allocate_on(first.bits.data.device_id, shape, dtype),
        scratch=bits.scratch,
        gaps=lambda tensor: False,
    )


def _torch() -> Library:
    torch = sys.modules["torch"]
    empty, uint8 = torch.empty, torch.uint8

    def scratch(size: int) -> tuple[Any, int]:
        memory = empty(size, dtype=uint8, device="cuda")
        return memory, memory.data_ptr()

    def addresses(arrays: Sequence[Any]) -> list[int] | None:
        found = [
            array.data_ptr()
            for array in arrays
            if array.is_contiguous() and array.is_cuda and not array.is_neg()
        ]
        return found if len(found) == len(arrays) else None

    return Library(
        device=lambda array: array.device.index if array.is_cuda else None,
        address=lambda array: found[0] if (found := addresses([array])) else None,
        addresses=addresses,
        # What torch.cuda.current_stream(index).cuda_stream reads, without an object around it.
        stream=getattr(torch._C, "_cuda_getCurrentRawStream", None)
        or (lambda index: torch.cuda.current_stream(index).cuda_stream),
        beside=lambda first, shape, dtype: empty(shape, dtype=getattr(torch, dtype), device=first.device),
        scratch=scratch,
        gaps=lambda array: array.is_neg() or not array.is_contiguous(),
    )


def _other(name: str, device: Callable[[Any], int | None]) -> Library:
    """A library that shares its memory by DLPack or the CUDA array interface, or has none to share."""

    def stream(index: int) -> int:
        import cupy

        return int(cupy.cuda.get_current_stream().ptr)

    def beside(first: Any, shape: tuple[int, ...], dtype: str) -> Any:
        index = device(first)
        assert index is not None
        made = allocate_on(index, shape, dtype)
        importer = getattr(sys.modules.get(name), "from_dlpack", None)
        return made if importer is None or dtype == "bfloat16" else importer(made)

    def scratch(size: int) -> tuple[Any, int]:
        import cupy

        memory = cupy.cuda.alloc(size)
        return memory, memory.ptr

    def gaps(array: Any) -> bool:
        interface = getattr(array, "__cuda_array_interface__", None)
        return interface is not None and not as_cupy(array).flags.c_contiguous

    return Library(device, lambda array: None, lambda arrays: None, stream, beside, scratch, gaps)


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
    try:
        import cupy
    except ImportError:  # then it is of no device that is known here
        return None
    return int(cupy.cuda.runtime.pointerGetAttributes(interface["data"][0]).device)
