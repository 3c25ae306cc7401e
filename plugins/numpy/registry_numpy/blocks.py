"""Cache-sized blocks of rows, the scratch memory they use, and the threads that share them."""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from registry import ContractError

Array = npt.NDArray[Any]
Index = tuple[int | slice, ...]

THREADS_VARIABLE = "REGISTRY_NUM_THREADS"
THREADS_NEEDED = "a positive integer, or the variable unset"

ALIGNMENT = 64  # bytes of a cache line
SHORTEST_BUFFER, LONGEST_BUFFER = 512, 8192  # elements; the latter is NumPy's default


class _Local(threading.local):
    """What a thread keeps: scratch memory, the settings its work runs under, and whether it works."""

    def __init__(self) -> None:
        self.slots: dict[str, Array] = {}
        self.contexts: dict[int, Context] = {}
        self.busy = False


_local = _Local()
_pool_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}


@cache
def thread_count() -> int:
    """Threads one call may use: ``REGISTRY_NUM_THREADS``, else the CPUs this process may run on.

    Raises:
        ContractError: the variable is set to anything but a positive integer.
    """
    asked = os.environ.get(THREADS_VARIABLE, "").strip()
    if not asked:
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else os.cpu_count() or 1
    if not asked.isdecimal() or int(asked) < 1:
        raise ContractError(
            f"{THREADS_VARIABLE} is {asked!r}; needed: {THREADS_NEEDED}", argument=THREADS_VARIABLE
        )
    return int(asked)


def reset() -> None:
    """Forget the pool and the thread count, so that the environment is read again."""
    thread_count.cache_clear()
    with _pool_lock:
        pool = _pools.pop(os.getpid(), None)
    if pool is not None:
        pool.shutdown(wait=False)


def scratch(slot: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """Uninitialised C-ordered memory of this thread; the next call with the same slot reuses it."""
    held = _local.slots.get(slot)
    if held is not None and held.shape == shape and held.dtype == dtype:
        return held
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = None if held is None else held.base
    if memory is None or memory.nbytes < size + ALIGNMENT:
        memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    held = _local.slots[slot] = memory[start : start + size].view(dtype).reshape(shape)
    return held


def quietly(length: int, work: Callable[[], None]) -> None:
    """Call ``work`` with the settings of NumPy that suit rows of that length; within such a call, as it is.

    Floating-point warnings are off: NaN and infinity are values here. Buffers are no longer than a
    row, or else NumPy copies an operand that broadcasts over the rows into one, which doubles the time.
    """
    if _local.busy:
        work()
        return
    width = 1 << (length.bit_length() - 1)
    width = LONGEST_BUFFER if width < SHORTEST_BUFFER else min(width, LONGEST_BUFFER)
    context = _local.contexts.get(width)
    if context is None:  # entering one is ten times as fast as np.errstate with np.setbufsize
        context = _local.contexts[width] = Context()
        context.run(np.seterr, all="ignore")
        context.run(np.setbufsize, width)
    _local.busy = True
    try:
        context.run(work)
    finally:
        _local.busy = False


def split(shape: Sequence[int], count: int) -> list[Index]:
    """Indices that cut ``shape`` into consecutive blocks of at most ``count`` (>= 1) positions.

    Every index has one entry per dimension: positions, then one range, then whole dimensions.
    """
    if 0 in shape:
        return []
    whole = len(shape)
    inner = 1
    while whole and inner * shape[whole - 1] <= count:
        whole -= 1
        inner *= shape[whole]
    tail = (slice(None),) * (len(shape) - whole)
    if not whole:
        return [tail]
    size, step = shape[whole - 1], count // inner
    ranges = [slice(start, min(start + step, size)) for start in range(0, size, step)]
    return [(*outer, part, *tail) for outer in np.ndindex(*shape[: whole - 1]) for part in ranges]


def at(operand: Array, index: Index, trailing: int) -> Array:
    """``operand[index]`` under broadcasting: ``index`` speaks of the dimensions before the last
    ``trailing`` ones of the full shape, and ``operand`` may lack leading ones or have size 1 there.
    """
    own = operand.ndim - trailing
    if own <= 0:
        return operand
    if own == 1 and operand.shape[0] > 1:  # the usual case, in a tenth of the time
        return operand[index[-1]]
    positions = zip(operand.shape, index[len(index) - own :], strict=False)
    entries = tuple(
        part if size > 1 else slice(None) if isinstance(part, slice) else 0 for size, part in positions
    )
    return operand[entries]


def run(work: Callable[[Index], None], indices: Sequence[Index], length: int) -> None:
    """Call ``work`` once for every index, ``quietly``, on several threads where there are several indices.

    ``length`` is that of a row. The calling thread takes part; a call made by ``work`` itself stays on
    its thread, so calls may nest.
    """
    left = deque(indices)

    def drain() -> None:
        while True:
            try:
                index = left.popleft()
            except IndexError:
                return
            work(index)

    helpers = min(thread_count(), len(indices)) - 1
    if helpers < 1 or _local.busy:
        quietly(length, drain)
        return
    futures = _submit(lambda: quietly(length, drain), helpers)
    try:
        quietly(length, drain)
    finally:
        left.clear()
        # A helper that has not started has nothing left to do: do not wait for its turn.
        started = [future for future in futures if not future.cancel()]
        failures = [future.exception() for future in started]
    for failure in failures:
        if failure is not None:
            raise failure


def _submit(task: Callable[[], None], count: int) -> list[Future[None]]:
    # Threads do not survive a fork: a child finds no pool under its own process id and makes one.
    with _pool_lock:
        pool = _pools.get(os.getpid())
        if pool is None:
            _pools.clear()
            pool = ThreadPoolExecutor(max(thread_count() - 1, 1), "registry-numpy")
            _pools[os.getpid()] = pool
        futures: list[Future[None]] = []
        # An interpreter that is shutting down starts no threads: the caller does all the work.
        with suppress(RuntimeError):
            futures.extend(pool.submit(task) for _ in range(count))
        return futures


def _forget_lock() -> None:
    # A fork may copy the lock while another thread of the parent holds it.
    global _pool_lock
    _pool_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)
