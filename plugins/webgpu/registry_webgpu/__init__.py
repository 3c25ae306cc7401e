"""The WebGPU plugin: WGSL kernels through wgpu-py or wgpudawn, imported when a device is first needed."""

from __future__ import annotations

from collections.abc import Iterable

from registry.hookspecs import Backend, hookimpl


@hookimpl
def registry_backends() -> Iterable[Backend]:
    """The one backend of this plugin."""
    from .backend import WebGPUBackend

    return [WebGPUBackend()]
