"""How a call's arguments are read: names, positions, attributes, outputs, out; and every wrong way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from registry import ContractError, Registry

X = np.arange(12, dtype=np.float32).reshape(3, 4)
V = np.ones(4, np.float32)
SLN = "SkipLayerNormalization"
LN = "LayerNormalization"


def numpy_run(reg: Registry, op: str, *tensors: Any, **named: Any) -> Any:
    return reg.run(op, *tensors, backend="numpy", **named)


def test_roles_arguments_and_positions_mean_the_same(shared: Registry) -> None:
    by_role = numpy_run(shared, SLN, input=X, skip=X, gamma=V, beta=V)
    by_argument = numpy_run(shared, SLN, inputT=X, skipT=X, gammaT=V, betaT=V)
    by_position = numpy_run(shared, SLN, X, X, V, V)
    by_mapping = numpy_run(shared, SLN, inputs={"input": X, "skipT": X, "gamma": V, "beta": V})
    mixed = numpy_run(shared, "com.microsoft::" + SLN, X, X, gamma=V, beta=V, bias=None)
    for other in (by_argument, by_position, by_mapping, mixed):
        np.testing.assert_array_equal(by_role, other)


def test_absent_tensors_and_default_attributes_may_be_none(shared: Registry) -> None:
    plain = numpy_run(shared, SLN, X, X, V)
    np.testing.assert_array_equal(plain, numpy_run(shared, SLN, X, X, V, None, None, epsilon=None))


def test_attributes_by_keyword_and_by_mapping(shared: Registry) -> None:
    a = numpy_run(shared, SLN, X, X, V, epsilon=0.5)
    np.testing.assert_array_equal(a, numpy_run(shared, SLN, X, X, V, attrs={"epsilon": 0.5}))
    np.testing.assert_array_equal(a, numpy_run(shared, SLN, X, X, V, epsilon=np.float64(0.5)))
    assert not np.array_equal(a, numpy_run(shared, SLN, X, X, V))


@pytest.mark.parametrize(
    ("tensors", "named", "message"),
    [
        ((X, X, V, V, V, V), {}, "6 tensors given by position"),
        ((X, X, V), {"gamma": V}, "gamma is given twice"),
        ((X, X), {"gamma": V, "gammaT": V}, "gamma is given twice"),
        ((X, X), {"gamma": V, "inputs": {"gamma": V}}, "gamma is given twice"),
        ((X, X, V), {"epsilon": 1.0, "attrs": {"epsilon": 1.0}}, "epsilon is given twice"),
        ((X, X, V), {"output": X}, "output is an output"),
        ((X, X, V), {"outputT": X}, "outputT is an output"),
        ((X, X, V), {"gama": V}, "did you mean 'gamma'"),
        ((X, X, V), {"epsilom": 1.0}, "did you mean 'epsilon'"),
        ((X, X, V), {"bakend": "numpy"}, "did you mean 'backend'"),
        ((X, X, V), {"attrs": {"eps": 1.0}}, "attributes: epsilon"),
        ((X, X, V), {"inputs": {"bta": V}}, "did you mean 'beta'"),
        ((X, X), {}, "required input gamma is missing"),
        ((None, X, V), {}, "required input input is missing"),
        ((X, X, V), {"epsilon": "small"}, "needed: a number"),
        ((X, X, V), {"epsilon": True}, "needed: a number"),
        ((X, X, V), {"epsilon": 2**63}, "an integer of 64 bits; needed: at most 63"),
        ((X, X, V), {"epsilon": -1.0}, "epsilon is -1.0"),
        ((X, X, V), {"epsilon": float("nan")}, "epsilon is nan"),
        ((X, X, V), {"epsilon": float("inf")}, "epsilon is inf"),
        ((X, X, V), {"outputs": "Y"}, "no output 'Y'"),
        ((X, X, V), {"outputs": ("output", "output")}, "asked for twice"),
        ((X, X, V), {"outputs": ("output", "outputT")}, "asked for twice"),
        ((X, X, V), {"outputs": ()}, "no output is asked for"),
        ((X, X, V), {"profile": {"numpy": {}}}, "use explain, render, lint or peak_memory"),
        ((X, X, V), {"variant": "nonsense"}, "no variant 'nonsense'"),
        ((X, X, V), {"device": "webgpu:0"}, "belongs to backend 'webgpu'"),
    ],
)
def test_wrong_calls(shared: Registry, tensors: Any, named: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message) as caught:
        shared.run(SLN, *tensors, **{"backend": "numpy", **named})
    assert caught.value.op in ("com.microsoft::SkipLayerNormalization", None)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("SkipLayerNorm", "did you mean 'SkipLayerNormalization'"),
        ("ai.onnx::BiasAdd", "no op"),
        ("", "no op"),
        ("com.microsoft::", "no op"),
    ],
)
def test_unknown_ops(shared: Registry, name: str, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        shared.run(name, X)


def test_op_names(fresh: Registry) -> None:
    for name in ("BiasAdd", "com.microsoft::BiasAdd", "com.microsoft.BiasAdd"):
        assert fresh.op(name).id == "com.microsoft::BiasAdd"
    assert fresh.ops() == (
        "ai.onnx::LayerNormalization",
        "ai.onnx::RMSNormalization",
        "ai.onnx::SimplifiedLayerNormalization",
        "com.microsoft::BiasAdd",
        "com.microsoft::SkipLayerNormalization",
        "com.microsoft::SkipSimplifiedLayerNormalization",
    )


# Outputs


def test_one_name_gives_the_array_and_several_a_named_tuple(shared: Registry) -> None:
    y = numpy_run(shared, SLN, X, X, V)
    assert isinstance(y, np.ndarray)
    assert isinstance(numpy_run(shared, SLN, X, X, V, outputs="outputT"), np.ndarray)
    (only,) = numpy_run(shared, SLN, X, X, V, outputs=("output",))
    np.testing.assert_array_equal(only, y)
    both = numpy_run(shared, SLN, X, X, V, outputs=("input_skip_bias_sum", "output"))
    assert both._fields == ("input_skip_bias_sum", "output")
    np.testing.assert_array_equal(both.output, y)
    np.testing.assert_array_equal(both.input_skip_bias_sum, X + X)


def test_a_required_output_that_is_not_asked_for(shared: Registry, webgpu: Registry) -> None:
    r = numpy_run(shared, SLN, X, X, V, V, V, outputs="input_skip_bias_sum")
    np.testing.assert_array_equal(r, X + X + V)
    r = webgpu.run(SLN, X, X, V, V, V, outputs="input_skip_bias_sum", backend="webgpu")
    np.testing.assert_array_equal(r, X + X + V)


@pytest.mark.parametrize("backend", ["numpy", "webgpu"])
def test_out_is_filled_and_returned(webgpu: Registry, backend: str) -> None:
    want = webgpu.run(SLN, X, X, V, V, V, outputs=("output", "input_skip_bias_sum"), backend=backend)
    y, r = np.empty_like(X), np.empty_like(X)
    asked = ("output", "input_skip_bias_sum")
    for out in ((y, r), [y, r], {"output": y, "residualT": r}, *[{"residualT": r, "output": y}] * 2):
        y[:], r[:] = 0, 0
        got = webgpu.run(SLN, X, X, V, V, V, outputs=asked, out=out, backend=backend)
        assert got.output is y and got.input_skip_bias_sum is r
        np.testing.assert_array_equal(y, want.output)
        np.testing.assert_array_equal(r, want.input_skip_bias_sum)
        np.testing.assert_array_equal(r, want.input_skip_bias_sum)
    assert webgpu.run(SLN, X, X, V, V, out=y, backend=backend) is y
    wide = np.zeros((3, 8), np.float32)
    webgpu.run(SLN, X, X, V, V, out=wide[:, ::2], backend=backend)
    np.testing.assert_array_equal(wide[:, ::2], y)
    assert not wide[:, 1::2].any()


def test_out_mapping_says_what_is_asked(shared: Registry) -> None:
    y, r = np.empty_like(X), np.empty_like(X)
    got = numpy_run(shared, SLN, X, X, V, out={"input_skip_bias_sum": r, "output": y})
    assert got.output is y and got.input_skip_bias_sum is r


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.empty((4, 3), np.float32), r"shape \[4, 3\]; needed: \[3, 4\]"),
        (np.empty((3, 4), np.float16), "float16; needed: float32"),
        (np.empty((3, 4), ">f4"), "byte order"),
        (np.broadcast_to(np.float32(0), (3, 4)), "read-only"),
        (
            np.lib.stride_tricks.as_strided(np.empty(4, np.float32), (3, 4), (0, 4)),
            "overlaps itself",
        ),
        (np.lib.stride_tricks.as_strided(np.zeros(20, np.float32), (3, 4), (4, 4)), "overlaps itself"),
        ((np.empty((3, 4), np.float32),) * 2, "2 arrays for 1 outputs"),
        ([1, 2], "2 arrays for 1 outputs"),
        (7, "Python number"),
        ({"Y": np.empty((3, 4), np.float32)}, "no output 'Y'"),
        (((3, 4), "float32"), "needs an array"),
    ],
)
def test_wrong_out(shared: Registry, out: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        numpy_run(shared, SLN, X, X, V, out=out)


def test_out_shares_no_memory(shared: Registry) -> None:
    x = X.copy()
    with pytest.raises(ContractError, match="shared with input"):
        numpy_run(shared, SLN, x, X, V, out=x)
    buffer = np.zeros((4, 4), np.float32)
    with pytest.raises(ContractError, match="shared with input"):
        numpy_run(shared, SLN, buffer[:3], X, V, out=buffer[1:])
    y = np.empty_like(X)
    with pytest.raises(ContractError, match="share memory"):
        numpy_run(shared, SLN, X, X, V, outputs=("output", "input_skip_bias_sum"), out=(y, y))
    pairs = np.zeros((3, 4, 2), np.float32)  # interleaved, yet apart
    pairs[..., 0] = X
    numpy_run(shared, SLN, pairs[..., 0], X, V, out=pairs[..., 1])
    np.testing.assert_array_equal(pairs[..., 0], X)


def test_infer_needs_no_data(shared: Registry) -> None:
    got = shared.infer(
        "LayerNormalization",
        X=((2, 8, 768), "float32"),
        Scale=((768,), np.float32),
        outputs=("Y", "Mean", "InvStdDev"),
        axis=1,
        B=None,
    )
    assert got == {
        "Y": ((2, 8, 768), "float32"),
        "Mean": ((2, 1, 1), "float32"),
        "InvStdDev": ((2, 1, 1), "float32"),
    }
    assert shared.infer(
        SLN, ((2, 3, 4), "float16"), ((3, 4), "float16"), ((4,), "float16"), outputs="mean"
    ) == {"mean": ((2, 3, 1), "float32")}
    with pytest.raises(ContractError, match="needs an array"):
        shared.run(SLN, ((2, 3, 4), "float16"), ((3, 4), "float16"), ((4,), "float16"))


def test_infer_takes_no_backend_that_is_not_there(shared: Registry) -> None:
    pairs = {"X": ((2, 8), "float32"), "Scale": ((8,), "float32")}
    assert shared.infer(LN, **pairs, profile={"numpy": {}}) == {"Y": ((2, 8), "float32")}
    for option in ({"profile": {"nonsense": {}}}, {"backend": "nonsense"}, {"device": "nonsense:0"}):
        with pytest.raises(ContractError, match="no backend 'nonsense'"):
            shared.infer(LN, **pairs, **option)
    with pytest.raises(ContractError, match=f"{LN}: profile= describes numpy, but backend= names webgpu"):
        shared.infer(LN, **pairs, backend="webgpu", profile={"numpy": {}})


def test_infer_with_names(shared: Registry) -> None:
    got = shared.infer(
        SLN,
        (("batch", "seq", "hidden"), "float16"),
        (("seq", "hidden"), "float16"),
        (("hidden",), "float16"),
        outputs=["output", "mean"],
    )
    assert got == {
        "output": (("batch", "seq", "hidden"), "float16"),
        "mean": (("batch", "seq", 1), "float32"),
    }
    pairs = {"X": (("n", 4, "h"), "float32"), "Scale": ((4, "h"), "float32")}
    assert shared.infer(LN, **pairs, axis=1, outputs="Mean") == {"Mean": (("n", 1, 1), "float32")}


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"X": (("n", "h"), "float32"), "Scale": ((768,), "float32")}, r"shape \[768\] \(X has \[n, h\]\)"),
        ({"X": (("n", "h"), "float32"), "Scale": (("k",), "float32")}, r"shape \[k\] \(X has \[n, h\]\)"),
        ({"X": (("n", -1), "float32"), "Scale": ((1,), "float32")}, "integers of at least 0"),
        ({"X": (("n", [3]), "float32"), "Scale": ((1,), "float32")}, "integers of at least 0"),
        ({"X": (("", 3), "float32"), "Scale": ((1,), "float32")}, "integers of at least 0"),
    ],
)
def test_infer_names_what_cannot_be(shared: Registry, pairs: dict[str, Any], message: str) -> None:
    """A name equals itself alone, and errors speak of names and not of the sizes that stand for them."""
    with pytest.raises(ContractError, match=message):
        shared.infer(LN, **pairs)


def test_names_are_for_infer_alone(shared: Registry) -> None:
    with pytest.raises(ContractError, match="names, for infer alone"):
        shared.explain(LN, X=(("n", 4), "float32"), Scale=((4,), "float32"))
