"""Arrays in every layout, byte order and kind, on every backend; and what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from registry import ContractError, Registry

BACKENDS = ("numpy", "webgpu")
BASE = np.array([[0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0]], np.float32)


def layer_norm(reg: Registry, x: Any, backend: str, **named: Any) -> Any:
    scale = named.pop("Scale", None)
    if scale is None:
        scale = np.ones(x.shape[-1], np.asarray(x).dtype)
    return reg.run("LayerNormalization", X=x, Scale=scale, backend=backend, **named)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "view",
    [
        lambda b: b[1:3],
        lambda b: b[:, ::-1],
        lambda b: b.T,
        lambda b: np.broadcast_to(b[0], (5, 4)),
        lambda b: b[::2],
        lambda b: np.asfortranarray(b),
        lambda b: b[:, 1:],
        lambda b: b[::-1, ::-2],
        lambda b: np.lib.stride_tricks.sliding_window_view(b.reshape(-1), 4)[::3],
    ],
)
def test_views_equal_their_contiguous_copies(webgpu: Registry, backend: str, view: Any) -> None:
    x = view(BASE)
    want = layer_norm(webgpu, np.ascontiguousarray(x).copy(), backend)
    np.testing.assert_array_equal(layer_norm(webgpu, x, backend), want)
    scale = np.arange(2 * x.shape[-1], dtype=np.float32)[::2]
    np.testing.assert_array_equal(
        layer_norm(webgpu, x, backend, Scale=scale),
        layer_norm(webgpu, x, backend, Scale=scale.copy()),
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_slice_values(webgpu: Registry, backend: str) -> None:
    low, high = -0.577334874, 1.732004621
    want = [[low, low, high, low], [low, high, low, low]]
    np.testing.assert_allclose(layer_norm(webgpu, BASE[1:3], backend), want, atol=2e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [">f4", ">f2", "<f4"])
def test_byte_order(webgpu: Registry, backend: str, dtype: str) -> None:
    x = np.array([[1, 2, 3, 4]], dtype)
    y = layer_norm(webgpu, x, backend, Scale=np.ones(4, dtype))
    np.testing.assert_allclose(
        y.astype(float), [[-1.34163542, -0.44721181, 0.44721181, 1.34163542]], atol=1e-3
    )
    assert y.dtype.isnative


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_stay_as_they_are_and_results_are_their_own(webgpu: Registry, backend: str) -> None:
    x = BASE.copy()
    x.flags.writeable = False
    y = layer_norm(webgpu, x, backend)
    np.testing.assert_array_equal(x, BASE)
    assert y.flags.writeable and not np.shares_memory(x, y)
    first = y.copy()
    layer_norm(webgpu, x + 5, backend)
    np.testing.assert_array_equal(y, first)


def test_bfloat16_bits_survive(shared: Registry) -> None:
    x = np.array([[1, 1.0078125, 1.015625, 1.0234375]], ml_dtypes.bfloat16)
    y = layer_norm(shared, x, "numpy")
    assert y.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(y.astype(float), [[-1.2578125, -0.419921875, 0.419921875, 1.2578125]])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
def test_device_round_trip(webgpu: Registry, dtype: Any) -> None:
    x = np.array([1, -0.0, np.inf, 3.140625, -np.nan], dtype)
    tensor = webgpu.to_device(x, "webgpu")
    assert tensor.shape == (5,) and tensor.dtype == x.dtype.name and tensor.device == "webgpu:0"
    assert tensor.numpy().tobytes() == x.tobytes()
    again = webgpu.to_device(tensor, "webgpu:0")
    assert again.numpy().tobytes() == x.tobytes()


class FakeHost:
    """A DLPack producer that is no NumPy array."""

    def __init__(self, array: np.ndarray):
        self.array = array
        self.shape = array.shape

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


class FakeDevice(FakeHost):
    def __dlpack_device__(self) -> Any:
        return (2, 0)


def test_dlpack_arrays_come_in(webgpu: Registry) -> None:
    want = layer_norm(webgpu, BASE, "numpy")
    for backend in BACKENDS:
        got = layer_norm(webgpu, FakeHost(BASE), backend)
        np.testing.assert_allclose(np.asarray(got), want, atol=2e-6)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.ma.masked_array(BASE, BASE > 0), "masked array; use .filled"),
        (BASE.astype(object), "dtype object; convert"),
        (np.zeros((3, 4), [("a", "f4")]), "convert with .astype"),
        (BASE.astype(complex), "complex128; convert"),
        (BASE.astype("datetime64[s]"), "convert with .astype"),
        (BASE.tolist(), "a list; use numpy.asarray"),
        (3.5, "Python number"),
        ("text", "X is a str; pass an array"),
        (object(), "pass an array"),
        (FakeDevice(BASE), "device memory; no loaded backend"),
        (BASE.astype(np.int32), "int32; needed: one of"),
        (((3, -4), "float32"), "at least 0"),
        (((3, 4), "float33"), "one of float16"),
    ],
)
def test_what_is_no_tensor(shared: Registry, value: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message) as caught:
        shared.run("LayerNormalization", X=value, Scale=np.ones(4, np.float32))
    assert "X" in str(caught.value)


def test_a_pair_takes_the_short_names_of_dtypes(shared: Registry) -> None:
    for short, name in (("f16", "float16"), ("bf16", "bfloat16"), ("f32", "float32"), ("f64", "float64")):
        found = shared.infer("LayerNormalization", X=((2, 4), short), Scale=((4,), name))
        assert found == {"Y": ((2, 4), name)}


def test_scalars_of_numpy_are_tensors_of_rank_0(shared: Registry) -> None:
    got = shared.run("LayerNormalization", X=BASE, Scale=np.float32(2))
    np.testing.assert_array_equal(got, layer_norm(shared, BASE, "numpy", Scale=np.array([2], np.float32)))


torch: Any = None


@pytest.fixture
def with_torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("backend", BACKENDS)
def test_torch_in_torch_out(webgpu: Registry, with_torch: Any, backend: str) -> None:
    x = with_torch.from_numpy(BASE.copy())
    y = layer_norm(webgpu, x, backend, Scale=with_torch.ones(4))
    assert isinstance(y, with_torch.Tensor)
    np.testing.assert_allclose(y.numpy(), layer_norm(webgpu, BASE, "numpy"), atol=2e-6)
    out = with_torch.empty(3, 4)
    assert webgpu.run("LayerNormalization", X=x, Scale=with_torch.ones(4), out=out, backend=backend) is out
    with pytest.raises(ContractError, match="detach"):
        webgpu.run("LayerNormalization", X=x.requires_grad_(), Scale=with_torch.ones(4))


def test_torch_bfloat16(shared: Registry, with_torch: Any) -> None:
    x = with_torch.tensor([[1, 1.0078125, 1.015625, 1.0234375]], dtype=with_torch.bfloat16)
    y = shared.run("LayerNormalization", X=x, Scale=with_torch.ones(4, dtype=with_torch.bfloat16))
    assert y.dtype == with_torch.bfloat16
    assert y.float().tolist() == [[-1.2578125, -0.419921875, 0.419921875, 1.2578125]]
