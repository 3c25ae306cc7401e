"""A tensor in a WebGPU buffer."""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from registry.dtypes import numpy_dtype
from registry.errors import ContractError

if TYPE_CHECKING:
    from .device import Device


class _End(weakref.ref["Tensor"]):
    """Gives a buffer back when its tensor is gone.

    Not ``__del__``: in a cycle of garbage the buffer would be finalised beside the tensor, and the pool would
    get what is left of it; this stays out of any cycle. Nor ``weakref.finalize``, which costs several times
    as much.
    """

    __slots__ = ("buffer", "device")
    buffer: Any
    device: Device

    def come(self) -> None:
        """The tensor is gone, or has been released."""
        if _ends.pop(id(self), None) is not None:
            self.device.give_back(self.buffer)


_ends: dict[int, _End] = {}
"""What keeps them until then."""


class Tensor:
    """A dense, row-major tensor on a device; the buffer goes when the tensor does, or on ``release``.

    Attributes: ``shape``, ``dtype`` (a name such as ``float32``), ``device`` (``webgpu:0``).
    """

    def __init__(self, device: Device, shape: tuple[int, ...], dtype: str, buffer: Any):
        self.shape = shape
        self.dtype = dtype
        self.home = device
        self._buffer = buffer
        end = _End(self, _End.come)
        end.device, end.buffer = device, buffer
        self._end = id(end)
        _ends[self._end] = end

    @property
    def device(self) -> str:
        """Where it lives."""
        return self.home.location

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without padding."""
        return self.size * numpy_dtype(self.dtype).itemsize

    @property
    def buffer(self) -> Any:
        """The buffer behind it.

        Raises:
            ContractError: the tensor has been released.
        """
        if self._buffer is None:
            raise ContractError(f"{self!r} has been released; copy it to the device again")
        return self._buffer

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy on the host."""
        out = np.empty(self.shape, numpy_dtype(self.dtype))
        self.home.download([(self.buffer, out)])
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """A copy on the host, for ``numpy.asarray``."""
        if copy is False:
            raise ValueError("a device tensor cannot be seen without a copy")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def release(self) -> None:
        """Lets go of the buffer now; work that was recorded before still runs."""
        self._buffer = None
        end = _ends.get(self._end)
        if end is not None:
            end.come()

    def __repr__(self) -> str:
        return f"<{self.device} tensor {self.dtype} {list(self.shape)}>"
