"""scripts/accuracy.py: it measures every variant, sees what is wrong, and its page is up to date."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import ROOT, load_script

import registry_manifests
import registry_numpy
from registry import Backend, BackendError, Claim, Registry, hookimpl

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("accuracy")


def test_the_page_shows_the_results(script: ModuleType) -> None:
    files = sorted((DOCS / "accuracy").glob("*.json"))
    results = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
    assert results, "no results; run scripts/accuracy.py"
    fresh = (DOCS / "accuracy.md").read_text(encoding="utf-8") == script.page(results)
    assert fresh, "docs/accuracy.md is out of date; run: python scripts/accuracy.py --page"


def test_every_variant_is_measured(script: ModuleType, webgpu: Registry) -> None:
    rows = script.measure(webgpu, ["ai.onnx::SimplifiedLayerNormalization"], hidden=(6,), rows=(3,))
    seen: dict[str, set[str]] = {}
    for row in rows:
        seen.setdefault(row.backend, set()).update(row.variants)
        assert row.cases and not row.failed and (row.share > 0) == bool(row.worst), row
    kinds = {f"{kind}{outputs}" for kind in ("", "wide_", "split_") for outputs in ("rows", "stats_inv")}
    assert seen == {"webgpu": kinds, "numpy": {"blocked", "reference"}}
    assert {row.output for row in rows} == {"Y", "inv_std_var"}


class Off(Backend):
    """Right but for one element, and one variant that fails."""

    name = "off"

    def claims(self, op: Any) -> list[Claim]:
        return [Claim("wrong"), Claim("broken")]

    def prepare(self, request: Any, claim: Claim, options: Any) -> Any:
        def run(inputs: Any, outputs: Any) -> None:
            if claim.variant == "broken":
                raise BackendError("does not run")
            outputs["Y"][...] = inputs["X"] + inputs["bias"] + inputs["skip"]
            outputs["Y"].reshape(-1)[-1] += 1

        return run


def test_what_is_wrong_is_seen(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class plugin:
        @hookimpl
        def registry_backends() -> list[Backend]:
            return [Off()]

    reg = Registry([registry_manifests, registry_numpy, plugin], entry_points=False)
    rows = script.measure(reg, ["com.microsoft::BiasAdd"], hidden=(5,), rows=(3,))
    wrong = [row for row in rows if row.backend == "off" and row.dtype == "float64"]
    assert [(row.cases, row.failed) for row in wrong] == [(8, 7)]  # 1 is nothing beside 1e15
    assert wrong[0].share > 1 and wrong[0].worst.startswith("wrong, 3 x 5, ")
    assert "BiasAdd off broken" in capsys.readouterr().err
    script.save(tmp_path / "accuracy/here.json", script.machine(reg), rows)
    script.write_page(tmp_path)
    assert "**7 of 8 fail**" in (tmp_path / "accuracy.md").read_text(encoding="utf-8")
