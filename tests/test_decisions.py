"""The lock of decisions: recording, the file, deciding anew, and the two commands."""

from __future__ import annotations

import copy
import json
import re
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from fakes import Clock, Fake, registry_of
from hostile.bombs import write_package

import registry
from registry import ContractError, Registry
from registry.cli import main
from registry.environment import BESIDE
from registry.freezing.decision_lock import DecisionLock, read_lock
from registry.freezing.records import parse_tensor, tensor_text

X = np.ones((1, 3, 4), np.float32)
CALL = {"X": X, "bias": X[0, 0], "skip": X}


def fake(name: str = "slow", **more: Any) -> Fake:
    return Fake(name, Clock(), {"wide": 1.0, "narrow": 2.0}, **more)


def frozen(reg: Registry, path: Path, **named: Any) -> Path:
    with reg.record() as log:
        reg.run("BiasAdd", **CALL, **named)
    reg.freeze(path, log)
    return path


# Recording


def test_each_request_is_recorded_once_whoever_makes_it(shared: Registry) -> None:
    plan = shared.prepare("BiasAdd", **CALL, backend="numpy")
    shared.run("BiasAdd", **CALL, backend="numpy")  # before: it is known, and not recorded
    with shared.record() as log:
        assert len(log) == 0
        with shared.record() as inner:
            shared.run("BiasAdd", **CALL, backend="numpy")
            shared.run("BiasAdd", **CALL, backend="numpy")
            plan(**CALL)
        other = threading.Thread(target=lambda: shared.run("BiasAdd", **CALL, backend=["numpy"]))
        other.start()
        other.join()
        shared.prepare("RMSNormalization", X=X, scale=X[0, 0], backend="numpy", epsilon=1e-3)
    shared.run("BiasAdd", **CALL, backend="numpy", variant="reference")
    assert len(inner) == 1 and len(log) == 3
    asked = [each.asked for each in log.decisions]
    assert [each.backend for each in asked] == ["numpy", "numpy", ("numpy",)]
    assert asked[0].attrs == {"epsilon": 1e-3} and asked[0].tensors["X"] == "1x3x4:float32"
    assert all(each.chosen.variant == "blocked" and not each.chosen.passes for each in log.decisions)


def test_what_cannot_be_recorded_stops_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = fake()
    reg = registry_of(monkeypatch, backend.clock, backend)
    monkeypatch.setattr(Fake, "render", lambda *rest: 1 / 0)
    with pytest.warns(registry.RegistryWarning, match="is not recorded"), reg.record() as log:
        reg.run("BiasAdd", **CALL)
    assert len(log) == 0


def test_tensors_as_text() -> None:
    for shape, dtype, device in (((2, 3), "float32", None), ((), "int64", "a:0"), ((0,), "float16", "b")):
        assert parse_tensor(tensor_text(shape, dtype, device)) == (shape, dtype, device)
    for text in ("", "2x3", "x:float32", "2x3:float32 on ", "2x-3:float32"):
        with pytest.raises(ContractError, match="the tensor"):
            parse_tensor(text)


# Deciding anew


def test_nothing_has_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    backend = fake()
    reg = registry_of(monkeypatch, backend.clock, backend)
    path = frozen(reg, tmp_path / "decisions.lock")
    check = reg.check(path)
    assert check.ok and check.count == 1 and not check.changes
    assert str(check) == f"{path}: 1 decision, as before"
    assert backend.clock.now == 1.0  # nothing ran for it


def test_variables_that_settle_no_decision_are_no_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    backend = fake()
    reg = registry_of(monkeypatch, backend.clock, backend)
    path = frozen(reg, tmp_path / "decisions.lock")
    for name in BESIDE:
        monkeypatch.setenv(name, "1")
    reg.refresh()
    assert not reg.check(path).changes
    monkeypatch.setenv("REGISTRY_SLOW_SOFTWARE", "1")
    reg.refresh()
    (change,) = reg.check(path).changes
    assert str(change) == "environment.REGISTRY_SLOW_SOFTWARE: none -> 1"


def test_another_choice_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    backend = fake(conditions={"wide": ("ranks.X == 3",)})
    reg = registry_of(monkeypatch, backend.clock, backend)
    path = frozen(reg, tmp_path / "decisions.lock")
    backend.conditions["wide"] = ("dim(shapes.X, 2) % 8 == 0",)
    backend.driver = "2.0"
    reg.refresh()
    (difference,) = reg.check(path).differences
    assert difference.what == "choice"
    was, now = difference.rows
    assert was == ("was", "slow", "wide", "rejected", "dim(shapes.X, 2) % 8", "4", "== 0")
    assert now[:5] == ("now", "slow", "narrow", "chosen", "every condition holds")
    (change,) = reg.check(path).changes
    assert str(change) == "devices.slow.driver: 1.0 -> 2.0"
    # And back: what is chosen then was rejected when this lock was written.
    path = frozen(reg, tmp_path / "other.lock")
    backend.conditions["wide"] = ()
    _, then, now = reg.check(path).differences[0].rows
    assert then == ("then", "slow", "wide", "rejected", "dim(shapes.X, 2) % 8", "4", "== 0")
    assert now[2:4] == ("wide", "chosen")


