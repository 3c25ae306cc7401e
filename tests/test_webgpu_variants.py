"""Every variant forced, on every dtype and size it accepts, against the float64 reference."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import numpy as np
import pytest
from forms import FORMS, HIDDEN, MANY_ROWS, ROWS, Form, check

from registry import Registry
from registry.dtypes import numpy_dtype
from registry.handle import Handle

DTYPES = ("float32", "float16", "bfloat16")

# By the ids of the published manifests, whose variants accept the same calls.
PUBLISHED = {
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
FAMILIES = {
    "com.microsoft::SkipLayerNormalization": [
        *(f"hidden1_{dtype}_{beta}" for dtype in ("f32", "f16") for beta in ("no_beta", "beta")),
        *(
            f"{wide}{statistics}_{tensors}"
            for wide in ("wide_", "split_", "")
            for statistics in ("rows", "stats_mean", "stats_inv", "stats_both")
            for tensors in (
                "plain",
                "residual",
                "beta",
                "beta_residual",
                "bias",
                "bias_residual",
                "bias_beta",
                "bias_beta_residual",
            )
        ),
        "stats_both_bias_beta_residual_split",
    ],
    "com.microsoft::BiasAdd": ["wide"],
    "ai.onnx::LayerNormalization": [
        f"{wide}rows{bias}{stats}"
        for wide in ("wide_", "split_", "")
        for bias in ("", "_bias")
        for stats in ("", "_mean_only", "_inv_std_dev_only", "_stats")
    ],
    "com.microsoft::SkipSimplifiedLayerNormalization": [
        f"{wide}{statistics}_{tensors}"
        for wide in ("wide_", "split_", "")
        for statistics in ("rows", "stats_mean", "stats_inv", "stats_both")
        for tensors in ("plain", "residual", "bias", "bias_residual")
    ],
    "ai.onnx::SimplifiedLayerNormalization": [
        f"{wide}{outputs}" for wide in ("wide_", "split_", "") for outputs in ("rows", "stats_inv")
    ],
    "ai.onnx::RMSNormalization": ["wide_rows", "split_rows", "rows"],
}
# Variants of a family share a template: one of each runs the whole grid.
WHOLE_GRID = (
    "wide",
    "wide_rows",
    "wide_stats_both_bias_beta_residual",
    "wide_rows_bias_stats",
    "hidden1_f16_beta",
    "stats_both_bias_beta",
    "stats_both_bias_beta_residual_split",
    "rows_bias_stats",
    "stats_both_bias_residual",
)


def named(variants: dict[str, list[str]]) -> Any:
    pairs = [(op, variant) for op, ids in variants.items() for variant in ids]
    return pytest.mark.parametrize(("op", "variant"), pairs, ids=[variant for _, variant in pairs])


@cache
def accepting(reg: Registry, op: Any, form: Form, rows: int, hidden: int, dtype: str) -> set[str]:
    """The variants of WebGPU that accept a form of call at a size."""
    pairs = form.pairs(rows, hidden, dtype)
    if pairs is None or dtype not in reg.op(op).manifest.type_constraints["T"]:
        return set()
    return {r.variant for r in reg.explain(op, **pairs, backend="webgpu").eligible}


def accepted_forms(reg: Registry, op: Any, op_id: str, variant: str) -> list[Form]:
    # The published SkipLayerNormalization has no statistics.
    known = {spec.role for spec in reg.op(op).outputs}
    forms = [form for form in FORMS[op_id] if set(form.outputs) <= known]
    probes = list(itertools.product((3,), (8, 7, 1), DTYPES))
    return [form for form in forms if any(variant in accepting(reg, op, form, *probe) for probe in probes)]


def sizes() -> list[tuple[int, int]]:
    many = [(MANY_ROWS, hidden) for hidden in (1, 4, 7)]
    return [(rows, hidden) for hidden in HIDDEN for rows in ROWS] + many


def run_grid(reg: Registry, op: Any, op_id: str, variant: str) -> int:
    forms = accepted_forms(reg, op, op_id, variant)
    assert forms, f"no form of call is accepted by {variant}"
    whole = variant in PUBLISHED.get(op_id, ()) or variant in WHOLE_GRID
    ran = 0
    for place, form in enumerate(forms):
        # The first form on the whole grid, or where code paths differ; the others once.
        some = [(3, 8)] if variant.startswith("split_") else [(3, 8), (3, 33), (3, 1)]
        grid = [(3, 33)] if place else sizes() if whole else some
        for rows, hidden in grid:
            for dtype in DTYPES:
                if variant in accepting(reg, op, form, rows, hidden, dtype):
                    call = form.call(rows, hidden, dtype)
                    assert call is not None
                    check(reg, op, call, "webgpu", variant)
                    ran += 1
    return ran


def test_the_list_is_complete(shared: Registry) -> None:
    for op, variants in FAMILIES.items():
        assert sorted(PUBLISHED.get(op, []) + variants) == sorted(shared.op(op).variants)
    assert sum(map(len, PUBLISHED.values())) == 35


@named(PUBLISHED)
def test_variant(webgpu: Registry, op: str, variant: str) -> None:
    assert run_grid(webgpu, op, op, variant) > 0


@named(FAMILIES)
def test_variant_of_a_family(webgpu: Registry, op: str, variant: str) -> None:
    assert run_grid(webgpu, op, op, variant) > 0


SPLIT = {
    "com.microsoft::SkipLayerNormalization": "split_stats_both_bias_beta_residual",
    "ai.onnx::LayerNormalization": "split_rows_bias_stats",
    "com.microsoft::SkipSimplifiedLayerNormalization": "split_stats_both_bias_residual",
    "ai.onnx::SimplifiedLayerNormalization": "split_stats_inv",
    "ai.onnx::RMSNormalization": "split_rows",
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", SPLIT)
def test_rows_of_several_segments(webgpu: Registry, op: str, dtype: str) -> None:
    form = next(f for f in FORMS[op] if SPLIT[op] in accepting(webgpu, op, f, 3, 8, dtype))
    for rows, hidden in ((2, 20_000), (5, 9_002)):
        call = form.call(rows, hidden, dtype)
        assert call is not None
        first = next(iter(call["inputs"].values()))
        first[..., : hidden // 2] += first.dtype.type(50)  # segments whose means differ
        check(webgpu, op, call, "webgpu", SPLIT[op])


@pytest.mark.parametrize("variant", ["wide_rows_stats", "split_rows_stats"])
def test_rows_that_begin_far_off(webgpu: Registry, variant: str) -> None:
    """The first estimate of the mean, which is counted from there, leaves a rest."""
    x = np.random.default_rng(0).standard_normal((2, 4096)).astype(np.float32)
    x[:, 0] = 1000, -3000
    call = {"inputs": {"X": x, "Scale": np.ones(4096, np.float32)}, "outputs": ("Y", "Mean", "InvStdDev")}
    check(webgpu, "ai.onnx::LayerNormalization", call, "webgpu", variant)


def test_many_rows_that_are_split(webgpu: Registry) -> None:
    """More workgroups than one dimension of a dispatch takes."""
    call = FORMS["ai.onnx::RMSNormalization"][0].call(MANY_ROWS, 4, "float32")
    assert call is not None
    check(webgpu, "ai.onnx::RMSNormalization", call, "webgpu", "split_rows")


def test_few_long_rows_are_split(webgpu: Registry) -> None:
    def chosen(rows: int, hidden: int) -> str | None:
        pairs = {"X": ((rows, hidden), "float32"), "scale": ((hidden,), "float32")}
        return webgpu.explain("RMSNormalization", **pairs, backend="webgpu").variant

    assert [chosen(1, 2**20), chosen(64, 65536)] == ["split_rows"] * 2
    assert [chosen(65, 65536), chosen(1, 65532)] == ["wide_rows"] * 2


def troubled(call: dict[str, Any]) -> dict[str, Any]:
    """The call with a NaN, an infinity and a big offset, each in a row of its own."""
    first, *_ = call["inputs"].values()
    rows = first.reshape(-1, first.shape[-1])
    rows[0, -1], rows[1, 0] = np.nan, -np.inf
    rows[2] = (rows[2].astype(np.float64) / 100 + 1000).astype(first.dtype)
    return call


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", FORMS)
def test_every_call(webgpu: Registry, op: str, dtype: str) -> None:
    """WebGPU accepts every form of a call, and odd rows and numbers come out right."""
    ran = 0
    for form in FORMS[op]:
        for rows, hidden in ((6, 8), (9, 7)):
            call = form.call(rows, hidden, dtype)
            if call is not None:
                check(webgpu, op, troubled(call), "webgpu")
                ran += 1
    assert ran >= len(FORMS[op])


@pytest.mark.parametrize("lanes", [1024, 16])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rows_that_share_words(webgpu: Registry, dtype: str, lanes: int) -> None:
    """Held rows hand on halves of words, longer ones are read again; the last row may stand alone."""
    op = "com.microsoft::SkipLayerNormalization"
    forms = {form.name: form for form in FORMS[op]}
    for name in ("rank 2 beta bias mean inv_std_var input_skip_bias_sum", "(S, H) input_skip_bias_sum"):
        for rows in (1, 2, 3, 6, 9):
            call = forms[name].call(rows, 161, dtype)
            if call is not None:
                call["tunables"] = {"MAX_LANES": lanes}
                (shader,) = webgpu.render(op, **call, backend="webgpu")
                assert ("var<workgroup> stage" in shader.source) is (lanes > 16)
                check(webgpu, op, troubled(call) if rows > 2 else call, "webgpu")


@pytest.mark.parametrize("channels", [256, 3])
def test_every_bfloat16(webgpu: Registry, channels: int) -> None:
    """Each of the 65,536 numbers is read and written as itself, and sums round to the nearest.

    WGSL lets a device take subnormal numbers for zero: there they are left out.
    """
    bits = np.arange(65536, dtype=np.uint16)
    least = np.full((1, 1, 2), 1, np.uint16).view(numpy_dtype("bfloat16"))
    pair = {"X": least, "bias": least[0, 0], "skip": least * 0}
    kept = webgpu.run("BiasAdd", **pair, backend="webgpu")
    if not np.asarray(kept, np.float32).any():
        bits[bits & 0x7F80 < 8 << 7] = 0  # nor may a difference of two be subnormal
    every = bits.view(numpy_dtype("bfloat16"))
    x = np.resize(every, (1, -(-65536 // channels), channels))
    bias = np.zeros(channels, x.dtype)
    for skip in (np.zeros_like(x), np.random.default_rng(0).permutation(x.reshape(-1)).reshape(x.shape)):
        with np.errstate(invalid="ignore"):  # the reference meets signalling NaN
            check(webgpu, "BiasAdd", {"inputs": {"X": x, "bias": bias, "skip": skip}}, "webgpu")


@named(PUBLISHED)
def test_seed_variant(webgpu: Registry, seeds: dict[str, Handle], op: str, variant: str) -> None:
    """The published manifests, unmodified, on our templates."""
    handle = seeds[op.partition("::")[2]]
    forms = accepted_forms(webgpu, handle.op, op, variant)
    assert forms
    ran = 0
    for rows, hidden in ((3, 8), (3, 7), (65, 257), (3, 1000), (MANY_ROWS, 4)):
        for dtype in ("float32", "float16"):
            if variant in accepting(webgpu, handle.op, forms[0], rows, hidden, dtype):
                call = forms[0].call(rows, hidden, dtype)
                assert call is not None
                check(webgpu, handle.op, call, "webgpu", variant)
                ran += 1
    assert ran > 0


@pytest.mark.parametrize(
    "op, variant, hidden, outputs",
    [
        ("LayerNormalization", "last_axis_stats_row", 300_001, ("Y", "Mean", "InvStdDev")),
        ("LayerNormalization", "last_axis_stats_row_vec4", 1_572_864, ("Y", "Mean", "InvStdDev")),
        ("LayerNormalization", "inv_std_dev_only", 300_001, ("Y", "InvStdDev")),
        ("SkipLayerNormalization", "no_beta_output_only_row", 300_001, ("output",)),
        ("SkipLayerNormalization", "no_beta_output_only_vec4", 1_572_864, ("output",)),
        ("SkipLayerNormalization", "stats_inv_plain", 300_001, ("output", "inv_std_var")),
        ("SimplifiedLayerNormalization", "stats_inv", 300_001, ("Y", "inv_std_var")),
        ("SimplifiedLayerNormalization", "wide_stats_inv", 1_000_003, ("Y", "inv_std_var")),
    ],
)
def test_long_rows_are_as_exact_as_short_ones(
    webgpu: Registry, op: str, variant: str, hidden: int, outputs: tuple[str, ...]
) -> None:
    """Added up one by one, equal terms are rounded the same way each time."""
    first, *others = webgpu.op(op).inputs
    inputs = {spec.role: np.ones(hidden, np.float32) for spec in others if spec.required}
    inputs[first.role] = np.where(np.arange(hidden) % 2, -1, 1).astype(np.float32)[None]
    if "skip" in inputs:
        inputs["skip"] = np.zeros((1, hidden), np.float32)
    check(webgpu, op, {"inputs": inputs, "outputs": outputs}, "webgpu", variant)
