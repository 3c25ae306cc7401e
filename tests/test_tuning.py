"""Tuning: what is measured, what is chosen by it, what the choice holds for, and where it is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from fakes import Clock, Fake, registry_of
from forms import FORMS, check

from registry import ContractError, NoPlanError, Registry, RegistryWarning
from registry.deciding.tuned import Choice, Entry, Store, TunedVariant
from registry.files import cache_folder, write_whole
from registry.measuring.timing import FEWEST_ROUNDS, MOST_CALLS, ROUNDS, Times, measure, stopwatch
from registry.measuring.trials import Trial
from registry.measuring.tuning import pick

BIAS_ADD = "com.microsoft::BiasAdd"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, in use."""
    monkeypatch.setenv("REGISTRY_TUNED", "1")
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def clock() -> Clock:
    return Clock()


def tensors(rows: int = 6, hidden: int = 8, dtype: str = "float32") -> dict[str, Any]:
    draw = np.random.default_rng(rows)
    x = draw.standard_normal((1, rows, hidden)).astype(dtype)
    return {"X": x, "bias": x[0, 0], "skip": x}


def chosen(reg: Registry, **call: Any) -> tuple[str | None, str | None, bool]:
    """Backend, variant, and whether they were chosen by measurement."""
    decision = reg.explain("BiasAdd", **(call or tensors()))
    row = decision.chosen
    return decision.backend, decision.variant, row is not None and row.measured is not None


