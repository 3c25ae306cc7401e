"""What a careless caller hands in is refused, with what was found and what is needed, or does no harm."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from click.testing import CliRunner

import registry_manifests
import registry_numpy
from registry import (
    Availability,
    Backend,
    BackendError,
    Claim,
    ContractError,
    NoPlanError,
    Registry,
    RegistryWarning,
    conformance,
    hookimpl,
)
from registry.cli import main
from registry.environment import read_environment
from registry.files import write_whole
from registry.planning.readers import MAX_TYPES, Readers
from registry.testing import assert_backends_agree

REG = Registry([registry_manifests, registry_numpy], entry_points=False)
X = np.ones((1, 3, 4), np.float32)
CALL: dict[str, Any] = {"X": X, "bias": X[0, 0], "skip": X}


# Files


def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, b"all of it")
        assert os.read(reader, 100) == b"all of it"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_link_and_permissions_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_whole(link, b"new")
    assert link.is_symlink() and target.read_bytes() == b"new" and target.stat().st_mode & 0o777 == 0o640
    write_whole(tmp_path / "own", b"", private=True)
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o600
    before = os.umask(0o027)
    try:
        REG.compare("BiasAdd", **CALL).save(tmp_path / "b.zip")
    finally:
        os.umask(before)
    assert (tmp_path / "b.zip").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("path", [None, 3, b"x", ["x"], "", "a\0b"], ids=repr)
def test_paths_that_are_none(path: Any) -> None:
    report = REG.compare("BiasAdd", **CALL)
    with REG.record() as log:
        REG.run("BiasAdd", **CALL)
    calls = [report.save, REG.replay, REG.check, lambda path: REG.freeze(path, log)]
    for call in calls:
        with pytest.raises(ContractError, match=r"needed: a path|zero byte|null byte|no such file"):
            call(path)
    if path is not None and path != "a\0b":
        with pytest.raises(ContractError, match="bundles is"):
            assert_backends_agree("BiasAdd", **CALL, registry=REG, bundles=path)


def edited(lock: Path, change: Any) -> Path:
    document = json.loads(lock.read_text(encoding="utf-8"))
    change(document)
    lock.write_text(json.dumps(document), encoding="utf-8")
    return lock


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["decisions"][0]["asked"].update(backend=3), r"got `int` - at `\$.asked.backend`"),
        (lambda d: d["decisions"][0]["asked"].update(backend=[1]), "got `int`"),
        (lambda d: d["decisions"][0]["chosen"].update(backend=None), r"got `null` - at `\$.chosen.backend`"),
        (lambda d: d["decisions"][0]["chosen"].update(variant=[]), "got `array`"),
        (lambda d: d["decisions"][0]["chosen"].update(variants="x"), "unknown key 'variants'"),
        (lambda d: d["systems"].update(deep=json.loads('{"a":' * 300 + "1" + "}" * 300)), "64 levels"),
    ],
)
def test_a_lock_that_was_edited(change: Any, said: str, tmp_path: Path) -> None:
    with REG.record() as log:
        REG.run("BiasAdd", **CALL, backend="numpy")
    path = tmp_path / "decisions.lock"
    REG.freeze(path, log)
    assert REG.check(path).ok
    with pytest.raises(ContractError, match=said):
        REG.check(edited(path, change))


# Arguments


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cases": 0}, "cases=0; needed: an integer of at least 1"),
        ({"cases": CALL}, "cases= is a dict; needed: a number, or a sequence"),
        ({"cases": [np.arange(10_000)]}, r"cases= holds array\(\[.{,80}; needed: a mapping"),
        ({"seed": "x"}, "seed='x'; needed: an integer"),
        ({"seed": None}, "seed=None; needed: an integer"),
        ({"seed": -1}, "seed=-1; needed: an integer of at least 0"),
        ({"backend": ()}, "names no backend"),
    ],
)
def test_comparisons_of_nonsense(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ContractError, match=said):
        REG.compare("BiasAdd", **{**CALL, **given})


@pytest.mark.parametrize("given", [{"backend": 3}, {"variant": 3}, {"device": 3}, {"tunables": 3}], ids=str)
def test_drawn_comparisons_of_nonsense(given: dict[str, Any]) -> None:
    with pytest.raises(ContractError, match=f"{next(iter(given))}= is a?.*; needed: "):
        REG.compare("BiasAdd", cases=1, **given)


def test_numbers_of_numpy_are_numbers() -> None:
    assert len(REG.compare("BiasAdd", cases=np.int64(2), seed=np.int32(1)).cases) == 2


@pytest.mark.parametrize("given", [{"cases": True}, {"seed": "x"}, {"backend": 3}], ids=str)
def test_conformance_of_nonsense(given: dict[str, Any]) -> None:
    for ask in (conformance.run, conformance.draw):
        with pytest.raises(ContractError, match="needed: "):
            ask(REG, "BiasAdd", **given)


@pytest.mark.parametrize("given", [{"backends": 3}, {"backends": b"numpy"}, {"registry": 0}], ids=str)
def test_assertions_of_nonsense(given: dict[str, Any]) -> None:
    with pytest.raises(ContractError, match="needed: "):
        assert_backends_agree("BiasAdd", **{"registry": REG, **CALL, **given})


def test_a_device_that_a_backend_of_host_arrays_does_not_have() -> None:
    assert REG.run("BiasAdd", **CALL, device="numpy:0").shape == X.shape
    with pytest.raises(NoPlanError, match="no device '1': it works on host arrays"):
        REG.run("BiasAdd", **CALL, device="numpy:1")


def test_errors_about_out_name_the_op() -> None:
    for out in (X, np.broadcast_to(np.float32(0), X.shape), np.empty(X.shape, ">f4")):
        with pytest.raises(ContractError, match=r"com.microsoft::BiasAdd: out Y") as caught:
            REG.run("BiasAdd", **CALL, out=out)
        assert (caught.value.op, caught.value.argument) == ("com.microsoft::BiasAdd", "Y")


def test_tensors_of_the_device(webgpu: Registry) -> None:
    with pytest.raises(ContractError, match="dtype is None"):
        webgpu.empty((2,), None, "webgpu")
    tensor = webgpu.to_device(X, "webgpu")
    tensor.release()
    with pytest.raises(ContractError, match=r"float32 \[1, 3, 4\]> has been released"):
        webgpu.run("BiasAdd", **{**CALL, "X": tensor})
    for part in ({"features": 3}, {"wgslLanguageFeatures": 3}, {"limits": []}, {"adapterInfo": ()}):
        with pytest.raises(ContractError, match="needed: "):
            webgpu.explain("BiasAdd", **CALL, profile={"webgpu": part})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "", "X=2x8"], "no op ''"),
        (["explain", "LayerNormalization", "--set", "axis=0", "--set", "axis=1"], "axis is given twice"),
        (
            ["compare", "BiasAdd", "X=8", "--save", "b.zip", "--html", "./b.zip"],
            "two files",
        ),
        (["replay", "b.zip", "--backend", ""], "no backend ''"),
        (["replay", "b.zip", "--op", ""], "no op ''"),
        (["tune", "", "--clear"], "no op ''"),
        (["tune", "--list", "--clear"], "one or the other"),
        (["lock", ""], "'' is no folder and no package name"),
    ],
    ids=str,
)
def test_options_that_say_nothing(words: list[str], said: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    REG.compare("BiasAdd", **CALL).save("b.zip")
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2 and said in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("said", "found"),
    [("1", True), ("on", True), (" True ", True), ("0", False), ("false", False), ("No", False), ("", False)],
)
def test_switches(said: str, found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_NUMPY_SOFTWARE", said)
    catalog = Registry([registry_manifests, registry_numpy], entry_points=False).catalog
    assert catalog.environment.accepts_software("numpy") is found


def test_what_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any variable measured choices count, and nothing else is switched on."""
    for name in list(os.environ):
        if name.startswith("REGISTRY_"):
            monkeypatch.delenv(name)
    here = read_environment()
    assert here.tuned and not here.frozen and not here.accepts_software("webgpu")
    assert here.backends == () and here.bundles is None and here.lock_path == Path("registry.lock")


