"""One opened device: its pipelines, its buffers, and the way in and out of its memory."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from registry.errors import BackendError

from .adapter import Found
from .compiler import check_size, essence, tells_of_loss, with_line
from .implementations import IMPLEMENTATIONS
from .transfers import Array, Piece, padded, pieces, staged, words

T = TypeVar("T")

STAGING_BYTES = 32 * 1024 * 1024
POOL_BYTES = 256 * 1024 * 1024
UPLOAD_BYTES = 64 * 1024 * 1024
PIPELINES = 512


class Device:
    """A WebGPU device under one lock. Everything that touches the queue goes through here.

    Attributes: ``found`` (name, index, profile), ``location`` (``webgpu:0``), ``counts`` (pipelines
    built and submissions).
    """

    def __init__(self, found: Found, part: str):
        self.found = found
        self.profile = found.profile
        self.location = f"webgpu:{part}"
        implementation = IMPLEMENTATIONS[found.profile.implementation]
        self.lock = implementation.lock or threading.RLock()
        self.counts = {"pipelines": 0, "submits": 0}
        self._pid = os.getpid()
        self._api = implementation.api
        self._gpu = found.device
        self._pipelines: OrderedDict[str, tuple[Any, Any]] = OrderedDict()
        self._broken: OrderedDict[str, tuple[str, int | None]] = OrderedDict()
        self._pool: OrderedDict[int, list[Any]] = OrderedDict()
        self._pooled = 0
        self._staging: Any = None
        self._uploaded = 0
        self._pending: list[Any] = []
        self._batch_thread: int | None = None
        self._batch_depth = 0
        self._lost = False

    @property
    def usable(self) -> bool:
        """False once the device is lost, and in a child process, where it hangs."""
        return not self._lost and os.getpid() == self._pid

    # Pipelines

    def pipeline(self, source: str, kinds: tuple[str, ...], label: str) -> tuple[Any, Any]:
        """The pipeline and bind-group layout of a source, compiled once.

        ``kinds`` are the buffer types of the bindings in order. A source that failed fails again at once.

        Raises:
            BackendError: it does not compile; says the line.
        """
        key = hashlib.sha256("\0".join((source, *kinds)).encode()).hexdigest()
        with self.lock:
            if key in self._broken:
                message, line = self._broken[key]
                raise BackendError(message, backend="webgpu", line=line)
            if key in self._pipelines:
                self._pipelines.move_to_end(key)
                return self._pipelines[key]
            try:
                made = self._guard(lambda: self._compile(source, kinds, label))
            except BackendError as error:
                if error.lost:
                    raise
                # Only texts are kept: an exception would keep its callers' arrays alive.
                message, line = self._broken[key] = with_line(error.message, source)
                if len(self._broken) > PIPELINES:
                    self._broken.popitem(last=False)
                raise BackendError(message, backend="webgpu", line=line) from error.__cause__
            self._pipelines[key] = made
            self.counts["pipelines"] += 1
            if len(self._pipelines) > PIPELINES:
                self._pipelines.popitem(last=False)
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

    # Buffers

    def buffer(self, nbytes: int) -> Any:
        """A storage buffer of at least 4 bytes, from the pool when one of that size is free.

        Raises:
            BackendError: over the device's limit, or out of memory.
        """
        size = padded(nbytes)
        with self.lock:
            free = self._pool.get(size)
            if free:
                self._pooled -= size
                return free.pop()
            return self._guard(lambda: self._new_buffer(size))

    def give_back(self, buffer: Any) -> None:
        """Returns a buffer that nothing reads any more to the pool."""
        with self.lock:
            if buffer.size > POOL_BYTES:
                return
            self._pool.setdefault(buffer.size, []).append(buffer)
            self._pool.move_to_end(buffer.size)
            self._pooled += buffer.size
            while self._pooled > POOL_BYTES:  # the sizes that were not wanted for longest go first
                size, free = next(iter(self._pool.items()))
                if free:
                    free.pop()
                    self._pooled -= size
                if not free:
                    del self._pool[size]

    def _new_buffer(self, size: int) -> Any:
        limit = self.profile.limits["maxBufferSize"]
        if size > limit:
            raise BackendError(
                f"a buffer of {size} bytes; {self.found.name} takes at most {limit}",
                backend="webgpu",
            )
        flags = self._api.BufferUsage
        usage = flags.STORAGE | flags.COPY_SRC | flags.COPY_DST
        return self._gpu.create_buffer(size=size, usage=usage)

    def uniform(self, data: bytes) -> Any:
        """A uniform buffer with that content."""
        usage = self._api.BufferUsage.UNIFORM
        with self.lock:
            return self._guard(lambda: self._gpu.create_buffer_with_data(data=data, usage=usage))

    def bind_group(self, layout: Any, buffers: Sequence[tuple[Any, int]]) -> Any:
        """A bind group of (buffer, bytes) pairs in order."""
        entries = [
            {"binding": index, "resource": {"buffer": buffer, "offset": 0, "size": size}}
            for index, (buffer, size) in enumerate(buffers)
        ]
        with self.lock:
            return self._guard(lambda: self._gpu.create_bind_group(layout=layout, entries=entries))

    # Work

    def upload(self, buffer: Any, array: Array) -> None:
        """Copies a host array of any layout and dtype into a buffer, as the device stores it."""
        data = words(array)
        if not data.nbytes:
            return
        with self.lock:
            self._guard(lambda: self._gpu.queue.write_buffer(buffer, 0, data))
            self._uploaded += data.nbytes
            if self._uploaded > UPLOAD_BYTES:  # wgpu keeps the copies alive until the next submission
                self.flush()

    def record(self, work: Callable[[Any], None], hold: bool = False) -> None:
        """Encodes work; submits it unless this thread is in a batch, or a read-back follows (``hold``)."""
        with self.lock:
            self._leave_foreign_batch()
            # An encoder for each piece of work: one that fails takes nothing else with it.
            self._pending.append(self._guard(lambda: self._encode(work)))
            if not (hold or self._in_batch()):
                self.flush()

    def download(self, copies: Sequence[tuple[Any, Array]]) -> None:
        """Copies buffers into host arrays of any layout, through one persistent staging buffer.

        Raises:
            BackendError: the device is lost or refuses.
        """
        targets = [(buffer, array, staged(array)) for buffer, array in copies if array.size]
        groups = pieces([(buffer, target) for buffer, _, target in targets], STAGING_BYTES)
        with self.lock:
            for group in groups:
                self._guard(partial(self._download_group, group))
        for _, array, target in targets:
            if target is not array:
                array[...] = target

    def _download_group(self, group: Sequence[Piece]) -> None:
        self._leave_foreign_batch()
        total = group[-1].at + group[-1].size
        # Taken out while in use: one that an interrupt leaves mapped is never submitted again, which would
        # end the process.
        staging, self._staging = self._staging, None
        if staging is None or staging.size < total:
            usage = self._api.BufferUsage.MAP_READ | self._api.BufferUsage.COPY_DST
            staging = self._gpu.create_buffer(size=max(total, 65536), usage=usage)

        def copy(encoder: Any) -> None:
            for piece in group:
                encoder.copy_buffer_to_buffer(piece.buffer, piece.start, staging, piece.at, piece.size)

        self._pending.append(self._encode(copy))
        self.flush()
        staging.map_async("READ_NOSYNC", 0, total).sync_wait()
        try:
            view = np.frombuffer(staging.read_mapped(0, total, copy=False), np.uint8)
            for piece in group:
                piece.store(view)
            del view  # the memory goes with unmap
        finally:
            staging.unmap()
        self._staging = staging

    def flush(self) -> None:
        """Submits what has been recorded; with nothing recorded, lets the copies of uploads go."""
        with self.lock:
            pending, self._pending = self._pending, []
            if pending or (self._uploaded and self.usable):
                self._guard(lambda: self._submit(pending))
                self.counts["submits"] += 1
                self._uploaded = 0

    def _encode(self, work: Callable[[Any], None]) -> Any:
        encoder = self._gpu.create_command_encoder()
        work(encoder)
        return encoder.finish()

    def _submit(self, pending: list[Any]) -> None:
        # On a lost device finish() raises, where wgpu's submit() would end the process. Dawn's raises nothing
        # once the loss has been reported; the next read-back tells.
        self._gpu.queue.submit([*pending, self._gpu.create_command_encoder().finish()])

    # Batches

    def begin_batch(self) -> None:
        """Collects this thread's work until the matching ``end_batch``."""
        with self.lock:
            self._leave_foreign_batch()
            if self._batch_depth == 0 or self._in_batch():
                self._batch_thread = threading.get_ident()
                self._batch_depth += 1

    def end_batch(self) -> None:
        """Submits what the batch has collected."""
        with self.lock:
            if self._in_batch():
                self._batch_depth -= 1
                if self._batch_depth == 0:
                    self._batch_thread = None
                    self.flush()

    def _in_batch(self) -> bool:
        return self._batch_thread == threading.get_ident()

    def _leave_foreign_batch(self) -> None:
        """Work of another thread's batch goes out first, so that order on the device is order in time."""
        if self._batch_thread is not None and not self._in_batch():
            self.flush()

    # Errors

    def _guard(self, call: Callable[[], T]) -> T:
        """Turns the implementation's errors into ours, and notices a lost device."""
        if not self.usable:
            raise BackendError(
                f"{self.found.name} is lost; the next call opens it anew",
                backend="webgpu",
                lost=True,
            )
        try:
            return call()
        except (self._api.GPUError, RuntimeError) as error:  # the latter from a mapping that fails
            message = essence(str(error))
            self._lost = tells_of_loss(message)
            # Without its frames: wgpudawn's form a cycle with a view of the memory being uploaded, and the
            # garbage collector, clearing that view, ends the process.
            raise BackendError(message, backend="webgpu", lost=self._lost) from error.with_traceback(None)
