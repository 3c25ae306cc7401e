"""Normalisations on the CPU by Numba, as a plugin of the Kernel Registry."""

from __future__ import annotations

from registry import Backend, hookimpl


@hookimpl
def registry_backends() -> list[Backend]:
    """The one backend of this plugin. Numba is imported by the first call that it runs."""
    from .backend import NumbaBackend

    return [NumbaBackend()]
