"""Calls that are too large for a device as a whole, computed in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from forms import FORMS, check
from hypothesis import given
from hypothesis import strategies as st

from registry import BackendError, NoPlanError, Registry
from registry.calling.arrays import NumpyArray
from registry.calling.call import parse_call
from registry.calling.parts import cut, largest
from registry.calling.request import Request
from registry.planning.making import bind_call
from registry_webgpu import backend, kernel


def request(reg: Registry, op: str, call: dict[str, Any]) -> Request:
    return bind_call(reg.catalog, parse_call(reg.op(op), (), call))


def test_what_fits_stays_whole(shared: Registry) -> None:
    call = {"X": ((2, 3, 8), "float32"), "bias": ((8,), "float32"), "skip": ((2, 3, 8), "float32")}
    whole = request(shared, "BiasAdd", call)
    (part,) = cut(whole, 2 * 3 * 8 * 4)
    assert part.request is whole


def test_rows_are_never_cut(shared: Registry) -> None:
    call = {"X": ((2, 3, 8), "float32"), "Scale": ((8,), "float32")}
    assert len(cut(request(shared, "LayerNormalization", call), 32)) == 6
    assert cut(request(shared, "LayerNormalization", call), 31) == ()
    assert cut(request(shared, "LayerNormalization", {**call, "axis": -2}), 32 * 3)
    assert cut(request(shared, "LayerNormalization", {**call, "axis": -2}), 32 * 3 - 1) == ()
    assert cut(request(shared, "LayerNormalization", {**call, "axis": 0}), 100) == ()


@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 7), st.integers(1, 4)),
    limit=st.integers(4, 600),
    scale=st.sampled_from(["last", "rows", "full", "outer"]),
)
def test_parts_cover_the_whole_once(
    shared: Registry, shape: tuple[int, int, int], limit: int, scale: str
) -> None:
    scales = {"last": shape[2:], "rows": (shape[1], 1), "full": shape, "outer": (shape[0], 1, 1)}
    call = {"X": (shape, "float32"), "Scale": (scales[scale], "float32"), "outputs": ("Y", "Mean")}
    whole = request(shared, "LayerNormalization", call)
    parts = cut(whole, limit)
    assert bool(parts) == (limit >= shape[2] * 4)
    tensors: dict[str, NumpyArray] = {role: np.zeros(t.shape, int) for role, t in whole.tensors.items()}
    for part in parts:
        assert largest(part.request) <= limit
        for role, tensor in tensors.items():
            seen = part.of(tensor)
            assert seen.shape == part.request.tensors[role].shape
            seen += 1
    if parts:
        assert (tensors["X"] == 1).all() and (tensors["Y"] == 1).all() and (tensors["Mean"] == 1).all()
        assert (tensors["Scale"] >= 1).all()


@pytest.fixture
def small(webgpu: Registry, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A device on which a tensor may have 600 bytes."""
    for module in (backend, kernel):
        monkeypatch.setattr(module, "binding_limit", lambda limits: 600)
    return Registry()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("op", FORMS)
def test_parts_are_right_on_a_device(small: Registry, op: str, dtype: str) -> None:
    ran = 0
    for form in FORMS[op][::5]:
        call = form.call(33, 33, dtype)
        if call is not None:
            check(small, op, call, "webgpu")
            ran += 1
    assert ran


def test_parts_have_the_bits_of_the_whole(webgpu: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((33, 33)).astype(np.float16)
    call = {"X": x, "Scale": x[0], "backend": "webgpu"}
    whole = webgpu.run("LayerNormalization", **call)
    for module in (backend, kernel):
        monkeypatch.setattr(module, "binding_limit", lambda limits: 600)
    np.testing.assert_array_equal(Registry().run("LayerNormalization", **call), whole)


def test_a_tensor_on_the_device_is_not_cut(small: Registry) -> None:
    x = small.to_device(np.ones((33, 33), np.float32), "webgpu")
    scale = np.ones(33, np.float32)
    with pytest.raises(NoPlanError, match=r"X has 4356 bytes \(limit 600\)"):
        small.run("LayerNormalization", X=x, Scale=scale, backend="webgpu")
    with pytest.raises(BackendError, match="Y is on the device"):
        out = small.empty((33, 33), "float32", "webgpu")
        small.run("LayerNormalization", X=x.numpy(), Scale=scale, out=out, backend="webgpu")
