"""The golden files: outputs that every backend meets, and shaders that only change when that is meant."""

from __future__ import annotations

import json
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import load_script
from forms import FORMS
from vectors import Vector, read_vector

from registry import Registry
from registry.judging.accuracy import Expected, judge, round_to, ulps

REFRESH = "if that is meant, run: .venv/bin/python scripts/golden.py"


@pytest.fixture(scope="module")
def golden() -> ModuleType:
    return load_script("golden")


def stored(golden: ModuleType, op: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(golden.file_of(op).read_text(encoding="utf-8"))
    assert content["op"] == op and len(content["requests"]) >= 4
    return content


def reference(reg: Registry, op: str, case: Vector) -> dict[str, Expected]:
    found = reg.catalog.plugins.references[op](case.inputs, {**reg.op(op).attributes, **case.attrs})
    return {role: found[role] for role in case.outputs}


@pytest.mark.parametrize("op", FORMS)
def test_the_reference_still_says_so(every: Registry, golden: ModuleType, op: str) -> None:
    for case in map(read_vector, stored(golden, op)["requests"]):
        for role, expected in reference(every, op, case).items():
            right, dtype = case.outputs[role], case.outputs[role].dtype.name
            # The last digit of float64 is the machine's: sums are not added in one order everywhere.
            near = judge(right, expected, dtype).share < 0.01
            near |= bool((ulps(round_to(expected.value, dtype), right, dtype) <= 1).all())
            assert near, f"{op}, {case.name}: {role} is not what it was; {REFRESH}"


@pytest.mark.parametrize("op", FORMS)
def test_every_backend_meets_the_outputs(every: Registry, golden: ModuleType, backend: str, op: str) -> None:
    ran = 0
    for case in map(read_vector, stored(golden, op)["requests"]):
        call = {"inputs": case.inputs, "attrs": case.attrs, "outputs": tuple(case.outputs)}
        if every.explain(op, **call, backend=backend).chosen is None:
            assert case.name.startswith("float64"), f"{backend} takes no {case.name}"
            continue
        found = every.run(op, **call, backend=backend)
        for value, (role, expected) in zip(found, reference(every, op, case).items(), strict=True):
            right = replace(expected, value=case.outputs[role].astype(np.float64))
            verdict = judge(value, right, case.outputs[role].dtype.name)
            assert verdict.ok, f"{op}, {case.name}, {backend}: {role}: {verdict.reason}"
            ran += 1
    assert ran


def test_sums_are_added_in_the_order_of_the_definition(every: Registry, backend: str) -> None:
    """Two small numbers first, which one by one would leave no trace in the large one."""
    small, large = np.full((1, 1, 1), 0.04, np.float32), np.full((1, 1, 1), 2.0**20, np.float32)
    y = every.run("BiasAdd", X=small, bias=small[0, 0], skip=large, backend=backend)
    tensors = {"input": small, "skip": small, "bias": large[0, 0], "gamma": small[0, 0]}
    r = every.run("SkipLayerNormalization", **tensors, outputs="input_skip_bias_sum", backend=backend)
    assert y == r == 2.0**20 + 0.125


@pytest.mark.parametrize("op", FORMS)
def test_shaders(every: Registry, golden: ModuleType, op: str) -> None:
    agreed = stored(golden, op)["shaders"]
    assert list(agreed) == list(every.op(op).variants), f"{op} has other variants; {REFRESH}"
    forms = {variant: line.pop("form") for variant, line in agreed.items()}
    changed = []
    for variant, found in golden.digests(every, op, forms).items():
        assert found, f"{variant} is rendered for nothing"
        line = agreed[variant]
        kinds = sorted(found.keys() | line.keys())
        changed += [f"{variant} ({kind})" for kind in kinds if found.get(kind) != line.get(kind)]
    assert not changed, f"{op}: other WGSL than was agreed on: {', '.join(changed)}; {REFRESH}"
