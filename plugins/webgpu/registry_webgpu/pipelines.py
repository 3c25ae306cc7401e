"""The pipelines of a device, each compiled once."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from registry.errors import BackendError

from .compiler import check_size, with_line

SIZE = 512

Guard = Callable[[Callable[[], tuple[Any, Any]]], tuple[Any, Any]]
"""Runs a call and turns the implementation's errors into ours."""


class Pipelines:
    """Pipelines by source, used under the device's lock; the least recently used goes first.

    ``built`` counts what was compiled.
    """

    def __init__(self, gpu: Any, api: Any, guard: Guard):
        self.built = 0
        self._gpu = gpu
        self._api = api
        self._guard = guard
        self._made: OrderedDict[str, tuple[Any, Any]] = OrderedDict()
        self._broken: OrderedDict[str, tuple[str, int | None]] = OrderedDict()

    def get(self, source: str, kinds: tuple[str, ...], label: str) -> tuple[Any, Any]:
        """The pipeline and bind-group layout of a source.

        ``kinds`` are the buffer types of the bindings in order. A source that failed fails again at once.

        Raises:
            BackendError: it does not compile; says the line.
        """
        key = hashlib.sha256("\0".join((source, *kinds)).encode()).hexdigest()
        if key in self._broken:
            message, line = self._broken[key]
            raise BackendError(message, backend="webgpu", line=line)
        if key in self._made:
            self._made.move_to_end(key)
            return self._made[key]
        try:
            made = self._guard(lambda: self._compile(source, kinds, label))
        except BackendError as error:
            if error.lost:
                raise
            # Only texts are kept: an exception would keep its callers' arrays alive.
            message, line = self._broken[key] = with_line(error.message, source)
            if len(self._broken) > SIZE:
                self._broken.popitem(last=False)
            raise BackendError(message, backend="webgpu", line=line) from error.__cause__
        self._made[key] = made
        self.built += 1
        if len(self._made) > SIZE:
            self._made.popitem(last=False)
        return made

    def _compile(self, source: str, kinds: tuple[str, ...], label: str) -> tuple[Any, Any]:
        entries = [
            {"binding": index, "visibility": self._api.ShaderStage.COMPUTE, "buffer": {"type": kind}}
            for index, kind in enumerate(kinds)
        ]
        check_size(source)
        module = self._gpu.create_shader_module(code=source, label="wgsl")
        # Explicit layouts: an automatic one drops bindings the shader happens not to use.
        layout = self._gpu.create_bind_group_layout(entries=entries, label=label)
        pipeline = self._gpu.create_compute_pipeline(
            layout=self._gpu.create_pipeline_layout(bind_group_layouts=[layout]),
            compute={"module": module, "entry_point": "main"},
            label=label,
        )
        return pipeline, layout
