"""Device memory between addresses that are not mapped: an access of one byte beyond it is a fault.

Memory of an ordinary allocation goes on beyond a tensor, and what is read there goes unseen. The driver's
virtual memory management, called here by ctypes, reserves addresses and maps memory to some of them:
https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__VA.html
"""

from __future__ import annotations

import ctypes
from functools import cache

ALIGNMENT = 16
"""Bytes to which ``place`` aligns what is to be aligned: the largest access of a thread."""

# CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOC_GRANULARITY_MINIMUM,
# CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
_PINNED, _DEVICE, _MINIMUM, _READ_WRITE, _SUPPORTED = 1, 1, 0, 3, 102


class _Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Flags(ctypes.Structure):
    """CUmemAllocationProp.allocFlags."""

    _fields_ = (
        ("compressionType", ctypes.c_ubyte),
        ("gpuDirectRDMACapable", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("requestedHandleTypes", ctypes.c_int),
        ("location", _Location),
        ("win32HandleMetaData", ctypes.c_void_p),
        ("allocFlags", _Flags),
    )


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


_ADDRESS = _HANDLE = _BITS = ctypes.c_ulonglong  # CUdeviceptr, CUmemGenericAllocationHandle, flags
_SIZE = ctypes.c_size_t
_SIGNATURES = {
    "cuInit": (ctypes.c_uint,),
    "cuGetErrorName": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
    "cuDeviceGet": (ctypes.POINTER(ctypes.c_int), ctypes.c_int),
    "cuDeviceGetAttribute": (ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_int),
    "cuMemGetAllocationGranularity": (
        ctypes.POINTER(_SIZE),
        ctypes.POINTER(_Properties),
        ctypes.c_int,
    ),
    "cuMemAddressReserve": (ctypes.POINTER(_ADDRESS), _SIZE, _SIZE, _ADDRESS, _BITS),
    "cuMemCreate": (ctypes.POINTER(_HANDLE), _SIZE, ctypes.POINTER(_Properties), _BITS),
    "cuMemMap": (_ADDRESS, _SIZE, _SIZE, _HANDLE, _BITS),
    "cuMemSetAccess": (_ADDRESS, _SIZE, ctypes.POINTER(_Access), _SIZE),
}


def obstacle(device: int) -> str | None:
    """Why a device, by its index, has no guarded memory, or None."""
    try:
        _driver()
    except OSError as error:
        return str(error)
    handle, found = ctypes.c_int(), ctypes.c_int()
    _call("cuDeviceGet", ctypes.byref(handle), device)
    _call("cuDeviceGetAttribute", ctypes.byref(found), _SUPPORTED, handle.value)
    return None if found.value else "the device has no virtual memory management"


class Guarded:
    """Memory of a device, by its index, with a granule that is not mapped on either side.

    It is there until the process ends. The device's context must be the current one.

    Attributes: ``begin``, ``end``: the addresses of the first byte and of the one after the last;
    ``size``: its bytes, at least those asked for.
    """

    def __init__(self, device: int, nbytes: int):
        asked = _Properties(type=_PINNED, location=_Location(_DEVICE, device))
        granule, reserved, memory = _SIZE(), _ADDRESS(), _HANDLE()
        _call("cuMemGetAllocationGranularity", ctypes.byref(granule), ctypes.byref(asked), _MINIMUM)
        self.size = -(-nbytes // granule.value) * granule.value
        _call("cuMemAddressReserve", ctypes.byref(reserved), self.size + 2 * granule.value, 0, 0, 0)
        self.begin = reserved.value + granule.value
        self.end = self.begin + self.size
        _call("cuMemCreate", ctypes.byref(memory), self.size, ctypes.byref(asked), 0)
        _call("cuMemMap", self.begin, self.size, 0, memory.value, 0)
        access = _Access(asked.location, _READ_WRITE)
        _call("cuMemSetAccess", self.begin, self.size, ctypes.byref(access), 1)

    def place(self, nbytes: int, side: str, aligned: bool, apart: int = 0) -> int:
        """The address of so many bytes that begin at the ``begin`` or end at the ``end``.

        ``aligned``: they begin at a multiple of ``ALIGNMENT``, up to 15 bytes before that place at the end.
        ``apart``: they lie so many bytes away from that side; a multiple of ``ALIGNMENT`` changes nothing
        else.
        """
        address = self.begin + apart if side == "begin" else self.end - apart - nbytes
        if aligned:
            address -= address % ALIGNMENT
        assert self.begin <= address <= self.end - nbytes, f"{nbytes} bytes in {self.size}"
        return address


@cache
def _driver() -> ctypes.CDLL:
    driver = ctypes.CDLL("libcuda.so.1")
    for name, types in _SIGNATURES.items():
        function = getattr(driver, name)
        function.argtypes, function.restype = types, ctypes.c_int
    driver.cuInit(0)
    return driver


def _call(name: str, *arguments: object) -> None:
    code = getattr(_driver(), name)(*arguments)
    if code:
        text = ctypes.c_char_p()
        _driver().cuGetErrorName(code, ctypes.byref(text))
        raise OSError(f"{name}: {(text.value or b'unknown').decode()} ({code})")
