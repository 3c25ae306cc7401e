"""The NumPy kernels against published vectors, closed forms and the float64 references."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import DTYPES, Array, call, check, meets
from vectors import Vector, load_vectors

from registry.dtypes import numpy_dtype
from registry.errors import ContractError
from registry.judging.accuracy import judge
from registry_numpy import (
    bias_add,
    blocks,
    halves,
    layer_normalization,
    normalize,
    skip_layer_normalization,
)
from registry_numpy.backend import NumpyBackend

BIAS_ADD, LN, SLN = bias_add, layer_normalization, skip_layer_normalization
OPS = {"SkipLayerNormalization": SLN, "LayerNormalization": LN, "BiasAdd": BIAS_ADD}
# Cases that a peer defines otherwise: float32 statistics for float64 tensors, the normalized value
# rounded to half before the scale.
KNOWN_DISAGREEMENTS = {
    "olc/LayerNormalizationUsesFloatStashForDoubleInput",
    "olc/LayerNormalizationRoundsNormalizedValueBeforeAffine/float16",
    "olc/LayerNormalizationRoundsNormalizedValueBeforeAffine/bfloat16",
}
N4 = [-1.341635420, -0.447211807, 0.447211807, 1.341635420]


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def use(count: int) -> None:
        monkeypatch.setenv(blocks.THREADS_VARIABLE, str(count))
        blocks.reset()

    yield use
    monkeypatch.undo()
    blocks.reset()


def normalized(x: Any, dtype: str = "float32", **tensors: Any) -> Array:
    """LayerNormalization of ``x`` with scale 1 unless given, Y as float64."""
    array = np.asarray(x, np.float64).astype(numpy_dtype(dtype))
    attrs = {name: tensors.pop(name) for name in ("axis", "epsilon") if name in tensors}
    axis = attrs.get("axis", -1)
    rest = {name: np.asarray(t, np.float64).astype(array.dtype) for name, t in tensors.items()}
    given_tensors = {"X": array, "Scale": np.ones(array.shape[axis:], array.dtype), **rest}
    check(LN, given_tensors, **attrs)
    return call(LN, given_tensors, **attrs)["Y"].astype(np.float64)


def skip_tensors(shape: tuple[int, ...], dtype: str, seed: int = 0, **options: bool) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"input": shape, "skip": shape, "gamma": shape[-1:]}
    shapes |= {name: shape[-1:] for name in ("beta", "bias") if options.get(name, True)}
    return {name: rng.normal(size=size).astype(numpy_dtype(dtype)) for name, size in shapes.items()}


# ---- published vectors


@pytest.mark.parametrize(
    ("op", "vector"),
    [
        # Cases to refuse, and mixed dtypes, are the contract's: no kernel sees them.
        pytest.param(op, vector, id=f"{name}-{vector.name}")
        for name, op in OPS.items()
        for vector in load_vectors(name)
        if not vector.expect_error and not vector.mixed
    ],
)
def test_vector(op: ModuleType, vector: Vector) -> None:
    assert meets(op, vector) is (vector.name not in KNOWN_DISAGREEMENTS)


# ---- numbers that went wrong elsewhere


@pytest.mark.parametrize(
    "row",
    [
        [40000, 40001, 40002, 40003],
        [80000, 80001, 80002, 80003],
        [1998.5, 1999.5, 2000.5, 2001.5],
        [1, 2, 3, 4],
    ],
)
def test_large_mean(row: list[float]) -> None:
    np.testing.assert_allclose(normalized([row])[0], N4, atol=2e-6)


def test_constant_rows() -> None:
    assert not normalized(np.full((1, 256), 1234.0)).any()
    for value in (10000.1, 0.1, 3e38, 1e-40):
        for hidden in (5, 768, 1000):
            x = np.full((2, hidden), value, np.float32)
            tensors = {"input": x, "skip": np.zeros_like(x), "gamma": np.ones(hidden, "f4")}
            check(SLN, tensors)
            assert not call(SLN, tensors)["output"].any()


@pytest.mark.parametrize(
    ("mean", "first", "last"),
    [
        (100, -1.341527716, None),
        (1000, -1.341507767, 1.344237183),
        (10000, -1.331333357, 1.331333357),
    ],
)
def test_mean_that_float32_cannot_hold(mean: int, first: float, last: float | None) -> None:
    x = (mean + np.arange(16) * 0.001).astype(np.float32)
    y = normalized(x[None])[0]
    assert y[0] == pytest.approx(first, abs=2e-6)
    assert last is None or y[15] == pytest.approx(last, abs=2e-6)


@pytest.mark.parametrize("hidden", [4, 33, 768, 1000, 4097])
@pytest.mark.parametrize("center", [0, 1, 100, 1e4, 1e6])
@pytest.mark.parametrize("spread", [1e-20, 1e-3, 1, 1e4, 1e18])
@pytest.mark.parametrize("epsilon", [0, 1e-12])
def test_center_and_spread(hidden: int, center: float, spread: float, epsilon: float) -> None:
    rng = np.random.default_rng(hidden)
    x = (center + spread * rng.uniform(-0.5, 0.5, (6, hidden))).astype(np.float32)
    x[0] = center
    x[0, 0] = np.nextafter(np.float32(center), np.float32(np.inf))
    x[1] = center + spread * np.where(np.arange(hidden) % 2, -0.5, 0.5)
    x[2, 0] = center + spread * hidden**0.5
    tensors = {"X": x, "Scale": np.ones(hidden, "f4")}
    check(LN, tensors, epsilon=epsilon)


@pytest.mark.parametrize("hidden", [2, 768, 4097, 100_003])
def test_sums_that_overflow_float32(hidden: int) -> None:
    x = np.where(np.arange(hidden) % 2, -3e38, 3e38).astype("f4")
    x = np.stack([x, np.full(hidden, 3e38, "f4"), np.arange(hidden, dtype="f4"), x * np.float32(1e-20)])
    check(LN, {"X": x, "Scale": np.ones(hidden, "f4")})


def test_half_squares_do_not_overflow() -> None:
    for x in ([500, -500, 500, -500], [65504, -65504, 65504, -65504]):
        np.testing.assert_array_equal(normalized([x], "float16"), [[1, -1, 1, -1]])
    shifted = normalized([[500, -500, 500, -500]], "float16", B=[7] * 4)
    np.testing.assert_array_equal(shifted, [[8, 6, 8, 6]])
    x = np.array([[65504, -65504, 65504, -65504]], np.float16)
    out = call(LN, {"X": x, "Scale": np.ones(4, np.float16)})
    assert float(out["InvStdDev"][0, 0]) == pytest.approx(1.526624328e-05, rel=1e-6)


def test_half_statistics_are_float32() -> None:
    tensors = {"X": np.array([[256, -256]], np.float16), "Scale": np.ones(2, np.float16)}
    out = call(LN, tensors, epsilon=0.0)
    assert out["Y"].tolist() == [[1, -1]] and out["Y"].dtype == np.float16
    assert out["Mean"].tolist() == [[0]] and out["InvStdDev"].tolist() == [[0.00390625]]


def test_half_sum_is_not_rounded_before_it_is_normalized() -> None:
    ones = np.ones(4, np.float16)
    x = np.array([[60000, -60000, 60000, -60000]], np.float16)
    out = call(SLN, {"input": x, "skip": x, "gamma": ones}, epsilon=1e-5)
    assert out["output"].tolist() == [[1, -1, 1, -1]]
    assert out["input_skip_bias_sum"].tolist() == [[np.inf, -np.inf, np.inf, -np.inf]]
    tensors = {
        "input": np.array([[1, 2, 3, 4]], np.float16),
        "skip": np.full((1, 4), 2048, np.float16),
        "gamma": ones,
        "bias": np.full(4, -2048, np.float16),
    }
    out = call(SLN, tensors, epsilon=1e-5)
    assert out["input_skip_bias_sum"].tolist() == [[1, 2, 3, 4]]
    np.testing.assert_allclose(out["output"][0].astype("f8"), N4, atol=1e-3)


def test_default_epsilon() -> None:
    x = np.array([[0, 0.001, 0.002, 0.003]], np.float32)
    out = call(SLN, {"input": x, "skip": x * 0, "gamma": np.ones(4, "f4")})
    right = [-1.34164027, -0.44721341, 0.44721346, 1.34164022]
    np.testing.assert_allclose(out["output"][0], right, atol=2e-6)
    out = call(LN, {"X": x, "Scale": np.ones(4, "f4")})
    np.testing.assert_allclose(out["Y"][0], [-0.4472136, -0.1490712, 0.1490712, 0.4472136], atol=2e-6)
    zeros = np.zeros((1, 4), np.float16)
    beta = np.array([1, 2, 3, 4], np.float16)
    tensors = {"input": zeros, "skip": zeros, "gamma": np.ones(4, np.float16), "beta": beta}
    assert call(SLN, tensors)["output"].tolist() == [[1, 2, 3, 4]]
    assert not normalized(np.zeros((1, 10)), "float16", epsilon=1e-12).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_and_infinity_stay_in_their_row(dtype: str) -> None:
    rows = [[1, 2, 3, 4], [1, np.nan, 3, 4], [1, np.inf, 3, 4], [0, 0, 0, 0], [1, 2, 3, 4]]
    y = normalized(rows, dtype)
    np.testing.assert_allclose(y[[0, 4]], [N4, N4], atol=1e-2)
    assert np.isnan(y[1:3]).all() and not y[3].any()


@pytest.mark.parametrize("epsilon", [0.0, 1e-12])
@pytest.mark.parametrize("value", [0.0, 0.1, 10000.1])
def test_no_clamp_hides_a_division_by_zero(epsilon: float, value: float) -> None:
    x = np.full((1, 12), value, np.float32)
    out = call(LN, {"X": x, "Scale": np.ones(12, "f4")}, epsilon=epsilon)
    assert np.isnan(out["Y"]).all() if epsilon == 0 else not out["Y"].any()
    check(LN, {"X": x, "Scale": np.ones(12, "f4")}, epsilon=epsilon)


@pytest.mark.parametrize("hidden", [33, 768, 1023, 4096])
@pytest.mark.parametrize("center", [0, 0.25, 0.99, 1.01, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_means_about_as_large_as_the_deviation(dtype: str, center: float, hidden: int) -> None:
    x = np.random.default_rng(hidden).standard_normal((300, hidden)) + center
    tensors = {"X": x.astype(numpy_dtype(dtype)), "Scale": np.ones(hidden, numpy_dtype(dtype))}
    check(LN, tensors)


def test_half_odd_size() -> None:
    x = np.arange(1, 10, dtype=np.float16).reshape(1, 3, 3)
    bias = np.array([0.5, 0.25, 0.125], np.float16)
    y = call(BIAS_ADD, {"X": x, "bias": bias, "skip": x})["Y"]
    assert y.tolist() == [[[2.5, 4.25, 6.125], [8.5, 10.25, 12.125], [14.5, 16.25, 18.125]]]
    np.testing.assert_allclose(
        normalized(np.arange(9).reshape(3, 3), "float16"), [[-1.225, 0, 1.225]] * 3, atol=1e-3
    )


def test_half_casts_are_numpys() -> None:
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    for half in (every, every[np.isfinite(every)]):
        single = np.empty(half.shape, np.float32)
        halves.widen(half, single)
        assert single.tobytes() == half.astype(np.float32).tobytes()
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 200_000, np.uint32)
    # The neighbourhood of every half number, middles between two included.
    near = every.astype(np.float32).view(np.uint32)[:, None] + np.arange(-1, 0x2002, 0xFFF, np.int32)
    some = bits.view(np.float32)
    barely = some[np.abs(some) < 2**17]  # the least that float16 does not hold is the largest
    for single in (some, near.astype(np.uint32).view(np.float32), barely):
        half = np.empty(single.shape, np.float16)
        with np.errstate(all="ignore"):
            halves.narrow(single, half)
            assert half.tobytes() == single.astype(np.float16).tobytes()


def test_bfloat16() -> None:
    y = normalized([[1, 1.0078125, 1.015625, 1.0234375]], "bfloat16")
    np.testing.assert_array_equal(y, [[-1.2578125, -0.419921875, 0.419921875, 1.2578125]])


# ---- shapes and options


def test_every_output_and_option() -> None:
    x = np.array([[1, 1, 1, 3]], np.float32)
    skip = np.array([[1, 1, 1, 3]], np.float32)
    gamma, beta = np.array([1, 2, 1, 2], "f4"), np.array([0.5, 0.5, -0.5, -0.5], "f4")
    bias = np.array([0, 1, 0, 1], "f4")
    tensors = {"input": x, "skip": skip, "gamma": gamma, "beta": beta, "bias": bias}
    out = call(SLN, tensors)
    right = [-0.227606875, 0.014928750, -1.227606875, 2.895498751]
    np.testing.assert_allclose(out["output"][0], right, atol=2e-6)
    assert out["mean"].tolist() == [[3.5]]
    assert float(out["inv_std_var"][0, 0]) == pytest.approx(0.485071250, rel=1e-6)
    assert out["input_skip_bias_sum"].tolist() == [[2, 3, 2, 7]]
    for asked in ("output", "mean", "inv_std_var", "input_skip_bias_sum"):
        alone = call(SLN, tensors, (asked,))
        assert list(alone) == [asked]
        np.testing.assert_array_equal(alone[asked], out[asked])
    del tensors["beta"]
    y = call(SLN, tensors)["output"][0]
    np.testing.assert_allclose(y, [-0.727606875, -0.48507125, -0.727606875, 3.395498751], atol=2e-6)
    tensors = {"input": x, "skip": skip, "gamma": gamma, "beta": beta}
    out = call(SLN, tensors)
    right = [-0.077350269, -0.654700538, -1.077350269, 2.964101615]
    np.testing.assert_allclose(out["output"][0], right, atol=2e-6)
    assert out["input_skip_bias_sum"].tolist() == [[2, 2, 2, 6]]


def test_skip_broadcasts_over_the_batch() -> None:
    x = (np.arange(16) % 5).reshape(2, 2, 4).astype("f4")
    skip = np.array([[0, 1, 0, 1], [2, 0, 0, 1]], "f4")
    for form in (skip, skip[None], np.repeat(skip[None], 2, axis=0)):
        tensors = {"input": x, "skip": form, "gamma": np.ones(4, "f4")}
        check(SLN, tensors, epsilon=1e-5)
        out = call(SLN, tensors, epsilon=1e-5)
        assert out["input_skip_bias_sum"].reshape(4, 4).tolist() == [
            [0, 2, 2, 4],
            [6, 0, 1, 3],
            [3, 5, 0, 2],
            [4, 3, 4, 1],
        ]
        right = [
            [0.277349671, 1.386748357, -1.386748357, -0.277349671],
            [0.816493859, 0, 0.816493859, -1.632987719],
        ]
        np.testing.assert_allclose(out["output"][1], right, atol=2e-6)


@pytest.mark.parametrize("shape", [(), (1,), (4,), (3, 1), (3, 4), (1, 3, 4), (2, 1, 4), (2, 3, 4)])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scale_broadcasts_to_the_values(shape: tuple[int, ...], axis: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 3, 4)).astype("f4")
    scale, shift = rng.normal(size=shape).astype("f4"), rng.normal(size=shape).astype("f4")
    check(LN, {"X": x, "Scale": scale, "B": shift}, axis=axis)


def test_scale_by_row() -> None:
    y = normalized(np.arange(12).reshape(2, 2, 3), Scale=[[1, 1, 1], [10, 10, 10]])
    one = [-1.224735686, 0, 1.224735686]
    np.testing.assert_allclose(y, [[one, np.multiply(one, 10)]] * 2, atol=2e-5)
    y = normalized(np.arange(8).reshape(1, 2, 2, 2), axis=1, Scale=np.reshape([1, 2], (1, 2, 1, 1)))
    right = [
        -1.527523777,
        -1.091088412,
        -0.654653047,
        -0.218217682,
        0.436435365,
        1.309306094,
        2.182176824,
        3.055047554,
    ]
    np.testing.assert_allclose(y.ravel(), right, atol=4e-6)


def test_axis() -> None:
    x = np.arange(24).reshape(2, 3, 4)
    for axis, length, first, last, mean in (
        (1, 12, -1.593254345, 19.11905214, [5.5, 17.5]),
        (0, 24, -1.661324599, 39.87179038, [11.5]),
    ):
        scale = np.arange(1, length + 1).reshape(x.shape[axis:])
        same = [normalized(x, axis=a, Scale=scale) for a in (axis, axis - 3)]
        np.testing.assert_array_equal(*same)
        assert same[0].reshape(-1, length)[-1, 0] == pytest.approx(first, abs=2e-6)
        assert same[0].ravel()[-1] == pytest.approx(last, rel=2e-6)
        out = call(LN, {"X": x.astype("f4"), "Scale": scale.astype("f4")}, axis=axis)
        assert out["Mean"].ravel().tolist() == mean and out["Mean"].ndim == 3


def test_empty() -> None:
    for shape in ((0, 2, 4), (2, 0, 4)):
        check(SLN, skip_tensors(shape, "float32"))
        x = np.zeros(shape, "f4")
        check(BIAS_ADD, {"X": x, "bias": np.zeros(4, "f4"), "skip": x})
    check(
        BIAS_ADD,
        {
            "X": np.zeros((2, 3, 0), "f4"),
            "bias": np.zeros(0, "f4"),
            "skip": np.zeros((2, 3, 0), "f4"),
        },
    )
    for shape in ((0, 4), (1, 0, 10)):
        tensors = {"X": np.zeros(shape, "f4"), "Scale": np.ones(shape[-1], "f4")}
        assert check(LN, tensors)["Y"].compared == 0


def test_many_rows() -> None:
    x = (np.arange(65537)[:, None] % 5 + np.arange(4)).astype("f4")
    y = call(LN, {"X": x, "Scale": np.ones(4, "f4")})["Y"]
    np.testing.assert_allclose(y, np.broadcast_to(N4, y.shape), atol=2e-6)
    for rows in (1048577, 4194241):
        x = np.zeros((1, rows, 4), np.float16)
        bias = np.array([1, 2, 3, 4], np.float16)
        y = call(BIAS_ADD, {"X": x, "bias": bias, "skip": np.broadcast_to(np.float16(1), x.shape)})["Y"]
        assert (y == np.array([2, 3, 4, 5], np.float16)).all()


# ---- accuracy over dtypes, sizes and options


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden", [1, 2, 3, 7, 8, 17, 64, 255, 257, 768, 1000, 1024, 4096, 4097])
def test_skip_layer_normalization(dtype: str, hidden: int) -> None:
    for seed, (beta, bias) in enumerate(((True, True), (True, False), (False, True), (False, False))):
        for shape in ((3, 5, hidden), (7, hidden)):
            tensors = skip_tensors(shape, dtype, seed, beta=beta, bias=bias)
            check(SLN, tensors, epsilon=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_normalization_and_bias_add(dtype: str) -> None:
    rng = np.random.default_rng(5)
    kind = numpy_dtype(dtype)
    for shape in ((2, 3, 4, 5), (1, 1), (6,), (3, 130, 31)):
        x = (rng.normal(size=shape) * 3 + 1).astype(kind)
        for axis in range(len(shape)):
            scale, shift = (rng.normal(size=shape[axis:]).astype(kind) for _ in range(2))
            check(LN, {"X": x, "Scale": scale, "B": shift}, axis=axis)
            check(LN, {"X": x, "Scale": scale}, axis=axis - len(shape))
        if len(shape) == 3:
            check(BIAS_ADD, {"X": x, "bias": x[0, 0], "skip": x[:, ::-1]})


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_longer_than_scratch(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalize, "LONGEST", 50)
    monkeypatch.setattr(normalize, "BLOCK", 16)
    tensors = skip_tensors((2, 3, 103), dtype)
    check(SLN, tensors)
    check(SLN, {**tensors, "skip": tensors["skip"][1]})
    x = (10000 + 0.01 * np.random.default_rng(0).normal(size=(3, 9, 8))).astype(numpy_dtype(dtype))
    check(LN, {"X": x, "Scale": x[0]}, axis=1)
    check(
        LN,
        {"X": x.transpose(2, 1, 0), "Scale": x[0, 0, 0], "B": x[0, 0, :3]},
        axis=0,
    )
    x[0, 0, 0] = np.inf
    check(LN, {"X": x, "Scale": x[1]}, axis=1)
    check(BIAS_ADD, {"X": x, "bias": x[1, 1], "skip": x})


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_layouts(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    order = data.draw(st.permutations(range(len(shape))))
    step = data.draw(st.sampled_from([1, -1, 2]))
    memory = rng.normal(size=[shape[i] * abs(step) for i in order]).astype(numpy_dtype(dtype))
    x = memory[(slice(None, None, step),) * len(shape)].transpose(np.argsort(order))
    assert x.shape == shape
    keep = data.draw(st.integers(0, len(shape)))
    sizes = [data.draw(st.sampled_from([1, size])) for size in shape[len(shape) - keep :]]
    tensors = {"X": x, "Scale": rng.normal(size=sizes).astype(x.dtype), "B": x}
    block = data.draw(st.sampled_from([1, 5, 1 << 18]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normalize, "BLOCK", block)
        check(LN, tensors, axis=axis)


# ---- a row's bits are its own


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden", [*range(1, 34), 255, 257, 768, 1000, 4096, 4097])
def test_bits_do_not_depend_on_batch_block_or_layout(
    dtype: str, hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = skip_tensors((11, hidden), dtype, hidden)
    tensors["input"][3] += np.asarray(1000, tensors["input"].dtype)  # centred twice
    tensors["input"][5] *= np.asarray(1e30 if dtype != "float16" else 1, tensors["input"].dtype)
    right = call(SLN, tensors)
    rows = ("input", "skip")

    def same(changed: dict[str, Array], which: Any) -> None:
        got = call(SLN, changed)
        for name in right:
            assert got[name].tobytes() == right[name][which].tobytes(), name

    for which in (slice(None, -1), slice(5, 6), slice(3, 9)):
        same({**tensors, **{name: tensors[name][which] for name in rows}}, which)
    wide = {name: np.repeat(tensors[name], 3, axis=1)[:, ::3] for name in rows}
    same({**tensors, **wide}, slice(None))
    same({**tensors, **{name: np.asfortranarray(tensors[name]) for name in rows}}, slice(None))
    monkeypatch.setattr(normalize, "BLOCK", 2 * hidden)
    same(tensors, slice(None))


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_do_not_depend_on_threads(dtype: str, threads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalize, "BLOCK", 1 << 16)
    tensors = skip_tensors((5, 211, 768), dtype)
    tensors["skip"] = tensors["skip"][0]
    threads(1)
    alone = call(SLN, tensors)
    for count in (2, 3, 8):
        threads(count)
        assert blocks.thread_count() == count
        for name, array in call(SLN, tensors).items():
            assert array.tobytes() == alone[name].tobytes()


def test_a_sum_may_be_added_in_another_order() -> None:
    x, bias, skip = (np.full((1, 1, 1), value, np.float32) for value in (0.3, 2.0**20, -(2.0**20)))
    tensors = {"X": x, "bias": bias[0, 0], "skip": skip}
    other = x + (bias + skip)
    assert other != call(BIAS_ADD, tensors)["Y"]
    assert judge(other, bias_add.reference(tensors, {})["Y"], "float32").ok


# ---- memory and threads


@pytest.mark.parametrize("block", [normalize.BLOCK, 130])
@pytest.mark.parametrize("dtype", DTYPES)
def test_outputs_may_be_views(dtype: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalize, "BLOCK", block)
    tensors = skip_tensors((3, 4, 65), dtype)
    tensors = {name: array.copy() for name, array in tensors.items()}
    for array in tensors.values():
        array.flags.writeable = False
    right = call(SLN, tensors)
    frames = {
        name: np.full((7, array.shape[1], 2 * array.shape[2]), 9, array.dtype)
        for name, array in right.items()
    }
    views = {name: frame[1:7:2, :, ::2] for name, frame in frames.items()}
    SLN.blocked(tensors, {}, views)
    for name, view in views.items():
        assert view.tobytes() == right[name].tobytes()
        frame = frames[name].astype(np.float64)
        assert (frame[::2] == 9).all() and (frame[:, :, 1::2] == 9).all()


def test_dtypes_in_turns() -> None:
    """What a thread keeps from a call in one dtype does not narrow the next one in another."""
    draw = np.random.default_rng(0).standard_normal((4, 65))
    for dtype in ("float16", "float64", "float16"):
        x = draw.astype(dtype)
        y = np.empty((4, 130), dtype)[:, ::2]  # no memory to work in
        layer_normalization.blocked({"X": x, "Scale": np.ones(65, dtype)}, {}, {"Y": y})
        right = layer_normalization.reference({"X": x, "Scale": np.ones(65, dtype)}, {})["Y"]
        assert judge(y, right, dtype).ok


def test_views_as_inputs() -> None:
    base = np.array([[0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0]], np.float32)
    right = [
        [-0.577334874, -0.577334874, 1.732004621, -0.577334874],
        [-0.577334874, 1.732004621, -0.577334874, -0.577334874],
    ]
    np.testing.assert_allclose(normalized(base[1:3]), right, atol=2e-6)
    for view in (
        base[:, ::-1],
        base.T,
        np.broadcast_to(base[0], (5, 4)),
        base[::2],
        base[::-1, 1:],
    ):
        scale = np.arange(1, 9, dtype="f4")[: 2 * view.shape[1] : 2]
        scale = np.resize(scale, 2 * view.shape[1])[::2]
        got = call(LN, {"X": view, "Scale": scale})
        copied = call(LN, {"X": view.copy(), "Scale": scale.copy()})
        for name in got:
            np.testing.assert_array_equal(got[name], copied[name])


def test_calls_may_nest_and_run_side_by_side(threads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    threads(3)
    monkeypatch.setattr(normalize, "BLOCK", 1 << 17)
    tensors = skip_tensors((2, 600, 512), "float32")
    right = call(SLN, tensors)["output"]
    wrong: list[str] = []

    def again(_: object) -> None:
        if not np.array_equal(call(SLN, tensors)["output"], right):
            wrong.append("differs")

    blocks.run(again, [(0,), (1,), (2,), (3,)], 512)
    callers = [threading.Thread(target=again, args=(None,)) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


@pytest.mark.parametrize("hidden", [300, 768, 1024, 1280, 2560, 4096])
def test_threads_share_blocks_whose_dot_products_release_the_lock(
    hidden: int, threads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy keeps the interpreter's lock while it makes 500 of them or fewer."""
    threads(2)
    x = np.ones((2 * normalize.BLOCK // hidden + 1, hidden), np.float32)
    dot, made = np.vecdot, []

    def noted(first: Array, second: Array) -> Array:
        result: Array = dot(first, second)
        made.append((result.size, first.shape[-1]))
        return result

    monkeypatch.setattr(np, "vecdot", noted)
    assert (call(LN, {"X": x, "Scale": x[0]})["Y"] == 0).all()
    assert len(made) >= 4
    assert all(count > 500 for count, length in made if length > 8)


def test_a_failure_in_a_thread_is_raised(threads: Any) -> None:
    threads(2)
    barrier = threading.Barrier(2, timeout=5)
    caller = threading.get_ident()

    def work(index: blocks.Index) -> None:
        barrier.wait()
        if threading.get_ident() != caller:
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        blocks.run(work, [(0,), (1,)], 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_makes_its_own_threads() -> None:
    code = """
import os, sys, threading
import numpy as np
from registry_numpy import bias_add
x = np.ones((4, 512, 1024), np.float32)
def run():
    y = np.empty_like(x)
    bias_add.blocked({"X": x, "bias": x[0, 0], "skip": x}, {}, {"Y": y})
    return bool((y == 3).all())
assert run()
child = os.fork()
if not child:
    os._exit(0 if run() and threading.active_count() > 1 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment[blocks.THREADS_VARIABLE] = "3"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5"])
def test_thread_count_is_checked(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(blocks.THREADS_VARIABLE, value)
    blocks.reset()
    with pytest.raises(ContractError, match=blocks.THREADS_VARIABLE):
        blocks.thread_count()
    here = NumpyBackend().probe({})
    assert not here.available
    assert (here.found, here.needed) == (f"{blocks.THREADS_VARIABLE} is {value!r}", blocks.THREADS_NEEDED)
    monkeypatch.undo()
    blocks.reset()
    assert blocks.thread_count() >= 1


@pytest.mark.parametrize("count", [1, 2, 3, 5, 12, 24, 100])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3, 4), (3, 1, 5), (0, 4)])
def test_blocks_cover_every_row_once(shape: tuple[int, ...], count: int) -> None:
    seen = np.zeros(shape, int)
    for index in blocks.split(shape, count):
        assert len(index) == len(shape) and 0 < seen[index].size <= count
        seen[index] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_tolerance_of_half_types_is_not_finer_than_float32(dtype: str) -> None:
    """Near zero their steps are, and what is computed in float32 is several of them off: float16's only
    where a scale enlarges the errors."""
    x = np.random.default_rng(0).normal(size=(2, 8)).astype(numpy_dtype(dtype))
    for scale, floor in ((0.5, 0 if dtype == "float16" else 1), (3, 3)):
        tensors = {"X": x, "Scale": np.full(8, scale, x.dtype)}
        assert LN.reference(tensors, {})["Y"].floor == floor
