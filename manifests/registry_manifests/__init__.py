"""The manifests of the built-in ops, as a plugin: one file per op, ``<domain>/<Op>.yaml``."""

from pathlib import Path

from registry.hookspecs import hookimpl


@hookimpl
def registry_manifests() -> list[Path]:
    """The folder of the built-in manifests."""
    return [Path(__file__).parent]
