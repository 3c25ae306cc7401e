"""What measurements hold for."""

from __future__ import annotations

import datetime
import platform
from importlib import metadata
from typing import Any

import registry_cuda
import registry_manifests
import registry_numpy
import registry_webgpu
from registry import Registry

VERSIONS = (
    "kernel-registry",
    "numpy",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "torch",
    "triton",
    "liger-kernel",
    "wgpu",
    "onnxruntime-webgpu",
    "onnxruntime",
)


def open_registry() -> Registry:
    """A registry of the built-in backends alone."""
    return Registry([registry_manifests, registry_numpy, registry_cuda, registry_webgpu], entry_points=False)


def conditions(reg: Registry) -> dict[str, Any]:
    """What the results hold for: devices, drivers, versions and the date."""
    versions = {}
    for name in VERSIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    devices = {s.name: {"name": s.device, **s.details} for s in reg.backends() if s.available}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"date": now, "python": platform.python_version(), "versions": versions, "devices": devices}
