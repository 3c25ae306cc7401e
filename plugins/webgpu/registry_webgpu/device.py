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
from .groups import BindGroups
from .implementations import IMPLEMENTATIONS
from .pool import Pool
from .recorder import Recorder
from .transfers import Array, Piece, padded, pieces, staged, words

T = TypeVar("T")

STAGING_BYTES = 32 * 1024 * 1024
POOL_BYTES = 256 * 1024 * 1024
UPLOAD_BYTES = 64 * 1024 * 1024
PIPELINES = 512
MAX_DEFERRED = 16
"""Operations outside of batches that are recorded before they are submitted."""


_process = object()
"""Another one in every process: quicker to compare than a process id is to ask for."""


def _fork() -> None:
    global _process
    _process = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fork)


class Device:
    """A WebGPU device under one lock. Everything that touches the queue goes through here.

    Attributes: ``found`` (name, index, profile), ``location`` (``webgpu:0``), ``counts`` (pipelines
    built and submissions). ``own`` is False for a device of the caller's, whose own submissions must find
    ours done.
    """

    def __init__(self, found: Found, part: str, own: bool = True):
        self.found = found
        self._own = own
        self.profile = found.profile
        self.location = f"webgpu:{part}"
        implementation = IMPLEMENTATIONS[found.profile.implementation]
        self.lock = implementation.lock or threading.RLock()
        self.counts = {"pipelines": 0, "submits": 0}
        self._process = _process
        self._api = implementation.api
        self._gpu = found.device
        self._pipelines: OrderedDict[str, tuple[Any, Any]] = OrderedDict()
        self._broken: OrderedDict[str, tuple[str, int | None]] = OrderedDict()
        self._pool = Pool(POOL_BYTES)
        self._groups = BindGroups(self._make_group)
        self._recorder = Recorder(found.device)
        self._deferred = 0
        self._staging: Any = None
        self._uploaded = 0
        self._batch_thread: int | None = None
        self._batch_depth = 0
        self._lost = False

    @property
    def usable(self) -> bool:
        """False once the device is lost, and in a child process, where it hangs."""
        return not self._lost and self._process is _process

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
            return self._pool.take(size) or self._guard(lambda: self._new_buffer(size))

    def give_back(self, buffer: Any) -> None:
        """Returns a buffer to the pool; work that was recorded before still has it. From any thread, and by
        the garbage collector."""
        self._pool.put(buffer)
        if self.lock.acquire(blocking=False):
            try:
                self._pool.tidy()
            finally:
                self.lock.release()

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
        """The bind group of (buffer, bytes) pairs in order, made once."""
        return self._groups.get(layout, buffers)

    def _make_group(self, layout: Any, buffers: Sequence[tuple[Any, int]]) -> Any:
        entries = [
            {"binding": index, "resource": {"buffer": buffer, "offset": 0, "size": size}}
            for index, (buffer, size) in enumerate(buffers)
        ]
        return self._guard(lambda: self._gpu.create_bind_group(layout=layout, entries=entries))

    # Work

    def upload(self, buffer: Any, array: Array) -> None:
        """Copies a host array of any layout and dtype into a buffer, as the device stores it."""
        data = words(array)
        if not data.nbytes:
            return
        with self.lock:
            if not self._recorder.empty:  # the write would overtake what was recorded for the buffer before
                self.flush()
            self._guard(lambda: self._gpu.queue.write_buffer(buffer, 0, data))
            self._uploaded += data.nbytes
            if self._uploaded > UPLOAD_BYTES:  # wgpu keeps the copies alive until the next submission
                self.flush()

    def record(self, label: str, work: Callable[[Recorder], None], hold: bool = False) -> None:
        """Records work. It is submitted with the next read-back (``hold`` says that one follows), at the end
        of a batch, and outside of batches after some operations, or at once on a device of the caller's.

        Raises:
            BackendError: it cannot be recorded; what was recorded before is not run either, and named.
        """
        with self.lock:
            self._leave_foreign_batch()
            self._recording(lambda: work(self._recorder), label)
            if self._in_batch() or hold:
                return
            self._deferred += 1
            if self._deferred >= (MAX_DEFERRED if self._own else 1):
                self.flush()

    def _recording(self, call: Callable[[], T], label: str) -> T:
        """Runs what records or submits; names the operations that go down with a failure."""
        lost = tuple(dict.fromkeys(name for name in self._recorder.labels if name != label))
        try:
            return self._guard(call)
        except BackendError as error:
            self._recorder = Recorder(self._gpu)
            if not lost:
                raise
            names = ", ".join(lost[:4]) + (f" and {len(lost) - 4} more" if len(lost) > 4 else "")
            message = f"{error.message} (recorded and not run: {names})"
            raise BackendError(message, backend="webgpu", lost=error.lost) from error

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

        encoder = self._recorder.encoder("read-back")
        for piece in group:
            encoder.copy_buffer_to_buffer(piece.buffer, piece.start, staging, piece.at, piece.size)
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
            self._deferred = 0
            if not self._recorder.empty or (self._uploaded and self.usable):
                self._recording(self._submit, "")
                self.counts["submits"] += 1
                self._uploaded = 0
            self._pool.tidy()

    def wait(self) -> None:
        """Submits what has been recorded and returns when all that was submitted is done.

        Raises:
            BackendError: the device is lost, or what was recorded fails.
        """
        # By a read-back: on_submitted_work_done of wgpu-py 0.32 fails.
        buffer = self.buffer(4)
        self.download([(buffer, np.empty(1, np.uint32))])
        self.give_back(buffer)

    def _submit(self) -> None:
        # On a lost device finish() raises, where wgpu's submit() would end the process; so it comes right
        # before. Dawn's raises nothing once the loss has been reported; the next read-back tells.
        commands = self._recorder.finish() or self._gpu.create_command_encoder().finish()
        self._gpu.queue.submit([commands])

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
