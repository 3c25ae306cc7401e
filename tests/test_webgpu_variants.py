"""Every variant forced, on every dtype and size it accepts, against the float64 reference."""

from __future__ import annotations

from typing import Any

import pytest
from forms import FORMS, HIDDEN, MANY_ROWS, ROWS, Form, check

from registry import Registry
from registry.package import Handle

VARIANTS = {
    "com.microsoft::SkipLayerNormalization": [
        f"{base}_{kind}"
        for base in (
            "no_beta_output_only",
            "beta_no_bias",
            "beta_no_bias_output_only",
            "beta_bias_output_only",
            "beta_bias",
        )
        for kind in ("vec4", "row")
    ]
    + ["beta_bias_vec4_f16", "beta_output_only_vec4_broadcast"],
    "com.microsoft::BiasAdd": ["vec4", "scalar"],
    "ai.onnx::LayerNormalization": [
        f"last_axis{bias}{stats}{kind}"
        for bias in ("", "_bias")
        for stats in ("", "_stats")
        for kind in ("_row_vec4", "_row", "")
    ]
    + [f"suffix_axis{bias}{stats}" for bias in ("", "_bias") for stats in ("", "_stats")]
    + [
        "suffix_axis_bias_exact_row_vec4",
        "mean_only",
        "bias_mean_only",
        "inv_std_dev_only",
        "bias_inv_std_dev_only",
    ],
}
EVERY = [(op, variant) for op, variants in VARIANTS.items() for variant in variants]


def accepts(reg: Registry, op: Any, pairs: dict[str, Any] | None, variant: str) -> bool:
    if pairs is None:
        return False
    return reg.explain(op, **pairs, backend="webgpu", variant=variant).chosen is not None


def accepted_forms(reg: Registry, op: Any, op_id: str, variant: str) -> list[Form]:
    # The published SkipLayerNormalization has no statistics.
    known = {spec.role for spec in reg.op(op).outputs}
    forms = [form for form in FORMS[op_id] if set(form.outputs) <= known]
    probes = [(3, hidden, dtype) for hidden in (8, 7) for dtype in ("float32", "float16")]
    return [form for form in forms if any(accepts(reg, op, form.pairs(*probe), variant) for probe in probes)]


def sizes() -> list[tuple[int, int]]:
    many = [(MANY_ROWS, hidden) for hidden in (1, 4, 7)]
    return [(rows, hidden) for hidden in HIDDEN for rows in ROWS] + many


def run_grid(reg: Registry, op: Any, op_id: str, variant: str) -> int:
    forms = accepted_forms(reg, op, op_id, variant)
    assert forms, f"no form of call is accepted by {variant}"
    ran = 0
    for place, form in enumerate(forms):
        # The first form on the whole grid, the others where code paths differ.
        grid = sizes() if place == 0 else [(3, 8), (3, 33)]
        for rows, hidden in grid:
            for dtype in ("float32", "float16"):
                if accepts(reg, op, form.pairs(rows, hidden, dtype), variant):
                    call = form.call(rows, hidden, dtype)
                    assert call is not None
                    check(reg, op, call, "webgpu", variant)
                    ran += 1
    return ran


def test_the_list_is_complete(shared: Registry) -> None:
    for op, variants in VARIANTS.items():
        assert set(variants) <= set(shared.op(op).variants)
    assert len(EVERY) == 35


@pytest.mark.parametrize(("op", "variant"), EVERY, ids=[variant for _, variant in EVERY])
def test_variant(webgpu: Registry, op: str, variant: str) -> None:
    assert run_grid(webgpu, op, op, variant) > 0


@pytest.mark.parametrize(("op", "variant"), EVERY, ids=[variant for _, variant in EVERY])
def test_seed_variant(webgpu: Registry, seeds: dict[str, Handle], op: str, variant: str) -> None:
    """The published manifests, unmodified, on our templates."""
    handle = seeds[op.partition("::")[2]]
    forms = accepted_forms(webgpu, handle.op, op, variant)
    assert forms
    ran = 0
    for rows, hidden in ((3, 8), (3, 7), (65, 257), (3, 1000), (MANY_ROWS, 4)):
        for dtype in ("float32", "float16"):
            if accepts(webgpu, handle.op, forms[0].pairs(rows, hidden, dtype), variant):
                call = forms[0].call(rows, hidden, dtype)
                assert call is not None
                check(webgpu, handle.op, call, "webgpu", variant)
                ran += 1
    assert ran > 0