@pytest.mark.parametrize("name", ["STRICT", "TUNED", "NUMPY_SOFTWARE"])
def test_switches_that_say_neither(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"REGISTRY_{name}", "maybe")
    with pytest.raises(ContractError, match=f"REGISTRY_{name} is 'maybe'; needed: 1 or 0"):
        Registry([registry_manifests, registry_numpy], entry_points=False).run("BiasAdd", **CALL)


# Strangers' backends


class Stranger(Backend):
    """Right, but for what a test puts in place of a method."""

    name = "stranger"
    priority = 500

    def probe(self, options: Any) -> Availability:
        return Availability(True)

    def claims(self, op: Any) -> list[Any]:
        return [Claim("only")]

    def prepare(self, request: Any, claim: Any, options: Any) -> Any:
        return lambda inputs, outputs: None


def stranger(**methods: Any) -> Registry:
    made = type("Odd", (Stranger,), methods)()

    class Plugin:
        @hookimpl
        def registry_backends(self) -> list[Backend]:
            return [made]

    return Registry([registry_manifests, registry_numpy, Plugin()], entry_points=False)


def fails(*args: Any, **named: Any) -> Any:
    raise KeyError("boom")


@pytest.mark.parametrize(
    ("method", "ask"),
    [
        ("begin_batch", lambda reg: reg.batch().__enter__()),
        ("place", lambda reg: reg.to_device(X, "stranger")),
        ("empty", lambda reg: reg.empty((2,), "float32", "stranger")),
        ("render", lambda reg: reg.render("BiasAdd", **CALL)),
        ("render", lambda reg: reg.lint("BiasAdd", **CALL)),
        ("scratch_bytes", lambda reg: reg.peak_memory("BiasAdd", **CALL)),
        ("imagine", lambda reg: reg.explain("BiasAdd", **CALL, profile={"stranger": {}})),
    ],
)
def test_what_a_backend_raises_says_whose_it_is(method: str, ask: Any) -> None:
    with pytest.raises(BackendError, match=r"stranger: \w+ failed: KeyError: 'boom'"):
        ask(stranger(**{method: fails}))


