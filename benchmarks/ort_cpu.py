"""The same calls on ONNX Runtime's CPU kernels: with fresh outputs, and with outputs given."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from cases import Case

from registry.errors import typed_line
from registry.opinfo import Op, TensorSpec

Array = np.ndarray[Any, Any]
Call = Callable[[], Any]

OPSET = 23  # the first with RMSNormalization


def ort_calls(
    case: Case, op: Op, sets: Sequence[Mapping[str, Array]], out: Mapping[str, Array], threads: int
) -> tuple[list[Call], list[Call]] | str:
    """A call for each set of inputs with fresh outputs, and one that writes ``out``; or why there is none.

    ``session.run``, or where Python has no arrays of the dtype ``run_with_ort_values``; and
    ``run_with_iobinding``. ONNX Runtime keeps its own default of threads that wait by spinning.
    """
    for module in ("onnx", "onnxruntime"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed"
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    try:
        session = onnxruntime.InferenceSession(
            _model(case, op, out), options, providers=["CPUExecutionProvider"]
        )
        fresh = [_fresh(session, case, inputs) for inputs in sets]
        placed = [partial(session.run_with_iobinding, _bound(session, inputs, out)) for inputs in sets]
        fresh[0]()
        placed[0]()
    except Exception as error:  # whatever another library raises is its result here
        return typed_line(error)
    return fresh, placed


def _model(case: Case, op: Op, out: Mapping[str, Array]) -> bytes:
    """The op as one node. BiasAdd, which has no kernel on the CPU, as two additions."""
    from onnx import helper

    shapes = case.shapes()
    domain, name = case.op.split("::")
    if name == "BiasAdd":
        nodes = [
            helper.make_node("Add", ["X", "bias"], ["sum"]),
            helper.make_node("Add", ["sum", "skip"], ["Y"]),
        ]
    else:
        ends = _present(op.inputs, shapes), _present(op.outputs, out)
        nodes = [helper.make_node(name, *ends, domain="" if domain == "ai.onnx" else domain)]
    kind = _element(case.dtype)
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(role, kind, shape) for role, shape in shapes.items()],
        [
            helper.make_tensor_value_info(role, _element(array.dtype.name), array.shape)
            for role, array in out.items()
        ],
    )
    opset = 17 if name == "SimplifiedLayerNormalization" else OPSET
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return model


def _present(specs: Sequence[TensorSpec], there: Mapping[str, Any]) -> list[str]:
    """A node's tensors in order; what is left out in the middle is empty, at the end not there."""
    found = [spec.role if spec.role in there else "" for spec in specs]
    while not found[-1]:
        found.pop()
    return found


def _element(dtype: str) -> int:
    from onnx import TensorProto, helper

    if dtype == "bfloat16":
        return int(TensorProto.BFLOAT16)
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _fresh(session: Any, case: Case, inputs: Mapping[str, Array]) -> Call:
    if case.dtype != "bfloat16":
        return partial(session.run, None, dict(inputs))
    from onnxruntime import OrtValue

    values = {
        role: OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), _element("bfloat16"))
        for role, array in inputs.items()
    }
    return partial(session.run_with_ort_values, None, values)


def _bound(session: Any, inputs: Mapping[str, Array], out: Mapping[str, Array]) -> Any:
    binding = session.io_binding()
    for role, array in inputs.items():
        binding.bind_input(role, "cpu", 0, _element(array.dtype.name), array.shape, array.ctypes.data)
    for role, array in out.items():
        binding.bind_output(role, "cpu", 0, _element(array.dtype.name), array.shape, array.ctypes.data)
    return binding
