"""What measurements hold for, and where they are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from typing import Any

import registry_cuda
import registry_manifests
import registry_numpy
import registry_webgpu
from registry import Registry
from registry.system import system as system_of

LIBRARIES = (
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
    """A registry of the built-in backends alone, which chooses by the static rules."""
    plugins = [registry_manifests, registry_numpy, registry_cuda, registry_webgpu]
    reg = Registry(plugins, entry_points=False)
    reg.configure(tuned=False)
    return reg


def system(reg: Registry) -> dict[str, Any]:
    """What the results hold for: devices, drivers, versions, those of libraries too, and the date."""
    found = system_of(reg)
    for name in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found["versions"][name] = metadata.version(name)
    return found


def keep(file: str | None, row: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Adds a line of JSON to a file, if there is one: a row and what it holds for."""
    if file:
        with open(file, "a", encoding="utf-8") as lines:
            lines.write(json.dumps({**row, **facts}) + "\n")
