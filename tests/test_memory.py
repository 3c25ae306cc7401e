"""What a run holds beyond its inputs and outputs: told before it runs, and not exceeded."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from registry import NoPlanError, Registry
from registry.dtypes import numpy_dtype

SLN = "SkipLayerNormalization"
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


def test_numpy_scratch_does_not_grow_with_the_tensor(shared: Registry) -> None:
    def told(rows: int) -> int | None:
        pairs = [((rows, 768), "float32"), ((rows, 768), "float32"), ((768,), "float32")]
        return shared.peak_memory(SLN, *pairs, backend="numpy")["numpy"]

    assert told(100_000) == pytest.approx(told(10_000_000), rel=0.1)


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