def test_another_source_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    backend = fake(source="one\ntwo")
    reg = registry_of(monkeypatch, backend.clock, backend)
    path = frozen(reg, tmp_path / "decisions.lock")
    backend.source = "one\nthree"
    (difference,) = reg.check(path).differences
    assert difference.what == "source" and "pass main (x), sha256" in difference.message
    assert "\n-two wide" in difference.diffs[0] and "\n+three wide" in difference.diffs[0]
    # Without the text, or with another one, there is no diff, but still a difference.
    (text,) = (tmp_path / "decisions.sources").iterdir()
    for spoil in (lambda: text.write_text("other"), text.unlink):
        spoil()
        (difference,) = reg.check(path).differences
        assert not difference.diffs and difference.what == "source"
    frozen(reg, path)
    (text,) = (tmp_path / "decisions.sources").iterdir()
    assert text.read_text() == "one\nthree wide "


@pytest.mark.parametrize("gone", ["variant", "preparing", "backend", "hardware"])
def test_a_choice_that_is_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gone: str) -> None:
    first, second = fake("first", priority=60), fake("second")
    reg = registry_of(monkeypatch, first.clock, first, second)
    path = frozen(reg, tmp_path / "decisions.lock")
    assert read_lock(path).decisions[0].chosen.backend == "first"
    if gone == "variant":
        del first.costs["wide"]
    elif gone == "preparing":
        first.defects["wide"] = "unprepared"
    elif gone == "hardware":
        first.hardware = False
    else:
        reg = registry_of(monkeypatch, second.clock, second)
    reg.refresh()
    check = reg.check(path)
    (difference,) = check.differences
    found = {
        "variant": ("gone", "it is claimed", "no such variant"),
        "backend": ("gone", "the backend is asked", "second"),
        "preparing": ("rejected", "it could not be prepared", "RuntimeError: it does not compile"),
        "hardware": ("rejected", "adapter is hardware", "first device (software)"),
    }[gone]
    assert difference.rows[0][3:6] == found
    assert any("devices.first" in change.name for change in check.changes) is (gone == "backend")


