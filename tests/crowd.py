"""Many threads on one registry: each result must have the bits that it has alone, whatever the others do."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from registry import Registry
from registry.calling.call import parse_call
from registry.deciding.selection import contenders
from registry.deciding.tuned import Choice, Entry, TunedVariant, key_of, source_digest
from registry.judging.accuracy import round_to
from registry.planning.making import bind_call

THREADS = 8
CALLS = 200


def make_calls(dtypes: tuple[str, ...]) -> list[tuple[str, dict[str, Any]]]:
    """Calls of several ops, shapes and dtypes."""
    draw = np.random.default_rng(1)

    def tensor(dtype: str, *shape: int) -> np.ndarray[Any, Any]:
        return round_to(draw.standard_normal(shape), dtype)

    found: list[tuple[str, dict[str, Any]]] = []
    for dtype in dtypes:
        x, row = tensor(dtype, 2, 3, 8), tensor(dtype, 8)
        found += [
            ("BiasAdd", {"X": x, "bias": row, "skip": tensor(dtype, 2, 3, 8)}),
            ("LayerNormalization", {"X": tensor(dtype, 5, 12), "Scale": tensor(dtype, 12), "axis": -1}),
            ("SkipLayerNormalization", {"input": x, "skip": x, "gamma": row, "epsilon": 1e-3}),
        ]
    return found


def measured(reg: Registry, op: str, named: Mapping[str, Any]) -> Entry:
    """An entry as tuning would keep it, whose choice is the static one."""
    call = parse_call(reg.op(op), (), named)
    request = bind_call(reg.catalog, call)
    decision = reg.explain(op, **named)
    static = TunedVariant(str(decision.backend), str(decision.variant))
    offers = contenders(reg.catalog, call, request)
    digest = source_digest(reg.catalog, request, (static,), offers)
    return Entry(key_of(request, offers), digest, (static,), Choice(static, 1.0, static, 1.0, "2026-01-01"))


def crowd(reg: Registry, backend: str, dtypes: tuple[str, ...], on_device: bool, disturbances: int) -> int:
    """Runs 8 threads of 200 calls each, while another one changes settings, reads devices and the environment
    anew, and writes measured choices; tells how many results were compared.

    Raises:
        AssertionError: a result differs; what a thread raised passes through.
    """
    calls = make_calls(dtypes)
    plans = [reg.prepare(op, **named, backend=backend) for op, named in calls]
    wanted = [reg.run(op, **named, backend=backend) for op, named in calls]
    entries = [measured(reg, op, {**named, "backend": backend}) for op, named in calls]
    placed = (
        [
            {
                name: reg.to_device(value, backend) if isinstance(value, np.ndarray) else value
                for name, value in named.items()
            }
            for _, named in calls
        ]
        if on_device
        else [named for _, named in calls]
    )
    failures: list[BaseException] = []
    compared = [0] * THREADS
    done = threading.Event()

    def check(place: int, found: Any) -> None:
        array = found if isinstance(found, np.ndarray) else reg.host(found)
        if array.tobytes() != wanted[place].tobytes():
            raise AssertionError(f"{calls[place][0]} gave {array}; alone it gives {wanted[place]}")

    def work(thread: int) -> None:
        draw = random.Random(thread)
        ways: list[Callable[[int], Any]] = [
            lambda at: reg.run(calls[at][0], **calls[at][1], backend=backend),
            lambda at: reg.run(calls[at][0], **placed[at], device=backend),
            lambda at: plans[at](**{k: v for k, v in calls[at][1].items() if isinstance(v, np.ndarray)}),
            lambda at: reg.run(calls[at][0], **calls[at][1], backend=backend, out=np.empty_like(wanted[at])),
        ]
        count = 0
        while count < CALLS:
            at, way = draw.randrange(len(calls)), draw.choice(ways)
            if thread % 3 == 2:  # in batches
                with reg.batch():
                    found = [(place, ways[1](place)) for place in (at, (at + 1) % len(calls))]
                for place, result in found:
                    check(place, result)
                count += 2
                continue
            check(at, way(at))
            plan = reg.last()
            assert plan is not None and plan.backend == backend
            count += 1
        compared[thread] = count

    def disturb() -> None:
        for turn in range(disturbances):
            if turn % 2:
                reg.refresh()
            else:
                reg.configure(backends=None if turn % 4 else [backend], options={})
            for entry in entries:
                assert reg.catalog.store.write(entry)
            with reg.record():
                reg.explain(calls[turn % len(calls)][0], **calls[turn % len(calls)][1])
            if done.wait(0.02):
                break

    def guarded(task: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                task()
            except BaseException as error:
                failures.append(error)

        return run

    workers = [threading.Thread(target=guarded(lambda at=at: work(at))) for at in range(THREADS)]
    other = threading.Thread(target=guarded(disturb))
    for thread in (other, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    done.set()
    other.join()
    if failures:
        raise failures[0]
    return sum(compared)
