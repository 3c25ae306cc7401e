"""The CUDA plugin: CUDA C++ kernels through CuPy, which is imported when a device is first needed."""

from __future__ import annotations

from collections.abc import Iterable

from registry.hookspecs import Backend, hookimpl


@hookimpl
def registry_backends() -> Iterable[Backend]:
    """The one backend of this plugin."""
    from .backend import CudaBackend

    return [CudaBackend()]