def test_no_candidate_and_no_op(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    backend = fake()
    reg = registry_of(monkeypatch, backend.clock, backend)
    path = frozen(reg, tmp_path / "decisions.lock", backend="slow", variant="wide")
    backend.conditions["wide"] = ("ranks.X == 2",)
    (difference,) = reg.check(path).differences
    assert difference.what == "choice" and difference.now is None
    assert difference.rows[0][3:] == ("rejected", "ranks.X", "3", "== 2")
    (difference,) = registry_of(monkeypatch, backend.clock).check(path).differences
    assert difference.what == "error" and "no backend 'slow'" in difference.message
    (difference,) = Registry(entry_points=False).check(path).differences
    assert difference.what == "error" and "no op" in difference.message


def test_settings_and_devices_are_part_of_the_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = fake("first", priority=60), fake("second", device=True)
    reg = registry_of(monkeypatch, first.clock, first, second)
    reg.configure(backends=["second"], batch_invariant=True)
    path = frozen(reg, tmp_path / "decisions.lock")
    reg.configure(backends=None, batch_invariant=False)
    tensors = {name: reg.to_device(value, "second") for name, value in CALL.items()}
    with reg.record() as log:
        reg.run("BiasAdd", **tensors)
        reg.run("BiasAdd", **CALL, out=np.empty_like(X), device="second", variant="narrow")
    lock = reg.freeze(path, log)
    asked = {each.asked.device: each.asked for each in lock.decisions if not each.asked.settings}
    assert asked[None].tensors["X"] == "1x3x4:float32 on second:0"
    assert asked["second"].out == {"Y": "1x3x4:float32"} and asked["second"].variant == "narrow"
    assert [each.asked.settings for each in lock.decisions if each.asked.settings] == [
        {"backends": ["second"], "batch_invariant": True}
    ]
    assert reg.check(path).ok and reg.catalog.listed() is None


def test_rendered_sources_and_packages(webgpu: Registry, tmp_path: Path) -> None:
    folder = write_package(tmp_path / "packages/twice")
    handle = webgpu.load(folder)
    with webgpu.record() as log:
        handle(X)
        webgpu.run("BiasAdd", **CALL, backend="webgpu")
    lock = webgpu.freeze(tmp_path / "decisions.lock", log)
    package = next(each.asked.package for each in lock.decisions if each.asked.package)
    assert package == "packages/twice"
    assert all(len(each.chosen.passes) == 1 for each in lock.decisions)
    assert webgpu.check(lock.path).ok
    template = folder / "twice.wgsl.jinja"
    template.write_text(template.read_text().replace("X[i] + X[i]", "2 * X[i]"))
    (difference,) = webgpu.check(lock.path).differences
    assert "+  if (i < arrayLength(&X)) { Y[i] = 2 * X[i]; }" in difference.diffs[0]


# The file


def test_decisions_are_added_and_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    backend = fake()
    reg = registry_of(monkeypatch, backend.clock, backend)
    path = frozen(reg, tmp_path / "decisions.lock")
    before = path.read_text()
    backend.driver = "2.0"
    reg.refresh()
    frozen(reg, path, variant="narrow")
    lock = read_lock(path)
    assert [each.asked.variant for each in lock.decisions] == ["narrow", None]
    assert len(lock.systems) == 2  # each is held against its own
    one, other = lock.decisions
    lasting = DecisionLock(path).plus([one], {"date": "today", "python": "3"})
    assert len(lasting.plus([other], {"date": "tomorrow", "python": "3"}).systems) == 1
    frozen(reg, path)
    assert len(read_lock(path).decisions) == 2 and len(read_lock(path).systems) == 1
    assert json.loads(before)["decisions"][0]["asked"]["op"] == "com.microsoft::BiasAdd"


def test_what_is_no_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    backend = fake()
    reg = registry_of(monkeypatch, backend.clock, backend)
    text = frozen(reg, tmp_path / "decisions.lock").read_text()
    path = tmp_path / "spoiled.lock"
    with pytest.raises(ContractError, match="no such file; `registry freeze` writes one"):
        reg.check(path)
    spoiled: list[str] = [text[:at] for at in range(0, len(text) - 2, 97)]
    document = json.loads(text)
    for place in (("lockFormat",), ("systems",), ("decisions",), ("decisions", 0)):
        for value in (None, 7, "x", [], [7], {}, {"a": 7}):
            changed = copy.deepcopy(document)
            target: Any = changed
            for key in place[:-1]:
                target = target[key]
            if target[place[-1]] != value:
                target[place[-1]] = value
                spoiled.append(json.dumps(changed))
    for number, each in enumerate([*spoiled, "[" * 100_000, "\ufeff{}"]):
        path.write_text(each)
        try:
            reg.check(path)
        except ContractError as error:
            assert str(path) in str(error), number
    for part, name in (("asked", "op"), ("asked", "tensors"), ("asked", "settings"), ("chosen", "passes")):
        for value in (None, 7, "x", [7], {"X": 7}, {"X": "y"}, {"backends": 7}):
            changed = copy.deepcopy(document)
            changed["decisions"][0][part][name] = value
            path.write_text(json.dumps(changed))
            try:
                reg.check(path)
            except ContractError as error:
                assert str(path) in str(error), (name, value)


# Commands

PROGRAM = """
import sys
import numpy, registry
x = numpy.ones((1, 3, 4), numpy.float32)
registry.run("BiasAdd", X=x, bias=x[0, 0], skip=x, backend="numpy")
sys.exit(len(sys.argv) - 1)
"""


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, default: None) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)

    def run(*words: str, status: int = 0) -> str:
        done = CliRunner().invoke(main, words)
        assert done.exit_code == status, (done.output, done.exception)
        return done.output

    assert "has 1 decision" in run("freeze", "--", sys.executable, "program.py")
    text = (tmp_path / "decisions.lock").read_text()
    assert "it asked" not in run("freeze", "--", sys.executable, "program.py", "more", status=1)
    assert (tmp_path / "decisions.lock").read_text() == text
    told = json.loads(
        run("freeze", "BiasAdd", "X=1x3x6", "bias=6", "skip=1x3x6", "--json", "--backend=numpy")
    )
    assert told["kept"] == 2 and told["decisions"][0]["variant"] == "blocked"
    assert "2 decisions, as before" in run("check")
    document = json.loads((tmp_path / "decisions.lock").read_text())
    document["decisions"][0]["chosen"]["variant"] = "reference"
    (tmp_path / "edited.lock").write_text(json.dumps(document))
    shown = run("check", "edited.lock", status=1)
    assert "1 of 2 decisions differs" in shown and re.search(r"was +numpy +reference +eligible", shown)
    told = json.loads(run("check", "edited.lock", "--json", status=1))
    assert told["differences"][0]["rows"][-1]["variant"] == "blocked" and told["ok"] is False
    run("check", "missing.lock", status=2)
    run("freeze", "--", "no-such-program", "at", "all", status=2)
    run("freeze", "--", sys.executable, "-c", "pass", status=2)