def files(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*.json"))


# Times


def test_times_have_a_median_and_quartiles() -> None:
    times = Times((3.0, 1.0, 2.0, 5.0, 4.0))
    assert (times.low, times.median, times.high) == (2.0, 3.0, 4.0)
    assert (Times((7.0,)).low, Times((7.0,)).high) == (7.0, 7.0)
    assert times.as_dict()["us"] == 3e6


def test_faster_means_by_more_than_the_spread() -> None:
    quick, slow = Times((1.0, 2.0, 3.0)), Times((4.0, 5.0, 6.0))
    overlapping = Times((2.0, 3.0, 4.0))
    assert quick.faster_than(slow) and not slow.faster_than(quick)
    assert not quick.faster_than(overlapping) and not quick.faster_than(quick)


def test_a_stopwatch_waits_before_and_after() -> None:
    clock, log = Clock(), []

    def wait() -> None:
        log.append("wait")
        clock.now += 1

    def call() -> None:
        log.append("call")
        clock.now += 10

    assert stopwatch(call, wait, clock)(2) == 21  # what went before is not counted, what is begun is
    assert log == ["wait", "call", "call", "wait"]


def test_candidates_take_turns() -> None:
    log: list[str] = []

    def watch(name: str) -> Any:
        def run(calls: int) -> float:
            log.append(name)
            return calls * 1.0

        return run

    found = measure([watch("a"), watch("b"), watch("c")], rounds=3)
    assert "".join(log[-9:]) == "abcbcacab"
    assert [len(times.seconds) for times in found if isinstance(times, Times)] == [3, 3, 3]


def test_short_calls_are_repeated_and_long_ones_not() -> None:
    counts: dict[str, list[int]] = {"short": [], "long": [], "nothing": []}

    def watch(name: str, seconds: float) -> Any:
        return lambda calls: counts[name].append(calls) or calls * seconds

    short, long, nothing = measure([watch("short", 1e-4), watch("long", 1.0), watch("nothing", 0.0)], 2)
    assert counts["short"][-1] == 64 and counts["long"][-1] == 1 and counts["nothing"][-1] == MOST_CALLS
    assert isinstance(short, Times) and short.median == pytest.approx(1e-4)
    assert isinstance(long, Times) and long.median == 1.0
    assert isinstance(nothing, Times) and nothing.median == 0.0


def test_what_is_slower_by_far_in_its_group_leaves_early() -> None:
    watches = [lambda calls, s=s: calls * s for s in (1.0, 1.5, 9.0, 9.5)]
    assert [len(t.seconds) for t in measure(watches) if isinstance(t, Times)] == [
        *(ROUNDS, ROUNDS),
        *(FEWEST_ROUNDS, FEWEST_ROUNDS),
    ]
    apart = measure(watches, groups=["a", "a", "b", "b"])
    assert [len(t.seconds) for t in apart if isinstance(t, Times)] == [ROUNDS] * 4


def test_what_fails_is_kept_and_stops_nobody() -> None:
    runs = {"late": 0}

    def late(calls: int) -> float:
        runs["late"] += 1
        if runs["late"] == 4:
            raise RuntimeError("worn out")
        return calls * 1.0

    def never(calls: int) -> float:
        raise RuntimeError("broken")

    good, worn, broken = measure([lambda calls: calls * 1.0, late, never], rounds=4)
    assert isinstance(good, Times) and len(good.seconds) == 4
    assert str(worn) == "worn out" and str(broken) == "broken"


def test_pick_keeps_the_static_choice_unless_it_is_beaten_by_more_than_the_spread() -> None:
    def trial(name: str, *seconds: float) -> Trial:
        return Trial(TunedVariant("x", name), times=Times(seconds) if seconds else None)

    static, near, far = trial("static", 4, 5, 6), trial("near", 3, 4.5, 5), trial("far", 1, 1, 1)
    assert pick([static, near], static.candidate) is static
    assert pick([static, near, far], static.candidate) is far
    assert pick([trial("static"), near], static.candidate) is near, "the static choice could not be measured"
    assert pick([near, far], None) is far
    assert pick([trial("static")], static.candidate) is None


# The choice


def test_a_measured_choice_is_followed_and_explained(monkeypatch: Any, clock: Clock) -> None:
    slow = Fake("alpha", clock, {"first": 2.0, "second": 1.0}, priority=90)
    fast = Fake("beta", clock, {"only": 0.5})
    reg = registry_of(monkeypatch, clock, slow, fast)
    assert chosen(reg) == ("alpha", "first", False)
    tuning = reg.tune("BiasAdd", **tensors())
    assert tuning.kept and tuning.choice is not None
    assert tuning.choice.chosen == TunedVariant("beta", "only") and tuning.choice.us == pytest.approx(5e5)
    assert tuning.choice.static == TunedVariant("alpha", "first")
    assert tuning.choice.static_us == pytest.approx(2e6)
    assert chosen(reg) == ("beta", "only", True)
    decision = reg.explain("BiasAdd", **tensors())
    text = str(decision)
    assert (
        f"note: chosen by measurement of {tuning.choice.day}: 500000.0 us; static rules: alpha first" in text
    )
    assert decision.candidates[0].because == f"by measurement of {tuning.choice.day}"
    assert {row.because for row in decision.candidates[1:]} == {"behind the measured choice"}
    reg.run("BiasAdd", **tensors())
    plan = reg.last()
    assert plan is not None and (plan.backend, plan.variant) == ("beta", "only")


def test_plans_that_were_made_before_are_forgotten(monkeypatch: Any, clock: Clock) -> None:
    reg = registry_of(monkeypatch, clock, Fake("alpha", clock, {"first": 2.0, "second": 1.0}))
    call = tensors()
    for expected in ("first", "second"):
        reg.run("BiasAdd", **call)
        plan = reg.last()
        assert plan is not None and plan.variant == expected
        reg.tune("BiasAdd", **call)


def test_the_static_choice_stays_where_nothing_is_faster(monkeypatch: Any, clock: Clock) -> None:
    reg = registry_of(monkeypatch, clock, Fake("alpha", clock, {"first": 1.0, "second": 1.0}))
    tuning = reg.tune("BiasAdd", **tensors())
    row = next(row for row in tuning.rows if row.verdict == "chosen")
    assert row.candidate.variant == "first"
    assert row.because == "the static choice, and none is faster by more than the spread"
    assert "as by the static rules" in str(reg.explain("BiasAdd", **tensors()))


@pytest.mark.parametrize(
    ("defect", "verdict", "reason"),
    [
        ("wrong", "wrong", "Y: "),
        ("fails", "failed", "the device burns"),
        ("unprepared", "failed", "it does not compile"),
    ],
)
def test_a_defective_candidate_is_never_chosen_and_kept_with_its_reason(
    monkeypatch: Any, clock: Clock, defect: str, verdict: str, reason: str
) -> None:
    fake = Fake("alpha", clock, {"first": 1.0, "quick": 0.1}, defects={"quick": defect})
    tuning = registry_of(monkeypatch, clock, fake).tune("BiasAdd", **tensors())
    (row,) = (row for row in tuning.rows if row.candidate.variant == "quick")
    assert row.verdict == verdict and reason in row.because and row.times is None
    assert tuning.choice is not None and tuning.choice.chosen.variant == "first"


def test_a_defective_static_choice_is_replaced(monkeypatch: Any, clock: Clock) -> None:
    fake = Fake("alpha", clock, {"first": 1.0, "slow": 9.0}, defects={"first": "wrong"})
    reg = registry_of(monkeypatch, clock, fake)
    choice = reg.tune("BiasAdd", **tensors()).choice
    assert choice is not None and choice.chosen.variant == "slow" and choice.static_us is None
    assert "alpha first, which failed" in str(choice)
    assert chosen(reg) == ("alpha", "slow", True)


def test_nothing_is_chosen_where_nothing_is_right(monkeypatch: Any, clock: Clock, cache: Path) -> None:
    reg = registry_of(monkeypatch, clock, Fake("alpha", clock, {"first": 1.0}, defects={"first": "wrong"}))
    tuning = reg.tune("BiasAdd", **tensors())
    assert tuning.choice is None and not tuning.kept and not files(cache)
    assert "nothing is chosen" in str(tuning)


def test_what_is_named_wins(monkeypatch: Any, clock: Clock) -> None:
    slow = Fake("alpha", clock, {"first": 3.0, "second": 2.0}, priority=90)
    reg = registry_of(monkeypatch, clock, slow, Fake("beta", clock, {"only": 1.0}))
    reg.tune("BiasAdd", **tensors())
    call = tensors()
    assert chosen(reg, **call) == ("beta", "only", True)
    assert chosen(reg, **call, backend="alpha") == ("alpha", "second", True), "measured within the backend"
    assert chosen(reg, **call, backend=["alpha", "beta"]) == ("alpha", "second", True)
    assert chosen(reg, **call, backend="alpha", variant="first") == ("alpha", "first", False)
    assert chosen(reg, **call, variant="first") == ("alpha", "first", False)
    assert chosen(reg, **call, backend="alpha", tunables={"ITEMS": 1}) == ("alpha", "first", False)
    reg.configure(backends=["alpha", "beta"])
    assert chosen(reg, **call) == ("alpha", "second", True), "the user's order stands"


def test_only_the_backend_that_is_named_is_measured(monkeypatch: Any, clock: Clock) -> None:
    slow = Fake("alpha", clock, {"first": 3.0, "second": 2.0}, priority=90)
    reg = registry_of(monkeypatch, clock, slow, Fake("beta", clock, {"only": 1.0}))
    tuning = reg.tune("BiasAdd", **tensors(), backend="alpha")
    assert {row.candidate.backend for row in tuning.rows} == {"alpha"}
    assert chosen(reg) == ("alpha", "second", True), "the static backend, and the measured choice within it"


def test_the_conditions_still_hold(monkeypatch: Any, clock: Clock) -> None:
    fake = Fake(
        "alpha", clock, {"first": 3.0, "second": 1.0}, conditions={"second": ("dim(shapes.X, 1) % 2 == 0",)}
    )
    reg = registry_of(monkeypatch, clock, fake)
    reg.tune("BiasAdd", **tensors(rows=6))
    assert chosen(reg, **tensors(rows=8)) == ("alpha", "second", True), "one class: up to 8 rows"
    assert chosen(reg, **tensors(rows=7)) == ("alpha", "first", False)
    fake.conditions = {}
    fake.batch_invariant = False
    reg.configure(batch_invariant=True)
    with pytest.raises(NoPlanError):
        reg.explain("BiasAdd", **tensors()).require()


def test_a_backend_whose_measured_choice_does_not_accept_leaves_the_static_order(
    monkeypatch: Any, clock: Clock
) -> None:
    first = Fake("alpha", clock, {"only": 3.0}, priority=90)
    second = Fake(
        "beta", clock, {"even": 1.0, "any": 1.0}, conditions={"even": ("dim(shapes.X, 1) % 2 == 0",)}
    )
    reg = registry_of(monkeypatch, clock, first, second)
    reg.tune("BiasAdd", **tensors(rows=6))
    assert chosen(reg, **tensors(rows=6)) == ("beta", "even", True)
    assert chosen(reg, **tensors(rows=7))[0] == "alpha"


def test_a_measured_choice_that_cannot_be_prepared_any_more_falls_back(
    monkeypatch: Any, clock: Clock
) -> None:
    fake = Fake("alpha", clock, {"first": 3.0, "second": 1.0})
    reg = registry_of(monkeypatch, clock, fake)
    reg.tune("BiasAdd", **tensors())
    fake.defects = {"second": "unprepared"}
    with pytest.warns(RegistryWarning, match="trying the next candidate"):
        plan = reg.prepare("BiasAdd", **tensors())
    assert plan.variant == "first"


def test_host_arrays_count_with_their_way_and_device_tensors_without(monkeypatch: Any, clock: Clock) -> None:
    far = Fake("alpha", clock, {"slow": 2.0, "fast": 1.0}, priority=90, device=True, transfer=5.0)
    reg = registry_of(monkeypatch, clock, far, Fake("beta", clock, {"only": 4.0}))
    assert reg.tune("BiasAdd", **tensors()).choice.chosen == TunedVariant("beta", "only")
    there = {name: reg.to_device(value, "alpha") for name, value in tensors().items()}
    assert chosen(reg, **there) == ("alpha", "slow", False), "another class"
    tuning = reg.tune("BiasAdd", **there)
    assert tuning.choice.chosen == TunedVariant("alpha", "fast") and tuning.choice.us == pytest.approx(1e6)
    assert chosen(reg, **there) == ("alpha", "fast", True)


def test_software_adapters_are_measured_where_they_may_be_chosen(monkeypatch: Any, clock: Clock) -> None:
    hardware = Fake("alpha", clock, {"only": 3.0}, priority=90)
    reg = registry_of(monkeypatch, clock, hardware, Fake("beta", clock, {"only": 1.0}, hardware=False))
    tuning = reg.tune("BiasAdd", **tensors())
    assert [row.candidate.backend for row in tuning.rows] == ["alpha"]
    assert ("beta", "only", "adapter is hardware: beta device (software)") in tuning.skipped
    monkeypatch.setenv("REGISTRY_BETA_SOFTWARE", "1")
    reg.refresh()
    reg.tune("BiasAdd", **tensors())
    assert chosen(reg) == ("beta", "only", True)


# Tunables


def test_tunables_of_the_fastest_variant_are_tried(monkeypatch: Any, clock: Clock) -> None:
    costs = {1: 0.5, 2: 1.0, 4: 9.0}
    reg = registry_of(monkeypatch, clock, Fake("alpha", clock, {"wide": 1.0}, tunable_costs=costs))
    tuning = reg.tune("BiasAdd", **tensors())
    tried = [dict(row.candidate.tunables) for row in tuning.rows]
    assert tried == [{}, {"ITEMS": 1}, {"ITEMS": 4}], "the default is not tried twice, nor WORKGROUP_SIZE"
    assert tuning.choice is not None and tuning.choice.chosen.tunables == {"ITEMS": 1}
    row = reg.explain("BiasAdd", **tensors()).require()
    assert row.because.endswith(", ITEMS=1") and row.as_dict()["tunables"] == {"ITEMS": 1}
    plan = reg.prepare("BiasAdd", **tensors())
    before = clock.now
    plan(**tensors())
    assert clock.now - before == pytest.approx(0.5), "the plan runs with them"


def test_tunables_of_a_call_stand_in_place_of_the_manifests(shared: Registry) -> None:
    pairs = {"X": ((1, 4, 8), "float32"), "bias": ((8,), "float32"), "skip": ((1, 4, 8), "float32")}
    profile: Any = {"webgpu": {}}
    (default,) = shared.render("BiasAdd", **pairs, profile=profile)
    (other,) = shared.render("BiasAdd", **pairs, profile=profile, tunables={"WORKGROUP_SIZE": 64, "ITEMS": 1})
    assert "@workgroup_size(256)" in default.source and "@workgroup_size(64)" in other.source
    assert "tunables.ITEMS=1" in str(
        shared.explain("BiasAdd", **pairs, profile=profile, tunables={"ITEMS": 1}).request
    )


@pytest.mark.parametrize(
    ("tunables", "message"),
    [
        ({"ITEM": 1}, "no tunable 'ITEM' (did you mean 'ITEMS'?); tunables: WORKGROUP_SIZE, ITEMS"),
        ({"ITEMS": "two"}, "tunable ITEMS is 'two'; needed: a number, as its default 2"),
        ({"ITEMS": True}, "tunable ITEMS is True; needed: a number"),
        ([1], "tunables= is of type list; needed: a mapping by name"),
    ],
)
def test_wrong_tunables(shared: Registry, tunables: Any, message: str) -> None:
    with pytest.raises(ContractError) as error:
        shared.explain("BiasAdd", **tensors(), tunables=tunables)
    assert message in str(error.value)


def test_a_plans_tunables_are_settled(shared: Registry) -> None:
    plan = shared.prepare("BiasAdd", **tensors(), tunables={"ITEMS": 1})
    with pytest.raises(ContractError, match="tunables= was settled when the plan was prepared"):
        plan(**tensors(), tunables={"ITEMS": 2})


def tuned_values() -> list[tuple[str, str, Any]]:
    reg = Registry([__import__("registry_manifests")], entry_points=False)
    return [
        (op, name, value)
        for op in reg.ops()
        for name, values in reg.op(op).manifest.registry.tune.items()
        for value in values
    ]


@pytest.mark.parametrize(("op", "name", "value"), tuned_values())
def test_every_value_that_tuning_tries_is_right(webgpu: Registry, op: str, name: str, value: Any) -> None:
    for hidden in (33, 4096):
        call = FORMS[op][0].call(5, hidden, "float32")
        assert call is not None
        check(webgpu, op, {**call, "tunables": {name: value}}, "webgpu")


# What a choice holds for


def test_the_class_of_a_request(monkeypatch: Any, clock: Clock) -> None:
    reg = registry_of(monkeypatch, clock, Fake("alpha", clock, {"first": 3.0, "second": 1.0}))
    reg.tune("BiasAdd", **tensors(rows=6, hidden=8))
    followed = {
        "up to the next power of two": tensors(rows=8),
        "just over the last one": tensors(rows=5),
        "rows in two dimensions": {
            name: value.reshape(2, 3, 8) if value.ndim == 3 else value for name, value in tensors().items()
        },
    }
    for why, call in followed.items():
        assert chosen(reg, **call)[2], why
    others = {
        "more rows": tensors(rows=9),
        "fewer rows": tensors(rows=4),
        "another hidden size": tensors(hidden=9),
        "another dtype": tensors(dtype="float64"),
    }
    for why, call in others.items():
        assert not chosen(reg, **call)[2], why


@pytest.mark.parametrize("change", ["driver", "source", "version", "manifest", "claims"])
def test_a_choice_is_out_of_date_after_a_change(monkeypatch: Any, clock: Clock, change: str) -> None:
    fake = Fake("alpha", clock, {"first": 3.0, "second": 1.0})
    reg = registry_of(monkeypatch, clock, fake)
    reg.tune("BiasAdd", **tensors())
    assert chosen(reg)[2]
    if change == "driver":
        fake.driver = "1.1"
    elif change == "source":
        fake.source = "another text"
    elif change == "version":
        monkeypatch.setattr("registry.catalog.Catalog.version", lambda self, name: "9.9")
    elif change == "claims":
        fake.costs = {"first": 3.0, "third": 1.0}
    reg.refresh()
    if change == "manifest":
        op = reg.op("BiasAdd")
        object.__setattr__(op, "manifest", __import__("msgspec").structs.replace(op.manifest, description=""))
    assert chosen(reg) == ("alpha", "first", False)
    reg.tune("BiasAdd", **tensors())
    assert chosen(reg)[2], "measured anew"


def test_another_registry_follows_the_choice(monkeypatch: Any, clock: Clock) -> None:
    fake = Fake("alpha", clock, {"first": 3.0, "second": 1.0})
    registry_of(monkeypatch, clock, fake).tune("BiasAdd", **tensors())
    assert chosen(registry_of(monkeypatch, clock, fake)) == ("alpha", "second", True)


def test_measured_choices_can_be_ignored(monkeypatch: Any, clock: Clock) -> None:
    reg = registry_of(monkeypatch, clock, Fake("alpha", clock, {"first": 3.0, "second": 1.0}))
    reg.tune("BiasAdd", **tensors())
    reg.configure(tuned=False)
    assert chosen(reg) == ("alpha", "first", False)
    reg.configure(tuned=True)
    assert chosen(reg)[2]
    monkeypatch.setenv("REGISTRY_TUNED", "0")
    assert chosen(reg)[2], "variables are read once"
    reg.refresh()
    assert not chosen(reg)[2]
    with pytest.raises(ContractError, match="tuned='no'"):
        reg.configure(tuned="no")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variant": "first"}, "remove variant="),
        ({"tunables": {"ITEMS": 1}}, "remove tunables="),
        ({"out": np.empty((1, 6, 8), "f4")}, "remove out="),
        ({"profile": {"alpha": {}}}, "remove profile="),
        ({"X": ((1, 6, 8), "float32")}, "a measurement needs an array"),
        ({name: value[:, :0] if value.ndim == 3 else value for name, value in tensors().items()}, "zero"),
    ],
)
def test_calls_that_cannot_be_tuned(
    monkeypatch: Any, clock: Clock, arguments: dict[str, Any], message: str
) -> None:
    reg = registry_of(monkeypatch, clock, Fake("alpha", clock, {"first": 1.0}))
    with pytest.raises(ContractError, match=message):
        reg.tune("BiasAdd", **{**tensors(), **arguments})


