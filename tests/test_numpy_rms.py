"""The NumPy kernels that divide by the root mean square, against published cases and float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels import DTYPES, Array, call, check, meets
from vectors import Vector, load_vectors

from registry.dtypes import numpy_dtype
from registry_numpy import (
    blocks,
    normalize,
    rms_normalization,
    simplified_layer_normalization,
    skip_simplified_layer_normalization,
)
from registry_numpy.backend import KERNELS

RMS, SIMPLE, SKIP = (
    rms_normalization,
    simplified_layer_normalization,
    skip_simplified_layer_normalization,
)
R4 = [0.365148251, 0.730296503, 1.095444754, 1.460593005]  # 1, 2, 3, 4 with epsilon 1e-5


def normalized(x: Any, dtype: str = "float32", scale: Any = None, **attrs: Any) -> Array:
    """Y of the two ops without a sum, which have to agree to the bit, as float64."""
    array = np.asarray(x, np.float64).astype(numpy_dtype(dtype))
    ones = np.ones(array.shape[attrs.get("axis", -1) :])
    factors = np.asarray(ones if scale is None else scale, np.float64).astype(array.dtype)
    tensors = {"X": array, "scale": factors}
    for op in (RMS, SIMPLE):
        check(op, tensors, **attrs)
    one, two = (call(op, tensors, **attrs)["Y"] for op in (RMS, SIMPLE))
    assert one.tobytes() == two.tobytes()
    return one.astype(np.float64)


def skip_tensors(shape: tuple[int, ...], dtype: str, bias: bool = True) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = {"input": shape, "skip": shape, "gamma": shape[-1:]} | ({"bias": shape[-1:]} if bias else {})
    return {name: rng.normal(0.5, 1.5, size).astype(numpy_dtype(dtype)) for name, size in shapes.items()}


def test_the_backend_knows_the_ops() -> None:
    for op in (RMS, SIMPLE, SKIP):
        assert KERNELS[op.OP].blocked is op.blocked and KERNELS[op.OP].reference is op.reference


# Published cases


@pytest.mark.parametrize(
    "vector",
    [
        # Cases to refuse, and mixed dtypes, are the contract's: no kernel sees them.
        pytest.param(vector, id=vector.name)
        for vector in load_vectors("SkipSimplifiedLayerNormalization")
        if not vector.expect_error and not vector.mixed
    ],
)
def test_vector(vector: Vector) -> None:
    assert meets(SKIP, vector)


# Numbers that went wrong elsewhere


def test_closed_form() -> None:
    np.testing.assert_allclose(normalized([[1, 2, 3, 4]])[0], R4, atol=2e-6)
    tensors = {"X": np.array([[3, -4]], np.float32), "scale": np.array([1, 2], np.float32)}
    out = call(SIMPLE, tensors, epsilon=0.0)
    np.testing.assert_allclose(out["Y"], [[0.848528137, -2.262741700]], rtol=2e-6)
    assert float(out["inv_std_var"][0, 0]) == pytest.approx(0.282842712, rel=1e-6)


def test_half_squares_do_not_overflow() -> None:
    assert normalized([[256, 256]], "float16", epsilon=0.0).tolist() == [[1, 1]]
    for size in (200, 30000, 65504):
        x = np.where(np.arange(2048) % 2, -size, size)[None].astype(np.float16)
        tensors = {"input": x, "skip": x * 0, "gamma": np.ones(2048, np.float16)}
        check(SKIP, tensors, epsilon=1e-5)
        np.testing.assert_array_equal(call(SKIP, tensors, epsilon=1e-5)["output"], np.sign(x))
        np.testing.assert_array_equal(normalized(x, "float16"), np.sign(x))


def test_half_sum_is_not_rounded_before_it_is_normalized() -> None:
    ones = np.ones(4, np.float16)
    x = np.array([[60000, -60000, 60000, -60000]], np.float16)
    out = call(SKIP, {"input": x, "skip": x, "gamma": ones}, epsilon=1e-5)
    assert out["output"].tolist() == [[1, -1, 1, -1]]
    assert out["input_skip_bias_sum"].tolist() == [[np.inf, -np.inf, np.inf, -np.inf]]
    tensors = {
        "input": np.array([[1, 2, 3, 4]], np.float16),
        "skip": np.full((1, 4), 2048, np.float16),
        "gamma": ones,
        "bias": np.full(4, -2048, np.float16),
    }
    out = call(SKIP, tensors, epsilon=1e-5)
    assert out["input_skip_bias_sum"].tolist() == [[1, 2, 3, 4]]
    np.testing.assert_allclose(out["output"][0].astype("f8"), R4, atol=1e-3)


def test_default_epsilon() -> None:
    x = np.array([[0, 0.001, 0.002, 0.003]], np.float32)
    sharp = [0, 0.534522242, 1.069044484, 1.603566726]
    blunt = [0, 0.272165527, 0.544331054, 0.816496581]
    out = call(SKIP, {"input": x, "skip": x * 0, "gamma": np.ones(4, "f4")})
    np.testing.assert_allclose(out["output"][0], sharp, atol=2e-6)
    np.testing.assert_allclose(normalized(x)[0], blunt, atol=2e-6)
    for epsilon, first in ((1e-12, sharp), (1e-5, blunt)):
        np.testing.assert_allclose(normalized(x, epsilon=epsilon)[0], first, atol=2e-6)
    for epsilon in (1e-5, 1e-12):
        assert not normalized(np.zeros((1, 10)), "float16", epsilon=epsilon).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_and_infinity_stay_in_their_row(dtype: str) -> None:
    y = normalized([[1, 2, 3, 4], [1, np.nan, 3, 4], [1, np.inf, 3, 4], [0, 0, 0, 0], [1, 2, 3, 4]], dtype)
    np.testing.assert_allclose(y[[0, 4]], [R4, R4], atol=1e-2)
    assert np.isnan(y[1]).all() and not y[3].any()
    np.testing.assert_array_equal(y[2], [0, np.nan, 0, 0])


def test_no_clamp_hides_a_division_by_zero() -> None:
    assert np.isnan(normalized(np.zeros((1, 12)), epsilon=0.0)).all()


# Accuracy


@pytest.mark.parametrize("hidden", [1, 4, 33, 768, 1000, 4097])
@pytest.mark.parametrize("size", [1e-40, 1e-30, 1e-20, 1e-3, 1, 1e4, 1e18, 1e19, 3e38])
@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 1e-5])
def test_size_of_the_values(hidden: int, size: float, epsilon: float) -> None:
    rng = np.random.default_rng(hidden)
    x = (size * rng.uniform(-1, 1, (5, hidden))).astype(np.float32)
    x[0] = size
    x[1, 1:] = 0
    x[2, 0] = min(size * hidden**0.5, 3e38)
    tensors = {"X": x, "scale": rng.normal(size=hidden).astype(np.float32)}
    check(RMS, tensors, epsilon=epsilon)
    check(SIMPLE, tensors, epsilon=epsilon)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 1), (65, 129), (2, 5, 768), (2, 4097), (3, 100_003)])
@pytest.mark.parametrize("bias", [False, True])
def test_sum(dtype: str, shape: tuple[int, ...], bias: bool) -> None:
    tensors = skip_tensors(shape, dtype, bias)
    verdicts = check(SKIP, tensors)
    assert all(verdict.compared for verdict in verdicts.values())
    assert not call(SKIP, tensors)["mean"].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_longer_than_scratch_memory(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalize, "BLOCK", 64)
    monkeypatch.setattr(normalize, "LONGEST", 100)
    tensors = skip_tensors((3, 331), dtype)
    tensors["input"][1] *= np.asarray(1e30 if dtype != "float16" else 100, tensors["input"].dtype)
    check(SKIP, tensors)
    x, scale = tensors["input"].reshape(3, 1, 331), tensors["gamma"]
    check(SIMPLE, {"X": x, "scale": scale}, axis=1)
    check(RMS, {"X": x, "scale": scale}, axis=-2)


# Shapes and options


def test_every_output_alone() -> None:
    tensors = skip_tensors((2, 3, 33), "float16")
    out = call(SKIP, tensors)
    for asked in out:
        alone = call(SKIP, tensors, (asked,))
        assert list(alone) == [asked] and alone[asked].tobytes() == out[asked].tobytes()
    tensors = {"X": tensors["input"], "scale": tensors["gamma"]}
    assert call(SIMPLE, tensors, ("inv_std_var",))["inv_std_var"].shape == (2, 3, 1)


def test_bias_is_the_fourth_input_and_part_of_the_sum() -> None:
    x = np.array([[1, 1, 1, 3]], np.float32)
    tensors = {"input": x, "skip": x, "gamma": np.array([1, 2, 1, 2], "f4")}
    tensors["bias"] = np.array([0, 1, 0, 1], "f4")
    out = call(SKIP, tensors)
    assert out["input_skip_bias_sum"].tolist() == [[2, 3, 2, 7]]
    assert float(out["inv_std_var"][0, 0]) == pytest.approx(0.246182982, rel=1e-6)
    np.testing.assert_allclose(
        out["output"][0], [0.492365964, 1.477097892, 0.492365964, 3.446561749], atol=2e-6
    )


@pytest.mark.parametrize("shape", [(), (1,), (4,), (3, 1), (3, 4), (1, 3, 4), (2, 1, 4), (2, 3, 4)])
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_scale_broadcasts_to_the_values(shape: tuple[int, ...], axis: int) -> None:
    rng = np.random.default_rng(1)
    tensors = {"X": rng.normal(size=(2, 3, 4)).astype("f4"), "scale": rng.normal(size=shape).astype("f4")}
    check(RMS, tensors, axis=axis)
    check(SIMPLE, tensors, axis=axis)
    same = call(SIMPLE, tensors, axis=axis - 3 if axis >= 0 else axis + 3)
    for name, array in call(SIMPLE, tensors, axis=axis).items():
        assert array.tobytes() == same[name].tobytes() and array.shape == same[name].shape


def test_skip_broadcasts_over_the_batch() -> None:
    tensors = skip_tensors((2, 3, 8), "bfloat16")
    tensors["skip"] = np.repeat(tensors["skip"][:1], 2, axis=0)
    right = call(SKIP, tensors)
    for skip in (tensors["skip"][0], tensors["skip"][:1]):
        check(SKIP, {**tensors, "skip": skip})
        for name, array in call(SKIP, {**tensors, "skip": skip}).items():
            assert array.tobytes() == right[name].tobytes()


def test_empty() -> None:
    for shape in ((0, 4), (2, 0, 4)):
        assert check(SKIP, skip_tensors(shape, "float32"))["output"].compared == 0
        for op in (RMS, SIMPLE):
            check(op, {"X": np.zeros(shape, "f4"), "scale": np.ones(4, "f4")})


# A row's bits are its own


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden", [1, 2, 3, 7, 16, 33, 255, 768, 1000, 4097])
def test_bits_do_not_depend_on_batch_block_or_layout(
    dtype: str, hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = skip_tensors((11, hidden), dtype)
    tensors["input"][5] *= np.asarray(1e30 if dtype != "float16" else 1, tensors["input"].dtype)
    tensors["input"][6] = tensors["skip"][6] = 0
    right = call(SKIP, tensors)
    rows = ("input", "skip")

    def same(changed: dict[str, Array], which: Any) -> None:
        got = call(SKIP, changed)
        for name in right:
            assert got[name].tobytes() == right[name][which].tobytes(), name

    for which in (slice(None, -1), slice(5, 6), slice(3, 9)):
        same({**tensors, **{name: tensors[name][which] for name in rows}}, which)
    same({**tensors, **{name: np.repeat(tensors[name], 3, axis=1)[:, ::3] for name in rows}}, slice(None))
    same({**tensors, **{name: np.asfortranarray(tensors[name]) for name in rows}}, slice(None))
    monkeypatch.setattr(normalize, "BLOCK", 2 * hidden)
    same(tensors, slice(None))


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_do_not_depend_on_threads(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalize, "BLOCK", 1 << 16)
    tensors = skip_tensors((5, 211, 768), dtype)
    found = []
    try:
        for count in ("1", "2", "3"):
            monkeypatch.setenv(blocks.THREADS_VARIABLE, count)
            blocks.reset()
            found.append({name: array.tobytes() for name, array in call(SKIP, tensors).items()})
    finally:
        monkeypatch.undo()
        blocks.reset()
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("dtype", DTYPES)
def test_outputs_may_be_views_and_inputs_read_only(dtype: str) -> None:
    tensors = skip_tensors((3, 4, 65), dtype)
    for array in tensors.values():
        array.flags.writeable = False
    right = call(SKIP, tensors)
    frames = {
        name: np.full((7, array.shape[1], 2 * array.shape[2]), 9, array.dtype)
        for name, array in right.items()
    }
    views = {name: frame[1:7:2, :, ::2] for name, frame in frames.items()}
    SKIP.blocked(tensors, {}, views)
    for name, view in views.items():
        assert view.tobytes() == right[name].tobytes()
        frame = frames[name].astype(np.float64)
        assert (frame[::2] == 9).all() and (frame[:, :, 1::2] == 9).all()
    plain = {"X": tensors["input"], "scale": tensors["gamma"]}
    before = plain["X"].tobytes()
    call(SIMPLE, plain)
    assert plain["X"].tobytes() == before
