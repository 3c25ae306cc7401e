"""Faults other projects had in public, held against every variant of every backend that takes the call."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from test_numpy_ops import KNOWN_DISAGREEMENTS
from vectors import Vector, load_vectors

from registry import BackendError, ContractError, NoPlanError, Registry
from registry.dtypes import numpy_dtype
from registry.judging.accuracy import judge
from registry_webgpu.devices import DEVICES

SLN, LN, BIAS_ADD = "SkipLayerNormalization", "LayerNormalization", "BiasAdd"
BACKENDS = ["webgpu", "numpy"]
N4 = [-1.341635420, -0.447211807, 0.447211807, 1.341635420]
TOLERANCE = {
    "float32": (2e-6, 2e-5),
    "float16": (2e-3, 2e-3),
    "bfloat16": (1.6e-2, 1.6e-2),
    "float64": (1e-9, 1e-9),
}

Tensors = dict[str, np.ndarray]


def array(values: Any, dtype: str = "float32") -> np.ndarray:
    return np.asarray(values, np.float64).astype(numpy_dtype(dtype))


def run_each(reg: Registry, op: Any, tensors: Tensors, **named: Any) -> dict[str, dict[str, np.ndarray]]:
    """The outputs by name, of every variant of every backend that accepts the call.

    NumPy always does; where WebGPU does not, every one of its variants must say why.
    """
    decision = reg.explain(op, inputs=tensors, **named, backend=BACKENDS)
    results = {}
    for row in decision.eligible:
        pinned = {"backend": row.backend, "variant": row.variant}
        plan = reg.prepare(op, inputs=tensors, **named, **pinned)
        value = plan(inputs=tensors)
        values = (value,) if plan.call.single else value
        results[f"{row.backend} {row.variant}"] = dict(zip(plan.request.asked, values, strict=True))
    assert "numpy blocked" in results and "numpy reference" in results
    if not any(name.startswith("webgpu") for name in results):
        with pytest.raises(NoPlanError) as caught:
            reg.run(op, inputs=tensors, **named, backend="webgpu")
        assert caught.value.decision is not None and caught.value.decision.candidates
        for row in caught.value.decision.candidates:
            assert row.verdict == "rejected" and row.because and (row.found or row.needed), row
    return results


def check_each(reg: Registry, op: Any, tensors: Tensors, right: dict[str, Any], **named: Any) -> set[str]:
    """Holds every result against known numbers and against the reference; returns who ran."""
    named.setdefault("outputs", tuple(right))
    target = reg.op(op)
    expected = reg.catalog.plugins.references[target.id](
        tensors, {**target.attributes, **named.get("attrs", {})}
    )
    results = run_each(reg, op, tensors, **named)
    for who, outputs in results.items():
        for name, value in outputs.items():
            verdict = judge(value, expected[name], value.dtype.name)
            assert verdict.ok, f"{who} {name}: {verdict.reason}"
            if right.get(name) is not None:
                absolute, relative = TOLERANCE[value.dtype.name]
                wide = value.astype(np.float64)
                np.testing.assert_allclose(
                    wide,
                    np.broadcast_to(right[name], value.shape),
                    relative,
                    absolute,
                    err_msg=f"{who} {name}",
                )
    return set(results)


def layer_norm(x: np.ndarray, **tensors: Any) -> Tensors:
    """LayerNormalization's inputs; Scale is ones over the last axis unless given."""
    rest = {name: array(value, x.dtype.name) for name, value in tensors.items()}
    return {"X": x, "Scale": np.ones(x.shape[-1:], x.dtype), **rest}


def skip_layer_norm(x: np.ndarray, skip: np.ndarray | None = None, **vectors: Any) -> Tensors:
    """SkipLayerNormalization's inputs; skip is zeros and gamma ones unless given."""
    rest = {name: array(value, x.dtype.name) for name, value in vectors.items()}
    return {
        "input": x,
        "skip": np.zeros_like(x) if skip is None else skip,
        "gamma": np.ones(x.shape[-1:], x.dtype),
        **rest,
    }


def webgpu_ran(reg: Registry, who: set[str]) -> bool:
    here = next(s for s in reg.backends() if s.name == "webgpu").available
    return any(name.startswith("webgpu") for name in who) or not here


def ramp(hidden: int) -> Any:
    """What a row 0, 1, ..., hidden - 1 normalizes to, epsilon 1e-5."""
    return (np.arange(hidden) - (hidden - 1) / 2) / np.sqrt((hidden**2 - 1) / 12 + 1e-5)


# Numbers


