"""What is chosen and computed for devices that are not here: variants, constants, bindings, grids."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from forms import FORMS

from registry import NoPlanError, Registry
from registry.handle import Handle

CASES = json.loads((Path(__file__).parent / "data/selection.json").read_text())
LIMITS = {"maxStorageBuffersPerShaderStage": 8}
PROFILES: dict[str, dict[str, Any]] = {
    "full": {
        "features": ["shader-f16", "subgroups"],
        "wgslLanguageFeatures": ["subgroup_id"],
        "adapterInfo": {"subgroupMinSize": 32, "subgroupMaxSize": 32},
        "limits": LIMITS,
    },
    "base": {"limits": LIMITS},
    "narrow": {
        "features": ["shader-f16", "subgroups"],
        "adapterInfo": {"subgroupMinSize": 8, "subgroupMaxSize": 16},
        "limits": LIMITS,
    },
}
IDS = [f"{case['name']}-{case['device']}" for case in CASES]


def arguments(op: Any, case: dict[str, Any]) -> dict[str, Any]:
    outputs = {spec.arg for spec in op.outputs}
    pairs = {name: (tuple(t["shape"]), t["dtype"]) for name, t in case["tensors"].items()}
    return {
        "inputs": {name: pair for name, pair in pairs.items() if name not in outputs},
        "out": {name: pair for name, pair in pairs.items() if name in outputs},
        "attrs": case["attrs"],
        "backend": "webgpu",
        "profile": {"webgpu": PROFILES[case["device"]]},
    }


def bindings(block: str) -> list[str]:
    """The declaration block in the short form of the cases."""
    found = []
    for line in block.splitlines():
        storage = re.fullmatch(r"@group\(0\) @binding\((\d+)\) var<storage, (\w+)> (\w+): (.+);", line)
        uniform = re.fullmatch(r"@group\(0\) @binding\((\d+)\) var<uniform> (\w+): \w+;", line)
        if storage:
            access = "r" if storage[2] == "read" else "rw"
            found.append(f"@{storage[1]} {access} {storage[3]}: {storage[4]}")
        elif uniform:
            found.append(f"@{uniform[1]} uniform {uniform[2]}")
    return found


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_seed(seeds: dict[str, Handle], case: dict[str, Any]) -> None:
    handle = seeds[case["op"].rpartition(".")[2]]
    named = arguments(handle.op, case)
    decision = handle.explain(**named)
    if "error" in case:
        assert decision.chosen is None
        with pytest.raises(NoPlanError, match="no candidate accepts"):
            handle.render(**named)
        if case["error"] == "none":
            reasons = [f"{row.variant}: `{row.condition}` -> false" for row in decision.candidates]
            assert reasons == case["rejected"]
        else:
            assert all("null" in row.found for row in decision.candidates)
        return
    chosen = decision.require()
    assert (chosen.variant, chosen.demoted) == (case["variant"], case["demoted"])
    rendered = handle.render(**named)
    assert len(rendered) == len(case["passes"])
    for item, expected in zip(rendered, case["passes"], strict=True):
        assert (item.id, item.shader, item.language) == (expected["id"], expected["shader"], "wgsl")
        assert dict(item.constants) == expected["constants"]
        assert dict(item.inputs) == expected["source"]
        assert bindings(item.declarations) == expected["decl"]
        assert item.declarations in item.source
        assert item.uniforms == expected["uniforms"]
        assert list(item.dispatch) == expected["dispatch"]


def in_our_contract(case: dict[str, Any]) -> bool:
    """Some seed cases break the op's own contract, which ours states and refuses before any choice; one
    asks for a tensor over the binding limit, which a package's rules do not look at."""
    return case["name"] not in (
        "sln rank1",
        "ba rank2",
        "ln ax5",
        "ln 2x0",
        "ln rank0",
        "ba fold",
        "ln stats wrong numel",
    )


OURS = [case for case in CASES if in_our_contract(case)]


@pytest.mark.parametrize("case", OURS, ids=[f"{case['name']}-{case['device']}" for case in OURS])
def test_ours_agree(shared: Registry, case: dict[str, Any]) -> None:
    """Our manifests choose and compute what the published ones do, wherever both have a variant: what is
    chosen before it is one of the faster kind that we have besides."""
    op = shared.op(case["op"])
    named = arguments(op, case)
    accepted = [row.variant for row in shared.explain(op, **named).eligible]
    if "error" in case:
        published = {line.partition(":")[0] for line in case["rejected"]}
        assert not published & set(accepted)
        return
    assert next(name for name in accepted if not name.startswith("wide")) == case["variant"]
    named["variant"] = case["variant"]
    for item, expected in zip(shared.render(op, **named), case["passes"], strict=True):
        assert item.shader == expected["shader"]
        assert expected["source"].items() <= dict(item.inputs).items()
        assert bindings(item.declarations) == expected["decl"]
        assert item.uniforms == expected["uniforms"]
        groups = expected["dispatch"][0] * expected["dispatch"][1]
        x, y, _ = item.dispatch
        rows = case["tensors"]
        if max(expected["dispatch"]) < 65535:
            assert list(item.dispatch) == expected["dispatch"]
        else:  # an even fold launches fewer groups, still enough for every row
            needed = next(t["shape"][0] for name, t in rows.items() if name in ("inputT", "x", "X"))
            assert needed <= x * y <= groups and x <= 65535


@pytest.mark.parametrize("op", FORMS)
def test_the_wide_variants_come_first(shared: Registry, op: str) -> None:
    ran = 0
    for form in FORMS[op]:
        pairs = form.pairs(6, 768, "float32")
        decision = shared.explain(op, **(pairs or {}), profile={"webgpu": {}})
        if any(row.variant.startswith("wide") for row in decision.eligible):
            assert str(decision.variant).startswith("wide"), form.name
            ran += 1
    assert ran


def test_variants_that_put_rows_together_say_so(shared: Registry) -> None:
    """Those that keep measures of parts of a row between passes: how many parts depends on the rows."""
    for op in FORMS:
        for variant in shared.op(op).manifest.variants:
            assert variant.batch_invariant is not bool(variant.intermediates), variant.id


def test_even_fold_wastes_few_groups() -> None:
    from registry.calling.passes import fold

    for groups in (65535, 65536, 70000, 131070, 131071, 65535 * 65535):
        x, y, z = fold(groups, even=True)
        assert groups <= x * y < groups + y and max(x, y) <= 65535 and z == 1
    assert fold(0, even=True) == (0, 0, 1)
    assert fold(70000, even=False) == (65535, 2, 1)


def test_package_size_limit_is_told_before_launch(seeds: dict[str, Handle]) -> None:
    """A described device may choose a variant for a tensor that this device cannot bind; running says so."""
    case = next(c for c in CASES if c["name"] == "ba fold")
    named = arguments(seeds["BiasAdd"].op, case)
    assert seeds["BiasAdd"].explain(**named).variant == "vec4"
