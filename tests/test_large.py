"""Tensors at and over the limits of devices: right, or refused by the name of the limit with nothing sent.

What needs a GPU and its memory is left out by default:

    REGISTRY_TEST_LARGE=1 python -m pytest tests/test_large.py
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forms import FORMS

from registry import BackendError, NoPlanError, Registry
from registry.dtypes import STORAGE, numpy_dtype
from registry.judging.accuracy import judge, round_to
from registry_webgpu.devices import DEVICES
from registry_webgpu.profile import binding_limit

Array = np.ndarray[Any, Any]

GIB = 2**30
# Rows of the data before it repeats. A prime, and such that neighbours of powers of two stay apart.
PERIOD = 8191
HIDDEN = 256
SLN, LN, RMS, BIAS_ADD = "SkipLayerNormalization", "LayerNormalization", "RMSNormalization", "BiasAdd"
OPS = (SLN, LN, RMS, BIAS_ADD)
DTYPES = ("float32", "float16", "bfloat16")
LIMIT = "every tensor fits one storage binding"

ENABLED = os.environ.get("REGISTRY_TEST_LARGE", "") not in ("", "0")


@pytest.fixture(params=["webgpu", "cuda"])
def gpu(request: pytest.FixtureRequest, every: Registry) -> str:
    """Each backend of devices, by name, where it has hardware."""
    name: str = request.param
    if not ENABLED:
        pytest.skip("set REGISTRY_TEST_LARGE=1 on a GPU")
    here = every.catalog.availability(name)
    if not here.available:
        pytest.skip(f"no {name}: {here.condition}: {here.found}")
    if not here.hardware:
        pytest.skip(f"{name} has a software adapter only: {here.name}")
    return name


def limits(reg: Registry, backend: str) -> Any:
    """The limits of a device, None where there is none but memory."""
    return reg.catalog.availability(backend).device.get("limits")


def most_bytes(reg: Registry, backend: str) -> int:
    """The largest tensor a device binds; 4 GiB where it has no limit."""
    found = limits(reg, backend)
    return binding_limit(found) if found else 4 * GIB


def submissions(backend: str) -> int:
    """What the backend's devices have been sent so far; 0 for a backend that has no limit to refuse by."""
    return sum(device.counts["submits"] for device in DEVICES.all()) if backend == "webgpu" else 0


def needs_memory(nbytes: int) -> None:
    """Skips where the host has less."""
    found = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text(encoding="utf-8"))
    free = int(found[1]) * 1024 if found else 0
    if free < nbytes:
        pytest.skip(f"{free / GIB:.1f} GiB of memory are free; needed: {nbytes / GIB:.1f}")


def tensors(op: str, rows: int, hidden: int, dtype: str) -> dict[str, Array]:
    """An op's inputs, whose rows repeat after PERIOD: cheap to make, and to check."""
    draw = np.random.default_rng(0)
    block = round_to(draw.normal(0.5, 1.5, (min(rows, PERIOD), hidden)), dtype)
    x = np.empty((rows, hidden), block.dtype)
    for start in range(0, rows, PERIOD):
        part = x[start : start + PERIOD]
        part[...] = block[: len(part)]
    vector = round_to(draw.normal(0.5, 1.5, hidden), dtype)
    if op == BIAS_ADD:
        return {"X": x[None], "bias": vector, "skip": x[None]}
    if op == SLN:
        return {"input": x, "skip": x, "gamma": vector, "beta": vector[::-1].copy()}
    return {"X": x, "Scale" if op == LN else "scale": vector}


def outputs(op: str) -> tuple[str, ...]:
    return ("output", "input_skip_bias_sum") if op == SLN else ("Y",)


def check(reg: Registry, op: str, inputs: dict[str, Array], found: dict[str, Array]) -> None:
    """Every element: the first rows against the reference, and all that repeat them bit by bit."""
    target = reg.op(op)
    first = {role: array[..., :PERIOD, :] if array.ndim > 1 else array for role, array in inputs.items()}
    expected = reg.catalog.plugins.references[target.id](first, target.attributes)
    for role, array in found.items():
        rows = array.reshape(-1, array.shape[-1]).view(np.uint8)
        block = rows[:PERIOD]
        verdict = judge(array[..., :PERIOD, :], expected[role], array.dtype.name)
        assert verdict.ok, f"{role}: {verdict.reason}"
        for start in range(PERIOD, len(rows), PERIOD):
            part = rows[start : start + PERIOD]
            assert np.array_equal(part, block[: len(part)]), (
                f"{role} differs in rows {start} to {start + PERIOD}"
            )


def run_on_device(reg: Registry, backend: str, op: str, inputs: dict[str, Array]) -> dict[str, Array]:
    """Runs on device tensors, outputs placed, and reads back."""
    there = {id(array): reg.to_device(array, backend) for array in inputs.values()}
    first = next(iter(inputs.values()))
    out = {role: reg.empty(first.shape, first.dtype.name, backend) for role in outputs(op)}
    reg.run(op, inputs={role: there[id(array)] for role, array in inputs.items()}, out=out, backend=backend)
    return {role: reg.host(tensor) for role, tensor in out.items()}


