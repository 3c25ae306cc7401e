"""Plugins of every kind of broken, and what they leave standing."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import registry
import registry_manifests
import registry_numpy
from registry import (
    Availability,
    Backend,
    Claim,
    ContractError,
    ManifestError,
    NoPlanError,
    PluginError,
    Predicate,
    Registry,
    RegistryWarning,
    hookimpl,
)
from registry.cli import main
from registry.status import faults

X = np.arange(12, dtype=np.float32).reshape(3, 4)
LN = {"X": X, "Scale": np.ones(4, np.float32)}


class Negative(Backend):
    """Answers -1 everywhere: right for nobody, easy to recognise."""

    name = "negative"

    def claims(self, op: Any) -> Any:
        return [Claim("minus_one")]

    def prepare(self, request: Any, claim: Any, options: Any) -> Any:
        def run(inputs: Any, outputs: Any) -> None:
            for out in outputs.values():
                out[...] = -1

        return run


def plugin(backend: Backend | None = None, **hooks: Any) -> Any:
    made = {"registry_backends": lambda: [backend or Negative()], **hooks}
    return SimpleNamespace(
        __name__="stranger",
        **{name: hookimpl(function) for name, function in made.items() if function},
    )


def registry_with(*plugins: Any) -> Registry:
    return Registry([registry_manifests, registry_numpy, *plugins], entry_points=False)


def test_a_stranger_is_chosen_last_and_compared() -> None:
    reg = registry_with(plugin())
    assert reg.explain("LayerNormalization", **LN).backend == "numpy"
    assert (reg.run("LayerNormalization", **LN, backend="negative") == -1).all()
    report = reg.compare("LayerNormalization", **LN)
    assert not report.ok
    assert [row.ok for row in report.rows if row.backend == "negative"] == [False]
    assert all(row.ok for row in report.rows if row.backend == "numpy")


def raising(error: BaseException) -> Any:
    def hook() -> Any:
        raise error

    return hook


class WrongVersion(Negative):
    api_version = 2


class OlderVersion(Negative):
    api_version = 0


class BadName(Negative):
    name = "not a name"


def misspelt() -> Any:
    return plugin(registry_backend=lambda: [])


def extra_argument() -> Any:
    def registry_backends(color: str) -> Any:
        return []

    return plugin(registry_backends=registry_backends)


BROKEN = {
    "raises ImportError": (
        lambda: plugin(registry_backends=raising(ImportError("libfoo.so missing"))),
        "libfoo.so",
    ),
    "raises SystemExit": (lambda: plugin(registry_backends=raising(SystemExit(3))), "SystemExit"),
    "long message": (
        lambda: plugin(registry_backends=raising(OSError("first line\n" * 40))),
        "OSError: first line",
    ),
    "no hook": (lambda: SimpleNamespace(__name__="stranger"), "it has no hook"),
    "misspelt hook": (misspelt, "unknown hook registry_backend"),
    "extra argument": (extra_argument, "color"),
    "newer interface": (lambda: plugin(WrongVersion()), "interface 2"),
    "older interface": (lambda: plugin(OlderVersion()), "made for plugin interface 0; this is interface 1"),
    "bad name": (lambda: plugin(BadName()), "identifier"),
    "no backend": (lambda: plugin(registry_backends=lambda: ["numpy"]), "needed: registry.Backend"),
    "no list": (lambda: plugin(registry_backends=lambda: None), "registry_backends gave None"),
    "no folders": (lambda: plugin(registry_manifests=lambda: [7]), "TypeError"),
    "no references": (
        lambda: plugin(registry_references=lambda: {"a::B": 7}),
        "registry_references",
    ),
}


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_plugin_stops_nobody(case: Any) -> None:
    make, cause = case
    good = Negative()
    good.name = "good"
    reg = registry_with(make(), plugin(good))
    with pytest.warns(RegistryWarning, match="stranger of given directly did not load"):
        statuses = {s.name: s for s in reg.backends()}
    assert statuses["numpy"].available and statuses["good"].available
    assert statuses["stranger"].priority is None
    assert statuses["stranger"].because == "plugin loads" and cause in statuses["stranger"].found
    assert "\n" not in statuses["stranger"].found
    np.testing.assert_allclose(reg.run("LayerNormalization", **LN)[0, 0], -1.34163542, atol=1e-5)


def test_strict_mode_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_STRICT", "1")
    with pytest.raises(PluginError, match="libfoo") as caught:
        registry_with(plugin(registry_backends=raising(ImportError("libfoo")))).backends()
    assert caught.value.plugin == "stranger"


def test_fewer_hooks_are_fine() -> None:
    reg = registry_with(plugin(registry_backends=None, registry_manifests=lambda: []))
    assert {s.name for s in reg.backends()} == {"numpy"}


class ClaimsRaise(Negative):
    def claims(self, op: Any) -> Any:
        raise RuntimeError("claims went wrong")


class ProbeRaises(Negative):
    def probe(self, options: Any) -> Availability:
        raise RuntimeError("probe went wrong")


class PrepareRaises(Negative):
    priority = 999

    def prepare(self, request: Any, claim: Any, options: Any) -> Any:
        raise RuntimeError("prepare went wrong")


@pytest.mark.parametrize("backend", [ClaimsRaise(), ProbeRaises()])
def test_a_backend_that_raises_is_a_reason(backend: Backend) -> None:
    backend.priority = 999
    reg = registry_with(plugin(backend))
    reg.run("LayerNormalization", **LN)
    decision = reg.explain("LayerNormalization", **LN)
    assert decision.backend == "numpy"
    assert re.search(r"went wrong \(.*test_plugins\.py:\d+\)$", decision.candidates[0].found)


def test_a_backend_that_cannot_prepare_gives_way() -> None:
    reg = registry_with(plugin(PrepareRaises()))
    with pytest.warns(RegistryWarning, match="prepare went wrong"):
        reg.run("LayerNormalization", **LN)
    plan = reg.last()
    assert plan is not None and plan.backend == "numpy"


class NoPrepare(Backend):
    name = "idle"

    def claims(self, op: Any) -> Any:
        return [Claim("v")]


def test_a_backend_without_a_method_says_so() -> None:
    with pytest.raises(NoPlanError, match="NotImplementedError: NoPrepare has no method prepare"):
        registry_with(plugin(NoPrepare())).run("LayerNormalization", **LN, backend="idle")
    row = (
        registry_with(plugin(NoClaims()))
        .explain("LayerNormalization", **LN, backend="unclaimed")
        .candidates[0]
    )
    assert row.found.startswith("NotImplementedError: NoClaims has no method claims")


class NoClaims(Backend):
    name = "unclaimed"


class Odd(Negative):
    priority = 999

    def __init__(self, **parts: Any):
        self.__dict__.update(parts)


def broken_predicate(request: Any, device: Any) -> str | None:
    raise KeyError("nothing")


ODD = {
    "a predicate that raises": {
        "claims": lambda op: [Claim("v", when=(Predicate("p", "q", broken_predicate),))]
    },
    "a demotion that raises": {
        "claims": lambda op: [Claim("v", demote_when=(Predicate("p", "q", broken_predicate),))]
    },
    "a clause that is no expression": {"claims": lambda op: [Claim("v", when=("1 +",))]},
    "a clause that is no list": {"claims": lambda op: [Claim("v", when="true")]},
    "a priority that is no number": {"claims": lambda op: [Claim("v", priority="high")]},
    "a variant that is no name": {"claims": lambda op: [Claim(7)]},
    "claims that are none": {"claims": lambda op: ["v"]},
    "claims of nothing": {"claims": lambda op: None},
    "a probe of nothing": {"probe": lambda options: None},
    "a probe that ends the program": {"probe": lambda options: sys.exit(3)},
}


@pytest.mark.parametrize("parts", ODD.values(), ids=ODD.keys())
def test_an_odd_backend_stops_nobody(parts: Any) -> None:
    reg = registry_with(plugin(Odd(**parts)))
    assert reg.explain("LayerNormalization", **LN).backend == "numpy"
    reg.run("LayerNormalization", **LN)
    row = reg.explain("LayerNormalization", **LN).candidates[0]
    assert row.backend == "negative" and row.verdict == "rejected" and row.found


def test_which_backends_are_automatic() -> None:
    reg = registry_with(plugin(Odd(probe=lambda options: Availability(True, hardware=False))))
    found = [{s.name for s in reg.backends() if s.automatic}]
    reg.configure(backends=["negative"])  # who lists it takes it, and no other
    found.append({s.name for s in reg.backends() if s.automatic})
    assert found == [{"numpy"}, {"negative"}]


def test_what_a_backend_lacks_is_passed_on() -> None:
    missing = Availability(False, "it is installed", "not found", "install it")
    status = registry_with(plugin(Odd(probe=lambda options: missing))).backends()[0]
    assert (status.because, status.found, status.needed) == ("it is installed", "not found", "install it")
    assert not status.available


def test_a_preparation_of_nothing_gives_way() -> None:
    reg = registry_with(plugin(Odd(prepare=lambda *arguments: None)))
    with pytest.warns(RegistryWarning, match="prepare gave None"):
        reg.run("LayerNormalization", **LN)
    plan = reg.last()
    assert plan is not None and plan.backend == "numpy"


def test_a_priority_that_is_no_number() -> None:
    reg = registry_with(plugin(Odd(priority="high")))
    with pytest.warns(RegistryWarning, match="priority 'high'"):
        reg.run("LayerNormalization", **LN)


def test_what_two_plugins_bring(tmp_path: Path) -> None:
    twins = plugin(registry_backends=lambda: [Negative(), Negative()])
    with pytest.warns(RegistryWarning, match="also claimed by stranger"):
        assert {s.name for s in registry_with(twins).backends()} == {"numpy", "stranger"}
    missing = plugin(registry_manifests=lambda: [tmp_path / "none"])
    with pytest.warns(RegistryWarning, match="which is no folder"):
        registry_with(missing).backends()
    again = plugin(registry_manifests=registry_manifests.registry_manifests)
    with pytest.warns(RegistryWarning, match="another plugin has brought"):
        assert len(registry_with(again).ops()) == 6
    op = "ai.onnx::LayerNormalization"
    judge = plugin(registry_references=lambda: {op: print})
    with pytest.warns(RegistryWarning, match=f"it brings {op}, which another plugin has brought"):
        assert registry_with(judge).catalog.plugins.references[op] is not print


def test_a_manifest_in_the_wrong_place(tmp_path: Path) -> None:
    source = Path(registry_manifests.__file__).parent / "com.microsoft/BiasAdd.yaml"
    (tmp_path / "foo.bar").mkdir()
    (tmp_path / "foo.bar/Other.yaml").write_text(source.read_text())
    reg = registry_with(plugin(registry_manifests=lambda: [tmp_path]))
    with pytest.raises(ManifestError, match=r"holds com.microsoft::BiasAdd; its place says foo.bar::Other"):
        reg.op("foo.bar::Other")


def test_the_command_that_lists_ops_goes_on_past_a_broken_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme/Broken.yaml").write_text("domain acme")
    reg = registry_with(plugin(registry_manifests=lambda: [tmp_path]))
    for name in ("op", "ops"):
        monkeypatch.setattr(registry, name, getattr(reg, name))
    shown = CliRunner().invoke(main, ["ops"])
    assert shown.exit_code == 0 and "com.microsoft::BiasAdd" in shown.stdout
    assert "left out: " in shown.stderr and "Broken.yaml" in shown.stderr


def test_broken_claims_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """`registry backends` names the backend, its distribution, the op and the cause; others have none."""

    def claims(self: Backend, op: Any) -> list[Claim]:
        if op.id.endswith("BiasAdd"):
            raise ZeroDivisionError("claims")
        return [Claim("odd", when=("shapes.X[",))] if op.id.endswith("RMSNormalization") else [Claim("fine")]

    broken = type("Broken", (Negative,), {"name": "broken", "claims": claims})()
    misspelt = type(
        "Misspelt", (Negative,), {"name": "misspelt", "claims": lambda s, op: [Claim("x", when=("(",))]}
    )()
    extra = plugin(registry_backends=lambda: [broken, misspelt, Negative()])
    reg = Registry([registry_manifests, extra], entry_points=False)
    found = faults(reg.catalog)
    assert found.keys() == {"broken", "misspelt"}
    assert found["misspelt"].startswith("its claims for ai.onnx::LayerNormalization are broken: ")
    monkeypatch.setattr(registry, "_shared", reg)
    monkeypatch.setattr(registry, "backends", reg.backends)
    monkeypatch.setattr("registry.commands.inventory.SLOW_SECONDS", 0.0)
    shown = CliRunner().invoke(main, ["backends"]).output
    assert "broken of given directly: its claims for ai.onnx::RMSNormalization are broken: " in shown
    assert "negative of given directly took 0.0 s to load" in shown
    rows = json.loads(CliRunner().invoke(main, ["backends", "--json"]).output)
    assert [row["name"] for row in rows if row["fault"]] == ["broken", "misspelt"]
    test = ["test", "BiasAdd", "--cases", "1"]
    done = CliRunner().invoke(main, [*test, "--backend", "broken"])
    assert done.exit_code == 1 and "its claims for com.microsoft::BiasAdd are broken: Zero" in done.output
    done = CliRunner().invoke(main, test)
    assert done.exit_code == 1 and "misspelt: its claims for com.microsoft::BiasAdd are broken" in done.output


@pytest.mark.parametrize(
    "found", [3, ["a"], {}, object(), True, b"x"], ids=lambda found: type(found).__name__
)
def test_what_a_predicate_gives_may_be_nonsense(found: Any) -> None:
    """Of many claims, too, for which the nearest are looked for."""
    odd, named = Predicate("odd", "even", lambda *_: found), Predicate("odd", found, lambda *_: None)
    for name, when in (("odd", (odd,)), ("named", (named,))):
        claims = [Claim(f"v{i}", when=("true", *when)[i % 2 :]) for i in range(9)]
        stranger = type("Odd", (Negative,), {"name": name, "claims": lambda self, op, c=claims: c})()
        reg = registry_with(plugin(stranger))
        decision = reg.explain("LayerNormalization", **LN)
        assert decision.backend == "numpy"
        assert all("; needed: " in each.found for each in decision.rejected if each.backend == name), decision
        assert any(each.backend == name for each in decision.rejected)
        with pytest.raises(NoPlanError, match="; needed: "):
            reg.run("LayerNormalization", **LN, backend=name)


def test_strict_mode_raises_for_clashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_STRICT", "1")
    numpy = Negative()
    numpy.name = "numpy"
    with pytest.raises(PluginError, match="'numpy' is also claimed by"):
        registry_with(plugin(numpy)).backends()


def distribution(tmp_path: Path, name: str, points: dict[str, str], code: dict[str, str]) -> Path:
    """An installed distribution, as far as importlib.metadata can tell."""
    site = tmp_path / name
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = "".join(f"{point} = {module}\n" for point, module in points.items())
    (info / "entry_points.txt").write_text(f"[registry.backends]\n{lines}")
    for module, text in code.items():
        (site / f"{module}.py").write_text(text)
    return site


GOOD = """
from registry import Backend, Claim, hookimpl
class B(Backend):
    name = {name!r}
    def claims(self, op): return [Claim("v")]
    def prepare(self, request, claim, options): return lambda i, o: None
