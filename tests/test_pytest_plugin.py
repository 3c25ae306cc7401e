"""Conformance as a pytest plugin: in a process of its own, as its users run it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_conformance import BIAS_ADD, Wrong, adds, overwrites_an_input, plugin, registry_with
from test_plugins import GOOD, distribution

from registry import ContractError, conformance
from registry_pytest.checks import collect

EMPTY_TEST = "def test_nothing(): pass\n"


def run_pytest(folder: Path, *arguments: str, code: int = 0, path: Sequence[Path] = ()) -> str:
    """What pytest prints in a folder, where it must leave with that code."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-W",
            "error",
            *arguments,
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, path), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_nothing_is_imported_without_the_option(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\ndef test_it():\n"
        "    assert 'registry_pytest' in sys.modules\n"
        "    assert not {'registry', 'numpy', 'registry_pytest.checks'} & sys.modules.keys()\n"
    )
    assert "1 passed" in run_pytest(tmp_path, "--strict-markers", "-p", "no:hypothesispytest")


def test_each_check_of_each_op_beside_the_tests(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(EMPTY_TEST)
    backend = ("--registry-backend", "numpy", "--registry-cases", "1")
    out = run_pytest(tmp_path, *backend, "--registry-op", "BiasAdd", "--strict-markers", "-v")
    assert all(f"numpy::{BIAS_ADD}::{check} PASSED" in out for check in conformance.CHECKS)
    assert "6 passed" in out
    assert "/31 tests collected" in run_pytest(tmp_path, *backend, "--co", "-q", "-m", "registry")
    chosen = run_pytest(tmp_path, *backend, "-q", "-k", "BiasAdd and refusal")
    assert "1 passed, 30 deselected" in chosen


def test_a_failure_is_a_report_with_a_line_to_repeat_it(tmp_path: Path) -> None:
    site = distribution(tmp_path, "plug-idle", {"idle": "plug_idle"}, {"plug_idle": GOOD.format(name="idle")})
    arguments = ("--registry-backend", "idle", "--registry-op", "BiasAdd", "--registry-cases", "2")
    out = run_pytest(tmp_path, *arguments, path=[site], code=1)
    assert f"registry test {BIAS_ADD} --case" in out and "Traceback" not in out
    assert "idle: com.microsoft::BiasAdd: accuracy" in out
    assert "2 failed, 3 passed" in out or "1 failed, 4 passed" in out


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown op": ({"registry_backend": "numpy", "registry_op": ["BiasAd"]}, "BiasAd"),
    "no case": ({"registry_backend": "numpy", "registry_cases": 0}, "at least 1"),
    "one that cannot run": ({"registry_backend": "absent"}, "cannot run: a device: none; needed: a card"),
    "one whose claims break": (
        {"registry_backend": "broken"},
        "claims for .* are broken: RuntimeError: boom",
    ),
    "one that claims nothing": ({"registry_backend": "useless"}, "claims none of"),
}

ODD = """
from registry import Availability, Backend, hookimpl
class Absent(Backend):
    name = "absent"
    def probe(self, options): return Availability(False, "a device", "none", "a card")
    def claims(self, op): return []
class Useless(Absent):
    name = "useless"
    def probe(self, options): return Availability(True)
class Broken(Useless):
    name = "broken"
    def claims(self, op): raise RuntimeError("boom")
@hookimpl
def registry_backends(): return [Absent(), Useless(), Broken()]
"""


def test_an_unknown_backend_is_an_error_of_usage(tmp_path: Path) -> None:
    out = run_pytest(tmp_path, "--registry-backend", "numpi", code=4)
    assert "did you mean" in out and "Traceback" not in out


@pytest.mark.parametrize("name", BAD)
def test_options_that_cannot_be_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    given, said = BAD[name]
    site = distribution(tmp_path, "plug-odd", {"odd": "plug_odd"}, {"plug_odd": ODD})
    monkeypatch.syspath_prepend(str(site))
    options = {"registry_op": [], "registry_cases": 20, "registry_seed": 0, **given}
    session: Any = SimpleNamespace(config=SimpleNamespace(getoption=options.get))
    with pytest.raises(pytest.UsageError, match=said):
        collect(session)


# Each check finds its own fault, and no other's.


class Alternating:
    """Every other run is one step off, which is near enough."""

    runs = 0

    def __call__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        self.runs += 1
        if self.runs % 2:
            one_step(outputs["Y"])


def by_number_of_rows(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    if outputs["Y"].size > outputs["Y"].shape[-1]:
        one_step(outputs["Y"])


def one_step(y: np.ndarray[Any, Any]) -> None:
    if y.dtype in (np.float32, np.float64):
        y[...] = np.nextafter(y, y.dtype.type(np.inf))


FAULTS: dict[conformance.Check, tuple[type[Any] | Wrong, str]] = {
    "contract": (overwrites_an_input, "the input skip was modified"),
    "accuracy": (adds, "times the tolerance"),
    "determinism": (Alternating, "a second run gives other bits"),
    "batch-invariance": (by_number_of_rows, "of the rows give other bits"),
}


@pytest.mark.parametrize("check", FAULTS)
def test_a_check_finds_its_fault(check: conformance.Check) -> None:
    fault, reason = FAULTS[check]
    reg = registry_with(plugin(fault() if isinstance(fault, type) else fault))
    report = conformance.run(reg, BIAS_ADD, cases=30, backend="wrong", checks=(check,))
    assert not report.ok and all(reason in failure.reason for failure in report.failures), report
    assert (report.legal, report.illegal) == (30, 0)
    others = {
        "contract": ("accuracy", "refusal"),
        "accuracy": ("contract", "determinism", "batch-invariance", "refusal"),
        "determinism": ("contract", "accuracy", "refusal"),
        "batch-invariance": ("contract", "accuracy", "determinism", "refusal"),
    }[check]
    report = conformance.run(reg, BIAS_ADD, cases=30, backend="wrong", checks=others)
    assert report.ok, report


def test_checks_that_are_none() -> None:
    reg = registry_with()
    with pytest.raises(ContractError, match="some of contract, accuracy"):
        conformance.run(reg, BIAS_ADD, checks=("speed",))  # type: ignore[arg-type]
    with pytest.raises(ContractError, match="some of contract"):
        conformance.run(reg, BIAS_ADD, checks=())
