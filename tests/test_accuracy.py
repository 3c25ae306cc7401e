"""The judge: it has to pass what is right and, above all, to fail what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.dtypes import numpy_dtype
from registry.judging.accuracy import Expected, judge, judge_pair, round_to, ulps

DTYPES = ("float16", "bfloat16", "float32", "float64")
LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}


def array(values: Any, dtype: str = "float32") -> npt.NDArray[Any]:
    return np.array(values, np.float64).astype(numpy_dtype(dtype))


def expected(values: Any, magnitude: Any = None, floor: float = 0.0) -> Expected:
    value = np.array(values, np.float64)
    size = np.abs(value) if magnitude is None else np.array(magnitude, np.float64)
    return Expected(value, size, np.asarray(floor))


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_passes(dtype: str) -> None:
    verdict = judge(array([1, 2, -3], dtype), expected([1, 2, -3]), dtype)
    assert verdict.ok and verdict.reason is None
    assert (verdict.compared, verdict.max_abs, verdict.max_ulp, verdict.worst) == (3, 0, 0, None)
    assert verdict.share == 0


def test_share_of_the_tolerance() -> None:
    for off, share in ((1e-6, 0.5), (4e-6, 2), (np.nan, np.inf)):
        verdict = judge(array([0, off]), expected([0, 0], floor=1), "float32")
        assert verdict.share == pytest.approx(share, rel=1e-3) and verdict.ok == (share <= 1)


def test_shapes_are_not_broadcast() -> None:
    assert not judge_pair(np.ones((1, 4), "f4"), np.ones((3, 4), "f4")).ok
    assert not judge(np.ones((1, 4), "f4"), expected(np.ones((3, 4))), "float32").ok
    verdict = judge_pair(np.ones(0, "f4"), np.ones(1, "f4"))
    assert not verdict.ok and verdict.reason == "shape [0], expected [1]"


def test_empty_passes_and_says_so() -> None:
    for verdict in (judge_pair(array([]), array([])), judge(array([]), expected([]), "float32")):
        assert verdict.ok and verdict.compared == 0 and verdict.note == "0 elements compared"


def test_nan() -> None:
    both = judge_pair(array([np.nan, 1]), array([np.nan, 1]))
    assert both.ok and (both.nan_matching, both.compared) == (1, 1)
    for pair in (([np.nan], [0]), ([0], [np.nan]), ([np.nan], [np.inf])):
        verdict = judge_pair(array(pair[0]), array(pair[1]))
        assert not verdict.ok and verdict.worst == (0,)
        for dtype in DTYPES:
            assert not judge(array(pair[0], dtype), expected(pair[1]), dtype).ok
    found = judge(array([1, np.nan]), expected([1, 2]), "float32")
    assert (found.nan_actual, found.nan_expected, found.nan_matching) == (1, 0, 0)
    assert found.worst == (1,) and found.worst_expected == 2
    assert found.reason is not None and "NaN" in found.reason


def test_infinity() -> None:
    same = judge_pair(array([np.inf, -np.inf]), array([np.inf, -np.inf]))
    assert same.ok and same.inf_matching == 2
    assert not judge_pair(array([np.inf]), array([-np.inf])).ok
    assert not judge_pair(array([np.inf], "float16"), array([65504], "float16")).ok
    assert not judge_pair(array([65504], "float16"), array([np.inf], "float16")).ok
    for dtype in DTYPES:
        assert judge(array([np.inf], dtype), expected([np.inf]), dtype).ok
        assert not judge(array([np.inf], dtype), expected([1]), dtype).ok
        assert not judge(array([1], dtype), expected([np.inf]), dtype).ok
        assert not judge(array([-np.inf], dtype), expected([np.inf]), dtype).ok


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_infinity_is_one_step_above_the_largest_half(dtype: str) -> None:
    top = LARGEST[dtype]
    below = float(np.nextafter(array(top, dtype), array(0, dtype)).astype(np.float64))
    assert judge(array([np.inf], dtype), expected([top]), dtype).ok
    assert judge(array([top], dtype), expected([np.inf]), dtype).ok
    assert judge(array([top], dtype), expected([top * 1.4]), dtype).ok
    assert not judge(array([np.inf], dtype), expected([below]), dtype).ok
    assert not judge(array([below], dtype), expected([np.inf]), dtype).ok


def test_float32_overflow_is_infinity() -> None:
    top = LARGEST["float32"]
    assert judge(array([np.inf]), expected([1e39]), "float32").ok
    assert not judge(array([top]), expected([1e39]), "float32").ok
    assert not judge(array([np.inf]), expected([top]), "float32").ok


def test_another_dtype_fails() -> None:
    half, single = array([1, 2], "float16"), array([1, 2])
    for verdict in (judge_pair(half, single), judge(half, expected([1, 2]), "float32")):
        assert not verdict.ok and verdict.reason == "dtype float16, expected float32"


def test_quietly_zero_variance_is_caught() -> None:
    """A variance that overflowed leaves only the shift: finite, and wrong."""
    wrong = array([[7, 7, 7, 7]], "float16")
    assert not judge(wrong, expected([[8, 6, 8, 6]]), "float16").ok
    assert not judge_pair(wrong, array([[8, 6, 8, 6]], "float16")).ok


@pytest.mark.parametrize(
    ("error", "magnitude", "floor", "ok"),
    [
        (1.9e-6, 0, 1, True),
        (2.2e-6, 0, 1, False),
        (5.9e-6, 2, 1, True),
        (6.4e-6, 2, 1, False),
        (1e-7, 0, 0, False),
    ],
)
def test_float32_tolerance(error: float, magnitude: float, floor: float, ok: bool) -> None:
    verdict = judge(array([0.25 + error]), expected([0.25], [magnitude], floor), "float32")
    assert verdict.ok is ok
    assert verdict.max_abs == pytest.approx(error, rel=0.02, abs=2e-8)


def test_two_results_may_each_be_off() -> None:
    for error, ok in ((3e-12, True), (5e-12, False)):  # twice 1e-12 times the floor and the magnitude
        assert judge_pair(np.array([1 + error]), np.ones(1)).ok is ok


def test_a_tolerance_that_is_no_number_admits_nothing() -> None:
    nan = np.full(1, np.nan)
    for magnitude, floor in ((nan, np.ones(1)), (np.ones(1), nan)):
        assert not judge(array([2]), Expected(np.ones(1), magnitude, floor), "float32").ok


def test_float64_tolerance() -> None:
    assert judge(array([1 + 1.9e-12], "float64"), expected([1], [1], 1), "float64").ok
    assert not judge(array([1 + 2.1e-12], "float64"), expected([1], [1], 1), "float64").ok


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_tolerance(dtype: str) -> None:
    step = 2.0**-10 if dtype == "float16" else 2.0**-7
    assert judge(array([1 + step], dtype), expected([1]), dtype).ok
    assert not judge(array([1 + 2 * step], dtype), expected([1]), dtype).ok
    # Near zero the terms' magnitude decides.
    assert judge(array([1e-5], dtype), expected([2e-5], [10]), dtype).ok
    assert not judge(array([1e-5], dtype), expected([4e-5], [10]), dtype).ok


def test_worst_and_reason() -> None:
    value = np.zeros((2, 3))
    value[1, 2] = 1
    verdict = judge(value.astype("f4") + np.float32(1e-3), expected(value, 1), "float32")
    assert not verdict.ok and verdict.compared == 6
    assert verdict.worst is not None and verdict.reason is not None
    assert "6 of 6" in verdict.reason and str(list(verdict.worst)) in verdict.reason
    assert verdict.max_rel == pytest.approx(1e-3, rel=1e-3) or np.isinf(verdict.max_rel)


def test_integers_have_to_be_equal() -> None:
    big = 2**62
    assert judge_pair(np.array([big]), np.array([big])).ok
    verdict = judge_pair(np.array([big + 1]), np.array([big]))
    assert not verdict.ok and verdict.worst == (0,)
    assert not judge_pair(np.array([1]), np.array([1.0])).ok


@pytest.mark.parametrize("dtype", DTYPES)
def test_ulps(dtype: str) -> None:
    one, zero, nan = array([1], dtype), array([0], dtype), array([np.nan], dtype)
    up = np.nextafter(one, array([2], dtype))
    tiny = np.nextafter(zero, one)
    assert ulps(up, one, dtype) == 1 and ulps(one, up, dtype) == 1
    assert ulps(zero, -zero, dtype) == 0 and ulps(tiny, -tiny, dtype) == 2
    assert ulps(nan, nan, dtype) == 0 and ulps(nan, one, dtype) == np.inf
    infinite = array([np.inf], dtype)
    assert ulps(np.nextafter(infinite, one), infinite, dtype) == 1
    assert ulps(infinite, -infinite, dtype) > 2.0 ** (8 * one.itemsize - 3)
    assert ulps(array(1, dtype), array(1, dtype), dtype).shape == ()


def test_bfloat16_is_rounded_once() -> None:
    # Just above the middle of 1 and 1 + 2**-7: float32 would round it to the middle, then to even.
    assert float(round_to(np.array(1 + 2.0**-8 + 2.0**-40), "bfloat16")) == 1 + 2.0**-7
    assert float(round_to(np.array(1 + 2.0**-8), "bfloat16")) == 1
    assert float(round_to(np.array(-(1 + 2.0**-8 + 2.0**-40)), "bfloat16")) == -(1 + 2.0**-7)
    special = round_to(np.array([np.nan, np.inf, -np.inf, 1e300, 0.0, -0.0, 1e-300]), "bfloat16")
    wide = special.astype(np.float64)
    assert np.isnan(wide[0]) and wide[1:4].tolist() == [np.inf, -np.inf, np.inf]
    assert wide[4:].tolist() == [0, 0, 0] and np.signbit(wide[5])


@given(st.floats(-4e38, 4e38), st.sampled_from(DTYPES))
def test_round_to_takes_the_nearest(value: float, dtype: str) -> None:
    got = round_to(np.array([value]), dtype)
    assert got.dtype == numpy_dtype(dtype)
    if not np.isfinite(got).all():
        assert dtype != "float64" and abs(value) > LARGEST[dtype]
        return
    with np.errstate(over="ignore"):
        for side in (np.inf, -np.inf):
            neighbour = np.nextafter(got, array([side], dtype)).astype(np.float64)
            assert abs(float(got.astype(np.float64)[0]) - value) <= abs(float(neighbour[0]) - value)


@given(st.lists(st.floats(), max_size=8), st.sampled_from(DTYPES))
def test_a_correctly_rounded_answer_passes(values: list[float], dtype: str) -> None:
    right = expected(values)
    verdict = judge(round_to(right.value, dtype), right, dtype)
    assert verdict.ok, verdict.reason
    assert verdict.compared + verdict.nan_matching + verdict.inf_matching == len(values)
