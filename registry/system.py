"""What measurements and decisions hold for: machine, devices, drivers, versions, date."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import Registry


def system(registry: Registry, backends: Sequence[str] | None = None) -> dict[str, Any]:
    """What measurements hold for: date (UTC), machine, Python, versions of plugins, and devices by backend
    with what the backend says of them, drivers included. ``backends`` are those asked (default: all)."""
    catalog = registry.catalog
    versions = {}
    for name in ("kernel-registry", "numpy", *catalog.plugins.origins.values()):
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    names = catalog.ranked() if backends is None else backends
    standing = {name: catalog.availability(name) for name in names}
    devices = {name: {"name": here.name, **here.details} for name, here in standing.items() if here.available}
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "python": platform.python_version(),
        "versions": versions,
        "devices": devices,
    }


@cache
def machine() -> str:
    """The processor's name where the system tells it, its architecture and the operating system."""
    name = platform.processor()
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        lines = (line.partition(":")[::2] for line in file)
        name = next((value.strip() for key, value in lines if key.strip() == "model name"), name)
    return ", ".join(filter(None, (name, platform.machine(), platform.system())))