def run_on_host(reg: Registry, backend: str, op: str, inputs: dict[str, Array]) -> dict[str, Array]:
    """Runs on host arrays."""
    values = reg.run(op, inputs=inputs, outputs=outputs(op), backend=backend)
    return dict(zip(outputs(op), values, strict=True))


@pytest.mark.large
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "hidden"), [(3 * 65535 + 7, 33), (2**24 + 3, 4)], ids=["65535", "2**24"])
@pytest.mark.parametrize("op", OPS)
def test_many_rows(every: Registry, gpu: str, op: str, rows: int, hidden: int, dtype: str) -> None:
    """More rows than workgroups go into a dimension of the grid, and more than float32 counts."""
    needs_memory(4 * GIB)
    inputs = tensors(op, rows, hidden, dtype)
    if rows * hidden * STORAGE[dtype][0] <= most_bytes(every, gpu):
        check(every, op, inputs, run_on_device(every, gpu, op, inputs))
    if dtype == "float32":
        check(every, op, inputs, run_on_host(every, gpu, op, inputs))


@pytest.mark.large
@pytest.mark.parametrize(
    ("op", "dtype"),
    [(SLN, "float32"), (LN, "float16"), (BIAS_ADD, "bfloat16"), (RMS, "float32"), (LN, "bfloat16")],
)
def test_at_the_limit(every: Registry, gpu: str, op: str, dtype: str) -> None:
    """The most whole rows that one binding takes."""
    rows = most_bytes(every, gpu) // (HIDDEN * STORAGE[dtype][0])
    needs_memory(5 * rows * HIDDEN * STORAGE[dtype][0])
    inputs = tensors(op, rows, HIDDEN, dtype)
    check(every, op, inputs, run_on_device(every, gpu, op, inputs))


@pytest.mark.large
@pytest.mark.parametrize("op", [SLN, LN])
def test_over_2_31_elements(every: Registry, gpu: str, op: str) -> None:
    """float16 of over 4 GiB: on the device, or from the host in parts where the device does not bind it."""
    rows = 2**31 // HIDDEN + 3
    needs_memory(5 * rows * HIDDEN * 2)
    inputs = tensors(op, rows, HIDDEN, "float16")
    run = run_on_host if limits(every, gpu) else run_on_device
    check(every, op, inputs, run(every, gpu, op, inputs))


@pytest.mark.large
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPS)
def test_just_over_the_limit_on_the_device(every: Registry, gpu: str, op: str, dtype: str) -> None:
    """A tensor of one row more is refused by the limit's name, or works where there is none."""
    rows = most_bytes(every, gpu) // (HIDDEN * STORAGE[dtype][0]) + 1
    shape = (1, rows, HIDDEN) if op == BIAS_ADD else (rows, HIDDEN)
    vector = np.ones(HIDDEN, numpy_dtype(dtype))
    try:
        full = every.empty(shape, dtype, gpu)
    except BackendError as error:  # the device has no such buffer
        assert "takes at most" in str(error)
        return
    small = tensors(op, 1, HIDDEN, dtype)
    inputs = {role: vector if array.ndim == 1 else full for role, array in small.items()}
    if not limits(every, gpu):
        every.run(op, inputs=inputs, backend=gpu)
        return
    before = submissions(gpu)
    with pytest.raises(NoPlanError, match=LIMIT) as caught:
        every.run(op, inputs=inputs, backend=gpu)
    assert caught.value.decision is not None
    assert all(
        "bytes (limit" in row.found
        for row in caught.value.decision.candidates
        if row.because.startswith(LIMIT)
    )
    assert submissions(gpu) == before


@pytest.mark.large
@pytest.mark.parametrize("op", [LN, RMS])
def test_a_row_over_the_limit(every: Registry, gpu: str, op: str) -> None:
    """No part of it can be computed alone."""
    if not limits(every, gpu):
        pytest.skip(f"{gpu} has no limit but memory")
    x = np.zeros((1, most_bytes(every, gpu) // 4 + 1), np.float32)  # pages that nobody touches
    before = submissions(gpu)
    with pytest.raises(NoPlanError, match=LIMIT):
        every.run(op, x, x[0, :1], backend=gpu)
    assert submissions(gpu) == before


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", FORMS)
def test_the_limit_by_shapes_alone(shared: Registry, op: str, dtype: str) -> None:
    """A row at the limit is accepted, over it every variant refuses; more rows are computed in parts.

    Either limit may be the lower one.
    """
    limit = 2**20
    binding, buffer = {"float16": (2, 1), "bfloat16": (1, 2)}.get(dtype, (1, 1))
    profile = {
        "webgpu": {
            "features": ["shader-f16"],
            "limits": {"maxStorageBufferBindingSize": binding * limit, "maxBufferSize": buffer * limit},
        }
    }
    width = STORAGE[dtype][0]
    form = next(form for form in FORMS[op] if dict(form.attrs).get("axis", -1) == -1)

    def rows(count: int, hidden: int) -> Any:
        pairs = form.pairs(count, hidden, dtype)
        assert pairs is not None
        return shared.explain(op, **pairs, profile=profile)

    assert rows(1, limit // width).chosen is not None
    assert rows(1024 + 1, 1024 // width).chosen is not None
    over = rows(1, limit // width + 1)
    assert over.chosen is None
    for row in over.candidates:
        assert row.because.startswith(LIMIT) and f"(limit {limit})" in row.found, row
