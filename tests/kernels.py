"""The NumPy kernels called without a registry, held to their references and to published cases."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
from vectors import Vector

from registry.judging.accuracy import Verdict, judge
from registry_numpy import (
    bias_add,
    layer_normalization,
    rms_normalization,
    simplified_layer_normalization,
    skip_layer_normalization,
    skip_simplified_layer_normalization,
)

Array = npt.NDArray[Any]

DTYPES = ("float32", "float16", "bfloat16", "float64")
STATISTICS = ("mean", "inv_std_var", "Mean", "InvStdDev")
OUTPUTS = {
    bias_add.OP: ("Y",),
    layer_normalization.OP: ("Y", "Mean", "InvStdDev"),
    rms_normalization.OP: ("Y",),
    simplified_layer_normalization.OP: ("Y", "inv_std_var"),
    skip_layer_normalization.OP: ("output", "mean", "inv_std_var", "input_skip_bias_sum"),
    skip_simplified_layer_normalization.OP: ("output", "mean", "inv_std_var", "input_skip_bias_sum"),
}


def call(
    op: ModuleType, tensors: Mapping[str, Array], asked: tuple[str, ...] = (), **attrs: Any
) -> dict[str, Array]:
    """Runs the fast form into outputs full of NaN; all outputs unless told."""
    full = tensors["X" if "X" in tensors else "input"]
    axis = attrs.get("axis", -1) % full.ndim
    row = full.shape[:axis] + (1,) * (full.ndim - axis)
    out = {
        name: np.full(row, np.nan, np.float32)
        if name in STATISTICS
        else np.full(full.shape, np.nan, full.dtype)
        for name in asked or OUTPUTS[op.OP]
    }
    op.blocked(tensors, attrs, out)
    return out


def check(op: ModuleType, tensors: Mapping[str, Array], **attrs: Any) -> dict[str, Verdict]:
    """Runs the fast form and judges every output by the reference."""
    out = call(op, tensors, **attrs)
    expected = op.reference(tensors, attrs)
    assert set(out) == set(expected)
    verdicts = {name: judge(out[name], expected[name], out[name].dtype.name) for name in out}
    for name, verdict in verdicts.items():
        assert verdict.ok, f"{op.OP} {name}: {verdict.reason}"
    return verdicts


def meets(op: ModuleType, vector: Vector) -> bool:
    """Whether both forms are as near to a published case as it wants.

    Fails where the fast form does not agree with the reference, or changes its inputs.
    """
    before = {name: array.tobytes() for name, array in vector.inputs.items()}
    fast = call(op, vector.inputs, **vector.attrs)
    assert before == {name: array.tobytes() for name, array in vector.inputs.items()}
    reference = op.reference(vector.inputs, vector.attrs)
    near = []
    for name, stored in vector.outputs.items():
        atol, rtol = vector.tolerance[name]
        right = stored.astype(np.float64)
        for answer in (fast[name], reference[name].value):
            assert answer.shape == stored.shape
            # The unrounded reference cannot match an exact half number; equal infinities have no difference.
            rounded = answer.astype(stored.dtype).astype(np.float64)
            away = np.abs(np.subtract(rounded, right, where=rounded != right, out=np.zeros_like(right)))
            near.append(bool((away <= atol + rtol * np.abs(right)).all()))
        assert judge(fast[name], reference[name], stored.dtype.name).ok
    return all(near)