def test_what_a_backend_gives_that_is_none() -> None:
    with pytest.raises(BackendError, match="render gave 3; needed: passes"):
        stranger(render=lambda *args: [3]).render("BiasAdd", **CALL)
    with pytest.raises(BackendError, match="imagine gave 3; needed: an Availability"):
        stranger(imagine=lambda *args: 3).explain("BiasAdd", **CALL, profile={"stranger": {}})
    for wrong in ({"found": 3}, {"details": [1]}, {"hardware": "yes"}):
        reg = stranger(probe=lambda *args, wrong=wrong: Availability(True, **wrong))
        decision = reg.explain("BiasAdd", **CALL)
        assert decision.backend == "numpy" and f"Availability: {next(iter(wrong))} is a" in str(decision)


def leaves(*args: Any) -> Any:
    raise SystemExit(3)


def test_a_backend_that_would_end_the_program_while_it_claims() -> None:
    assert "SystemExit" in str(stranger(claims=leaves).explain("BiasAdd", **CALL))


@pytest.mark.parametrize(
    "attributes", [{"option_names": 3}, {"option_names": [3]}, {"priority": 10**400}], ids=str
)
def test_attributes_of_the_wrong_kind_keep_a_backend_out(attributes: dict[str, Any]) -> None:
    with pytest.warns(RegistryWarning, match=f"{next(iter(attributes))} .*; needed"):
        assert {status.name for status in stranger(**attributes).backends() if status.available} == {"numpy"}


def test_a_lock_that_cannot_be_written_at_the_end_is_a_line(tmp_path: Path) -> None:
    code = "import registry, numpy as n; x = n.ones((1, 1, 2)); registry.run('BiasAdd', x, x[0, 0], x)"
    environment = {**os.environ, "REGISTRY_FREEZE": str(tmp_path), "REGISTRY_PLUGINS": "manifests,numpy"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stderr.startswith("REGISTRY_FREEZE: nothing is kept: ") and "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full here")
def test_output_that_cannot_be_written_is_a_line() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "registry", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and done.stderr.startswith("cannot write the output: No space")
    assert len(done.stderr.splitlines()) == 1


# Strangers' objects


class Claims:
    """An object that says it lies on a CUDA device, and is nothing else."""

    __cuda_array_interface__: ClassVar = {"shape": "x"}


class Raises:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class OfDevice:
    def __dlpack__(self, **how: Any) -> Any:
        return None

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


@pytest.mark.parametrize("kind", [Claims, Raises, OfDevice])
def test_objects_that_lie_or_raise(kind: type, shared: Registry) -> None:
    for reg in (REG, shared):
        with pytest.raises(ContractError, match=f"BiasAdd: X is a .*{kind.__name__} (in|that)"):
            reg.run("BiasAdd", **{**CALL, "X": kind()})


def test_types_without_end_are_not_kept() -> None:
    readers = Readers(REG.catalog)
    for _ in range(MAX_TYPES + 50):
        readers.of(type("Passing", (), {}))
    assert len(readers._known) <= MAX_TYPES


def test_what_is_no_plugin_no_case_and_no_check() -> None:
    wrong: Any
    for wrong in (3, None, "numpy"):
        with pytest.raises(ContractError, match=r"plugins=.*; needed: a sequence"):
            Registry(wrong)
        with pytest.raises(ContractError, match="the case"):
            conformance.read_case(wrong)
        with pytest.raises(ContractError, match=r"checks=.*; needed: some of"):
            conformance.run(REG, "BiasAdd", cases=1, checks=wrong)
    with pytest.raises(ContractError, match="remove profile="):
        REG.bench("BiasAdd", **CALL, profile={})


def test_a_frozen_program_that_prints_leaves_json_alone(tmp_path: Path) -> None:
    code = (
        "import registry, numpy as n; x = n.ones((1, 1, 2)); registry.run('BiasAdd', x, x[0, 0], x); print(1)"
    )
    freeze = [sys.executable, "-m", "registry", "freeze", "--json", "--file", str(tmp_path / "x.lock"), "--"]
    environment = {**os.environ, "REGISTRY_PLUGINS": "manifests,numpy"}
    command = [*freeze, sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert json.loads(done.stdout)["kept"] == 1 and done.stderr == "1\n"
