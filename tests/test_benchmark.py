"""Benchmarks: rows side by side, what is wrong, fails or does not accept, speeds beside a copy, the plot."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import Clock, Fake, registry_of

from registry import ContractError, Registry
from registry.measuring.benchmark import Timing
from registry.measuring.plotting import draw
from registry.system import system

BYTES = 4 * (3 * 48 + 8)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def call() -> dict[str, Any]:
    x = np.random.default_rng(0).standard_normal((1, 6, 8)).astype("f4")
    return {"X": x, "bias": x[0, 0], "skip": x}


def rows(found: Any) -> dict[tuple[str, str, str], Timing]:
    return {(row.candidate.backend, row.candidate.variant, row.place): row for row in found.rows}


def test_backends_stand_side_by_side(monkeypatch: Any, clock: Clock, call: dict[str, Any]) -> None:
    far = Fake("alpha", clock, {"a": 2.0, "b": 1.0}, device=True, transfer=5.0, bytes_per_second=BYTES)
    found = registry_of(monkeypatch, clock, far, Fake("beta", clock, {"c": 4.0})).bench("BiasAdd", **call)
    assert found.ok and found.against == "the float64 reference"
    by_place = rows(found)
    assert list(by_place) == [("alpha", "a", "host"), ("alpha", "a", "alpha:0"), ("beta", "c", "host")]
    medians = [row.times.median for row in by_place.values() if row.times]
    assert medians == pytest.approx([7.0, 2.0, 4.0]), "transfers and waiting included"
    there = by_place["alpha", "a", "alpha:0"]
    assert there.fraction == pytest.approx(0.5) and there.gbps == pytest.approx(BYTES / 2e9)
    assert by_place["alpha", "a", "host"].fraction is None, "a copy on the device is no measure for transfers"
    assert by_place["beta", "c", "host"].fraction is None, "it cannot say"


def test_all_variants(monkeypatch: Any, clock: Clock, call: dict[str, Any]) -> None:
    fake = Fake("alpha", clock, {"a": 2.0, "b": 1.0, "c": 1.0}, conditions={"c": ("dim(shapes.X, 1) == 7",)})
    reg = registry_of(monkeypatch, clock, fake)
    found = reg.bench("BiasAdd", **call, variants=True)
    assert [row.candidate.variant for row in found.rows] == ["a", "b"]
    assert found.skipped == (("alpha", "c", "dim(shapes.X, 1): 6"),)
    pinned = reg.bench("BiasAdd", **call, variant="b")
    assert [row.candidate.variant for row in pinned.rows] == ["b"]
    refused = reg.bench("BiasAdd", **call, variant="c")
    assert not refused.rows and not refused.ok and refused.skipped == found.skipped
    with pytest.raises(ContractError, match="no variant 'd'"):
        reg.bench("BiasAdd", **call, variant="d")


@pytest.mark.parametrize(
    ("defect", "verdict", "reason"),
    [
        ("wrong", "wrong", "times the tolerance"),
        ("fails", "failed", "burns"),
        ("unprepared", "failed", "compile"),
    ],
)
def test_defects_are_rows(
    monkeypatch: Any, clock: Clock, call: dict[str, Any], defect: str, verdict: str, reason: str
) -> None:
    bad = Fake("alpha", clock, {"a": 1.0}, defects={"a": defect})
    found = registry_of(monkeypatch, clock, bad, Fake("beta", clock, {"c": 4.0})).bench("BiasAdd", **call)
    first, second = found.rows
    assert (first.verdict, first.times, second.verdict) == (verdict, None, "ok") and reason in first.because
    assert not found.ok and verdict in str(found) and reason in str(found)


def test_a_device_that_takes_no_tensor_is_a_row(monkeypatch: Any, clock: Clock, call: dict[str, Any]) -> None:
    from registry import BackendError

    class Full(Fake):
        def place(self, array: Any, options: Any) -> Any:
            if np.isnan(array).all():  # an output of a run with host arrays
                raise ContractError("works on host arrays")
            raise BackendError("out of memory")

    found = registry_of(monkeypatch, clock, Full("alpha", clock, {"a": 1.0})).bench("BiasAdd", **call)
    assert [(row.place, row.verdict, row.because) for row in found.rows] == [
        ("host", "ok", ""),
        ("alpha", "failed", "out of memory"),
    ]


def test_rows_as_data_say_what_they_hold_for(monkeypatch: Any, clock: Clock, call: dict[str, Any]) -> None:
    fake = Fake("alpha", clock, {"a": 2.0}, driver="535.1")
    software = Fake("beta", clock, {"b": 1.0}, conditions={"b": ("false",)})
    found = registry_of(monkeypatch, clock, fake, software).bench("BiasAdd", **call)
    timed, skipped = json.loads(json.dumps(found.as_dicts()))
    assert timed["device"] == {"name": "alpha device", "driver": "535.1"}
    assert timed["us"] == pytest.approx(2e6) and timed["bytes"] == BYTES and timed["samples"]
    assert timed["versions"]["numpy"] == np.__version__ and timed["date"] and timed["machine"]
    assert skipped["verdict"] == "skipped" and skipped["backend"] == "beta" and skipped["because"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"out": np.empty((1, 6, 8), "f4")}, "remove out="),
        ({"profile": {"alpha": {}}}, "remove profile="),
        ({"X": ((1, 6, 8), "float32")}, "holds no data"),
    ],
)
def test_calls_that_cannot_be_timed(
    monkeypatch: Any, clock: Clock, call: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    reg = registry_of(monkeypatch, clock, Fake("alpha", clock, {"a": 1.0}))
    with pytest.raises(ContractError, match=message):
        reg.bench("BiasAdd", **{**call, **arguments})


def test_for_real(webgpu: Registry, call: dict[str, Any]) -> None:
    found = webgpu.bench("BiasAdd", **call)
    assert found.ok, str(found)
    by_place = rows(found)
    assert set(by_place) == {
        ("webgpu", "wide", "host"),
        ("webgpu", "wide", "webgpu:0"),
        ("numpy", "blocked", "host"),
    }
    for place in (("webgpu", "wide", "webgpu:0"), ("numpy", "blocked", "host")):
        assert by_place[place].fraction and by_place[place].gbps


@pytest.mark.parametrize("nbytes", [8, 48, 10_000, 2**22])
def test_a_copy_copies(every: Registry, backend: str, nbytes: int) -> None:
    target = every.catalog.backend(backend)
    copy = target.copier(nbytes, {})
    assert copy is not None
    copy()
    target.wait({})


def test_waiting_submits_what_is_recorded(webgpu: Registry, call: dict[str, Any]) -> None:
    there = {name: webgpu.to_device(value, "webgpu") for name, value in call.items()}
    home = there["X"].home
    before = home.counts["submits"]
    webgpu.run("BiasAdd", **there)
    assert home.counts["submits"] == before
    webgpu.catalog.backend("webgpu").wait({})
    assert home.counts["submits"] == before + 1


def test_the_system_has_the_devices(shared: Registry) -> None:
    found = system(shared)
    assert found["devices"]["numpy"]["name"] == f"NumPy {np.__version__}"
    assert found["devices"]["numpy"]["threads"] >= 1


def test_the_plot_needs_matplotlib(monkeypatch: Any, shared: Registry, call: dict[str, Any]) -> None:
    found = shared.bench("BiasAdd", **call, backend="numpy")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ContractError, match=r"pip install 'kernel-registry\[bench\]'"):
        draw(found, "x.png")


def test_the_plot(shared: Registry, call: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = shared.bench("BiasAdd", **call, backend="numpy", variants=True)
    draw(found, str(tmp_path / "times.png"))
    assert (tmp_path / "times.png").read_bytes().startswith(b"\x89PNG")
    for name in ("times.txt", "missing/times.png"):
        with pytest.raises(ContractError, match="cannot be written"):
            draw(found, str(tmp_path / name))
