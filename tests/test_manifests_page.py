"""The guide to manifests: its example runs."""

from __future__ import annotations

import re
import types
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

import registry
import registry_manifests
import registry_numpy
import registry_webgpu
from registry.language.functions import FUNCTIONS
from registry.manifest import Record


def test_the_manifest_of_the_guide_runs(webgpu: registry.Registry, tmp_path: Path) -> None:
    guide = (ROOT / "docs/manifests.md").read_text(encoding="utf-8")
    folder = tmp_path / "manifests/acme"
    folder.mkdir(parents=True)
    (manifest,) = re.findall(r"```yaml\n(.*?)```", guide, re.S)
    (template,) = re.findall(r"```wgsl\n(.*?)```", guide, re.S)
    (hook,) = re.findall(r"```python\n(.*?)```", guide, re.S)
    (folder / "Scale.yaml").write_text(manifest)
    (folder / "scale.wgsl.jinja").write_text(template)
    module = types.ModuleType("acme_kernels")
    module.__file__ = str(tmp_path / "acme_kernels.py")
    exec(compile(hook, module.__file__, "exec"), module.__dict__)
    references = {"acme::Scale": lambda tensors, attrs: {"Y": tensors["X"].astype(float) * attrs["factor"]}}
    module.registry_references = registry.hookimpl(lambda: references)  # type: ignore[attr-defined]
    reg = registry.Registry([registry_manifests, registry_numpy, registry_webgpu, module], entry_points=False)
    x = np.arange(200_000, dtype=np.float32).reshape(2, -1)
    np.testing.assert_array_equal(reg.run("Scale", x, factor=3, backend="webgpu"), x * 3)
    report = reg.compare("Scale", x)
    assert report.ok and [row.backend for row in report.rows] == ["webgpu"]
    decision = reg.explain("Scale", x)
    assert ("numpy", "the op is built in") in [(row.backend, row.because) for row in decision.candidates]
    (folder / "scale.wgsl.jinja").unlink()
    row = reg.explain("Scale", x, backend="webgpu").candidates[0]
    assert (row.because, row.found) == ("its template is there", "scale.wgsl.jinja")


@pytest.mark.parametrize("record", Record.__subclasses__(), ids=lambda record: record.__name__)
def test_every_key_is_named(record: type[Record]) -> None:
    guide = (ROOT / "docs/manifests.md").read_text(encoding="utf-8")
    for key in record.__struct_encode_fields__:
        assert re.search(rf"[`{{ ]{key}[`:]", guide), key


def test_every_function_is_named() -> None:
    words = set(re.findall(r"\w+", (ROOT / "docs/manifests.md").read_text(encoding="utf-8")))
    assert set(FUNCTIONS) <= words