@hookimpl
def registry_backends(): return [B()]
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(name: str, points: dict[str, str], code: dict[str, str]) -> Path:
        site = distribution(tmp_path, name, points, code)
        monkeypatch.syspath_prepend(str(site))
        return site

    yield install
    for module in [m for m in sys.modules if m.startswith("plug_")]:
        del sys.modules[module]


def test_entry_points_of_strangers(installed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    site = installed("plug-one", {"one": "plug_one"}, {"plug_one": GOOD.format(name="one")})
    monkeypatch.syspath_prepend(str(site) + "/")  # the same distribution by a second path
    installed("plug-bad", {"bad": "plug_bad"}, {"plug_bad": "raise OSError('no driver')"})
    installed("plug-syntax", {"syntax": "plug_syntax"}, {"plug_syntax": "def"})
    installed("plug-gone", {"gone": "plug_gone_missing"}, {})
    with pytest.warns(RegistryWarning):
        statuses = {s.name: s for s in Registry().backends()}
    assert statuses["one"].available and statuses["one"].distribution == "plug-one"
    assert re.fullmatch(r"OSError: no driver \(.*plug_bad.py:1\)", statuses["bad"].found)
    assert re.fullmatch(r"SyntaxError: [^(]* \(.*plug_syntax.py:1\)", statuses["syntax"].found)
    assert statuses["bad"].distribution == "plug-bad"
    assert "SyntaxError" in statuses["syntax"].found
    assert "plug_gone_missing" in statuses["gone"].found
    assert statuses["numpy"].available


def test_names_that_clash(installed: Any) -> None:
    installed("plug-a", {"a": "plug_a"}, {"plug_a": GOOD.format(name="same")})
    installed("plug-b", {"b": "plug_b"}, {"plug_b": GOOD.format(name="same")})
    installed("plug-c", {"c": "plug_c"}, {"plug_c": GOOD.format(name="numpy")})
    with pytest.warns(RegistryWarning):
        reg = Registry()
        statuses = {s.name: s for s in reg.backends()}
    assert "same" not in statuses
    assert "also claimed by b of plug-b" in statuses["a"].found
    assert "also claimed by a of plug-a" in statuses["b"].found
    assert "also claimed by numpy of kernel-registry" in statuses["c"].found
    assert statuses["numpy"].distribution == "kernel-registry"
    with pytest.raises(ContractError, match=r"plugins that did not load: .*plug-b"):
        reg.run("LayerNormalization", **LN, backend="same")


def test_the_built_in_plugins_use_the_same_door() -> None:
    points = importlib.metadata.entry_points(group="registry.backends")
    ours = {p.name for p in points if p.dist is not None and p.dist.name == "kernel-registry"}
    assert {"manifests", "numpy", "webgpu"} <= ours


IMPORTS = {
    "SystemExit": "raise SystemExit(3)",
    "RecursionError": "def f(): f()\nf()",
    "GeneratorExit": "raise GeneratorExit",
    "UnicodeDecodeError": "b'\\xff'.decode()",
    "AttributeError": "",  # the entry point's object is not there
}


def test_imports_that_fail_in_every_way(installed: Any) -> None:
    for number, (error, text) in enumerate(IMPORTS.items()):
        point = f"plug_import{number}" + (":missing" if not text else "")
        installed(f"plug-import{number}", {error: point}, {f"plug_import{number}": text})
    with pytest.warns(RegistryWarning):
        statuses = {s.name: s for s in Registry().backends()}
    for number, error in enumerate(IMPORTS):
        assert statuses[error].found.startswith(error)
        assert statuses[error].distribution == f"plug-import{number}"
    assert statuses["numpy"].available


def test_a_slow_import_waits_until_plugins_are_asked_for(installed: Any, tmp_path: Path) -> None:
    log = tmp_path / "imports"
    code = f"with open({str(log)!r}, 'a') as log: log.write('imported ')\n" + GOOD.format(name="slow")
    installed("plug-slow", {"slow": "plug_slow"}, {"plug_slow": code})
    reg = Registry()
    assert not log.exists()
    reg.ops()
    reg.run("LayerNormalization", **LN, backend="numpy")
    assert log.read_text() == "imported "


def test_only_what_is_listed_is_imported(installed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    installed("plug-one", {"one": "plug_one"}, {"plug_one": GOOD.format(name="one")})
    installed("plug-bad", {"bad": "plug_bad"}, {"plug_bad": "raise OSError('no driver')"})
    monkeypatch.setenv("REGISTRY_PLUGINS", "manifests, one,numpy")
    assert {s.name for s in Registry().backends()} == {"numpy", "one"}
    assert "plug_bad" not in sys.modules
    monkeypatch.setenv("REGISTRY_PLUGINS", "manifests,numpi")
    with pytest.warns(RegistryWarning, match=r"numpi of REGISTRY_PLUGINS .* some of .*numpy.*, one"):
        assert {s.name for s in Registry().backends()} == {"numpi"}
    monkeypatch.setenv("REGISTRY_STRICT", "1")
    with pytest.raises(PluginError, match="no such entry point"):
        Registry().backends()


def test_a_condition_needs_no_device_that_nobody_described() -> None:
    """The manifest derives values from a device's limits, which this condition does not use."""
    claims = {"claims": lambda op: [Claim("v", when=('dtypes.T == "f32"', "hiddenSize == 4"))]}
    reg = registry_with(plugin(Odd(**claims)))
    row = {"gamma": X[0], "beta": X[0]}
    assert reg.explain("SkipLayerNormalization", input=X, skip=X, **row).backend == "negative"
    half = {name: value.astype(np.float16) for name, value in {"input": X, "skip": X, **row}.items()}
    rejected = reg.explain("SkipLayerNormalization", **half).candidates[0]
    assert (rejected.backend, rejected.found) == ("negative", "f16")
    claims = {"claims": lambda op: [Claim("v", when=("fits",))]}
    decision = registry_with(plugin(Odd(**claims))).explain("SkipLayerNormalization", input=X, skip=X, **row)
    assert decision.candidates[0].because == "derived values can be computed" and decision.backend == "numpy"
