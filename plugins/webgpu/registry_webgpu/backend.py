"""The WebGPU backend: claims every variant of a manifest whose passes are WGSL."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from importlib import metadata
from types import MappingProxyType
from typing import Any

import numpy as np

from registry.calling.parts import cut, device_bytes, fits_in_parts
from registry.calling.passes import storage_buffers
from registry.calling.request import Request
from registry.dtypes import STORAGE
from registry.errors import BackendError, ContractError, suggestion, typed_line
from registry.hookspecs import (
    Availability,
    Backend,
    Claim,
    Executable,
    Finding,
    Predicate,
    Refusal,
    RenderedPass,
)
from registry.opinfo import Op

from .adapter import forked
from .device import Device
from .devices import DEVICES
from .implementations import DEFAULT, IMPLEMENTATIONS, Implementation, named_by
from .kernel import Kernel, Series, private_tensors
from .profile import Profile, binding_limit, parse_profile
from .tensor import Tensor
from .transfers import padded
from .wgsl import evaluate, has_template, render_variant, template_text

WGSL_SUFFIXES = (".wgsl", ".wgsl.jinja")
PART_BYTES = 256 * 1024 * 1024
"""Tensors over the device's limit are cut into parts of at most so much, to be easy on its memory."""
IMPLEMENTATION_VARIABLE = "REGISTRY_WEBGPU_IMPLEMENTATION"


