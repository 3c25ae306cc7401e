"""Files and plugins from strange hands: each gives one of our errors, after bounded work.

What takes longest of the recipes is left to ``python scripts/fuzz.py --recipes``, which measures all of them.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import ROOT, SEEDS
from hostile import bombs, stages
from hostile.bombs import manifest, one_pass, variant, write_package

import registry
import registry_manifests
import registry_numpy
from registry import (
    Availability,
    Backend,
    Claim,
    PackageError,
    Registry,
    RegistryError,
    hookimpl,
)
from registry.cli import main
from registry.language.expressions import parse
from registry.language.meter import EvaluationError, metered, spend
from registry.language.templates import TemplateError, parse_template
from registry.loading.loader import load_manifest, parse_manifest, parse_package_manifest
from registry.packaging.files import MAX_BYTES
from registry.packaging.test_json import run_cases
from registry.text import json_depth

LONG = {
    "a list that deepens and is compared", "a list that deepens", "a loop over much", "a million empty lists",
    "a million variants", "a slow rule", "as a number", "as much as there is room", "endless loops",
    "looked for again and again", "loops that print nothing", "macros that count", "macros that double",
    "many branches", "many derived values in many variants", "many ifs", "many keys", "many large templates",
    "many names", "many tags", "many texts", "slow conditions", "slow passes", "sliced and kept",
    "text of lists", "wide expressions", "a shape of many dimensions", "metadata of a million files",
    "many numbers", "many empty entries", "many anchors", "one anchor, again and again", "a long text",
    "a million numbers", "a long name", "many passes of a binding set", "a million passes",
    "loops that come to nothing", "slow passes of a loop", "slow derived values", "distinct expressions",
}  # fmt: skip
OTHERS: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    10**400,
    2**63,
    "",
    "x",
    "{x}",
    "1/0",
    "\ud800",
    "a\0b",
    "x" * 5000,
    [],
    [None],
    [[]],
    {},
    {"a": 1},
    {"__class__": "x"},
)


@pytest.mark.parametrize("kind", ["json", "yaml", "expression", "template", "package"])
def test_recipes(kind: str, shared: Registry, tmp_path: Path) -> None:
    tried = 0
    for what, name, take in bombs.walks(shared, tmp_path):
        if what == kind and name not in LONG:
            tried += 1
            try:
                assert take(), name
            except RegistryError as error:
                raise AssertionError(f"{name}: one of ours, but not where it belongs") from error
            except Exception as error:
                raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
    assert tried > 20


@pytest.mark.parametrize("file", sorted((ROOT / "tests/hostile/corpus").glob("*/*")), ids=lambda f: f.name)
def test_what_the_fuzzer_begins_with_and_has_found(file: Path, shared: Registry, tmp_path: Path) -> None:
    data = file.read_bytes()
    if file.parent.name in ("json", "yaml"):
        (tmp_path / f"manifest.{file.parent.name}").write_bytes(data)
        stages.walk_manifest(shared, tmp_path / f"manifest.{file.parent.name}")
    elif file.parent.name == "package":
        parts = data.split(b"\n=====\n", 2)
        for name, part in zip(("manifest.json", "twice.wgsl.jinja", "metadata.json"), parts, strict=False):
            (tmp_path / name).write_bytes(part)
        stages.walk_package(shared, tmp_path)
    elif file.parent.name == "expression":
        stages.walk_expression(data.decode())
    else:
        stages.walk_template(data.decode())


# Manifests


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    keys = (
        document if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    )
    for key in keys:
        yield from places(document[key], (*path, key))


def put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.copy(document)
    changed[path[0]] = put(document[path[0]], path[1:], value)
    return changed


def refused_or_fine(text: str, what: object) -> None:
    try:
        parse_package_manifest(text, "manifest.json", None)
    except RegistryError as error:
        str(error).encode()
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize(("name", "share"), [("BiasAdd", 0.3), ("LayerNormalization", 0.02)])
def test_each_node_of_another_type(name: str, share: float) -> None:
    if not SEEDS.is_dir():
        pytest.skip(f"no seed manifests in {SEEDS} (set REGISTRY_SEEDS)")
    document = json.loads((SEEDS / f"{name}.manifest.json").read_text())
    draw = random.Random(1)
    for path in places(document):
        if draw.random() < share:
            for value in draw.sample(OTHERS, 3):
                refused_or_fine(json.dumps(put(document, path, value)), (path, value))


def test_each_node_of_our_own_form() -> None:
    """Families, rules and extensions, which packages may have too."""
    document = json.loads((ROOT / "tests/hostile/corpus/json/families.json").read_text())
    draw = random.Random(2)
    for path in places(document):
        for value in draw.sample(OTHERS, 2):
            refused_or_fine(json.dumps(put(document, path, value)), (path, value))


def test_each_prefix(shared: Registry) -> None:
    for file, stride in (
        (ROOT / "tests/hostile/corpus/json/families.json", 7),
        (shared.op("BiasAdd").file, 61),
    ):
        text = Path(file).read_text()
        for stop in range(0, len(text) - 2, stride):
            try:
                parse_manifest(text[:stop], "m", "json" if text.startswith("{") else "yaml")
            except RegistryError:
                continue
            assert not text.startswith("{"), stop


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe",
        b"\xef\xbb\xbf\xef\xbb\xbf{}",
        b"name: \xc3(",
        b"name: a\0b",
        "{}".encode("utf-16"),
        b"\xed\xa0\x80",
    ],
)
@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_bytes_that_are_no_text(tmp_path: Path, data: bytes, suffix: str) -> None:
    file = tmp_path / f"m{suffix}"
    file.write_bytes(data)
    with pytest.raises(RegistryError, match=re.escape(str(file))):
        load_manifest(file)


REFUSED = {
    "many inputs": (
        manifest(inputs=[{"role": f"X{i}"} for i in range(2000)]),
        "2000 entries; needed: at most 1024",
    ),
    "many cells": (
        manifest(
            variants=[{"axes": {"a": [*range(33)], "b": [*range(33)]}, "variants": [variant(id="v{a}_{b}")]}]
        ),
        "33 times 33 combinations; needed: at most 1024",
    ),
    "a list that is spliced": (
        manifest(variants=[{"cases": [{"t": [1] * 40}], "variants": [{"id": "a", "passes": ["{t}"] * 40}]}]),
        "more than 1024 entries after expansion",
    ),
    "expressions": (
        manifest(derive={f"d{i}": f"{i}{' ' * 900}" for i in range(40)}),
        "32768 characters of different",
    ),
    "loops": (
        manifest(variants=[variant(passes=[one_pass(loops=[{"id": "a", "index": "i", "count": 1}] * 9)])]),
        "9 loops around a pass; needed: at most 8",
    ),
    "a large integer": (manifest(sinceVersion=10**400), "an integer of 1329 bits; needed: a finite double"),
    "half of a pair": (manifest(description="\ud800"), r"\$.description: a text holds the character U\+D800"),
    "a title for the terminal": (manifest(description="\x1b]0;x\x07"), r"holds the character U\+001B"),
    "another order": (manifest(derive={"a": "1 \u202e"}), r"\$.derive.a: a text holds the character U\+202E"),
    "a long key": (manifest(**{"k" * 300: 1}), "a key has 300 characters; needed: at most 256"),
    "a key like an error": (manifest(**{"a` - at `$.variants[9]": 1}), "unknown"),
    "a value twice": (
        manifest(attributeNames=["a"], attributeConstraints={"a": {"values": [1, 2, 1.0]}}),
        "1 again; needed: each value once",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_limits_of_manifests(case: tuple[dict[str, Any], str]) -> None:
    document, message = case
    with pytest.raises(RegistryError, match=message):
        parse_manifest(json.dumps(document), "m.json", "json")


# Work


def test_meters_count_for_those_around_them() -> None:
    spend(10**9)  # nobody counts
    with metered(100, "all of it takes"):
        with metered(40):
            spend(30)
        with pytest.raises(EvaluationError, match="together take more than 40 steps"), metered(40):
            spend(41)
        spend(20)
        with pytest.raises(EvaluationError, match="all of it takes more than 100 steps"), metered(40):
            spend(15)
    spend(10**9)


@pytest.mark.parametrize(
    "text",
    ["fill(0, 4000) | sort", "7 in fill(0, 4000)", "fill(1, 4000) ~ ''", "fill(0, 4000) | unique | length"],
)
def test_large_values_count(text: str) -> None:
    expression = parse(text)
    with pytest.raises(EvaluationError, match="more than 10000 steps"), metered(10_000):
        for _ in range(4):
            expression.evaluate(stages.SCOPE)


def test_a_template_is_cut_by_its_steps() -> None:
    slow = "{% for i in range(4000) %}{% set x = fill(0, 4000) | sort %}{% endfor %}"
    with pytest.raises(TemplateError, match="the template takes more than 50000 steps"):
        parse_template(slow).render(stages.SCOPE)


def test_a_manifest_that_asks_too_much_stops_no_other_backend(shared: Registry) -> None:
    derive = {f"d{i}": bombs.SLOW for i in range(300)}
    op = stages.Op(parse_manifest(json.dumps(manifest(derive=derive)), "/m.json", "json"), "/m.json")
    decision = shared.explain(op, X=((2, 3), "float32"), profile=stages.PROFILE)
    assert (
        "more than 1000000 steps" in decision.candidates[0].found
        or "template" in decision.candidates[0].because
    )


# Packages


def test_files_are_bounded_together(shared: Registry, tmp_path: Path) -> None:
    variants = [variant(id=f"v{i}", passes=[one_pass(shader=f"t{i}.wgsl")]) for i in range(9)]
    folder = write_package(
        tmp_path,
        lambda to: (to / "manifest.json").write_text(json.dumps(manifest(variants=variants))) and None,
    )
    for i in range(9):
        (folder / f"t{i}.wgsl").write_bytes(b" " * (4 * 2**20))
    with pytest.raises(PackageError, match=f"over {MAX_BYTES} bytes together"):
        shared.load(folder)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"args": {"backend": "numpy"}}, "no scalar argument backend"),
        ({"args": {"out": 1, "inputs": 2}}, "no scalar argument inputs"),
        ({"name": "\x1b[2J"}, "the character U+001B"),
        ({"inputs": {"X": {"dtype": "float32", "shape": [2**25], "data": {}}}}, "elements together"),
        ({"inputs": {"X": {"dtype": "float32", "shape": ["x", 9], "data": {}}}}, "a tensor float32"),
    ],
)
def test_cases_of_packages(shared: Registry, tmp_path: Path, case: dict[str, Any], message: str) -> None:
    whole = {"name": "a", "inputs": {}, "outputs": {}, **case}
    op = shared.load(write_package(tmp_path)).op
    (tmp_path / "test.json").write_text(json.dumps({"cases": [whole]}))
    found = run_cases(shared, op)
    assert isinstance(found, str) and message in found


def test_more_cases_than_a_package_may_have(shared: Registry, tmp_path: Path) -> None:
    op = shared.load(write_package(tmp_path)).op
    cases = [{"name": "a", "inputs": {}, "outputs": {}}] * 5000
    (tmp_path / "test.json").write_text(json.dumps({"cases": cases}))
    assert "5000 cases; this version runs 4096" in run_cases(shared, op)


def test_templates_send_nothing_to_a_terminal(shared: Registry, tmp_path: Path) -> None:
    folder = write_package(tmp_path)
    (folder / "twice.wgsl.jinja").write_text(bombs.TEMPLATE + "// \x1b[2J\n")
    with pytest.raises(PackageError, match=r"twice.wgsl.jinja: holds the character U\+001B"):
        shared.load(folder)


WRONG_SHADERS = {
    "no shader": "nonsense",
    "no entry point": "fn other() {}",
    "another binding": bombs.TEMPLATE.replace("Y[i]", "Z[i]"),
    "a workgroup that is too large": bombs.TEMPLATE.replace("@workgroup_size(64)", "@workgroup_size(9999)"),
    "a chain of ifs": bombs.TEMPLATE.replace(
        "let i", "if (true) {}" + "else if (true) {}" * 1100 + "let i", 1
    ),
    "a letter that WGSL lacks": bombs.TEMPLATE + "\u20ac",
    "too much memory": "var<workgroup> w: array<f32, 99999999>;\n"
    + bombs.TEMPLATE.replace("X[i] +", "w[i] +"),
}


@pytest.mark.parametrize("text", WRONG_SHADERS.values(), ids=WRONG_SHADERS.keys())
def test_packages_that_do_not_run(webgpu: Registry, tmp_path: Path, text: str) -> None:
    handle = webgpu.load(
        write_package(tmp_path, lambda to: (to / "twice.wgsl.jinja").write_text(text) and None)
    )
    x = np.ones((2, 3), np.float32)
    try:
        handle(x, variant="only")
    except RegistryError as error:
        assert "Twice" in str(error)
    try:
        handle.compare(x)
    except RegistryError as error:
        assert "Twice" in str(error)
    good = webgpu.load(write_package(tmp_path / "good"))
    assert (good(x) == 2).all()  # and the device goes on


# Plugins


def test_a_manifest_that_is_wrong_hides_no_other_op(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme/Wrong.yaml").write_text("name: \x1b[2J")

    class plugin:
        @hookimpl
        def registry_manifests() -> Any:  # type: ignore[misc]
            return [tmp_path]

    reg = Registry([registry_manifests, registry_numpy, plugin], entry_points=False)
    monkeypatch.setattr(registry, "ops", reg.ops)
    monkeypatch.setattr(registry, "op", reg.op)
    done = CliRunner().invoke(main, ["ops"])
    assert done.exit_code == 0 and "BiasAdd" in done.output
    assert "left out" in done.output and "\x1b" not in done.output
    with pytest.raises(RegistryError, match=r"Wrong\.yaml"):
        reg.run("acme::Wrong")


class Rude(Backend):
    """A backend each of whose methods does what ``deeds`` says."""

    name = "rude"
    deeds: dict[str, Any]

    def __init__(self, **deeds: Any):
        for name, deed in deeds.items():
            setattr(self, name, deed)

    def claims(self, op: Any) -> Any:
        return [Claim("only")] if op.id == "com.microsoft::BiasAdd" else []

    def prepare(self, request: Any, claim: Any, options: Any) -> Any:
        return lambda inputs, outputs: outputs["Y"].fill(0)


def raises(*rest: Any, **named: Any) -> Any:
    raise RuntimeError("rude")


def leaves(*rest: Any, **named: Any) -> Any:
    raise SystemExit(3)


DEEDS: dict[str, dict[str, Any]] = {
    f"{name} {deed}": {name: what}
    for name in (
        "probe",
        "claims",
        "owns",
        "prepare",
        "reader",
        "render",
        "check_options",
        "remarks",
        "template",
    )
    for deed, what in (
        ("raises", raises),
        ("gives None", lambda *rest: None),
        ("gives a number", lambda *rest: 7),
    )
} | {
    "probe leaves": {"probe": leaves},
    "a priority that is no number": {"priority": "high"},
    "a priority that is NaN": {"priority": float("nan")},
    "a priority that is endless": {"priority": float("inf")},
    "a name that is none": {"name": "__class__"},
    "a name with blanks": {"name": "a b"},
    "an availability of wrong things": {
        "probe": lambda options: Availability(True, name=7, device=7, details=7)
    },
    "a claim of wrong things": {"claims": lambda op: [Claim("only", when=(7,))]},
    "a claim that recurs": {"claims": lambda op: [Claim("only", when=("(" * 4000,))]},
    "many claims": {"claims": lambda op: [Claim(f"v{i}", when=("false",)) for i in range(2000)]},
    "a priority of a claim": {"claims": lambda op: [Claim("only", priority=float("nan"))]},
    "options": {"option_names": 7},
}


@pytest.mark.parametrize("deeds", DEEDS.values(), ids=DEEDS.keys())
@pytest.mark.filterwarnings("ignore::registry.RegistryWarning")
def test_rude_backends_stop_no_other(deeds: dict[str, Any]) -> None:
    class plugin:
        @hookimpl
        def registry_backends() -> Any:  # type: ignore[misc]
            return [Rude(**deeds)]

    reg = Registry([registry_manifests, registry_numpy, plugin], entry_points=False)
    x = np.ones((1, 2, 4), np.float32)
    call = {"X": x, "bias": x[0, 0], "skip": x}
    reg.backends()
    assert (reg.run("BiasAdd", **call, backend="numpy") == 3).all()
    str(reg.explain("BiasAdd", **call))
    for backend in (None, "rude"):
        try:
            reg.run("BiasAdd", **call, backend=backend)
        except RegistryError as error:
            assert str(error)


def test_an_index_whose_text_stays_open() -> None:
    """Looked through once, not once for each of its quotes, which would take hours."""
    assert json_depth('[{"' + '\\"' * 500_000) == 2
    assert json_depth('["' + '\\"' * 500_000 + "\\") == 1
