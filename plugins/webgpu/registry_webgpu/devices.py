"""The open devices of this process: one for each adapter and implementation, whichever registry asks."""

from __future__ import annotations

import threading
from typing import Any

from registry.errors import BackendError

from .adapter import adapters, adopt, choose, open_device
from .device import Device
from .implementations import DEFAULT, IMPLEMENTATIONS, Implementation, implementation_of, named_by


class Devices:
    """Opens devices when first asked for, and anew when one was lost. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, Device] = {}

    def get(self, wanted: Any = None, implementation: Implementation = IMPLEMENTATIONS[DEFAULT]) -> Device:
        """A usable device: by index or part of the adapter's name, the best for None, or the caller's own.

        A name that begins with an implementation's (``dawn``, ``dawn:0``) and the caller's own device say by
        themselves which implementation is meant.

        Raises:
            BackendError: no such adapter, it gives no device, or the caller's own is lost.
            ImportError: the implementation's package is not installed, or does not work.
        """
        implementation = named_by(wanted) or implementation
        own = wanted is not None and not isinstance(wanted, str)
        if own and implementation_of(wanted) is None:
            packages = " or ".join(known.package for known in IMPLEMENTATIONS.values())
            needed = f"a name or a device of {packages}"
            raise BackendError(f"device is {wanted!r}; needed: {needed}", backend="webgpu")
        # wgpu's devices go without their implementation's name, Dawn's with it, as in `webgpu:dawn:0`.
        prefix = "" if implementation.name == DEFAULT else f"{implementation.name}:"
        name = f"own-{id(wanted):x}" if own else _adapter(wanted, implementation)
        key = f"{prefix}{name or ''}"
        with self._lock:
            device = self._open.get(key)
            if device is not None and device.usable:
                return device
            if own:
                if device is not None:
                    text = "the caller's own device is lost; hand in another"
                    raise BackendError(text, backend="webgpu", lost=True)
                device = Device(adopt(wanted), key, own=False)
            else:
                # One device goes by several names: none at all, its index, a part of its adapter's name.
                index = choose(adapters(implementation), name)
                place = f"{prefix}{index}"
                device = self._open.get(place)
                if device is None or not device.usable:
                    device = self._open[place] = Device(open_device(implementation, index), place)
            self._open[key] = device
            return device

    def all(self) -> set[Device]:
        """Every device that is open."""
        with self._lock:
            return set(self._open.values())


def _adapter(wanted: str | None, implementation: Implementation) -> str | None:
    """What is asked for of an adapter, without the implementation's name in front."""
    if wanted is None:
        return None
    head, _, rest = wanted.partition(":")
    return rest or None if head == implementation.name else wanted


DEVICES = Devices()