class WebGPUBackend(Backend):
    """Runs WGSL templates through wgpu-py or wgpudawn.

    Options (``registry.configure(options={"webgpu": ...})``): ``implementation``: ``wgpu`` (the default) or
    ``dawn``; the environment variable ``REGISTRY_WEBGPU_IMPLEMENTATION`` comes before it. ``device``: a
    device of the caller's, used as it is and never destroyed, whichever of the two it comes from; or the
    part of a device name after the colon, which may begin with an implementation (``dawn``, ``dawn:0``).
    """

    name = "webgpu"
    priority = 300
    option_names = ("device", "implementation")
    extremes_promised = False  # WGSL may assume no NaN and no infinity, and flush subnormals

    def __init__(self) -> None:
        self._variable = os.environ.get(IMPLEMENTATION_VARIABLE, "").strip()

    def check_options(self, options: Mapping[str, Any]) -> None:
        """The implementation must be one of those there are, the device a name or a device."""
        wanted = options.get("device")
        if not (wanted is None or isinstance(wanted, str) or hasattr(wanted, "create_shader_module")):
            raise ContractError(f"options of webgpu: device is {wanted!r}; needed: a name or a WebGPU device")
        for origin, value in (
            ("options of webgpu: implementation", options.get("implementation", DEFAULT)),
            (IMPLEMENTATION_VARIABLE, self._variable or DEFAULT),
        ):
            if value not in IMPLEMENTATIONS:
                hint = suggestion(str(value), list(IMPLEMENTATIONS))
                raise ContractError(f"{origin} is {value!r}{hint}; needed: {' or '.join(IMPLEMENTATIONS)}")

    def _implementation(self, options: Mapping[str, Any]) -> Implementation:
        default = self._variable or options.get("implementation", DEFAULT)
        return named_by(options.get("device")) or IMPLEMENTATIONS[default]

    def _device(self, options: Mapping[str, Any]) -> Device:
        return DEVICES.get(options.get("device"), self._implementation(options))

    def probe(self, options: Mapping[str, Any]) -> Availability:
        """Opens the adapter, for only a device can tell what its compiler takes."""
        implementation = self._implementation(options)
        package = implementation.package
        try:
            importlib.import_module(package)
            device = self._device(options)
        except BackendError as error:
            needed = implementation.drivers
            if isinstance(options.get("device"), str) and "; adapters: " in error.message:
                needed = "the index or a part of the name of an adapter"
            elif forked():
                needed = "a process that is not forked from one that uses WebGPU"
            found = error.message.splitlines()[0]
            return Availability(False, "an adapter gives a device", found, needed)
        except (Exception, SystemExit) as error:  # an import can fail in any way
            if isinstance(error, ModuleNotFoundError) and error.name == package:
                advice = f"pip install 'kernel-registry[{implementation.extra}]'"
                return Availability(False, f"{package} is installed", "not found", advice)
            needed = f"a working {package}, version 0.32"
            return Availability(False, f"{package} imports", typed_line(error), needed)
        library = f"{package} {metadata.version(package)}"
        return _availability(device.profile, device.found.name, device.found.description, library)

    def imagine(self, profile: Mapping[str, Any]) -> Availability:
        """A device by its features, limits, adapterInfo, wgslLanguageFeatures and implementation."""
        parsed = parse_profile(profile)
        return _availability(
            parsed, parsed.adapter["vendor"] or "described device", "described by the caller"
        )

    def claims(self, op: Op) -> Sequence[Claim | Refusal]:
        """Every variant of the manifest, under its own conditions and the device's limits."""
        rows: list[Claim | Refusal] = []
        names = {item.template for variant in op.manifest.variants for item in variant.passes}
        there = {name for name in names if has_template(op, name)}
        for variant in op.manifest.variants:
            identity = variant.id or ""
            shaders = [item.template for item in variant.passes]
            foreign = [shader for shader in shaders if not shader.endswith(WGSL_SUFFIXES)]
            if foreign:
                rows.append(Refusal("shaders are WGSL", foreign[0], "*.wgsl or *.wgsl.jinja", identity))
                continue
            missing = [shader for shader in shaders if shader not in there]
            if missing:
                beside = "the template beside the manifest, or one of this backend's"
                rows.append(Refusal("its template is there", missing[0], beside, identity))
                continue
            limits = [_fits_stage(storage_buffers(op.manifest, variant))]
            if op.package is None:  # published packages are chosen by their own rules alone
                limits.insert(0, _fits_binding)
            conditions = (*limits, *(variant.when or ()))
            demotions = tuple(variant.demote_when or ())
            rows.append(Claim(identity, variant.priority, conditions, demotions, variant.batch_invariant))
        return rows or [Refusal("the manifest has variants", "none", "a variant with WGSL passes")]

    def prepare(self, request: Request, claim: Claim, options: Mapping[str, Any]) -> Executable:
        """Renders and compiles every pass; for host tensors over the device's limit, of every part."""
        device = self._device(options)
        limit = binding_limit(device.profile.limits)
        parts = cut(request, limit)
        if len(parts) > 1:
            parts = cut(request, min(limit, PART_BYTES)) or parts
        # A package's calls are never cut: the kernel then refuses what is too large.
        requests = [part.request for part in parts] or [request]
        kernels: dict[str, Kernel] = {}
        for each in requests:
            if str(each) not in kernels:
                kernels[str(each)] = self._kernel(each, claim, device, options)
        if len(requests) == 1:
            return kernels[str(requests[0])]
        return Series([(part, kernels[str(part.request)]) for part in parts])

    def _kernel(self, request: Request, claim: Claim, device: Device, options: Mapping[str, Any]) -> Kernel:
        evaluated, rendered = render_variant(request, request.op.variants[claim.variant], device.profile)
        reopen = partial(self._device, options)
        return Kernel(request, evaluated, rendered, device, reopen, claim.variant)

    def render(self, request: Request, claim: Claim, availability: Availability) -> tuple[RenderedPass, ...]:
        """Renders every pass for the device of ``availability``, without touching it."""
        profile = availability.record
        assert isinstance(profile, Profile)
        return render_variant(request, request.op.variants[claim.variant], profile)[1]

    def lint(self, rendered: RenderedPass) -> tuple[Finding, ...]:
        """Barriers that part of a workgroup may miss, assumed subgroup sizes, loops without an end."""
        from .lint import lint

        return lint(rendered.source)

    def template(self, op: Op, name: str) -> str | None:
        """A template of a package, beside the manifest, or of this backend."""
        return template_text(op, name)

    def scratch_bytes(self, request: Request, claim: Claim, availability: Availability) -> int:
        """Buffers for outputs nobody asked for and between passes."""
        profile = availability.record
        assert isinstance(profile, Profile)
        evaluated = evaluate(request, request.op.variants[claim.variant], profile)
        return sum(padded(device_bytes(tensor)) for tensor in private_tensors(request, evaluated).values())

    def reader(self, kind: type) -> Callable[[Any], Hashable] | None:
        """Device tensors go by shape, dtype and device; one that was lost is another device."""
        return (lambda tensor: (tensor.shape, tensor.dtype, tensor.home)) if kind is Tensor else None

    def owns(self, array: object) -> bool:
        """Whether the array is one of our device tensors."""
        return isinstance(array, Tensor)

    def location(self, tensor: Tensor) -> str:
        """``webgpu:0``."""
        return tensor.device

    def place(self, array: np.ndarray[Any, Any], options: Mapping[str, Any]) -> Tensor:
        """Copies a host array to the device."""
        tensor = self.empty(array.shape, array.dtype.name, options)
        if tensor.size:
            tensor.home.upload(tensor.buffer, array)
        return tensor

    def empty(self, shape: tuple[int, ...], dtype: str, options: Mapping[str, Any]) -> Tensor:
        """A tensor of undefined contents on the device."""
        home = self._device(options)
        return Tensor(home, tuple(shape), dtype, home.buffer(math.prod(shape) * STORAGE[dtype][0]))

    def beside(
        self, tensor: Tensor, shape: tuple[int, ...], dtype: str, options: Mapping[str, Any]
    ) -> Tensor:
        """A tensor of undefined contents on the device of another one."""
        home = tensor.home
        if not home.usable:  # lost: what comes after is on the device that is opened in its place
            return self.empty(shape, dtype, options)
        return Tensor(home, shape, dtype, home.buffer(math.prod(shape) * STORAGE[dtype][0]))

    def host(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        """Copies a device tensor to the host."""
        return tensor.numpy()

    def wait(self, options: Mapping[str, Any]) -> None:
        """Submits what is recorded and returns when the device has done it."""
        self._device(options).wait()

    def copier(self, nbytes: int, options: Mapping[str, Any]) -> Callable[[], None]:
        """A copy by a compute shader: drivers copy buffers slowly."""
        from .copying import copier

        return copier(self._device(options), nbytes)

    def begin_batch(self) -> None:
        """Collects this thread's dispatches on every open device."""
        for device in DEVICES.all():
            device.begin_batch()

    def end_batch(self) -> None:
        """Submits what was collected."""
        for device in DEVICES.all():
            device.end_batch()


def _availability(profile: Profile, name: str, description: str, library: str = "") -> Availability:
    details = {
        "adapter": description,
        "features": sorted(profile.features | profile.language_features),
        "subgroup size": profile.adapter.get("subgroupMinSize"),
        "implementation": profile.implementation,
        **({"library": library} if library else {}),
        "largest binding": f"{profile.limits['maxStorageBufferBindingSize'] // 2**20} MiB",
    }
    return Availability(
        True,
        hardware=not profile.software,
        name=name,
        device=profile.namespace(),
        details=MappingProxyType(details),
        note="" if profile.implementation == DEFAULT else f"webgpu is {profile.implementation} here",
        record=profile,
    )


def _over_binding(request: Request, device: Mapping[str, Any]) -> str | None:
    limit = binding_limit(device["limits"])
    role, tensor = max(request.tensors.items(), key=lambda item: device_bytes(item[1]))
    if device_bytes(tensor) <= limit or (not request.devices and fits_in_parts(request, limit)):
        return None
    return f"{role} has {device_bytes(tensor)} bytes (limit {limit})"


_fits_binding = Predicate(
    "every tensor fits one storage binding, on the host in parts",
    "at most the device's maxStorageBufferBindingSize and maxBufferSize",
    _over_binding,
)


def _fits_stage(buffers: int) -> Predicate:
    def test(request: Request, device: Mapping[str, Any]) -> str | None:
        limit = device["limits"]["maxStorageBuffersPerShaderStage"]
        return None if buffers <= limit else f"{buffers} buffers (limit {limit})"

    return Predicate(
        "storage buffers fit one shader stage",
        "at most the device's maxStorageBuffersPerShaderStage",
        test,
    )
