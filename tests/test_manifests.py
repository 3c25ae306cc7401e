"""Loading manifests: the built-in ones, the published ones they match, and what wrong ones say."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from forms import FORMS

import registry_manifests
from registry.calling.call import parse_call
from registry.calling.parts import device_bytes
from registry.calling.request import bind
from registry.calling.scope import bytes_moved
from registry.errors import ContractError, ManifestError
from registry.loading.documents import read_document
from registry.loading.families import expand_families
from registry.loading.loader import load_manifest, parse_manifest
from registry.loading.schema import json_schema
from registry.opinfo import Op
from registry.plugins import load_plugins

FOLDER = Path(registry_manifests.__file__).parent
FILES = sorted(FOLDER.glob("*/*.yaml"))
SEEDS = Path(
    os.environ.get("REGISTRY_SEEDS", Path(__file__).parents[1] / ".." / "shared" / "seeds")
).resolve()
REFRESH = (
    "python -c 'import json; from registry.loading.schema import json_schema; "
    "print(json.dumps(json_schema(), indent=2))' > manifests/registry_manifests/schema.json"
)


def ours(name: str) -> Op:
    return load_manifest(next(path for path in FILES if path.stem == name))


# The built-in manifests


def test_the_plugin_names_the_folder() -> None:
    assert registry_manifests.registry_manifests() == [FOLDER]


def test_the_schema_is_current() -> None:
    current = json.loads((FOLDER / "schema.json").read_text())
    assert current == json_schema(), f"refresh it with: {REFRESH}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_built_in_manifest_fits_its_schema_and_its_place(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("# yaml-language-server: $schema=../schema.json\n")
    jsonschema.validate(read_document(text, "yaml"), json_schema())
    op = load_manifest(path)
    assert op.id == f"{path.parent.name}::{path.stem}"
    assert op.manifest.registry.bytes_moved and op.manifest.registry.even_fold


@pytest.mark.parametrize(
    ("name", "count"),
    [("SkipLayerNormalization", 12), ("BiasAdd", 2), ("LayerNormalization", 21)],
)
def test_variants_are_those_of_the_published_manifest(name: str, count: int) -> None:
    if not SEEDS.is_dir():
        pytest.skip(f"the published manifests are not in {SEEDS}; set REGISTRY_SEEDS")
    op, seed = ours(name), load_manifest(SEEDS / f"{name}.manifest.json")

    def order(op: Op) -> list[tuple[str, float]]:
        ranked = sorted(op.manifest.variants, key=lambda variant: -variant.priority)
        return [(variant.id, variant.priority) for variant in ranked]

    assert len(seed.variants) == count
    # Ours stand beside them and never outrank one that accepts the same request.
    assert [row for row in order(op) if row[0] in seed.variants] == order(seed)
    roles = [(spec.role, spec.arg) for spec in (*seed.inputs, *seed.outputs)]
    assert set(roles) <= {(spec.role, spec.arg) for spec in (*op.inputs, *op.outputs)}
    assert op.attributes == seed.attributes
    for twin in seed.manifest.variants:
        variant = op.variants[twin.id]
        assert [item.id for item in variant.passes] == [item.id for item in twin.passes]
        assert [item.template for item in variant.passes] == [i.template for i in twin.passes]
        assert bool(variant.demote_when) == bool(twin.demote_when)


F32 = "float32"
SKIP = {"input": ((2, 3, 8), F32), "skip": ((2, 3, 8), F32), "gamma": ((8,), F32)}
LAYER = {"X": ((2, 3, 8), F32), "Scale": ((8,), F32)}
BIAS = {"X": ((2, 3, 8), F32), "bias": ((8,), F32), "skip": ((2, 3, 8), F32)}
BROKEN_CALLS = [
    ("SkipLayerNormalization", {**SKIP, "input": ((8,), F32)}, {}, "input", "rank 2 or 3"),
    ("SkipLayerNormalization", {**SKIP, "input": ((3, 0), F32)}, {}, "input", "at least 1"),
    ("SkipLayerNormalization", {**SKIP, "skip": ((8,), F32)}, {}, "skip", "(1, S, H)"),
    ("SkipLayerNormalization", {**SKIP, "skip": ((1, 1, 8), F32)}, {}, "skip", "(1, S, H)"),
    ("SkipLayerNormalization", {**SKIP, "gamma": ((1, 8), F32)}, {}, "gamma", "shape (H)"),
    ("SkipLayerNormalization", {**SKIP, "beta": ((5,), F32)}, {}, "beta", "shape (H)"),
    ("SkipLayerNormalization", {**SKIP, "bias": ((2, 8), F32)}, {}, "bias", "shape (H)"),
    ("SkipLayerNormalization", SKIP, {"epsilon": -1e-9}, "epsilon", "at least 0"),
    ("SkipLayerNormalization", SKIP, {"epsilon": float("nan")}, "epsilon", "finite"),
    ("SkipLayerNormalization", SKIP, {"epsilon": float("inf")}, "epsilon", "finite"),
    ("LayerNormalization", {**LAYER, "X": ((), F32)}, {}, "X", "rank of at least 1"),
    ("LayerNormalization", LAYER, {"axis": 3}, "axis", "from -rank to rank - 1"),
    ("LayerNormalization", LAYER, {"axis": -4}, "axis", "from -rank to rank - 1"),
    ("LayerNormalization", LAYER, {"axis": 0.5}, "axis", "an integer"),
    ("LayerNormalization", {**LAYER, "X": ((3, 0), F32)}, {}, "X", "at least one element"),
    ("LayerNormalization", {**LAYER, "Scale": ((5,), F32)}, {}, "Scale", "broadcasts"),
    ("LayerNormalization", {**LAYER, "B": ((1, 2, 3, 8), F32)}, {}, "B", "without enlarging"),
    ("LayerNormalization", LAYER, {"epsilon": 1e39}, "epsilon", "finite in float32"),
    ("LayerNormalization", LAYER, {"stash_type": 16}, "stash_type", "one of 1"),
    ("BiasAdd", {**BIAS, "X": ((3, 8), F32)}, {}, "X", "rank 3"),
    ("BiasAdd", {**BIAS, "skip": ((3, 8), F32)}, {}, "skip", "the shape of X"),
    ("BiasAdd", {**BIAS, "bias": ((1,), F32)}, {}, "bias", "shape (C)"),
]


@pytest.mark.parametrize(("name", "tensors", "attrs", "argument", "needed"), BROKEN_CALLS)
def test_the_contract_refuses(
    name: str, tensors: dict[str, Any], attrs: dict[str, Any], argument: str, needed: str
) -> None:
    with pytest.raises(ContractError) as caught:
        bind(parse_call(ours(name), (), {"inputs": tensors, "attrs": attrs}))
    assert caught.value.argument == argument
    assert needed in str(caught.value)


@pytest.mark.parametrize(
    ("name", "tensors", "attrs", "shapes"),
    [
        (
            "SkipLayerNormalization",
            {**SKIP, "skip": ((1, 3, 8), F32)},
            {"epsilon": 0},
            {"output": (2, 3, 8), "mean": (2, 3, 1), "inv_std_var": (2, 3, 1)},
        ),
        (
            "LayerNormalization",
            {"X": ((2, 3, 4), F32), "Scale": ((), F32)},
            {"axis": -2},
            {"Y": (2, 3, 4), "Mean": (2, 1, 1), "InvStdDev": (2, 1, 1)},
        ),
        (
            "BiasAdd",
            {"X": ((1, 4, 0), F32), "bias": ((0,), F32), "skip": ((1, 4, 0), F32)},
            {},
            {"Y": (1, 4, 0)},
        ),
    ],
)
def test_shapes_of_outputs(
    name: str, tensors: dict[str, Any], attrs: dict[str, Any], shapes: dict[str, Any]
) -> None:
    named = {"inputs": tensors, "attrs": attrs, "outputs": tuple(shapes)}
    outputs = bind(parse_call(ours(name), (), named)).outputs
    assert {role: tensor.shape for role, tensor in outputs.items()} == shapes


@pytest.mark.parametrize("op", FORMS)
def test_a_perfect_kernel_moves_every_tensor_once(op: str) -> None:
    loaded = ours(op.partition("::")[2])
    for form in FORMS[op]:
        for dtype in ("float32", "bfloat16"):
            pairs = form.pairs(6, 8, dtype)
            assert pairs is not None
            request = bind(parse_call(loaded, (), pairs))
            moved = [*request.inputs.values(), *map(request.outputs.__getitem__, request.asked)]
            assert bytes_moved(request) == sum(map(device_bytes, moved)), form.name


# Wrong manifests

GOOD: dict[str, Any] = {
    "domain": "test",
    "name": "Twice",
    "inputs": [{"role": "X", "dtype": "T"}],
    "outputs": [{"role": "Y", "dtype": "T", "shape": "shapes.X"}],
    "args": {
        "x": {"kind": "tensor", "semantic": "X", "role": "input"},
        "y": {"kind": "tensor", "semantic": "Y", "role": "output"},
        "times": {"kind": "u32", "required": False},
    },
    "attributes": {"alpha": 1.5},
    "attributeConstraints": {"alpha": {"values": [1.5, 2]}},
    "typeConstraints": {"T": ["float32", "float16"]},
    "tunables": {"WG": 64},
    "derive": {"count": "numel(shapes.X)", "groups": "ceilDiv(count, tunables.WG)"},
    "constants": {"scalar": "dtypes.T"},
    "bindingSets": {
        "main": [
            {
                "name": "x",
                "arg": "x",
                "buffer": {"type": "read-only-storage"},
                "elementType": "$scalar",
            },
            {"name": "y", "arg": "y", "buffer": {"type": "storage"}, "elementType": "$T"},
            {
                "name": "params",
                "buffer": {"type": "uniform"},
                "struct": {
                    "name": "Params",
                    "fields": [{"name": "count", "type": "u32", "value": "count"}],
                },
            },
        ]
    },
    "registry": {"contract": [{"rule": "ranks.X > 0", "argument": "X", "needed": "a rank"}]},
    "variants": [
        {
            "cases": [{"id": "two", "n": 2}, {"id": "four", "n": 4}],
            "variants": [
                {
                    "id": "{id}",
                    "when": ["count % {n} == 0", "present.x"],
                    "constants": {"n": "{n}"},
                    "passes": [
                        {
                            "shader": "twice.wgsl.jinja",
                            "bindings": "main",
                            "dispatch": {"workgroups": "groups"},
                        }
                    ],
                }
            ],
        },
        {
            "id": "plain",
            "derive": {"half": "count / 2"},
            "constants": {"half": "half"},
            "passes": [
                {
                    "source": {"shader": "twice.wgsl.jinja", "inputs": {"step": "half * 2"}},
                    "bindings": "main",
                    "dispatch": {"threads": "source.step", "workgroupSize": "constants.half"},
                }
            ],
        },
    ],
}
DELETE = object()
FAMILY = "$.variants[0].variants[0]"
PLAIN = ("variants", 1)
TWO = ("variants", 0, "variants", 0)
PASS = (*PLAIN, "passes", 0)
BINDING = ("bindingSets", "main", 0)

# Where the good manifest is changed, the new value, the path reported, words of the message.
FAULTS: list[tuple[tuple[str | int, ...], Any, str, Sequence[str]]] = [
    # keys and types
    (("inputz",), [], "$.inputz", ["'inputz'", "did you mean 'inputs'", "attributes"]),
    (("inputs",), DELETE, "$", ["'inputs' is missing", "found: domain, name"]),
    (("inputs", 0, "rol"), "X", "$.inputs[0].rol", ["did you mean 'role'"]),
    (("args", "x", "kin"), 1, "$.args.x.kin", ["did you mean 'kind'", "semantic"]),
    (("args", "x", "kind"), "tensr", "$.args.x.kind", ["tensr", "did you mean", "'u32'"]),
    (("args", "times"), 3, "$.args.times", ["found 3", "object"]),
    (("schemaVersion",), 2, "$.schemaVersion", ["found 2", "allowed: 1"]),
    (("sinceVersion",), 1.5, "$.sinceVersion", ["found 1.5", "int"]),
    (("tunables", "WG"), [64], "$.tunables.WG", ["[64]", "float"]),
    (("variants",), [], "$.variants", ["at least one"]),
    ((*PLAIN, "pases"), [], "$.variants[1].pases", ["did you mean 'passes'"]),
    ((*PLAIN, "priority"), "high", "$.variants[1].priority", ['"high"', "float"]),
    ((*PASS, "dispatch", "group"), 1, "$.variants[1].passes[0].dispatch.group", ["threads"]),
    # names
    (("domain",), "Test\n", "$.domain", ["Test", "such as ai.onnx"]),
    (("name",), "", "$.name", ["''", "letters"]),
    ((*PLAIN, "id"), "a-b", "$.variants[1].id", ["'a-b'", "letters"]),
    ((*PLAIN, "id"), "four", "$.variants[1].id", ["'four' again", "once"]),
    (("outputs", 0, "role"), "a b", "$.outputs[0].role", ["'a b'"]),
    (("inputs",), [{"role": "X"}, {"role": "X"}], "$.inputs[1].role", ["'X' again"]),
    (("inputs", 0, "dtype"), "U", "$.inputs[0].dtype", ["'U'", "T", "float32"]),
    (("typeConstraints", "T", 1), "half", "$.typeConstraints.T[1]", ["'half'", "float16"]),
    (("typeConstraints", "T"), [], "$.typeConstraints.T", ["at least one"]),
    (("args", "x", "semantic"), "x", "$.args.x.semantic", ["'x'", "did you mean 'X'", "Y"]),
    (("args", "x", "semantic"), "Y", "$.args.y.semantic", ["'x' binds it"]),
    (("derive", "floor"), "1", "$.derive.floor", ["'floor'", "another name"]),
    (("derive", "T"), "1", "$.derive.T", ["'T'", "type variable"]),
    (("tunables",), {"W G": 1}, '$.tunables["W G"]', ["'W G'"]),
    (("attributes", "toString"), 1, "$.attributes.toString", ["reserved"]),
    (("derive", "use"), "1", "$.derive.use", ["fragment"]),
    (("inputs", 0, "$comment"), 1, "$.inputs[0].$comment", ["text"]),
    # attributes
    (("attributeConstraints", "beta"), {}, "$.attributeConstraints.beta", ["one of alpha"]),
    (("attributes", "alpha"), 3, "$.attributes.alpha", ["default 3", "1.5"]),
    (
        ("attributeConstraints", "alpha"),
        {"required": True},
        "$.attributeConstraints.alpha.required",
        ["with a default"],
    ),
    (
        ("attributeConstraints", "alpha", "values"),
        [1.5, 1.5],
        "$.attributeConstraints.alpha.values[1]",
        ["1.5 again"],
    ),
    (("attributeNames",), ["alpha"], "$.attributeNames[0]", ["'alpha' again"]),
    # expressions
    (("derive", "count"), "numl(shapes.X)", "$.derive.count", ["did you mean 'numel'", "dim"]),
    (("derive", "count"), "groups", "$.derive.count", ["'groups'", "derived later"]),
    (("derive", "count"), "scalar", "$.derive.count", ["a constant"]),
    (("derive", "count"), "T", "$.derive.count", ["dtypes.T"]),
    (("derive", "count"), "2 * 1e-5", "$.derive.count", ["1e-5"]),
    (("derive", "count"), "1 +", "$.derive.count", ["1 +"]),
    (("derive", "count"), {"a": ["f32"]}, "$.derive.count.a[0]", ["'f32'", "needs quotes"]),
    (("outputs", 0, "shape"), ["x"], "$.outputs[0].shape[0]", ["'x'"]),
    (("constants", "half"), "scalar", "$.constants.half", ["a constant"]),
    ((*PLAIN, "when"), ["half > 1"], "$.variants[1].when[0]", ["'half'"]),
    ((*PLAIN, "when"), ["tunables.W > 1"], "$.variants[1].when[0]", ["'W'", "it has: WG"]),
    ((*PLAIN, "when"), ["present.X"], "$.variants[1].when[0]", ["did you mean 'x'", "times"]),
    ((*PLAIN, "when"), ["ranks.Z == 1"], "$.variants[1].when[0]", ["'Z'", "X, Y, x, y"]),
    ((*PLAIN, "when"), ['dtypes.U == "f32"'], "$.variants[1].when[0]", ["it has: T"]),
    ((*PLAIN, "when"), ["attrs.alfa > 1"], "$.variants[1].when[0]", ["did you mean 'alpha'"]),
    ((*PLAIN, "when"), [], "$.variants[1].when", ["at least one"]),
    ((*PLAIN, "when"), [" "], "$.variants[1].when[0]", ["nothing"]),
    ((*PLAIN, "demoteWhen"), [], "$.variants[1].demoteWhen", ["at least one"]),
    (("registry", "contract", 0, "rule"), "count", "$.registry.contract[0].rule", ["derived"]),
    (("registry", "contract", 0, "argument"), "Q", "$.registry.contract[0].argument", ["X"]),
    (("registry", "bytesMoved"), "size", "$.registry.bytesMoved", ["'size'"]),
    # passes
    ((*PASS, "bindings"), "mian", "$.variants[1].passes[0].bindings", ["did you mean 'main'"]),
    ((*PASS, "bindings"), [], "$.variants[1].passes[0].bindings", ["at least one"]),
    ((*PASS, "shader"), "other.wgsl", "$.variants[1].passes[0].shader", ["one template"]),
    (
        (*PASS, "subgroupCollectivesWidth"),
        5,
        "$.variants[1].passes[0].subgroupCollectivesWidth",
        ["portable", "5"],
    ),
    ((*PASS, "dispatch"), {}, "$.variants[1].passes[0].dispatch", ["nothing", "workgroups"]),
    (
        (*PASS, "dispatch", "x"),
        1,
        "$.variants[1].passes[0].dispatch",
        ["x and threads and workgroupSize"],
    ),
    ((*PASS, "dispatch"), {"x": -1}, "$.variants[1].passes[0].dispatch.x", ["at least 0"]),
    (
        (*PASS, "dispatch", "threads"),
        "source.stride",
        "$.variants[1].passes[0].dispatch.threads",
        ["'stride'", "it has: step"],
    ),
    (
        (*PASS, "viewAlias"),
        [{"input": "x", "output": "z"}],
        "$.variants[1].passes[0].viewAlias[0].output",
        ["'z'", "params"],
    ),
    (
        (*PLAIN, "intermediates"),
        [{"id": "x", "dtype": "float32", "shape": "count"}],
        "$.variants[1].intermediates[0].id",
        ["no tensor's"],
    ),
    (("inputs", 0, "optional"), True, "$.args.x", ["of an optional tensor", "required: false"]),
    ((*PLAIN, "when"), [False], "$.variants[1].when[0]", ["found false", "text, in quotes"]),
    # bindings
    ((*BINDING, "elementType"), DELETE, "$.bindingSets.main[0]", ["without elementType"]),
    ((*BINDING, "elementType"), "$vec", "$.bindingSets.main[0].elementType", ["'vec'", "T"]),
    ((*BINDING, "length"), "$len", "$.bindingSets.main[0].length", ["'len'", "scalar"]),
    ((*BINDING, "length"), 0, "$.bindingSets.main[0].length", ["at least 1"]),
    ((*BINDING, "optional"), True, "$.bindingSets.main[0].optional", ["unknown key"]),
    ((*BINDING, "name"), "x-y", "$.bindingSets.main[0].name", ["'x-y'"]),
    ((*BINDING, "name"), "y", "$.bindingSets.main[1].name", ["'y' again"]),
    ((*BINDING, "buffer", "type"), "uniform", "$.bindingSets.main[0]", ["without struct"]),
    ((*BINDING, "struct"), {"name": "P", "fields": []}, "$.bindingSets.main[0]", ["uniforms"]),
    (
        ("bindingSets", "main", 1),
        {"name": "z", "arg": "Z", "buffer": {"type": "storage"}, "elementType": "f32"},
        "$.bindingSets.main[1].arg",
        ["'Z'", "x, X, y, Y"],
    ),
    (
        ("bindingSets", "main", 1),
        {"name": "y", "arg": "Z", "buffer": {"type": "storage"}, "elementType": "f32"},
        "$.bindingSets.main[1].arg",
        ["'Z'", "x, X, y, Y"],
    ),
    (
        ("bindingSets", "main", 2, "struct", "fields", 0, "value"),
        "cuont",
        "$.bindingSets.main[2].struct.fields[0].value",
        ["did you mean 'count'"],
    ),
    (
        ("registry",),
        {"tolerance": {"float33": {"steps": 1}}},
        "$.registry.tolerance.float33",
        ["did you mean 'float32'"],
    ),
    (
        ("registry",),
        {"tolerance": {"float16": {"steps": -1}}},
        "$.registry.tolerance.float16.steps",
        ["found -1", ">= 0"],
    ),
    # families
    ((*TWO, "priority"), "{p}", f"{FAMILY}.priority", ["{p}", "found: id, n"]),
    ((*TWO, "whem"), [], f"{FAMILY}.whem (variant 'two')", ["did you mean 'when'"]),
    ((*TWO, "when", 1), "present.{id}", f"{FAMILY}.when[1] (variant 'two')", ["'two'"]),
    ((*TWO, "id"), "same", f"{FAMILY}.id (variant 'same')", ["'same' again"]),
    (("variants", 0, "case"), [], "$.variants[0].case", ["did you mean 'cases'"]),
    (("variants", 0, "cases"), [], "$.variants[0].cases", ["not empty"]),
    (("variants", 0, "cases"), [{"id": "a", "n": None}], f"{FAMILY}.when[0]", ["null"]),
    (("variants", 0, "cases", 1), 4, "$.variants[0].cases[1]", ["found 4"]),
    (("variants", 0, "cases"), [{"id": None, "n": 1}], f"{FAMILY}.id", ["needs its id"]),
]


def changed(steps: Sequence[str | int], value: Any) -> dict[str, Any]:
    document = copy.deepcopy(GOOD)
    target: Any = document
    for step in steps[:-1]:
        target = target[step]
    if value is DELETE:
        del target[steps[-1]]
    else:
        target[steps[-1]] = value
    return document


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_good_manifest_loads(form: Any) -> None:
    text = json.dumps(GOOD) if form == "json" else yaml.safe_dump(GOOD, sort_keys=False)
    manifest = parse_manifest(text, "good", form)
    assert [variant.id for variant in manifest.variants] == ["two", "four", "plain"]
    assert manifest.variants[1].constants == {"n": 4}
    assert manifest.variants[2].passes[0].id == "pass_0"


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize(("steps", "value", "path", "words"), FAULTS)
def test_a_fault_is_named_with_its_place(
    steps: tuple[str | int, ...], value: Any, path: str, words: Sequence[str], form: Any
) -> None:
    document = changed(steps, value)
    text = json.dumps(document) if form == "json" else yaml.safe_dump(document, sort_keys=False)
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text, f"bad.{form}", form)
    assert (caught.value.file, caught.value.path) == (f"bad.{form}", path)
    for word in (f"bad.{form}", path, *words):
        assert word in str(caught.value)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdef", "bcdefg", strict=True)
)


@pytest.mark.parametrize(
    ("form", "text", "path", "words"),
    [
        ("yaml", "a: 1\nb: {c: 1,\n  c: 2}\n", "$.b.c", ["line 3", "'c'", "first on line 2"]),
        ("json", '{"a": [1, {"c": 1,\n"\\u0063": 2}]}', "$.a[1].c", ["line 2", "'c'"]),
        ("yaml", "a: &a {b: 1}\nc:\n  <<: *a\n", '$.c["<<"]', ["line 3", "merge keys"]),
        ("yaml", BOMB, None, ["20000 values"]),
        ("yaml", "[" * 100, None, ["line 1", "64 levels"]),
        ("json", "[" * 500 + "]" * 500, None, ["64 levels"]),
        ("json", "[" * 50000, None, ["64 levels"]),
        ("yaml", "a: *b\n", "$.a", ["line 1", "*b"]),
        ("yaml", "a: &b [*b]\n", "$.a[0]", ["*b"]),
        ("yaml", "a: !!python/object:os.system x\n", "$.a", ["tag"]),
        ("yaml", "1: x\n", "$", ["line 1", "quotes"]),
        ("yaml", "a: .inf\n", "$.a", ["inf", "finite"]),
        ("yaml", "a: 1e999\n", "$.a", ["finite"]),
        ("json", '{"a": 1e999}', "$.a", ["finite"]),
        ("json", '{"a": NaN}', None, ["NaN"]),
        ("yaml", "a: 1\n---\nb: 2\n", "$", ["line 2", "second document"]),
        ("yaml", "a: [1\n", None, ["not YAML", "line"]),
        ("yaml", "a b\nc: d\n", None, ["not YAML: mapping values", "at line 2, column 2"]),
        ("json", '{"a": 1,}', None, ["not JSON", "line 1"]),
        ("yaml", "", "$", ["found null", "map of keys"]),
        ("json", "[]", "$", ["found []"]),
        ("yaml", "a: " + "x" * (1 << 20), None, ["1048576"]),
    ],
)
def test_a_dangerous_or_broken_text_is_refused(
    form: Any, text: str, path: str | None, words: Sequence[str]
) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text, "bad", form)
    assert caught.value.file == "bad"
    if path is not None:
        assert caught.value.path == path
    for word in words:
        assert word in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"name: \xff")
    for path, word in [
        (tmp_path / "absent.yaml", "cannot be read"),
        (tmp_path / "op.toml", ".json"),
        (latin, "cannot be read"),
    ]:
        with pytest.raises(ManifestError, match=word) as caught:
            load_manifest(path)
        assert caught.value.file == str(path)


# YAML and families


def test_scalars_are_those_of_yaml_1_2() -> None:
    text = """
    numbers: [1e-5, 010, 0x10, 0o17, .5, 4.0, -3]
    texts: [no, on, yes, y, 2001-01-01, 1_000, 12:30, '1', "true"]
    rest: [true, False, null, ~, ]
    on: off
    """
    assert read_document(text, "yaml") == {
        "numbers": [1e-5, 10, 16, 15, 0.5, 4, -3],
        "texts": ["no", "on", "yes", "y", "2001-01-01", "1_000", "12:30", "1", "true"],
        "rest": [True, False, None, None],
        "on": "off",
    }


def test_without_libyaml_the_result_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = [load_manifest(path).manifest for path in FILES]
    monkeypatch.delattr(yaml, "CSafeLoader")
    assert [load_manifest(path).manifest for path in FILES] == fast


def test_comments_are_dropped() -> None:
    assert read_document('{"$comment": "a", "b": [{"$comment": "c"}]}', "json") == {"b": [{}]}


def test_a_family_of_two_axes() -> None:
    family = {
        "axes": {
            "width": [{"$key": "vec4", "priority": 20}, {"$key": "row", "priority": 10}],
            "bias": [True, False],
        },
        "exclude": [{"width": "row", "bias": False}],
        "cases": [{"width": "vec4", "bias": True, "priority": 15}],
        "variants": [{"id": "{width}_{bias}", "priority": "{priority}", "b": "{bias}"}],
    }
    variants, origins = expand_families([{"id": "first"}, family])
    assert variants == [
        {"id": "first"},
        {"id": "vec4_true", "priority": 15, "b": True},
        {"id": "vec4_false", "priority": 20, "b": False},
        {"id": "row_true", "priority": 10, "b": True},
    ]
    assert origins == ["$.variants[0]", *["$.variants[1].variants[0]"] * 3]


def test_a_case_value_is_spliced_deleted_or_printed() -> None:
    family = {
        "cases": [{"id": "a", "more": ["x", "y"], "gone": None, "key": "k", "size": 4.5}],
        "variants": [{"id": "{id}", "when": ["w", "{more}"], "g": "{gone}", "{key}": "n {size} {id}"}],
    }
    assert expand_families([family])[0] == [{"id": "a", "when": ["w", "x", "y"], "k": "n 4.5 a"}]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"axes": {"a": [1]}}, "$.variants[0].axes"),
        ({"axes": {"a": [{"x": 1}], "b": [1]}}, "$.variants[0].axes.a[0]"),
        ({"exclude": [{"a": 9}]}, "$.variants[0].exclude[0]"),
        ({"cases": [{"c": 9}]}, "$.variants[0].cases[0]"),
        ({"variants": [{"id": "{a}", "{b}": 1, "2": 1}]}, "$.variants[0].variants[0].2"),
        ({"axes": {"a": list(range(30)), "b": list(range(30))}}, "$.variants[0]"),
        ({"axes": {"a": ["x" * 300], "b": [1]}}, "$.variants[0].variants[0].id"),
    ],
)
def test_a_malformed_family(change: dict[str, Any], path: str) -> None:
    family = {"axes": {"a": [1], "b": [2]}, "variants": [{"id": "v{a}{b}"}], **change}
    with pytest.raises(ManifestError) as caught:
        expand_families([family])
    assert caught.value.path == path


def test_only_manifests_that_come_with_the_library_are_taken_as_tested() -> None:
    installed, given = load_plugins(), load_plugins([registry_manifests], entry_points=False)
    assert {str(path) for op, path in installed.manifests.items() if op in installed.tested} == set(
        map(str, FILES)
    )
    assert given.manifests.keys() == installed.tested and not given.tested


def test_unchecked_is_only_what_goes_beyond_types(tmp_path: Path) -> None:
    text = FILES[0].read_text(encoding="utf-8")
    assert load_manifest(FILES[0], check=False).manifest == load_manifest(FILES[0]).manifest
    misnamed, mistyped = tmp_path / "a.yaml", tmp_path / "b.yaml"
    misnamed.write_text(text.replace("rule: ", "rule: nobody + ", 1), encoding="utf-8")
    load_manifest(misnamed, check=False)
    with pytest.raises(ManifestError, match="nobody"):
        load_manifest(misnamed)
    mistyped.write_text(text + "\nunknownKey: 1\n", encoding="utf-8")
    with pytest.raises(ManifestError, match="unknownKey"):
        load_manifest(mistyped, check=False)
