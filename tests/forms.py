"""The forms a call of each op can take: which optional tensors, outputs, ranks and broadcasts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from registry.api import Registry
from registry.judging.accuracy import judge, round_to

HIDDEN = (1, 2, 3, 4, 5, 7, 8, 31, 33, 64, 100, 255, 257, 768, 1000, 4096, 4097)
ROWS = (1, 3, 65)
MANY_ROWS = 65537

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Form:
    """One way to call an op. ``shapes(rows, hidden)`` gives the shape of every input by role."""

    name: str
    shapes: Callable[[int, int], Shapes | None]
    outputs: tuple[str, ...]
    attrs: tuple[tuple[str, Any], ...] = ()

    def pairs(self, rows: int, hidden: int, dtype: str) -> dict[str, Any] | None:
        """The call without data, or None when the form does not exist at this size."""
        shapes = self.shapes(rows, hidden)
        if shapes is None:
            return None
        return {
            "inputs": {role: (shape, dtype) for role, shape in shapes.items()},
            "outputs": self.outputs,
            "attrs": dict(self.attrs),
        }

    def call(self, rows: int, hidden: int, dtype: str, seed: int = 0) -> dict[str, Any] | None:
        """The call with normal numbers, off-centre so that means matter."""
        pairs = self.pairs(rows, hidden, dtype)
        if pairs is None:
            return None
        draw = np.random.default_rng([seed, rows, hidden])
        pairs["inputs"] = {
            role: round_to(draw.standard_normal(shape) * 1.5 + 0.5, dtype)
            for role, (shape, _) in pairs["inputs"].items()
        }
        return pairs


def _skip_layer_normalization() -> Iterator[Form]:
    def shapes(beta: bool, bias: bool, kind: str) -> Callable[[int, int], Shapes | None]:
        def at(rows: int, hidden: int) -> Shapes | None:
            full: tuple[int, ...] = (rows, hidden)
            skip = full
            if kind != "rank 2":
                if rows % 3 and rows > 1:
                    return None
                full = (3, rows // 3, hidden) if rows > 1 else (1, 1, hidden)
                skip = {"exact": full, "(S, H)": full[1:], "(1, S, H)": (1, *full[1:])}[kind]
            found = {"input": full, "skip": skip, "gamma": (hidden,)}
            return found | ({"beta": (hidden,)} if beta else {}) | ({"bias": (hidden,)} if bias else {})

        return at

    for kind, beta, bias, residual, stats in itertools.product(
        ("rank 2", "exact", "(S, H)", "(1, S, H)"),
        (False, True),
        (False, True),
        (False, True),
        ((), ("mean",), ("inv_std_var",), ("mean", "inv_std_var")),
    ):
        outputs = ("output", *stats, *(("input_skip_bias_sum",) if residual else ()))
        name = " ".join((kind, *("beta",) * beta, *("bias",) * bias, *outputs[1:]))
        yield Form(name, shapes(beta, bias, kind), outputs)


def _layer_normalization() -> Iterator[Form]:
    def shapes(axis: int, affine: str, bias: bool) -> Callable[[int, int], Shapes | None]:
        def at(rows: int, hidden: int) -> Shapes | None:
            if axis == -1:
                full: tuple[int, ...] = (rows, hidden)
            elif hidden % 4 == 0:
                full = (rows, 4, hidden // 4)
            else:
                full = (rows, hidden, 1)
            normal = full[axis:]
            scale = {
                "exact": normal,
                "one": (1,),
                "last": normal[-1:],
                "rows": (rows, *(1,) * len(normal)),
                "scalar": (),
            }[affine]
            return {"X": full, "Scale": scale} | ({"B": scale} if bias else {})

        return at

    for axis, affine, bias, stats in itertools.product(
        (-1, -2),
        ("exact", "one", "last", "rows", "scalar"),
        (False, True),
        ((), ("Mean",), ("InvStdDev",), ("Mean", "InvStdDev")),
    ):
        name = f"axis {axis} {affine}{' B' * bias} {' '.join(stats)}".strip()
        yield Form(name, shapes(axis, affine, bias), ("Y", *stats), (("axis", axis),))


def _simplified(source: Iterator[Form], renamed: dict[str, str], outputs: dict[str, str]) -> Iterator[Form]:
    """The forms of a layer normalisation whose tensors its simplified relative has, by its names."""

    def shapes(form: Form) -> Callable[[int, int], Shapes | None]:
        def at(rows: int, hidden: int) -> Shapes | None:
            found = form.shapes(rows, hidden)
            return found and {renamed.get(role, role): shape for role, shape in found.items()}

        return at

    for form in source:
        tensors = form.shapes(6, 8) or {}
        if not {"beta", "B"} & tensors.keys() and set(form.outputs) <= outputs.keys():
            yield Form(form.name, shapes(form), tuple(outputs[role] for role in form.outputs), form.attrs)


def _bias_add() -> Iterator[Form]:
    def shapes(rows: int, hidden: int) -> Shapes | None:
        full = (1, rows, hidden) if rows % 3 else (3, rows // 3, hidden)
        return {"X": full, "bias": (hidden,), "skip": full}

    yield Form("", shapes, ("Y",))


FORMS: dict[str, tuple[Form, ...]] = {
    "com.microsoft::SkipLayerNormalization": tuple(_skip_layer_normalization()),
    "ai.onnx::LayerNormalization": tuple(_layer_normalization()),
    "com.microsoft::BiasAdd": tuple(_bias_add()),
    "com.microsoft::SkipSimplifiedLayerNormalization": tuple(
        _simplified(
            _skip_layer_normalization(),
            {},
            {role: role for role in ("output", "mean", "inv_std_var", "input_skip_bias_sum")},
        )
    ),
    "ai.onnx::SimplifiedLayerNormalization": tuple(
        _simplified(_layer_normalization(), {"Scale": "scale"}, {"Y": "Y", "InvStdDev": "inv_std_var"})
    ),
    "ai.onnx::RMSNormalization": tuple(_simplified(_layer_normalization(), {"Scale": "scale"}, {"Y": "Y"})),
}


def check(reg: Registry, op: Any, call: dict[str, Any], backend: str, variant: str | None = None) -> None:
    """Runs a call on a backend and asserts that every output is within the op's tolerance."""
    result = reg.run(op, **call, backend=backend, variant=variant)
    target = reg.op(op)
    reference = reg.catalog.plugins.references[target.id]
    attrs = {**target.attributes, **call.get("attrs", {})}
    expected = reference(call["inputs"], attrs)
    plan = reg.last()
    assert plan is not None and plan.backend == backend and variant in (None, plan.variant)
    values = (result,) if plan.call.single else result
    for role, value in zip(plan.request.asked, values, strict=True):
        verdict = judge(np.asarray(value), expected[role], plan.request.outputs[role].dtype)
        assert verdict.ok, f"{plan.request} {plan.variant} {role}: {verdict}"
