"""ONNX Runtime's CPU kernels as a second witness: where they are right we agree, and where not we are.

Both sides are held against the float64 reference: two results within the tolerance of one right answer
agree within the sum of both. What ONNX Runtime gets wrong is an expectation here, with numbers.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from forms import FORMS, Form

from registry import ContractError, Registry
from registry.judging.accuracy import Verdict, judge, round_to
from registry.opinfo import Op, TensorSpec

onnx = pytest.importorskip("onnx", reason="needs the onnx package")
ort = pytest.importorskip("onnxruntime", reason="needs the onnxruntime package")

Array = np.ndarray[Any, Any]
Tensors = Mapping[str, Array]
Types = Mapping[str, tuple[tuple[int, ...], str]]

LN, RMS = "ai.onnx::LayerNormalization", "ai.onnx::RMSNormalization"
SIMPLE = "ai.onnx::SimplifiedLayerNormalization"
SKIP, SKIP_SIMPLE = (
    "com.microsoft::SkipLayerNormalization",
    "com.microsoft::SkipSimplifiedLayerNormalization",
)
ALL = ("float32", "float16", "bfloat16", "float64")
# What its CPU kernels take in a model that passes its checks. BiasAdd has no kernel there, for any dtype.
KERNELS = {LN: ALL, SIMPLE: ALL, RMS: ("float32", "float16", "float64"), SKIP: ALL[:3], SKIP_SIMPLE: ALL[:3]}
# Before opset 17 the standard had no LayerNormalization; ONNX Runtime had one of its own by that name.
OPSETS = {LN: (16, 17), RMS: (23,)}
ELEMENT = {
    name: onnx.helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in ("float32", "float16", "float64")
} | {"bfloat16": onnx.TensorProto.BFLOAT16}


def quiet() -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return options


def names(specs: Sequence[TensorSpec], there: Container[str]) -> list[str]:
    """A node's tensors; what is left out in the middle is empty, at the end not there.

    ONNX Runtime's LayerNormalization ends the process on an empty third input.
    """
    found = [spec.role if spec.role in there else "" for spec in specs]
    while not found[-1]:
        found.pop()
    return found


def witness(op: Op, call: Mapping[str, Any], types: Types, opset: int = 17) -> dict[str, Array]:
    """The outputs of ONNX Runtime by role. Its Python side has no bfloat16: that crosses as float32."""
    make = onnx.helper
    nodes, given, feeds = [], [], {}
    for role, value in call["inputs"].items():
        array = np.asarray(value)
        dtype = array.dtype.name
        if dtype == "bfloat16":
            nodes.append(make.make_node("Cast", [f"wide {role}"], [role], to=ELEMENT[dtype]))
            role, array = f"wide {role}", array.astype(np.float32)
        given.append(make.make_tensor_value_info(role, ELEMENT[array.dtype.name], array.shape))
        feeds[role] = array
    domain, _, name = op.id.partition("::")
    ends = names(op.inputs, call["inputs"]), names(op.outputs, call["outputs"])
    nodes.append(make.make_node(name, *ends, domain="" if domain == "ai.onnx" else domain, **call["attrs"]))
    wanted = []
    for role, (shape, dtype) in types.items():
        if dtype == "bfloat16":
            nodes.append(make.make_node("Cast", [role], [f"wide {role}"], to=ELEMENT["float32"]))
            role, dtype = f"wide {role}", "float32"
        wanted.append(make.make_tensor_value_info(role, ELEMENT[dtype], shape))
    opsets = [make.make_opsetid("", opset), make.make_opsetid("com.microsoft", 1)]
    model = make.make_model(make.make_graph(nodes, name, given, wanted), opset_imports=opsets, ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), quiet(), providers=["CPUExecutionProvider"])
    found = session.run(None, feeds)
    return {
        role: round_to(array, dtype) for (role, (_, dtype)), array in zip(types.items(), found, strict=True)
    }


def judge_both(
    reg: Registry, op: Op, call: Mapping[str, Any], backend: str, theirs: Tensors
) -> dict[str, tuple[Verdict, Verdict]]:
    """Our verdict and theirs for each output."""
    expected = reg.catalog.plugins.references[op.id](call["inputs"], {**op.attributes, **call["attrs"]})
    ours = reg.run(op, **call, backend=backend)
    return {
        role: (
            judge(value, expected[role], value.dtype.name),
            judge(theirs[role], expected[role], value.dtype.name),
        )
        for role, value in zip(call["outputs"], ours, strict=True)
    }


def witness_forms(op: str) -> Iterator[Form]:
    """Every form with all outputs, and one form for each other set of tensors."""
    most = max(len(form.outputs) for form in FORMS[op])
    seen = set()
    for form in FORMS[op]:
        tensors = (*(form.shapes(6, 8) or ()), *form.outputs)
        if len(form.outputs) == most or tensors not in seen:
            yield form
        seen.add(tensors)


@pytest.mark.parametrize(
    ("name", "dtype"), [(op, dtype) for op, dtypes in KERNELS.items() for dtype in dtypes]
)
def test_grid(every: Registry, backend: str, name: str, dtype: str) -> None:
    """All optional inputs and outputs, broadcasts and axes."""
    op = every.op(name)
    forms = list(witness_forms(name))
    for place, form in enumerate(forms):
        for rows, hidden in ((6, 8), (33, 768)) if place == len(forms) - 1 else ((6, 8),):
            call = form.call(rows, hidden, dtype)
            assert call is not None
            if every.explain(op, **call, backend=backend).chosen is None:
                pytest.skip(f"{backend} has no {dtype}")
            for opset in OPSETS.get(name, (17,)):
                theirs = witness(op, call, every.infer(op, **call), opset)
                for role, verdicts in judge_both(every, op, call, backend, theirs).items():
                    for who, verdict in zip((backend, "ONNX Runtime"), verdicts, strict=True):
                        assert verdict.ok, f"{who}, {form.name}, {role}: {verdict.reason}"


# Where ONNX Runtime is off


def off_centre(mean: float, spread: float, hidden: int) -> Array:
    return np.float32(mean + spread * np.arange(hidden))[None]


def layer(x: Array) -> dict[str, Array]:
    return {"X": x, "Scale": np.ones(x.shape[-1], np.float32)}


def simple(x: Array) -> dict[str, Array]:
    return {"X": x, "scale": np.ones(x.shape[-1], np.float32)}


def skip(x: Array) -> dict[str, Array]:
    return {"input": x, "skip": np.zeros_like(x), "gamma": np.ones(x.shape[-1], x.dtype)}


HUGE = np.float32(1e19 * np.random.default_rng(0).uniform(-1, 1, (3, 33)))
INFINITE = np.float32([[1, 2, np.inf, 4]])

# name: (op, inputs, the outputs it gets wrong)
OFF: dict[str, tuple[str, dict[str, Array], tuple[str, ...]]] = {
    # float32 cannot hold the mean; what is left of it after one centring is taken for spread.
    "mean 1000, spread 0.001": (LN, layer(off_centre(1000, 0.001, 16)), ("Y",)),
    "mean 10000, spread 0.001": (LN, layer(off_centre(10000, 0.001, 16)), ("Y", "InvStdDev")),
    # The mean of the squares less the square of the mean.
    "mean 100, spread 0.001, with skip": (SKIP, skip(off_centre(100, 0.001, 16)), ("output", "inv_std_var")),
    # Squares overflow float32 and all is divided by infinity.
    "size 1e19": (LN, layer(HUGE), ("Y", "InvStdDev")),
    "size 1e19, simplified": (SIMPLE, simple(HUGE), ("Y", "inv_std_var")),
    "size 1e19, RMS": (RMS, simple(HUGE), ("Y",)),
    "the mean of an infinity": (LN, layer(INFINITE), ("Mean",)),
}


@pytest.mark.parametrize("case", OFF.values(), ids=OFF.keys())
def test_known_errors(every: Registry, case: Any) -> None:
    """The reference and we are right."""
    name, inputs, wrong = case
    op = every.op(name)
    call = {"inputs": inputs, "outputs": tuple(spec.role for spec in op.outputs), "attrs": {"epsilon": 1e-5}}
    theirs = witness(op, call, every.infer(op, **call), OPSETS.get(name, (17,))[-1])
    for role, (ours, other) in judge_both(every, op, call, "numpy", theirs).items():
        assert ours.ok, ours.reason
        if role in wrong:
            assert not other.ok, f"ONNX Runtime {ort.__version__} has {role} right: take the case out"


def test_negative_epsilon(every: Registry) -> None:
    """NaN there; refused here, before anything runs."""
    op = every.op(LN)
    call = {"inputs": layer(off_centre(0, 1, 4)), "outputs": ("Y",), "attrs": {"epsilon": -841.058}}
    with pytest.raises(ContractError, match="epsilon is -841"):
        every.run(op, **call)
    assert np.isnan(witness(op, call, {"Y": ((1, 4), "float32")})["Y"]).all()