# Where it is kept


def entry(number: int = 0, padding: int = 0) -> Entry:
    candidate = TunedVariant("alpha", "x" * padding or "first", {"ITEMS": number})
    choice = Choice(candidate, 1.0, candidate, 1.0, "2026-01-01T00:00:00+00:00")
    return Entry({"op": "d::Op", "class": {"n": 1}}, "digest", (candidate,), choice)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"key": 1}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"key": {}, "digest": "", "candidates":',
    ],
    ids=["empty", "cut", "list", "wrong type", "bytes", "deep", "cut later"],
)
def test_a_corrupt_file_is_a_miss_with_a_warning(
    monkeypatch: Any, clock: Clock, cache: Path, content: bytes
) -> None:
    reg = registry_of(monkeypatch, clock, Fake("alpha", clock, {"first": 3.0, "second": 1.0}))
    reg.tune("BiasAdd", **tensors())
    (file,) = files(cache)
    file.write_bytes(content)
    with pytest.warns(RegistryWarning, match="is no measured choice"):
        assert chosen(reg) == ("alpha", "first", False)
    reg.tune("BiasAdd", **tensors())
    assert chosen(reg)[2], "tuning writes it anew"


def test_an_entry_of_another_format_or_key_is_a_miss(cache: Path) -> None:
    store, kept = Store(cache), entry()
    assert store.write(kept) and store.read(kept.key) == kept
    (file,) = files(cache)
    store.write(replace(kept, format=99))
    assert store.read(kept.key) is None
    other = {**kept.key, "class": {"n": 2}}
    store.write(kept)
    store.write(replace(kept, key=other))
    (second,) = (each for each in files(cache) if each != file)
    second.write_bytes(file.read_bytes())
    assert store.read(other) is None, "it is the entry of another key"


