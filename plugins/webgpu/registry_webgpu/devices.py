"""The open devices of this process: one for each adapter, whichever registry asks."""

from __future__ import annotations

import threading
from typing import Any

from registry.errors import BackendError

from .adapter import adapters, adopt, choose, open_device
from .device import Device


class Devices:
    """Opens devices when first asked for, and anew when one was lost. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str | None, Device] = {}

    def get(self, wanted: Any = None) -> Device:
        """A usable device: by index or part of the adapter's name, the best for None, or the caller's own.

        Raises:
            BackendError: no such adapter, it gives no device, or the caller's own is lost.
        """
        if wanted is not None and not isinstance(wanted, str) and not hasattr(wanted, "create_shader_module"):
            raise BackendError(f"device is {wanted!r}; needed: a name or a wgpu device", backend="webgpu")
        name = wanted if wanted is None or isinstance(wanted, str) else f"own-{id(wanted):x}"
        with self._lock:
            device = self._open.get(name)
            if device is not None and device.usable:
                return device
            if wanted is not None and not isinstance(wanted, str):
                if device is not None:
                    raise BackendError("the caller's own device is lost; hand in another", lost=True)
                device = Device(adopt(wanted), str(name))
            else:
                # One device goes by several names: none at all, its index, a part of its adapter's name.
                index = choose(adapters(), wanted)
                device = self._open.get(str(index))
                if device is None or not device.usable:
                    device = self._open[str(index)] = Device(open_device(index), str(index))
            self._open[name] = device
            return device

    def all(self) -> set[Device]:
        """Every device that is open."""
        with self._lock:
            return set(self._open.values())


DEVICES = Devices()
