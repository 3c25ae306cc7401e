"""The implementations of WebGPU: Python packages of one API, wgpu-py's, each with its own WGSL compiler."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """One package.

    ``package`` is what is imported, ``extra`` the extra of this distribution that installs it, ``drivers``
    what gives it an adapter. ``headers`` are the directives its compiler wants, by what a source needs.
    ``lock``, where there is one, is shared by all its devices.
    """

    name: str
    package: str
    extra: str
    drivers: str
    headers: Mapping[str, str]
    lock: threading.RLock | None = None

    @property
    def api(self) -> Any:
        """The module, imported when first asked for."""
        return importlib.import_module(self.package)


# naga has the subgroup built-ins without any line and refuses the lines; Tint demands them.
# wgpudawn keeps the errors of all its devices in one list: two threads must not be in it at once.
IMPLEMENTATIONS: Mapping[str, Implementation] = MappingProxyType(
    {
        "wgpu": Implementation(
            name="wgpu",
            package="wgpu",
            extra="webgpu",
            drivers="a Vulkan, Metal or D3D12 driver (on Debian without a GPU: mesa-vulkan-drivers)",
            headers=MappingProxyType({"f16": "enable f16;"}),
        ),
        "dawn": Implementation(
            name="dawn",
            package="wgpudawn",
            extra="dawn",
            drivers="a Vulkan, Metal or D3D12 driver (on Debian without a GPU: SwiftShader)",
            headers=MappingProxyType(
                {
                    "f16": "enable f16;",
                    "subgroups": "enable subgroups;",
                    "subgroup_id": "requires subgroup_id;",
                }
            ),
            lock=threading.RLock(),
        ),
    }
)
DEFAULT = "wgpu"


def implementation_of(device: object) -> Implementation | None:
    """The implementation a device object comes from; None when it is no device of any."""
    package = type(device).__module__.partition(".")[0]
    if not hasattr(device, "create_shader_module"):
        return None
    return next((known for known in IMPLEMENTATIONS.values() if known.package == package), None)


def named_by(wanted: object) -> Implementation | None:
    """The implementation a ``device`` option names: by its beginning, or as a device object; else None."""
    if isinstance(wanted, str):
        return IMPLEMENTATIONS.get(wanted.partition(":")[0])
    return implementation_of(wanted)
