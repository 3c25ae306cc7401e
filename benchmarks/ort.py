"""ONNX Runtime's WebGPU execution provider on the same calls: time of a node, from chains of two lengths."""

from __future__ import annotations

import importlib.util
import statistics
import time
from typing import Any

import numpy as np
from cases import Case
from timing import RUNS, Times

from registry.errors import typed_line

HIDDEN = (768, 1024, 4096)
DTYPES = ("float32", "float16")
CHAINS = (20, 220)

# The input that the chain's last output feeds, for calls that ONNX Runtime has as one node.
CHAINED = {"skip layer norm": "input", "layer norm": "X", "bias add": "X", "simplified layer norm": "X"}


def ort_times(case: Case) -> Times | str | None:
    """Seconds of a node on tensors of the case's size, the reason why not, or None when it is not asked."""
    if case.hidden not in HIDDEN or case.dtype not in DTYPES or case.name not in CHAINED:
        return None
    for module in ("onnx", "onnxruntime"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed"
    import onnxruntime

    if "WebGpuExecutionProvider" not in onnxruntime.get_available_providers():
        return "this onnxruntime has no WebGPU provider"
    try:
        short, long = (_session(case, length) for length in CHAINS)
        feeds = {role: case.input(role, 0) for role in case.shapes()}
        for session in (short, long):
            session.run(None, feeds)
        seconds = [
            (_clock(long, feeds) - _clock(short, feeds)) / (CHAINS[1] - CHAINS[0]) for _ in range(RUNS)
        ]
    except Exception as error:  # whatever another library raises is its result here
        return typed_line(error)
    if statistics.median(seconds) <= 0:
        return "lost in the noise"
    return Times(tuple(seconds), f"chains of {CHAINS[0]} and {CHAINS[1]} nodes")


def _session(case: Case, length: int) -> Any:
    """A chain of nodes; its end is one row, so that little is read back."""
    import onnxruntime
    from onnx import TensorProto, helper

    kind = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}[case.dtype]
    shapes = case.shapes()
    domain, name = case.op.split("::")
    domain = "" if domain == "ai.onnx" else domain
    fed, current, nodes = CHAINED[case.name], CHAINED[case.name], []
    for index in range(length):
        inputs = [current if role == fed else role for role in shapes]
        if name == "BiasAdd":
            inputs = [current, "bias", "skip"]
        current = f"out {index}"
        nodes.append(helper.make_node(name, inputs, [current], domain=domain))
    end = [0] * (len(shapes[fed]) - 1) + [0]
    nodes.append(helper.make_node("Slice", [current, "begin", "end"], ["y"]))
    last = [1] * len(end)
    constants = [
        helper.make_tensor("begin", TensorProto.INT64, [len(end)], end),
        helper.make_tensor("end", TensorProto.INT64, [len(end)], last),
    ]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info(role, kind, shape) for role, shape in shapes.items()],
        [helper.make_tensor_value_info("y", kind, last)],
        constants,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    providers = ["WebGpuExecutionProvider", "CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)


def _clock(session: Any, feeds: dict[str, np.ndarray[Any, Any]]) -> float:
    begin = time.perf_counter()
    session.run(None, feeds)
    return time.perf_counter() - begin
