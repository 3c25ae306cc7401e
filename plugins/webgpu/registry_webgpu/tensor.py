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


class Tensor:
    """A dense, row-major tensor on a device; the buffer goes when the tensor does, or on ``release``.

    Attributes: ``shape``, ``dtype`` (a name such as ``float32``), ``device`` (``webgpu:0``).
    """

    def __init__(self, device: Device, shape: tuple[int, ...], dtype: str, buffer: Any):
        self.shape = shape
        self.dtype = dtype
        self.home = device
        self._buffer = buffer
        # Not __del__: in a cycle of garbage the buffer would be finalised beside the tensor, and the pool
        # would get what is left of it. This keeps it out of any cycle.
        self._end = weakref.finalize(self, device.give_back, buffer)
        self._end.atexit = False

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
            raise ContractError("this tensor has been released")
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
        self._end()

    def __repr__(self) -> str:
        return f"<{self.device} tensor {self.dtype} {list(self.shape)}>"
