"""`registry new-plugin`: what it writes works, and what it refuses to write."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from test_cli import complaint, invoke

import registry_manifests
import registry_numpy
from registry import Registry, conformance


def test_the_project_brings_a_backend_that_conforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "new"
    out = invoke("new-plugin", "two_words", "--dir", str(folder)).stdout
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 5 and all(str(path) in out for path in files)
    assert not any("{{" in path.read_text() for path in files)
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    (name, module) = project["project"]["entry-points"]["registry.backends"].popitem()
    assert (name, module) == ("two_words", "registry_two_words")
    assert project["tool"]["pytest"]["ini_options"]["addopts"] == "--registry-backend two_words"
    monkeypatch.syspath_prepend(str(folder / "src"))
    try:
        plugin = importlib.import_module(module)
        reg = Registry([registry_manifests, registry_numpy, plugin], entry_points=False)
        x = np.ones((1, 2, 4), np.float32)
        assert (reg.run("BiasAdd", X=x, bias=x[0, 0], skip=x, backend="two_words") == 3).all()
        report = conformance.run(reg, "BiasAdd", cases=10, backend="two_words")
        assert report.ok and report.backends[0].requests > 2, report
        compile((folder / "tests/test_backend.py").read_text(), "test_backend.py", "exec")
    finally:
        for loaded in [m for m in sys.modules if m.startswith(module)]:
            del sys.modules[loaded]


@pytest.mark.parametrize("name", ["Upper", "with-dash", "1st", "class", "a.b", "../up", ""])
def test_a_name_that_is_none(tmp_path: Path, name: str) -> None:
    said = complaint("new-plugin", name, "--dir", str(tmp_path / "new"))
    assert repr(name) in said and "lower-case letter" in said
    assert not (tmp_path / "new").exists()


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    said = complaint("new-plugin", "numpy", "--dir", str(tmp_path / "new"))
    assert "a plugin of kernel-registry" in said and not (tmp_path / "new").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    assert "is not empty" in complaint("new-plugin", "acme", "--dir", str(tmp_path))
    assert (tmp_path / "README.md").read_text() == "mine"
    assert "cannot be written" in complaint("new-plugin", "acme", "--dir", str(tmp_path / "README.md"))


def test_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    invoke("new-plugin", "acme")
    assert (tmp_path / "registry-acme/src/registry_acme/backend.py").is_file()
