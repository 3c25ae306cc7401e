"""ONNX's own tests of the operators it standardises, node by node, on every backend."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from registry import Registry
from registry.judging.accuracy import judge

onnx = pytest.importorskip("onnx", reason="needs the onnx package")

OPS = ("LayerNormalization", "RMSNormalization")


def published() -> list[Any]:
    """The standard's cases whose model is one node of an op of ours.

    The others spell the op out in simpler ones. Importing a module of cases collects them, from a fixed
    seed; importing these two alone takes half a second, where all of the standard's takes many.
    """
    for op in OPS:
        importlib.import_module(f"onnx.backend.test.case.node.{op.lower()}")
    node = importlib.import_module("onnx.backend.test.case.node")
    alone = [[op] for op in OPS]
    return [case for case in node._NodeTestCases if [n.op_type for n in case.model.graph.node] in alone]


CASES = published()


def present(specs: Any, names: Any, arrays: Any) -> dict[str, np.ndarray]:
    """The arrays of a data set by role: a tensor that is left out has an empty name and no array."""
    roles = [spec.role for spec, name in zip(specs, names, strict=False) if name]
    return dict(zip(roles, arrays, strict=True))


def test_every_case_is_here() -> None:
    for op in OPS:
        assert sum(case.model.graph.node[0].op_type == op for case in CASES) >= 19


@pytest.mark.parametrize("case", CASES, ids=[case.name.removeprefix("test_") for case in CASES])
def test_node(every: Registry, backend: str, case: Any) -> None:
    (node,) = case.model.graph.node
    op = every.op(f"ai.onnx::{node.op_type}")
    attrs = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    for given, wanted in case.data_sets:
        inputs = present(op.inputs, node.input, given)
        outputs = present(op.outputs, node.output, wanted)
        found = every.run(op, inputs=inputs, attrs=attrs, outputs=tuple(outputs), backend=backend)
        expected = every.catalog.plugins.references[op.id](inputs, {**op.attributes, **attrs})
        for (role, right), value in zip(outputs.items(), found, strict=True):
            assert value.dtype == right.dtype
            verdict = judge(value, expected[role], right.dtype.name)
            assert verdict.ok, f"{role}: {verdict.reason}"
            np.testing.assert_allclose(value, right, case.rtol, case.atol, err_msg=role)