@pytest.mark.parametrize("start", [40000, 80000, 1998.5, -40003, 1])
@pytest.mark.parametrize("hidden", [4, 5, 16, 33])
def test_large_mean_and_small_spread(shared: Registry, start: float, hidden: int) -> None:
    """E[x2] - E[x]2 cancels here: NaN, or off by more than 1."""
    x = array(start + np.arange(hidden))[None]
    right = {"Y": ramp(hidden), "Mean": None, "InvStdDev": None}
    assert webgpu_ran(shared, check_each(shared, LN, layer_norm(x), right))
    assert webgpu_ran(shared, check_each(shared, LN, layer_norm(x), {"Y": ramp(hidden)}))
    stacked = x.reshape(1, hidden, 1) if hidden % 2 else x.reshape(1, 2, hidden // 2)
    flat = {"X": stacked, "Scale": np.ones(stacked.shape[1:], "f4")}
    check_each(shared, LN, flat, {"Y": ramp(hidden).reshape(stacked.shape)}, attrs={"axis": 1})
    half = x / 2  # exact, and so is the sum
    check_each(shared, SLN, skip_layer_norm(half, half), {"output": ramp(hidden)}, attrs={"epsilon": 1e-5})


@pytest.mark.parametrize("value", [1234.0, 1e-3, 10000.1, 3e38])
@pytest.mark.parametrize("hidden", [4, 7, 256, 1000])
def test_constant_rows_are_zero(shared: Registry, value: float, hidden: int) -> None:
    x = array(np.full((2, hidden), value))
    nearly = 0 if value == 1234 else 2e-6  # 1234 and its sums are exact
    for who, outputs in run_each(shared, LN, layer_norm(x)).items():
        assert np.abs(outputs["Y"]).max() <= nearly, who
    for who, outputs in run_each(shared, SLN, skip_layer_norm(x, beta=np.zeros(hidden))).items():
        assert np.abs(outputs["output"]).max() <= nearly, who


@pytest.mark.parametrize(
    ("mean", "first", "last"),
    [(100, -1.341527716, None), (1000, -1.341507767, 1.344237183), (10000, -1.331333357, 1.331333357)],
)
def test_a_mean_float32_cannot_hold(shared: Registry, mean: float, first: float, last: float | None) -> None:
    x = array(mean + np.arange(16) * 0.001)[None]
    for who, outputs in run_each(shared, LN, layer_norm(x)).items():
        assert outputs["Y"][0, 0] == pytest.approx(first, abs=2e-6), who
        assert last is None or outputs["Y"][0, 15] == pytest.approx(last, abs=2e-6), who
    for hidden in (4, 33, 1000):
        x = array(mean + np.arange(hidden) * 0.001)[None]
        check_each(shared, LN, layer_norm(x), {"Y": None})
        check_each(shared, SLN, skip_layer_norm(x), {"output": None})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("size", [500, 65504])
@pytest.mark.parametrize("hidden", [4, 6, 2048])
def test_half_squares_do_not_overflow(shared: Registry, dtype: str, size: float, hidden: int) -> None:
    """A variance of infinity leaves 0, or only the shift: finite, and wrong."""
    x = array(np.where(np.arange(hidden) % 2, -size, size), dtype)[None]
    signs = np.sign(x.astype(float))
    check_each(shared, LN, layer_norm(x), {"Y": signs})
    check_each(shared, LN, layer_norm(x, B=np.full(hidden, 7)), {"Y": signs + 7})
    inverse = 1 / float(x[0, 0])
    for outputs in run_each(shared, LN, layer_norm(x), outputs=("Y", "Mean", "InvStdDev")).values():
        assert outputs["InvStdDev"].dtype == np.float32
        np.testing.assert_allclose(outputs["InvStdDev"], [[inverse]], rtol=2e-6)
    zeros = np.zeros(hidden)
    tensors = skip_layer_norm(x, beta=zeros, bias=zeros)
    check_each(
        shared,
        SLN,
        tensors,
        {"output": signs, "input_skip_bias_sum": x.astype(float)},
        attrs={"epsilon": 1e-5},
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_statistics_are_float32(shared: Registry, dtype: str) -> None:
    x = array([[256, -256]], dtype)
    for asked in (("Y", "Mean", "InvStdDev"), ("Mean",), ("InvStdDev",), ("InvStdDev", "Mean")):
        for outputs in run_each(shared, LN, layer_norm(x), outputs=asked, attrs={"epsilon": 0.0}).values():
            for name, value in outputs.items():
                assert value.dtype == (x.dtype if name == "Y" else np.float32)
                right = {"Y": [[1, -1]], "Mean": [[0]], "InvStdDev": [[0.00390625]]}[name]
                np.testing.assert_array_equal(value.astype(float), right)
    outputs_asked = ("output", "mean", "inv_std_var", "input_skip_bias_sum")
    for outputs in run_each(shared, SLN, skip_layer_norm(x), outputs=outputs_asked).values():
        assert [value.dtype.name for value in outputs.values()] == [dtype, "float32", "float32", dtype]


@pytest.mark.parametrize("batch", [1, 3])
def test_the_half_sum_is_normalized_before_it_is_rounded(shared: Registry, batch: int) -> None:
    attrs = {"epsilon": 1e-5}
    big = array([[60000, -60000, 60000, -60000]] * batch, "float16")
    infinite = np.array([np.inf, -np.inf, np.inf, -np.inf])
    for vectors in ({}, {"beta": np.zeros(4)}, {"beta": np.zeros(4), "bias": np.zeros(4)}):
        who = check_each(
            shared,
            SLN,
            skip_layer_norm(big, big, **vectors),
            {"output": [1, -1, 1, -1], "input_skip_bias_sum": infinite},
            attrs=attrs,
        )
    assert webgpu_ran(shared, who)
    small = array([[1, 2, 3, 4]] * batch, "float16")
    tensors = skip_layer_norm(
        small, array(np.full((batch, 4), 2048), "float16"), beta=np.zeros(4), bias=np.full(4, -2048)
    )
    results = run_each(shared, SLN, tensors, outputs=("output", "input_skip_bias_sum"), attrs=attrs)
    for name, outputs in results.items():
        np.testing.assert_array_equal(
            outputs["input_skip_bias_sum"].astype(float), [[1, 2, 3, 4]] * batch, name
        )
        np.testing.assert_allclose(outputs["output"].astype(float), [N4] * batch, atol=1e-3)


def test_default_epsilon_is_each_ops_own(shared: Registry) -> None:
    x = array([[0, 0.001, 0.002, 0.003]])
    skip_right = [-1.34164027, -0.44721341, 0.44721346, 1.34164022]
    check_each(shared, SLN, skip_layer_norm(x), {"output": skip_right})
    check_each(shared, SLN, skip_layer_norm(x, beta=np.zeros(4)), {"output": skip_right})
    check_each(shared, LN, layer_norm(x), {"Y": [-0.4472136, -0.1490712, 0.1490712, 0.4472136]})


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_small_epsilon_does_not_become_zero(shared: Registry, dtype: str) -> None:
    zeros = array(np.zeros((2, 4)), dtype)
    tensors = skip_layer_norm(zeros, beta=[1, 2, 3, 4], bias=np.zeros(4))
    check_each(shared, SLN, tensors, {"output": [1, 2, 3, 4], "input_skip_bias_sum": 0})
    check_each(shared, LN, layer_norm(array(np.zeros((1, 10)), dtype)), {"Y": 0}, attrs={"epsilon": 1e-12})


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_nan_and_infinity_stay_in_their_row(shared: Registry, dtype: str) -> None:
    rows = [
        [1, 2, 3, 4],
        [1, np.nan, 3, 4],
        [1, np.inf, 3, 4],
        [0, 0, 0, 0],
        [1, -np.inf, 3, np.inf],
        [1, 2, 3, 4],
    ]
    x = array(rows, dtype)

    def check(y: np.ndarray, who: str) -> None:
        wide = y.astype(float)
        np.testing.assert_allclose(wide[[0, 5]], [N4, N4], atol=2e-2, err_msg=who)
        assert np.isnan(wide[[1, 2, 4]]).all() and not wide[3].any(), who

    for who, outputs in run_each(shared, LN, layer_norm(x)).items():
        check(outputs["Y"], who)
    for who, outputs in run_each(
        shared, LN, layer_norm(x, B=np.zeros(4)), outputs=("Y", "Mean", "InvStdDev")
    ).items():
        check(outputs["Y"], who)
        assert (
            np.isnan(outputs["InvStdDev"][[1, 2, 4]]).all() and np.isfinite(outputs["Mean"][[0, 3, 5]]).all()
        ), who
    tensors = skip_layer_norm(x, beta=np.zeros(4), bias=np.zeros(4))
    for who, outputs in run_each(shared, SLN, tensors, outputs=("output", "input_skip_bias_sum")).items():
        check(outputs["output"], who)
        np.testing.assert_array_equal(outputs["input_skip_bias_sum"].astype(float), x.astype(float), who)
    added = {"X": x[None], "bias": array(np.zeros(4), dtype), "skip": array(np.zeros((1, 6, 4)), dtype)}
    for who, outputs in run_each(shared, BIAS_ADD, added).items():
        np.testing.assert_array_equal(outputs["Y"][0].astype(float), x.astype(float), who)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_row_does_not_know_its_batch(shared: Registry, dtype: str) -> None:
    x = np.random.default_rng(0).normal(size=(24, 493, 768)).astype(numpy_dtype(dtype))
    scale = np.ones(768, x.dtype)
    for backend in BACKENDS:
        if shared.explain(LN, X=x, Scale=scale, backend=backend).chosen is None:
            continue
        given = x if backend == "numpy" else x[:, :61]  # less of it, for adapters that run on the CPU
        whole, part, one = (
            shared.run(LN, X=rows, Scale=scale, backend=backend) for rows in (given, given[:-1], given[5:6])
        )
        assert whole[:-1].tobytes() == part.tobytes() and whole[5:6].tobytes() == one.tobytes()


@pytest.mark.parametrize(("dtype", "hidden"), [("float32", 8), ("float16", 100), ("float32", 771)])
def test_a_row_of_the_sum_does_not_know_its_batch(shared: Registry, dtype: str, hidden: int) -> None:
    draw = np.random.default_rng(1)
    rows = {name: draw.normal(size=(24, hidden)).astype(dtype) for name in ("input", "skip")}
    vectors = {name: draw.normal(size=hidden).astype(dtype) for name in ("gamma", "beta", "bias")}
    asked = ("output", "input_skip_bias_sum")
    whole = run_each(shared, SLN, {**rows, **vectors}, outputs=asked)
    for which in (slice(None, -1), slice(5, 6)):
        part = run_each(shared, SLN, {**{n: v[which] for n, v in rows.items()}, **vectors}, outputs=asked)
        assert part.keys() == whole.keys()
        for who, outputs in part.items():
            for name, value in outputs.items():
                assert value.tobytes() == whole[who][name][which].tobytes(), f"{who} {name}"


# Shapes, slots, options


FOUR_OUTPUTS = ("output", "mean", "inv_std_var", "input_skip_bias_sum")
SUBSETS = [names for count in (1, 2, 3, 4) for names in itertools.combinations(FOUR_OUTPUTS, count)]
GIVEN = {
    ("beta", "bias"): (
        [-0.227606875, 0.014928750, -1.227606875, 2.895498751],
        3.5,
        0.485071250,
        [2, 3, 2, 7],
    ),
    ("bias",): ([-0.727606875, -0.485071250, -0.727606875, 3.395498751], 3.5, 0.485071250, [2, 3, 2, 7]),
    ("beta",): ([-0.077350269, -0.654700538, -1.077350269, 2.964101615], 3, 0.577350269, [2, 2, 2, 6]),
    (): ([-0.577350269, -1.154700538, -0.577350269, 3.464101615], 3, 0.577350269, [2, 2, 2, 6]),
}


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: " and ".join(given) or "neither")
@pytest.mark.parametrize("shape", [(1, 4), (1, 1, 4)])
def test_every_choice_of_inputs_and_outputs(
    shared: Registry, given: tuple[str, ...], shape: tuple[int, ...]
) -> None:
    """Optional slots left out in the middle or asked for alone: the others must not move."""
    x = array([[1, 1, 1, 3]]).reshape(shape)
    vectors = {"beta": [0.5, 0.5, -0.5, -0.5], "bias": [0, 1, 0, 1]}
    tensors = skip_layer_norm(x, x, gamma=[1, 2, 1, 2], **{name: vectors[name] for name in given})
    right: dict[str, Any] = dict(zip(FOUR_OUTPUTS, GIVEN[given], strict=True))
    for names in SUBSETS if len(shape) == 2 else SUBSETS[-1:]:
        for asked in {names, names[::-1]}:
            check_each(shared, SLN, tensors, {name: right[name] for name in asked}, outputs=asked)
    positional = [
        tensors["input"],
        tensors["skip"],
        tensors["gamma"],
        tensors.get("beta"),
        tensors.get("bias"),
    ]
    y, r = shared.run(SLN, *positional, outputs=("output", "input_skip_bias_sum"), backend="numpy")
    np.testing.assert_allclose(y.reshape(-1), right["output"], atol=2e-6)
    np.testing.assert_array_equal(r.reshape(-1), right["input_skip_bias_sum"])


def test_a_device_with_eight_storage_buffers(webgpu: Registry, fresh: Registry) -> None:
    wgpu = pytest.importorskip("wgpu")
    limits = {"max-storage-buffers-per-shader-stage": 8}
    mine = wgpu.gpu.enumerate_adapters_sync()[0].request_device_sync(required_limits=limits)
    fresh.configure(options={"webgpu": {"device": mine}})
    x = array([[1, 1, 1, 3]])
    tensors = skip_layer_norm(x, x, gamma=[1, 2, 1, 2], beta=[0.5, 0.5, -0.5, -0.5], bias=[0, 1, 0, 1])
    right = dict(zip(FOUR_OUTPUTS, GIVEN["beta", "bias"], strict=True))
    asked = {name: right[name] for name in ("output", "input_skip_bias_sum")}
    assert {"webgpu beta_bias_vec4", "webgpu beta_bias_row"} <= check_each(fresh, SLN, tensors, asked)
    check_each(fresh, SLN, tensors, right)


SKIP_INPUT = (np.arange(16) % 5).reshape(2, 2, 4)
SKIP = np.array([[0, 1, 0, 1], [2, 0, 0, 1]])
SKIP_SUM = [[[0, 2, 2, 4], [6, 0, 1, 3]], [[3, 5, 0, 2], [4, 3, 4, 1]]]
SKIP_SECOND = [
    [0.277349671, 1.386748357, -1.386748357, -0.277349671],
    [0.816493859, 0, 0.816493859, -1.632987719],
]


@pytest.mark.parametrize("form", ["(S, H)", "(1, S, H)", "(B, S, H)", "a view"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("beta", [False, True])
def test_skip_repeats_over_the_batch(shared: Registry, form: str, dtype: str, beta: bool) -> None:
    skip = array(SKIP, dtype)
    forms = {
        "(S, H)": skip,
        "(1, S, H)": skip[None],
        "(B, S, H)": np.repeat(skip[None], 2, 0),
        "a view": np.broadcast_to(skip, (2, 2, 4)),
    }
    vectors = {"beta": np.zeros(4)} if beta else {}
    tensors = skip_layer_norm(array(SKIP_INPUT, dtype), forms[form], **vectors)
    attrs = {"epsilon": 1e-5}
    check_each(shared, SLN, tensors, {"output": None, "input_skip_bias_sum": SKIP_SUM}, attrs=attrs)
    for outputs in run_each(shared, SLN, tensors, attrs=attrs).values():
        np.testing.assert_allclose(
            outputs["output"][1].astype(float), SKIP_SECOND, atol=TOLERANCE[dtype][0] * 2
        )


@pytest.mark.parametrize("hidden", [8, 64])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("sequence", [1, 5])
def test_skip_repeats_at_every_size(shared: Registry, hidden: int, batch: int, sequence: int) -> None:
    draw = np.random.default_rng(hidden + batch)
    x = draw.normal(size=(batch, sequence, hidden)).astype("f4")
    for shape in ((sequence, hidden), (1, sequence, hidden), (batch, sequence, hidden)):
        skip = draw.normal(size=shape).astype("f4")
        tensors = skip_layer_norm(x, skip, beta=draw.normal(size=hidden))
        assert webgpu_ran(shared, check_each(shared, SLN, tensors, {"output": None}))


@pytest.fixture
def no_backend(shared: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on a test fails when a call gets past its contract: prepares, uploads or dispatches."""
    import registry_numpy.backend
    import registry_webgpu.backend
    import registry_webgpu.device

    def reached(*_: Any, **__: Any) -> Any:
        pytest.fail("a backend was reached")

    monkeypatch.setattr(registry_webgpu.device.Device, "upload", reached)
    monkeypatch.setattr(registry_webgpu.device.Device, "record", reached)
    monkeypatch.setattr(registry_webgpu.backend.WebGPUBackend, "prepare", reached)
    monkeypatch.setattr(registry_numpy.backend.NumpyBackend, "prepare", reached)


def refuse(reg: Registry, op: str, tensors: Any, argument: str, *parts: str, **named: Any) -> None:
    """Every way to call must refuse, naming the op, the argument, and what was found and needed."""
    for backend in ("numpy", "webgpu", None):
        with pytest.raises(ContractError) as caught:
            reg.run(op, inputs=tensors, **named, backend=backend)
        assert isinstance(caught.value, ValueError)
        assert caught.value.op == reg.op(op).id and caught.value.argument == argument
        for part in (op, argument, "needed", *parts):
            assert part in str(caught.value)
    with pytest.raises(ContractError):
        reg.compare(op, inputs=tensors, **named)
    with pytest.raises(ContractError):
        reg.infer(op, inputs=tensors, **named)


@pytest.mark.parametrize(
    "shape",
    [
        (4,),
        (1, 1, 4),
        (2, 1, 4),
        (2, 2, 1),
        (1, 4),
        (2, 2, 2, 4),
        (3, 2, 4),
        (0, 2, 4),
        (4, 4),
        (2, 4, 2),
        (),
    ],
)
@pytest.mark.usefixtures("no_backend")
def test_other_shapes_of_skip_are_refused(shared: Registry, shape: tuple[int, ...]) -> None:
    tensors = skip_layer_norm(array(SKIP_INPUT), np.zeros(shape, "f4"))
    refuse(shared, SLN, tensors, "skip", str(list(shape)), "[2, 2, 4]", "(1, S, H)")


@pytest.mark.parametrize("shape", [(2, 4), (1, 2, 4), (1, 4), (4,)])
@pytest.mark.usefixtures("no_backend")
def test_skip_of_a_matrix_has_its_shape(shared: Registry, shape: tuple[int, ...]) -> None:
    tensors = skip_layer_norm(np.ones((4, 4), "f4"), np.zeros(shape, "f4"))
    refuse(shared, SLN, tensors, "skip", str(list(shape)), "[4, 4]")


@pytest.mark.parametrize("shape", [(2, 4), (1, 3, 4), (3, 4), (2, 3, 1), (1,), ()])
@pytest.mark.usefixtures("no_backend")
def test_bias_add_repeats_no_skip(shared: Registry, shape: tuple[int, ...]) -> None:
    tensors = {"X": np.ones((2, 3, 4), "f4"), "bias": np.ones(4, "f4"), "skip": np.ones(shape, "f4")}
    refuse(shared, BIAS_ADD, tensors, "skip", str(list(shape)), "[2, 3, 4]")


@pytest.mark.parametrize("batch", [1, 2])
def test_scale_of_several_rows(shared: Registry, batch: int) -> None:
    x = array(np.arange(batch * 6)).reshape(batch, 2, 3)
    tensors = layer_norm(x, Scale=[[1, 1, 1], [10, 10, 10]])
    one = np.array([-1.22473569, 0, 1.22473569])
    assert webgpu_ran(shared, check_each(shared, LN, tensors, {"Y": [one, one * 10]}))


SCALES = [
    (),
    (1,),
    (4,),
    (3, 1),
    (3, 4),
    (1, 4),
    (1, 1),
    (1, 3, 4),
    (2, 1, 4),
    (2, 3, 1),
    (2, 1, 1),
    (1, 1, 1),
    (2, 3, 4),
]


@pytest.mark.parametrize("shape", SCALES, ids=str)
@pytest.mark.parametrize(("axis", "dtype"), [(-1, "float32"), (1, "float32"), (0, "float32"), (1, "float16")])
def test_scale_and_shift_broadcast(shared: Registry, shape: tuple[int, ...], axis: int, dtype: str) -> None:
    draw = np.random.default_rng(7)
    x = draw.normal(size=(2, 3, 4)).astype(dtype)
    scale, shift = (draw.normal(size=shape).astype(dtype) for _ in range(2))
    for tensors in ({"X": x, "Scale": scale}, {"X": x, "Scale": scale, "B": shift}):
        who = check_each(shared, LN, tensors, {"Y": None}, attrs={"axis": axis})
        assert webgpu_ran(shared, who)
    other = {"X": x, "Scale": np.ones(4, dtype), "B": shift}
    check_each(shared, LN, other, {"Y": None}, attrs={"axis": axis})


def test_scale_before_the_normalized_axes(shared: Registry) -> None:
    x = array(np.arange(8)).reshape(1, 2, 2, 2)
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
    tensors = layer_norm(x, Scale=np.reshape([1, 2], (1, 2, 1, 1)))
    assert webgpu_ran(
        shared, check_each(shared, LN, tensors, {"Y": np.reshape(right, x.shape)}, attrs={"axis": 1})
    )


@pytest.mark.parametrize("name", ["Scale", "B"])
@pytest.mark.parametrize("shape", [(5,), (2,), (3, 2), (2, 2, 3), (1, 2, 3), (4, 3), (0,), (3, 1)])
@pytest.mark.usefixtures("no_backend")
def test_what_does_not_broadcast_is_refused(shared: Registry, name: str, shape: tuple[int, ...]) -> None:
    tensors = {**layer_norm(np.ones((2, 3), "f4")), name: np.ones(shape, "f4")}
    refuse(shared, LN, tensors, name, str(list(shape)), "[2, 3]")


@pytest.mark.parametrize(
    ("axis", "first", "last", "mean", "inverse"),
    [
        (1, -1.593254345, 19.11905214, [5.5, 17.5], 0.289682608),
        (0, -1.661324599, 39.87179038, [11.5], 0.144462930),
        (2, -1.341635420, 5.366541680, [1.5, 5.5, 9.5, 13.5, 17.5, 21.5], 0.894423613),
    ],
)
def test_axis(shared: Registry, axis: int, first: float, last: float, mean: Any, inverse: float) -> None:
    x = array(np.arange(24)).reshape(2, 3, 4)
    length = x[0].size if axis == 1 else x.size if axis == 0 else 4
    scale = array(np.arange(1, length + 1)).reshape(x.shape[axis:])
    tensors = {"X": x, "Scale": scale}
    row_shape = x.shape[:axis] + (1,) * (3 - axis)
    right = {"Y": None, "Mean": np.reshape(mean, row_shape), "InvStdDev": inverse}
    found = []
    for same in (axis, axis - 3):
        for asked in (("Y",), ("Y", "Mean", "InvStdDev")):
            who = check_each(shared, LN, tensors, {name: right[name] for name in asked}, attrs={"axis": same})
            assert webgpu_ran(shared, who)
        for outputs in run_each(shared, LN, tensors, attrs={"axis": same}).values():
            y = outputs["Y"].reshape(-1, length)
            assert y[-1, 0] == pytest.approx(first, rel=1e-5) and y[-1, -1] == pytest.approx(last, rel=1e-5)
        found.append(
            {
                who: outputs["Y"].tobytes()
                for who, outputs in run_each(shared, LN, tensors, attrs={"axis": same}).items()
            }
        )
    assert found[0] == found[1]


@pytest.mark.parametrize("axis", [3, -4, 100, 1.5, float("nan"), 2**40])
@pytest.mark.usefixtures("no_backend")
def test_axis_out_of_range(shared: Registry, axis: Any) -> None:
    refuse(shared, LN, layer_norm(np.ones((2, 3, 4), "f4")), "axis", str(axis), "rank", attrs={"axis": axis})


@pytest.mark.parametrize(
    ("op", "tensors", "attrs", "argument", "parts"),
    [
        (SLN, {"gamma": (1, 4)}, {}, "gamma", ("[1, 4]", "(H)")),
        (SLN, {"gamma": (3,)}, {}, "gamma", ("[3]", "[2, 2, 4]")),
        (SLN, {"gamma": ()}, {}, "gamma", ("[]", "(H)")),
        (SLN, {"gamma": (1,)}, {}, "gamma", ("[1]",)),
        (SLN, {"beta": (5,)}, {}, "beta", ("[5]",)),
        (SLN, {"beta": (2, 4)}, {}, "beta", ("[2, 4]",)),
        (SLN, {"bias": (2, 4)}, {}, "bias", ("[2, 4]",)),
        (SLN, {"bias": (0,)}, {}, "bias", ("[0]",)),
        (SLN, {"input": (4,)}, {}, "input", ("[4]", "rank 2 or 3")),
        (SLN, {"input": (1, 2, 2, 4)}, {}, "input", ("[1, 2, 2, 4]", "rank 2 or 3")),
        (SLN, {}, {"epsilon": -1e-12}, "epsilon", ("at least 0",)),
        (LN, {}, {"epsilon": -841.058}, "epsilon", ("-841.058", "at least 0")),
        (LN, {}, {"epsilon": float("inf")}, "epsilon", ("inf", "finite")),
        (LN, {}, {"epsilon": 1e39}, "epsilon", ("1e+39", "finite")),
        (LN, {}, {"stash_type": -940}, "stash_type", ("-940", "1")),
        (LN, {}, {"stash_type": 16}, "stash_type", ("16",)),
        (LN, {}, {"stash_type": 10}, "stash_type", ("10",)),
        (LN, {"X": ()}, {}, "X", ("[]", "at least 1")),
        (BIAS_ADD, {"X": (2, 4)}, {}, "X", ("[2, 4]", "rank 3")),
        (BIAS_ADD, {"X": (1, 2, 2, 4)}, {}, "X", ("rank 3",)),
        (BIAS_ADD, {"bias": (2,)}, {}, "bias", ("[2]", "(C)")),
        (BIAS_ADD, {"bias": (1,)}, {}, "bias", ("[1]",)),
        (BIAS_ADD, {"bias": (1, 4)}, {}, "bias", ("[1, 4]",)),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("no_backend")
def test_silly_calls_are_refused_in_words(
    shared: Registry, op: str, tensors: Any, attrs: Any, argument: str, parts: tuple[str, ...]
) -> None:
    full = (2, 2, 4)
    shapes = {
        SLN: {"input": full, "skip": full, "gamma": (4,)},
        LN: {"X": full, "Scale": (4,)},
        BIAS_ADD: {"X": full, "bias": (4,), "skip": full},
    }[op]
    given = {name: np.ones(shape, "f4") for name, shape in {**shapes, **tensors}.items()}
    refuse(shared, op, given, argument, *parts, attrs=attrs)


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (SLN, "input"),
        (SLN, "skip"),
        (SLN, "gamma"),
        (LN, "X"),
        (LN, "Scale"),
        (BIAS_ADD, "X"),
        (BIAS_ADD, "bias"),
        (BIAS_ADD, "skip"),
    ],
)
@pytest.mark.usefixtures("no_backend")
def test_a_missing_input_is_named(shared: Registry, op: str, name: str) -> None:
    given = {
        spec.role: np.ones((1, 2, 4) if spec.role in ("X", "input", "skip") else 4, "f4")
        for spec in shared.op(op).inputs
        if spec.role != name and spec.required
    }
    for backend in BACKENDS:
        with pytest.raises(ContractError, match=f"required input {name} is missing") as caught:
            shared.run(op, **given, backend=backend)
        assert caught.value.argument == name


# Dtypes


DTYPES = ("float32", "float16", "bfloat16", "float64")


@pytest.mark.parametrize("pair", list(itertools.permutations(DTYPES, 2)), ids=" and ".join)
@pytest.mark.parametrize(
    ("op", "name"),
    [
        (LN, "Scale"),
        (LN, "B"),
        (SLN, "skip"),
        (SLN, "gamma"),
        (SLN, "beta"),
        (SLN, "bias"),
        (BIAS_ADD, "bias"),
        (BIAS_ADD, "skip"),
    ],
)
@pytest.mark.usefixtures("no_backend")
def test_one_dtype_for_all(shared: Registry, op: str, name: str, pair: tuple[str, str]) -> None:
    """Never a raw shader error, never a silent conversion."""
    shape = (1, 2, 4)
    inputs = {
        spec.role: array(np.ones(shape if spec.role in ("X", "input", "skip") else 4), pair[0])
        for spec in shared.op(op).inputs
    }
    inputs[name] = array(inputs[name], pair[1])
    refuse(shared, op, inputs, name, *pair)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool"])
@pytest.mark.usefixtures("no_backend")
def test_integers_are_not_normalized(shared: Registry, dtype: str) -> None:
    x = np.ones((1, 2, 4), dtype)
    refuse(shared, LN, {"X": x, "Scale": x[0, 0]}, "X", dtype, "float32, float16, bfloat16, float64")
    refuse(shared, SLN, {"input": x, "skip": x, "gamma": x[0, 0]}, "input", dtype)
    refuse(shared, BIAS_ADD, {"X": x, "bias": x[0, 0], "skip": x}, "X", dtype)


# Choosing


@pytest.mark.parametrize("op", [LN, SLN, BIAS_ADD])
def test_a_backend_that_lacks_a_dtype_says_so(webgpu: Registry, op: str) -> None:
    x = array(np.arange(8), "float64").reshape(1, 2, 4)
    tensors = {LN: layer_norm(x), SLN: skip_layer_norm(x), BIAS_ADD: {"X": x, "bias": x[0, 0], "skip": x}}[op]
    with pytest.raises(NoPlanError, match="webgpu") as caught:
        webgpu.run(op, inputs=tensors, backend="webgpu")
    assert caught.value.decision is not None and caught.value.decision.candidates
    assert all(row.backend == "webgpu" and row.needed for row in caught.value.decision.candidates)
    webgpu.run(op, inputs=tensors)
    plan = webgpu.last()
    assert plan is not None and plan.backend == "numpy"
    assert "webgpu" in {row.backend for row in plan.decision.rejected}


def test_no_such_backend_tells_what_there_is(shared: Registry) -> None:
    for named in ({"backend": "cuda"}, {"device": "cuda:0"}, {"backend": ["cuda", "numpy"]}):
        with pytest.raises(ContractError, match=r"no backend 'cuda'; backends: .*numpy"):
            shared.run(LN, **layer_norm(np.ones((1, 4), "f4")), **named)


def test_without_the_library_the_rest_works(fresh: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wgpu", None)
    status = {s.name: s for s in fresh.backends()}
    assert status["numpy"].available and not status["webgpu"].available
    assert (status["webgpu"].because, status["webgpu"].found) == ("wgpu is installed", "not found")
    assert status["webgpu"].needed.startswith("pip install")
    tensors = layer_norm(np.ones((1, 4), "f4"))
    fresh.run(LN, **tensors)
    with pytest.raises(NoPlanError, match="pip install 'kernel-registry"):
        fresh.run(LN, **tensors, backend="webgpu")
    for move in (lambda: fresh.to_device(tensors["X"], "webgpu"), lambda: fresh.empty((1,), "f4", "webgpu")):
        with pytest.raises(BackendError, match="not found; needed: pip install 'kernel-registry"):
            move()
    assert fresh.compare(LN, **tensors).ok


ADAPTER = """
class Info(dict): pass
class Adapter:
    features, limits = set(), {{}}
    def __init__(self, name, kind):
        self.info = {{"device": name, "adapter_type": kind, "backend_type": "Vulkan",
                     "vendor": "", "architecture": "", "description": ""}}
    def request_device_sync(self, **options): raise RuntimeError("out of luck")
class gpu:
    @staticmethod
    def enumerate_adapters_sync(): {body}
"""
FAKES = {
    "a missing library": ("raise ImportError('libwgpu.so: cannot open shared object file')", "libwgpu.so"),
    "a failing driver": ("raise OSError('no driver')", "OSError: no driver"),
    "a long message": ("raise RuntimeError('first line\\n' * 40)", "RuntimeError: first line"),
    "exit": ("raise SystemExit(3)", ""),
    "another version": ("__version__ = '0.1'", "AttributeError"),
    "no adapter": (ADAPTER.format(body="return []"), "no adapter"),
    "a failing request": (
        ADAPTER.format(body="raise RuntimeError('Request adapter failed (1)')"),
        "Request adapter failed (1)",
    ),
    "hardware second": (
        ADAPTER.format(body="return [Adapter('llvmpipe', 'CPU'), Adapter('GeForce', 'DiscreteGPU')]"),
        "GeForce gives no device: out of luck",
    ),
}


@pytest.mark.parametrize("fake", FAKES.values(), ids=FAKES.keys())
def test_a_broken_library_is_one_line_of_the_doctor(tmp_path: Path, fake: tuple[str, str]) -> None:
    source, cause = fake
    (tmp_path / "wgpu.py").write_text(source)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "registry", "backends", "--json"],
        env=environment,
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    found = {entry["name"]: entry for entry in json.loads(done.stdout)}
    assert found["numpy"]["available"] and not found["webgpu"]["available"]
    assert cause in found["webgpu"]["found"] and "\n" not in found["webgpu"]["found"]
    assert found["webgpu"]["because"] and found["webgpu"]["needed"]
    assert not done.stderr.strip()


def test_a_software_adapter_is_told_and_can_be_asked_for(webgpu: Registry) -> None:
    status = next(s for s in webgpu.backends() if s.name == "webgpu")
    if status.automatic:
        pytest.skip("this machine has a hardware adapter")
    tensors = layer_norm(np.ones((1, 4), "f4"))
    row = webgpu.explain(LN, **tensors).candidates[0]
    assert row.found == f"{status.device} (software)" and 'backend="webgpu"' in row.needed
    assert webgpu.explain(LN, **tensors, device=f"webgpu:{status.device.split()[0]}").backend == "webgpu"


# One call after another


def calls_in_turn() -> list[tuple[str, Tensors, dict[str, Any]]]:
    x = array([[0, 0.001, 0.002, 0.003]])
    zeros = np.zeros(4)
    calls: list[tuple[str, Tensors, dict[str, Any]]] = []
    for epsilon in (1e-5, 0.1, 1e-12, 1e-5, 1.00000001e-5, 1.0001e-5):
        calls.append((LN, layer_norm(x), {"attrs": {"epsilon": epsilon}}))
        calls.append((SLN, skip_layer_norm(x, beta=zeros), {"attrs": {"epsilon": epsilon}}))
    for dtype in ("float32", "float16", "bfloat16", "float32"):
        calls.append((LN, layer_norm(x.astype(numpy_dtype(dtype))), {}))
        calls.append(
            (
                BIAS_ADD,
                {
                    name: array(value, dtype)
                    for name, value in (("X", x[None]), ("bias", x[0]), ("skip", x[None]))
                },
                {},
            )
        )
    for hidden in (4, 8, 7, 4):
        row = array(np.arange(hidden))[None]
        calls.append((SLN, skip_layer_norm(row, beta=np.arange(hidden)), {}))
        calls.append((LN, layer_norm(row, B=np.arange(hidden)), {}))
    for names in ((), ("beta",), ("beta", "bias"), ("bias",), ()):
        for outputs in ("output", ("output", "input_skip_bias_sum")):
            calls.append(
                (SLN, skip_layer_norm(x, x, **{key: [1, 2, 3, 4] for key in names}), {"outputs": outputs})
            )
    for asked in ("Y", ("Y", "Mean", "InvStdDev"), "Mean", "InvStdDev", "Y"):
        calls.append((LN, layer_norm(x), {"outputs": asked}))
    for axis in (-1, 0, 1, -1):
        calls.append(
            (
                LN,
                {"X": np.tile(x, (2, 1)) + np.arange(2, dtype="f4")[:, None], "Scale": x[0]},
                {"attrs": {"axis": axis}},
            )
        )
    return calls


def test_a_call_does_not_depend_on_those_before_it(webgpu: Registry, fresh: Registry) -> None:
    """What is baked into a shader is part of its key: else results are right alone and wrong together."""
    calls = calls_in_turn()

    def results(reg: Registry, order: list[int]) -> dict[int, bytes]:
        found = {}
        for index in order:
            op, tensors, named = calls[index]
            value = reg.run(op, inputs=tensors, **named, backend=BACKENDS)
            found[index] = b"".join(
                part.tobytes() for part in (value if isinstance(value, tuple) else (value,))
            )
        return found

    forwards = list(range(len(calls)))
    first = results(fresh, forwards)
    assert results(fresh, forwards[::-1]) == first
    mixed = list(np.random.default_rng(0).permutation(len(calls)))
    fresh.refresh()
    assert results(fresh, mixed) == first
    outer = [np.frombuffer(first[index], np.float32)[3] for index in (0, 2, 4, 6)]
    np.testing.assert_allclose(outer, [0.4472136, 0.0047434, 1.3416403, 0.4472136], rtol=2e-5)
    assert first[0] == first[6] and first[1] == first[7]


def test_a_failed_run_gives_no_earlier_answer(
    webgpu: Registry, fresh: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = array([[[10, 20, 30, 40]]])
    tensors = {"X": x, "bias": x[0, 0] * 0, "skip": x * 0}
    plan = fresh.prepare(BIAS_ADD, **tensors, backend="webgpu")
    np.testing.assert_array_equal(plan(**tensors), x)
    device: Any = DEVICES.get()

    def fail(*_: Any, **__: Any) -> None:
        raise BackendError("the dispatch was refused", backend="webgpu")

    with monkeypatch.context() as patch:
        patch.setattr(device, "record", fail)
        with pytest.raises(BackendError, match=r"BiasAdd webgpu wide: the dispatch was refused"):
            plan(**{**tensors, "X": x + 1})
    np.testing.assert_array_equal(plan(**{**tensors, "X": x + 2}), x + 2)


# Published vectors


VECTORS = [
    pytest.param(op, vector, id=f"{op}-{vector.name}")
    for op in (BIAS_ADD, LN, SLN)
    for vector in load_vectors(op)
]


@pytest.mark.parametrize(("op", "vector"), VECTORS)
def test_vector(shared: Registry, op: str, vector: Vector) -> None:
    tensors = dict(vector.inputs)
    if vector.expect_error or vector.mixed:  # tensors of one call are of one dtype here
        for backend in ("numpy", "webgpu", None):
            with pytest.raises(ContractError, match="needed"):
                shared.run(op, inputs=tensors, attrs=vector.attrs, backend=backend)
        return
    reference = shared.catalog.plugins.references[shared.op(op).id](tensors, vector.attrs)
    results = run_each(shared, op, tensors, attrs=vector.attrs, outputs=tuple(vector.outputs))
    for outputs in results.values():
        near = []
        for name, stored in vector.outputs.items():
            value = outputs[name]
            assert value.shape == stored.shape
            assert judge(value, reference[name], value.dtype.name).ok
            atol, rtol = vector.tolerance[name]
            right = stored.astype(np.float64)
            near.append(bool((np.abs(value.astype(np.float64) - right) <= atol + rtol * np.abs(right)).all()))
        assert all(near) is (vector.name not in KNOWN_DISAGREEMENTS)


def test_bfloat16_is_a_dtype_everywhere(shared: Registry) -> None:
    """NumPy calls it a void type, so that checks by kind let it slip through."""
    x = array([[1, 1.0078125, 1.015625, 1.0234375]], "bfloat16")
    for outputs in run_each(shared, LN, layer_norm(x)).values():
        assert outputs["Y"].dtype == ml_dtypes.bfloat16
        right = [[-1.2578125, -0.419921875, 0.419921875, 1.2578125]]
        np.testing.assert_array_equal(outputs["Y"].astype(float), right)
    assert shared.infer(LN, X=((2, 4), "bfloat16"), Scale=((4,), ml_dtypes.bfloat16)) == {
        "Y": ((2, 4), "bfloat16")
    }
