"""Runs ONNX-style operators through backend plugins, picks the best one, and can always say why.

The functions here are the methods of one shared `Registry`; make your own for an isolated one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .api import Registry
from .calling.request import Request
from .errors import (
    BackendError,
    ContractError,
    ManifestError,
    NoPlanError,
    PackageError,
    PluginError,
    RegistryError,
    RegistryWarning,
)
from .hookspecs import (
    Availability,
    Backend,
    Claim,
    Executable,
    Finding,
    Predicate,
    Refusal,
    RenderedPass,
    hookimpl,
)
from .status import Status

if TYPE_CHECKING:
    from .judging.accuracy import Expected
    from .opinfo import Op

_shared = Registry()
backends = _shared.backends
batch = _shared.batch
bench = _shared.bench
card = _shared.card
check = _shared.check
compare = _shared.compare
configure = _shared.configure
empty = _shared.empty
explain = _shared.explain
freeze = _shared.freeze
infer = _shared.infer
last = _shared.last
lint = _shared.lint
load = _shared.load
op = _shared.op
ops = _shared.ops
packages = _shared.packages
peak_memory = _shared.peak_memory
prepare = _shared.prepare
record = _shared.record
refresh = _shared.refresh
render = _shared.render
replay = _shared.replay
run = _shared.run
to_device = _shared.to_device
tune = _shared.tune

__version__ = "0.1.0"

__all__ = [
    "Availability",
    "Backend",
    "BackendError",
    "Claim",
    "ContractError",
    "Executable",
    "Expected",
    "Finding",
    "ManifestError",
    "NoPlanError",
    "Op",
    "PackageError",
    "PluginError",
    "Predicate",
    "Refusal",
    "Registry",
    "RegistryError",
    "RegistryWarning",
    "RenderedPass",
    "Request",
    "Status",
    "backends",
    "batch",
    "bench",
    "card",
    "check",
    "compare",
    "configure",
    "empty",
    "explain",
    "freeze",
    "hookimpl",
    "infer",
    "last",
    "lint",
    "load",
    "op",
    "ops",
    "packages",
    "peak_memory",
    "prepare",
    "record",
    "refresh",
    "render",
    "replay",
    "run",
    "to_device",
    "tune",
]


def __getattr__(name: str) -> Any:
    """What backends name in annotations or when they are asked, imported then: it would slow the start."""
    if name == "Op":
        from .opinfo import Op

        return Op
    if name == "Expected":
        from .judging.accuracy import Expected

        return Expected
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
