"""The README's Python runs as it stands, and what it names is there."""

from __future__ import annotations

import re
import types
from pathlib import Path
from typing import Any

import numpy as np
from conftest import ROOT

import registry
import registry_manifests
import registry_numpy
import registry_webgpu
from registry.cli import main

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.S)


def test_python_blocks_run(seeds: Any, monkeypatch: Any, default: None) -> None:
    folder = str(seeds["BiasAdd"].op.package.folder)
    names: dict[str, Any] = {}
    for block in blocks("python"):
        code = block.replace('"path/to/package"', repr(folder))
        code = re.sub(r"^(.*kernel(\.explain)?\()X=x,", r"\1X=x,", code, flags=re.M)
        exec(compile(code, "README.md", "exec"), names)
    assert names["z"].shape == (2, 8, 768) and names["r"].shape == (2, 8, 768)
    assert names["decision"].backend == "webgpu"
    reg = registry.Registry([registry_manifests, registry_numpy, names["plugin"]], entry_points=False)
    x, bias = names["x"], names["gamma"]
    result = reg.run("BiasAdd", X=x, bias=bias, skip=x, backend="doubled")
    assert (result == x + bias + x).all()


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
    assert ("numpy", "the op is built in") in [(row.backend, row.because) for row in decision.rows]
    (folder / "scale.wgsl.jinja").unlink()
    row = reg.explain("Scale", x, backend="webgpu").rows[0]
    assert (row.because, row.found) == ("its template is there", "scale.wgsl.jinja")


def test_every_command_is_named() -> None:
    for command in main.commands:
        assert f"`{command}" in TEXT or f"registry {command}" in TEXT, command


def test_every_variable_is_named() -> None:
    sources = [*ROOT.glob("registry/**/*.py"), *ROOT.glob("plugins/**/*.py")]
    used = set(re.findall(r"REGISTRY_[A-Z_]+[A-Z]", "".join(path.read_text() for path in sources)))
    for variable in used:
        assert variable in TEXT, variable


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / target).exists(), target
