"""Finds an adapter, opens a device on it, and finds out by trial what its compiler and subgroups can do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from registry.errors import BackendError

from .implementations import Implementation, implementation_of
from .profile import FEATURES, Profile, make_profile
from .wgsl import add_headers

# The process that first looked for adapters. Driver threads do not survive a fork: a child would wait for
# them forever.
_started_in: int | None = None

# Asked for where the adapter has them. The last makes wgpudawn's objects safe to drop on any thread.
WANTED_FEATURES = (
    "shader-f16",
    "subgroup",
    "subgroups",
    "timestamp-query",
    "implicit-device-synchronization",
)
# wgpu-py's names on the left; the specification's, which conditions use, on the right.
_FEATURE_NAMES = {"subgroup": "subgroups"}
_TRIAL_GROUP = 64

# Every invocation writes the size of its subgroup, its subgroup's number, and the sum of ones over its
# subgroup. Right numbers mean that the built-ins may be used.
_TRIAL = """
@group(0) @binding(0) var<storage, read_write> found: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(subgroup_size) size: u32,
        @builtin(subgroup_id) subgroup: u32) {
    found[lane * 3u] = size;
    found[lane * 3u + 1u] = subgroup;
    found[lane * 3u + 2u] = subgroupAdd(1u);
}
"""


@dataclass(frozen=True)
class Found:
    """An opened device with its adapter's profile and what `registry backends` shows."""

    name: str
    description: str
    device: Any
    profile: Profile


def forked() -> bool:
    """Whether this process was forked from one that used adapters: here they would hang."""
    return _started_in not in (None, os.getpid())


def adapters(implementation: Implementation) -> list[Any]:
    """All adapters, at least one: hardware first, Vulkan, Metal and D3D12 before OpenGL.

    Raises:
        BackendError: there is no way to any adapter, or adapters were in use before this process was forked.
        ImportError: the implementation's package is not installed, or does not work.
    """
    global _started_in
    if forked():
        raise BackendError(
            f"this process was forked from {_started_in}, where WebGPU was running already; start it with "
            "multiprocessing's 'spawn' method, or fork before the first use of WebGPU",
            backend="webgpu",
        )
    _started_in = os.getpid()
    if "XDG_RUNTIME_DIR" not in os.environ:
        # Mesa's device-selection layer prints an error without a runtime directory; it is not needed here.
        os.environ.setdefault("NODEVICE_SELECT", "1")
    api = implementation.api
    try:
        found = list(api.gpu.enumerate_adapters_sync())
    except RuntimeError as error:
        raise BackendError(f"no adapter: {error}", backend="webgpu") from error
    found.sort(key=lambda a: (_software(a), a.info["backend_type"] == "OpenGL"))
    if not found:
        raise BackendError("no adapter", backend="webgpu")
    # OpenGL shows again what another driver has shown; two cards of one name under one driver are two.
    native = {adapter.info["device"] for adapter in found if adapter.info["backend_type"] != "OpenGL"}
    return [a for a in found if a.info["backend_type"] != "OpenGL" or a.info["device"] not in native]


def choose(found: Sequence[Any], part: str | None) -> int:
    """The index of the adapter asked for: by number, or by a part of its name in any case.

    Raises:
        BackendError: none matches; lists what there is.
    """
    if part is None:
        return 0
    if part.isdecimal() and int(part) < len(found):
        return int(part)
    for index, adapter in enumerate(found):
        if not part.isdecimal() and part.casefold() in describe(adapter).casefold():
            return index
    names = ", ".join(f"{index}: {describe(adapter)}" for index, adapter in enumerate(found))
    raise BackendError(f"no adapter {part!r}; adapters: {names or 'none'}", backend="webgpu")


def describe(adapter: Any) -> str:
    """The adapter's name."""
    info = adapter.info
    return str(info["device"] or info["description"] or info["vendor"] or "unnamed adapter")


def open_device(implementation: Implementation, index: int) -> Found:
    """Opens a device on the adapter of that index with all that it has of what we use.

    Raises:
        BackendError: the adapter gives no device.
    """
    adapter = adapters(implementation)[index]
    features = [name for name in WANTED_FEATURES if name in adapter.features]
    try:
        device = adapter.request_device_sync(
            label="kernel-registry",
            required_features=features,
            required_limits=dict(adapter.limits),
        )
    except Exception as error:  # both implementations raise RuntimeError and its own kinds here
        raise BackendError(f"{describe(adapter)} gives no device: {error}", backend="webgpu") from error
    return adopt(device)


def adopt(device: Any) -> Found:
    """A device as it stands, ours or the caller's, with its profile."""
    implementation = implementation_of(device)
    assert implementation is not None
    adapter = device.adapter
    info = adapter.info
    features = {_FEATURE_NAMES.get(name, name) for name in device.features if name in WANTED_FEATURES}
    features &= FEATURES
    language: set[str] = set()
    sizes: dict[str, int] = {}
    if "subgroups" in features:
        size = _trial(device, implementation)
        if size is None:
            features.discard("subgroups")
        else:
            # The size that ran here, not the range the adapter admits: conditions ask what kernels get.
            language.add("subgroup_id")
            sizes = {"subgroupMinSize": size, "subgroupMaxSize": size}
    profile = make_profile(
        features,
        {_camel(name): value for name, value in device.limits.items()},
        {
            **sizes,
            "vendor": info["vendor"],
            "architecture": info["architecture"],
            "isFallbackAdapter": _software(adapter),
        },
        language,
        implementation.name,
    )
    description = f"{describe(adapter)}, {info['backend_type']}, {info['description']}"
    return Found(describe(adapter), description, device, profile)


def _software(adapter: Any) -> bool:
    return bool(adapter.info["adapter_type"] == "CPU")


def _camel(name: str) -> str:
    """A limit of wgpu-py (``max-texture-dimension-1d``) as the specification spells it."""
    head, *rest = name.split("-")
    return head + "".join(word.upper() if word in ("1d", "2d", "3d") else word.capitalize() for word in rest)


def _trial(device: Any, implementation: Implementation) -> int | None:
    """The subgroup size, or None when the built-ins do not compile or give wrong numbers."""
    usage = implementation.api.BufferUsage
    source = add_headers(_TRIAL, implementation.name)
    size = _TRIAL_GROUP * 3 * 4
    try:
        module = device.create_shader_module(code=source, label="subgroup trial")
        buffer = device.create_buffer(size=size, usage=usage.STORAGE | usage.COPY_SRC)
        pipeline = device.create_compute_pipeline(
            layout="auto", compute={"module": module, "entry_point": "main"}
        )
        group = device.create_bind_group(
            layout=pipeline.get_bind_group_layout(0),
            entries=[{"binding": 0, "resource": {"buffer": buffer, "offset": 0, "size": size}}],
        )
        encoder = device.create_command_encoder()
        run = encoder.begin_compute_pass()
        run.set_pipeline(pipeline)
        run.set_bind_group(0, group)
        run.dispatch_workgroups(1)
        run.end()
        device.queue.submit([encoder.finish()])
        found = np.frombuffer(device.queue.read_buffer(buffer), np.uint32).reshape(-1, 3)
    except Exception:  # whatever the compiler says, the answer is no
        return None
    width = int(found[0, 0])
    numbers = np.arange(_TRIAL_GROUP) // max(width, 1)
    right = width > 0 and (found[:, 0] == width).all() and (found[:, 1] == numbers).all()
    full = np.minimum(width, _TRIAL_GROUP - numbers * width)
    return width if right and bool((found[:, 2] == full).all()) else None
