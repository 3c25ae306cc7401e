"""The README's Python runs as it stands, and what it names is there."""

from __future__ import annotations

import re
from typing import Any

from conftest import ROOT

import registry
import registry_manifests
import registry_numpy
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
