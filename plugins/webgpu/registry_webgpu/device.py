"""One opened device: its pipelines, its buffers, and the way in and out of its memory."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from registry.errors import BackendError

from .adapter import Found
from .compiler import essence, tells_of_loss
from .groups import BindGroups, Shape
from .implementations import IMPLEMENTATIONS
from .pipelines import Pipelines
from .pool import Pool
from .recorder import Recorder
from .staging import BYTES, DEPTH, Staging, fill
from .transfers import Array, Piece, padded, pieces, staged, words

T = TypeVar("T")

POOL_BYTES = 256 * 1024 * 1024
UPLOAD_BYTES = 64 * 1024 * 1024
STAGED_FROM = 1024 * 1024
"""Bytes from which an upload goes by way of staging, which is faster than the queue's own from there on."""

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

    Attributes: ``found`` (what was opened, with its profile), ``location`` (``webgpu:0``), ``counts``
    (pipelines built and submissions), ``bind_group`` (`BindGroups.get`). ``own`` is False for a device of the
    caller's, whose own submissions must find ours done.
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
        self._pipelines = Pipelines(found.device, implementation.api, self._guard)
        self._pool = Pool(POOL_BYTES)
        self.bind_group = BindGroups(self._make_group).get
        self._recorder = Recorder(found.device)
        self._deferred = 0
        self._staging = Staging(found.device, implementation.api)
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
        """The pipeline and bind-group layout of a source, compiled once. As `Pipelines.get`."""
        with self.lock:
            try:
                return self._pipelines.get(source, kinds, label)
            finally:
                self.counts["pipelines"] = self._pipelines.built

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

    def _make_group(self, shape: Shape, buffers: Sequence[Any]) -> Any:
        entries = [
            {"binding": index, "resource": {"buffer": buffer, "offset": 0, "size": size}}
            for index, (buffer, size) in enumerate(zip(buffers, shape.sizes, strict=True))
        ]
        return self._guard(lambda: self._gpu.create_bind_group(layout=shape.layout, entries=entries))

    # Work

    def upload(self, buffer: Any, array: Array) -> None:
        """Copies a host array of any layout and dtype into a buffer, as the device stores it."""
        data = words(array)
        if not data.nbytes:
            return
        with self.lock:
            if data.nbytes >= STAGED_FROM:
                self._guard(lambda: self._upload_staged(buffer, data))
                return
            if not self._recorder.empty:  # the write would overtake what was recorded for the buffer before
                self.flush()
            self._guard(lambda: self._gpu.queue.write_buffer(buffer, 0, data))
            self._uploaded += data.nbytes
            if self._uploaded > UPLOAD_BYTES:  # wgpu keeps the copies alive until the next submission
                self.flush()

    def _upload_staged(self, buffer: Any, data: Array) -> None:
        for start in range(0, data.nbytes, BYTES):
            piece = data[start : start + BYTES]
            staging = self._staging.writable()
            fill(staging, piece)
            staging.unmap()
            encoder = self._recorder.encoder("upload")
            encoder.copy_buffer_to_buffer(staging, 0, buffer, start, piece.nbytes)
            self.flush()
            self._staging.written(staging)

    def record(self, label: str, work: Callable[[Recorder], None], hold: bool = False) -> None:
        """Records work. It is submitted with the next read-back (``hold`` says that one follows), at the end
        of a batch, and outside of batches after some operations, or at once on a device of the caller's.

        Raises:
            BackendError: it cannot be recorded; what was recorded before is not run either, and named.
        """
        with self.lock:
            self._recording(work, label, self._recorder)
            if hold or self._in_batch():
                return
            self._deferred += 1
            if self._deferred >= (MAX_DEFERRED if self._own else 1):
                self.flush()

    def _recording(self, call: Callable[..., None], label: str, *given: Any) -> None:
        """Runs what records or submits; names the operations that go down with a failure."""
        labels = self._recorder.labels  # a submission begins another list
        try:
            self._guard(call, *given)
        except BackendError as error:
            lost = tuple(dict.fromkeys(name for name in labels if name != label))
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
        groups = pieces([(buffer, target) for buffer, _, target in targets], BYTES)
        with self.lock:
            self._guard(lambda: self._download_groups(groups))
        for _, array, target in targets:
            if target is not array:
                array[...] = target

    def _download_groups(self, groups: Sequence[Sequence[Piece]]) -> None:
        ahead: deque[tuple[Any, Sequence[Piece]]] = deque()
        for group in groups:
            staging = self._staging.readable(group[-1].at + group[-1].size)
            encoder = self._recorder.encoder("read-back")
            for piece in group:
                encoder.copy_buffer_to_buffer(piece.buffer, piece.start, staging, piece.at, piece.size)
            self.flush()
            ahead.append((staging, group))
            if len(ahead) == DEPTH:
                self._store(*ahead.popleft())
        for staging, group in ahead:
            self._store(staging, group)

    def _store(self, staging: Any, group: Sequence[Piece]) -> None:
        with self._staging.reading(staging, group[-1].at + group[-1].size) as view:
            for piece in group:
                piece.store(view)
            del view  # the memory goes with the mapping

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
        """Collects this thread's work until the matching ``end_batch``, unless another thread does so.

        All threads record one after another, so that order on the device is order in time.
        """
        with self.lock:
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
        return self._batch_thread is not None and self._batch_thread == threading.get_ident()

    # Errors

    def _guard(self, call: Callable[..., T], *given: Any) -> T:
        """Turns the implementation's errors into ours, and notices a lost device."""
        if not self.usable:
            gone = "is lost; the next call opens it anew"
            if self._process is not _process:
                gone = "was opened by the process that this one was forked from, and does not come along"
            raise BackendError(
                f"{self.found.name} {gone}",
                backend="webgpu",
                lost=True,
            )
        try:
            return call(*given)
        except (self._api.GPUError, RuntimeError) as error:  # the latter from a mapping that fails
            message = essence(str(error))
            self._lost = tells_of_loss(message)
            # Without its frames: wgpudawn's form a cycle with a view of the memory being uploaded, and the
            # garbage collector, clearing that view, ends the process.
            raise BackendError(message, backend="webgpu", lost=self._lost) from error.with_traceback(None)