def test_a_place_that_cannot_be_written_is_a_warning(monkeypatch: Any, clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "file" / "below"))
    reg = registry_of(monkeypatch, clock, Fake("alpha", clock, {"first": 3.0, "second": 1.0}))
    with pytest.warns(RegistryWarning, match="a measured choice is not kept.*REGISTRY_CACHE_DIR"):
        tuning = reg.tune("BiasAdd", **tensors())
    assert tuning.choice is not None and tuning.choice.chosen.variant == "second" and not tuning.kept
    assert "(not kept)" in str(tuning)
    assert chosen(reg) == ("alpha", "first", False)


def test_the_folder(monkeypatch: Any, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("REGISTRY_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/kernel-registry")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    for platform, folder in (
        ("linux", "/home/someone/.cache"),
        ("darwin", "/home/someone/Library/Caches"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        assert cache_folder() == Path(folder) / "kernel-registry"


def test_a_failed_write_leaves_the_old_file_and_no_draft(monkeypatch: Any, tmp_path: Path) -> None:
    file = tmp_path / "folder/file"
    write_whole(file, b"old")

    def refuse(*paths: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="full"):
        write_whole(file, b"new")
    assert file.read_bytes() == b"old" and list(file.parent.iterdir()) == [file]


def test_threads_write_at_once(cache: Path) -> None:
    store = Store(cache)
    start = threading.Barrier(8)
    seen: list[Any] = []

    def write(number: int) -> None:
        start.wait()
        for turn in range(20):
            store.write(entry(100 * number + turn, padding=50_000))
            found = store.read(entry().key)
            seen.append(found is not None and len(found.choice.chosen.variant) == 50_000)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 160 and all(seen), "every read finds a whole file"
    assert len(files(cache)) == 1 and not list(cache.rglob(".draft*"))


WRITER = """
import sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from registry.deciding.tuned import TunedVariant, Choice, Entry, Store
store = Store(Path(sys.argv[1]))
candidate = TunedVariant("alpha", "x" * 2_000_000)
choice = Choice(candidate, 1.0, candidate, 1.0, "2026-01-01T00:00:00+00:00")
entry = Entry({"op": "d::Op", "class": {"n": 1}}, "digest", (candidate,), choice)
store.write(entry)
print("ready", flush=True)
while True:
    store.write(entry)
"""


def test_processes_write_at_once_and_are_killed_while_they_do(cache: Path) -> None:
    arguments = [sys.executable, "-c", WRITER, str(cache), str(ROOT)]
    for delay in (0.05, 0.08, 0.11):
        writers = [subprocess.Popen(arguments, stdout=subprocess.PIPE) for _ in range(2)]
        try:
            for writer in writers:
                assert writer.stdout is not None and writer.stdout.readline().strip() == b"ready"
            time.sleep(delay)
        finally:
            for writer in writers:
                writer.send_signal(signal.SIGKILL)
                writer.communicate()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = Store(cache).read(entry().key)
        assert found is not None and len(found.choice.chosen.variant) == 2_000_000
    store = Store(cache)
    assert len(list(store.entries())) == 1, "drafts of killed processes are no entries"
    assert store.clear() == 1 and not list(cache.rglob("*.*")), "and are cleared with them"


# For real


def test_numpy_and_webgpu(monkeypatch: Any, webgpu: Registry, fresh: Registry) -> None:
    monkeypatch.setenv("REGISTRY_WEBGPU_SOFTWARE", "1")
    fresh.refresh()
    call = tensors(rows=64, hidden=64)
    tuning = fresh.tune("BiasAdd", **call)
    tried = {(row.candidate.backend, row.candidate.variant) for row in tuning.rows}
    assert tried >= {("webgpu", "wide"), ("webgpu", "vec4"), ("webgpu", "scalar"), ("numpy", "blocked")}
    assert all(row.verdict in ("chosen", "not chosen") for row in tuning.rows), str(tuning)
    assert tuning.kept and tuning.choice is not None
    assert tuning.choice.static.backend == "webgpu"
    decision = fresh.explain("BiasAdd", **call)
    assert decision.chosen is not None and decision.chosen.measured == tuning.choice
    result = fresh.run("BiasAdd", **call)
    np.testing.assert_allclose(result, call["X"] + call["bias"] + call["skip"], rtol=1e-6, atol=1e-6)
    assert json.loads(json.dumps(tuning.as_dict(), default=str))["system"]["machine"]


def test_tensors_on_a_device_are_a_class_of_their_own(
    monkeypatch: Any, webgpu: Registry, fresh: Registry
) -> None:
    fresh.refresh()
    call = {name: fresh.to_device(value, "webgpu") for name, value in tensors().items()}
    tuning = fresh.tune("BiasAdd", **call)
    assert {row.candidate.backend for row in tuning.rows} == {"webgpu"}
    assert fresh.explain("BiasAdd", **call).require().measured == tuning.choice
    assert fresh.explain("BiasAdd", **tensors(), backend="webgpu").require().measured is None


def test_packages_are_tuned_by_their_handles(seeds: Any, webgpu: Registry, fresh: Registry) -> None:
    fresh.refresh()
    handle = fresh.load(seeds["BiasAdd"].op.package.folder)
    tuning = handle.tune(**tensors())
    assert {row.candidate.variant for row in tuning.rows} == {"vec4", "scalar"}
    assert handle.explain(**tensors()).require().measured == tuning.choice is not None
    assert fresh.explain("BiasAdd", **tensors(), backend="webgpu").require().measured is None
