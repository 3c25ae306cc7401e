"""The guide to backends: its example runs, and every name of the interface is in it."""

from __future__ import annotations

import re
import types
from dataclasses import fields

import numpy as np
from conftest import ROOT

import registry_manifests
import registry_numpy
from registry import Backend, Claim, Registry, conformance
from registry.hookspecs import API_VERSION, Hooks
from registry.plugins import HOOKS

TEXT = (ROOT / "docs/backends.md").read_text(encoding="utf-8")


def test_the_backend_of_the_guide_conforms() -> None:
    (code,) = re.findall(r"```python[^\n]*\n(.*?)```", TEXT, re.S)
    module = types.ModuleType("acme_kernels")
    exec(compile(code, "docs/backends.md", "exec"), module.__dict__)
    reg = Registry([registry_manifests, registry_numpy, module], entry_points=False)
    x = np.ones((1, 3, 8), np.float32)
    assert (reg.run("BiasAdd", X=x, bias=x[0, 0], skip=x, backend="pairs") == 3).all()
    odd = {"X": x[..., :7], "bias": x[0, 0, :7], "skip": x[..., :7]}
    row = reg.explain("BiasAdd", **odd, backend=["pairs", "numpy"]).candidates[0]
    assert (row.because, row.found) == ("the last dimension of X is even", "7")
    report = conformance.run(reg, "BiasAdd", cases=15, backend="pairs")
    assert report.ok and report.backends[0].requests > 2, report


def test_every_hook_is_named() -> None:
    hooks = {name for name in vars(Hooks) if not name.startswith("_")}
    assert hooks == set(HOOKS)
    assert all(f"| `{name}()` |" in TEXT for name in hooks)


def test_every_public_name_of_a_backend_is_in_a_table() -> None:
    rows = " ".join(line.split("|")[1] for line in TEXT.splitlines() if line.startswith("|"))
    public = {name for name in vars(Backend) if not name.startswith("_")}
    assert public <= set(re.findall(r"`(\w+)`", rows))


def test_every_part_of_a_claim_is_named() -> None:
    assert f"Claim({', '.join(field.name for field in fields(Claim))})" in TEXT


def test_every_check_is_named() -> None:
    assert all(f"`{check}`" in TEXT for check in conformance.CHECKS)


def test_the_version_is_the_interface_s() -> None:
    assert f"This is interface {API_VERSION}," in TEXT and f"this is interface {API_VERSION}`" in TEXT
    assert f"api_version = {API_VERSION}" in TEXT


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / "docs" / target).exists(), target
