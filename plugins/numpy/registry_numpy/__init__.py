"""The NumPy plugin: every op on the CPU, and the float64 references that judge all backends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from registry.hookspecs import Backend, Reference, hookimpl


@hookimpl
def registry_backends() -> Iterable[Backend]:
    """The one backend of this plugin."""
    from .backend import NumpyBackend

    return [NumpyBackend()]


@hookimpl
def registry_references() -> Mapping[str, Reference]:
    """The plain formula of each op in float64."""
    from .backend import KERNELS

    return {op: kernel.reference for op, kernel in KERNELS.items()}
