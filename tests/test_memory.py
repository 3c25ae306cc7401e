"""What a run holds beyond its inputs and outputs: told before it runs, and not exceeded."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from registry import NoPlanError, Registry
from registry.dtypes import numpy_dtype
from registry_webgpu.device import POOL_BYTES
from registry_webgpu.groups import BindGroups, Shape
from registry_webgpu.pool import Pool

SLN = "SkipLayerNormalization"
CALLS = 3000
OUTPUTS = ("output", "mean", "inv_std_var", "input_skip_bias_sum")


def tensors(shape: tuple[int, ...], dtype: str, poisoned: bool) -> dict[str, Any]:
    x = np.random.default_rng(0).standard_normal(shape).astype(numpy_dtype(dtype))
    if poisoned:
        x[..., 0] = np.nan
    vector = np.ones(shape[-1:], x.dtype)
    return {"input": x, "skip": x, "gamma": vector, "beta": vector, "bias": vector}


@pytest.mark.parametrize("poisoned", [False, True], ids=["plain", "NaN"])
@pytest.mark.parametrize("variant", ["blocked", "reference"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("shape", [(8, 768), (1100, 768), (4, 300_000), (1, 2**20 + 2)])
def test_numpy_holds_no_more_than_told(
    fresh: Registry, shape: tuple[int, ...], dtype: str, variant: str, poisoned: bool
) -> None:
    given = tensors(shape, dtype, poisoned)
    call = {**given, "outputs": OUTPUTS, "backend": "numpy", "variant": variant}
    plan = fresh.prepare(SLN, **call)
    out = {role: np.empty(t.shape, numpy_dtype(t.dtype)) for role, t in plan.request.outputs.items()}
    told = fresh.peak_memory(SLN, **call)["numpy"]
    assert told is not None
    tracemalloc.start()
    try:
        plan(**given, out=out)
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert held <= told


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_numpy_holds_its_outputs_and_no_other_tensor(fresh: Registry, dtype: str) -> None:
    given = tensors((16384, 768), dtype, poisoned=False)
    call = {**given, "outputs": OUTPUTS, "backend": "numpy"}
    plan = fresh.prepare(SLN, **call)
    tracemalloc.start()
    try:
        results = plan(**given)
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    told = fresh.peak_memory(SLN, **call)["numpy"]
    outputs = sum(result.nbytes for result in results)
    assert told is not None and outputs <= held <= outputs + told
    assert held - outputs < given["input"].nbytes


def test_numpy_calls_leave_nothing_behind(fresh: Registry) -> None:
    given = tensors((8, 64), "float32", poisoned=False)
    plan = fresh.prepare(SLN, **given, backend="numpy")
    tracemalloc.start()
    try:
        for call in range(CALLS + 100):
            plan(**given)
            fresh.run(SLN, **given, backend="numpy")
            if call == 100:
                gc.collect()  # Python's own stock of free tuples, too
                before = tracemalloc.get_traced_memory()[0]
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert after - before < CALLS  # less than a byte a call


def test_numpy_scratch_does_not_grow_with_the_tensor(shared: Registry) -> None:
    def told(rows: int) -> int | None:
        pairs = [((rows, 768), "float32"), ((rows, 768), "float32"), ((768,), "float32")]
        return shared.peak_memory(SLN, *pairs, backend="numpy")["numpy"]

    assert told(100_000) == pytest.approx(told(10_000_000), rel=0.1)


@pytest.fixture
def made(webgpu: Registry, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of every buffer that the WebGPU device makes from here on, its pool being empty."""
    home = webgpu.empty((1,), "float32", "webgpu").home
    sizes: list[int] = []
    make = home._new_buffer

    def counted(size: int) -> Any:
        sizes.append(size)
        return make(size)

    monkeypatch.setattr(home, "_pool", Pool(POOL_BYTES))
    monkeypatch.setattr(home, "_new_buffer", counted)
    return sizes


@pytest.mark.parametrize("outputs", [("output",), ("output", "input_skip_bias_sum"), ("mean",)])
def test_webgpu_makes_outputs_and_what_is_told(
    webgpu: Registry, made: list[int], outputs: tuple[str, ...]
) -> None:
    given = tensors((6, 64), "float32", poisoned=False)
    on_device = {role: webgpu.to_device(value, "webgpu") for role, value in given.items()}
    call = {**on_device, "outputs": outputs, "backend": "webgpu"}
    plan = webgpu.prepare(SLN, **call)
    made.clear()
    results = plan(**on_device)
    told = webgpu.peak_memory(SLN, **call)["webgpu"]
    assert told is not None and (told > 0) is ("output" not in outputs)
    assert sum(made) == sum(result.nbytes for result in results) + told


def test_webgpu_calls_leave_nothing_behind(webgpu: Registry, made: list[int]) -> None:
    given = tensors((6, 64), "float32", poisoned=False)
    on_device = {role: webgpu.to_device(value, "webgpu") for role, value in given.items()}
    plan = webgpu.prepare(SLN, **on_device, backend="webgpu")
    for call in range(CALLS):
        plan(**on_device)
        if call == 100:
            made.clear()
    assert made == []


def test_the_pool_keeps_the_sizes_that_were_wanted_last() -> None:
    pool, kept = Pool(100), SimpleNamespace(size=40)
    for _ in range(10):
        pool.put(kept)
        assert pool.take(40) is kept and pool.take(40) is None
    for size in (10, 40, 30, 40, 101):
        pool.put(SimpleNamespace(size=size))
    assert [size for size in (10, 101, 30, 40, 40, 40) if pool.take(size)] == [40, 40]


def test_bind_groups_are_each_shapes_own_and_go_with_what_they_bind() -> None:
    class Thing:
        """A buffer, or a group: what can be gone."""

    groups = BindGroups(lambda shape, buffers: Thing())
    shapes = [Shape(None, (4,)), Shape(None, (8,))]
    buffers = [Thing(), Thing()]
    made = [weakref.ref(groups.get(shape, [buffer])) for shape in shapes for buffer in buffers]
    assert groups.get(shapes[1], [buffers[0]]) is made[2]()
    assert len({id(group()) for group in made}) == 4
    del shapes[0]
    assert [group() is None for group in made] == [True, True, False, False]
    del buffers[0]
    assert [group() is None for group in made] == [True, True, True, False]


def test_webgpu_counts_unasked_outputs(shared: Registry) -> None:
    profile = {"webgpu": {"features": [], "implementation": "wgpu"}}
    pairs = [((4, 6, 8), "float32"), ((4, 6, 8), "float32"), ((8,), "float32")]
    assert shared.peak_memory(SLN, *pairs, profile=profile) == {"webgpu": 0}
    assert shared.peak_memory(SLN, *pairs, outputs="mean", profile=profile) == {"webgpu": 4 * 6 * 8 * 4}


def test_every_backend_that_accepts(shared: Registry) -> None:
    pairs = [((4, 6), "float64"), ((4, 6), "float64"), ((6,), "float64")]
    assert shared.peak_memory(SLN, *pairs).keys() >= {"numpy"}
    with pytest.raises(NoPlanError):
        shared.peak_memory(SLN, *pairs, profile={"webgpu": {}})
    empty = ((0, 6), "float32")
    assert shared.peak_memory(SLN, empty, empty, ((6,), "float32"), backend="numpy") == {"numpy": 0}
