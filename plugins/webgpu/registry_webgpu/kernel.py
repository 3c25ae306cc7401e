"""A variant made ready on a device: pipelines, uniforms, and how its buffers are bound at each run."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from registry.calling.parts import Part, device_bytes
from registry.calling.passes import Buffer, EvaluatedVariant, Uniform, element_bytes
from registry.calling.request import Request, TensorType
from registry.errors import BackendError
from registry.hookspecs import RenderedPass

from .device import Device
from .groups import Shape
from .profile import binding_limit
from .recorder import Recorder
from .tensor import Tensor
from .transfers import padded

_PACK = {"u32": "I", "i32": "i", "f32": "f"}


@dataclass(frozen=True)
class _Step:
    """One dispatch: what to set and what to bind. A binding is a tensor's name or a uniform buffer."""

    pipeline: Any
    shape: Shape
    bindings: tuple[Any, ...]
    grid: tuple[int, int, int]


class Kernel:
    """Runs one request's passes. Rebuilds itself when its device was lost or the process forked."""

    def __init__(
        self,
        request: Request,
        evaluated: EvaluatedVariant,
        rendered: tuple[RenderedPass, ...],
        device: Device,
        reopen: Callable[[], Device],
        variant: str,
    ):
        self.request = request
        self.variant = variant
        self._label = f"{request.op.id} {variant}"
        self._evaluated = evaluated
        self._rendered = rendered
        self._reopen = reopen
        private = private_tensors(request, evaluated)
        self._private = tuple(private)
        self._sizes = {name: padded(device_bytes(t)) for name, t in {**request.tensors, **private}.items()}
        limit = binding_limit(device.profile.limits)
        for name, size in self._sizes.items():
            if size > limit:
                raise BackendError(
                    f"{name} has {size} bytes; {device.found.name} binds at most {limit} "
                    "(maxStorageBufferBindingSize, maxBufferSize)",
                    backend="webgpu",
                )
        self._built = self._build(device)

    def _build(self, device: Device) -> tuple[Device, tuple[_Step, ...]]:
        steps = []
        for item, text in zip(self._evaluated.passes, self._rendered, strict=True):
            if 0 in item.grid:  # nothing to do; its buffers need not even exist
                continue
            kinds = tuple(_kind(binding) for binding in item.bindings)
            try:
                pipeline, layout = device.pipeline(text.source, kinds, item.label)
                bindings, sizes = zip(*(self._binding(device, b) for b in item.bindings), strict=True)
            except BackendError as error:
                raise self._named(error) from error
            steps.append(_Step(pipeline, Shape(layout, sizes), bindings, item.grid))
        return device, tuple(steps)

    def _binding(self, device: Device, binding: Buffer | Uniform) -> tuple[Any, int]:
        if isinstance(binding, Uniform):
            data = b"".join(struct.pack("<" + _PACK[kind], value) for _, kind, value in binding.fields)
            return device.uniform(data), len(data)
        name = f"scratch {binding.tensor}" if binding.scratch else binding.tensor
        if binding.length is not None:
            needed = binding.length * element_bytes(binding.element)
            if needed > self._sizes[name]:
                raise BackendError(
                    f"binding {binding.variable} needs {needed} bytes, "
                    f"{binding.tensor} has {self._sizes[name]}",
                    backend="webgpu",
                )
        return name, self._sizes[name]

    def __call__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Uploads host inputs, dispatches, reads host outputs back; device tensors stay where they are."""
        device, steps = self._built
        if not device.usable:
            device, steps = self._built = self._build(self._reopen())
        try:
            self._run(device, steps, inputs, outputs)
        except BackendError as error:
            raise self._named(error) from error

    def _run(
        self,
        device: Device,
        steps: tuple[_Step, ...],
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
    ) -> None:
        buffers: dict[str, Any] = {}
        borrowed: list[Any] = []
        downloads: list[tuple[Any, np.ndarray[Any, Any]]] = []

        def borrow(name: str) -> Any:
            buffers[name] = buffer = device.buffer(self._sizes[name])
            borrowed.append(buffer)
            return buffer

        with device.lock:
            try:
                for role, value in inputs.items():
                    if type(value) is Tensor and value.home is device:
                        buffers[role] = value.buffer
                    else:
                        device.upload(borrow(role), _on_host(role, value, device))
                for role, value in outputs.items():
                    if type(value) is Tensor and value.home is device:
                        buffers[role] = value.buffer
                    else:
                        downloads.append((borrow(role), _on_host(role, value, device)))
                for name in self._private:
                    borrow(name)
                device.record(self._label, partial(self._record, device, steps, buffers), bool(downloads))
                if downloads:
                    device.download(downloads)
            finally:
                for buffer in borrowed:
                    device.give_back(buffer)

    def _record(
        self, device: Device, steps: tuple[_Step, ...], buffers: Mapping[str, Any], recorder: Recorder
    ) -> None:
        # First of all what can fail: until something is recorded, a failure takes no other work with it.
        bind_group = device.bind_group
        groups = [
            bind_group(step.shape, [buffers[b] if type(b) is str else b for b in step.bindings])
            for step in steps
        ]
        if self._evaluated.scratch:
            encoder = recorder.encoder(self._label)
            for item in self._evaluated.scratch:
                encoder.clear_buffer(buffers[f"scratch {item}"])
        for step, group in zip(steps, groups, strict=True):
            recorder.dispatch(self._label, step.pipeline, group, step.grid)

    def _named(self, error: BackendError) -> BackendError:
        return BackendError(
            error.message,
            op=self.request.op.id,
            backend="webgpu",
            variant=self.variant,
            line=error.line,
            lost=error.lost,
        )


class Series:
    """Runs the parts of a request one after another, for tensors on the host that the device cannot bind."""

    def __init__(self, parts: Sequence[tuple[Part, Kernel]]):
        self._parts = tuple(parts)

    def __call__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """As `Kernel`.

        Raises:
            BackendError: a part failed, or a tensor is on the device.
        """
        for role, value in (*inputs.items(), *outputs.items()):
            if isinstance(value, Tensor):
                raise BackendError(
                    f"{role} is on the device, and the call has a tensor over the device's limit; "
                    "pass host arrays, which are taken in parts",
                    backend="webgpu",
                )
        for part, kernel in self._parts:
            kernel(
                {role: part.of(value) for role, value in inputs.items()},
                {role: part.of(value) for role, value in outputs.items()},
            )


def private_tensors(request: Request, evaluated: EvaluatedVariant) -> dict[str, TensorType]:
    """What a run holds besides what the caller sees: outputs nobody asked for, and scratch of the passes."""
    unasked = {role: tensor for role, tensor in request.outputs.items() if role not in request.asked}
    return unasked | {f"scratch {name}": tensor for name, tensor in evaluated.scratch.items()}


def _on_host(role: str, value: Any, device: Device) -> np.ndarray[Any, Any]:
    """A host array as it is; device tensors that come here are of no use."""
    if isinstance(value, Tensor):
        raise BackendError(
            f"{role} is a tensor of another device, or of one that was lost; copy it to "
            f"{device.location} again",
            backend="webgpu",
        )
    array: np.ndarray[Any, Any] = value
    return array


def _kind(binding: Buffer | Uniform) -> str:
    if isinstance(binding, Uniform):
        return "uniform"
    return "storage" if binding.writable else "read-only-storage"
