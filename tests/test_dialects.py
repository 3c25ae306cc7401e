"""Dialect 2.1: packages written in it run, what is wrong in them is refused with its place; and metadata."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from registry import ContractError, ManifestError, PackageError, Registry
from registry.files import sha256_base64

COUNT = {"name": "count", "type": "u32", "value": "total"}
AFFINE: dict[str, Any] = {
    "$schema": "x",
    "domain": "test.example",
    "name": "Affine",
    "description": "y = x * factor + shift, the addition in `times` steps.",
    "conformance": "internal-lowering",
    "inputs": {
        "x": {"onnx": "X", "dtype": "T", "rank": "any"},
        "shift": {"onnx": "B", "dtype": "T", "optional": True, "storage": None},
    },
    "outputs": {"y": {"onnx": "Y", "dtype": "T", "shape": "shapes.x"}},
    "args": {"times": {"kind": "u32", "onnx": "count"}},
    "attributes": {"factor": {"default": 2.0, "description": "Of x."}, "mode": {}},
    "attributeConstraints": {"mode": {"values": ["plain", "odd"]}},
    "typeConstraints": {"T": ["float32", "int32"]},
    "tunables": {"WG": {"default": 64, "description": "Invocations."}},
    "derive": {"total": "numel(shapes.x)", "twice": "derive.total * 2"},
    "when": ["ranks.x >= 1"],
    "requires": {"limits": {"maxComputeInvocationsPerWorkgroup": 64}},
    "bindings": {
        "x": {},
        "params": {"struct": [COUNT, {"name": "factor", "type": "f32", "value": "attrs.factor"}]},
        "held": {"scratch": "sum", "buffer": "storage", "elementType": "f32"},
        "kept": {"scratch": "sum", "buffer": "read-only-storage", "elementType": "$real"},
    },
    "variants": [
        {
            "id": "steps",
            "priority": 2,
            "when": ["present.shift", "dtypes.T == 'f32'"],
            "tunables": {"WG": 32},
            "derive": {"real": "dtypes.T"},
            "intermediates": [{"id": "sum", "dtype": "float32", "shape": ["total"], "zeroInit": True}],
            "passes": [
                {
                    "id": "begin",
                    "shader": "affine.wgsl.jinja",
                    "derive": {"first": True, "scalar": "T"},
                    "bindings": ["x", "held", "params"],
                    "dispatch": {"threads": "total", "workgroupSize": "tunables.WG"},
                },
                {
                    "id": "group",
                    "repeat": {"index": "turn", "count": "args.times"},
                    "passes": [
                        {
                            "id": "add",
                            "shader": "affine.wgsl.jinja",
                            "derive": {
                                "first": False,
                                "share": "1 / repeat.turn_count",
                                "turn": "repeat.index",
                            },
                            "bindings": ["shift", "held", {"name": "params", "struct": [COUNT]}],
                            "dispatch": {"threads": "total", "workgroupSize": "tunables.WG"},
                            "submitAfter": True,
                        }
                    ],
                },
                {
                    "id": "end",
                    "shader": "copy.wgsl.jinja",
                    "bindings": ["kept", "y", {"name": "params", "struct": [COUNT]}],
                    "dispatch": {"threads": "total", "workgroupSize": "tunables.WG"},
                },
            ],
        },
        {
            "cases": [
                {"id": "whole", "lead": 1, "other": None},
                {"id": "spare", "lead": 0, "other": ["whole"]},
            ],
            "variants": [
                {
                    "id": "{id}",
                    "priority": "{lead}",
                    "supersededBy": "{other}",
                    "when": ["not present.shift"],
                    "passes": [
                        {
                            "shader": "scale.wgsl.jinja",
                            "bindings": ["x", "y", "params"],
                            "dispatch": {"threads": "total", "workgroupSize": "tunables.WG"},
                        }
                    ],
                }
            ],
        },
    ],
}
del AFFINE["inputs"]["shift"]["storage"]
HEAD = """{{ env.wgsl.resourceDeclarations }}
@compute @workgroup_size({{ tunables.WG }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let i = id.x;
  if (i >= params.count) { return; }
"""
TEMPLATES = {
    "affine.wgsl.jinja": HEAD
    + """  {% if first %}
  held[i] = {{ scalar }}(x[i]) * params.factor;
  {% else %}
  held[i] += shift[i] * {{ share }}; // {{ turn }} of {{ repeat.count }}
  {% endif %}
}
""",
    "copy.wgsl.jinja": HEAD + "  y[i] = kept[i];\n}\n",
    "scale.wgsl.jinja": HEAD + "  y[i] = {{ T }}(f32(x[i]) * params.factor);\n}\n",
}
Change = Callable[[dict[str, Any]], object]


def nothing(_: dict[str, Any]) -> None:
    """Leaves it as it is."""


def write(folder: Path, change: Change = nothing, metadata: Change | None = None) -> Path:
    """A package of the manifest above, changed; with metadata, changed too, unless it is None."""
    manifest = copy.deepcopy(AFFINE)
    change(manifest)
    files = {"manifest.json": json.dumps(manifest), **TEMPLATES}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    if metadata is not None:
        document = {
            "name": "test.example.Affine",
            "version": 1,
            "backend": {"type": "webgpu"},
            "digest": {
                "algorithm": "sha256",
                "files": {name: sha256_base64(text.encode()) for name, text in files.items()},
            },
            "webgpu": {
                "manifestSpec": "2.1",
                "variants": {
                    "steps": ["affine.wgsl.jinja", "copy.wgsl.jinja"],
                    "whole": ["scale.wgsl.jinja"],
                    "spare": ["scale.wgsl.jinja"],
                },
            },
        }
        metadata(document)
        (folder / "metadata.json").write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize("metadata", [None, nothing], ids=["by its form", "by metadata"])
def test_it_runs(webgpu: Registry, tmp_path: Path, metadata: Change | None) -> None:
    handle = webgpu.load(write(tmp_path, metadata=metadata))
    assert handle.package.dialect == "2.1" and (handle.package.listed is None) is (metadata is None)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(handle(x=x, times=1), x * 2)
    np.testing.assert_array_equal(handle(X=x, times=1, factor=0.5), x / 2)  # by its ONNX name
    np.testing.assert_array_equal(handle(x, x, times=4), x * 3)
    assert webgpu.last().variant == "steps"  # type: ignore[union-attr]
    whole = np.arange(5, dtype=np.int32)
    np.testing.assert_array_equal(handle(whole, times=0), whole * 2)
    assert handle.compare(x, times=0).ok
    with pytest.raises(ContractError, match="mode"):
        handle(x, times=0, mode="even")


def test_what_a_pass_sees(shared: Registry, tmp_path: Path) -> None:
    handle = shared.load(write(tmp_path))
    pair = ((2, 3), "float32")
    passes = handle.render(pair, pair, times=3, profile={"webgpu": {}})
    assert [item.id for item in passes] == ["begin", "group[0].add", "group[1].add", "group[2].add", "end"]
    assert "0.3333333333333333; // 2 of 3" in passes[3].source
    assert "held[i] = f32(x[i]) * params.factor;" in passes[0].source
    assert passes[0].declarations.splitlines() == [
        "struct Params { count: u32, factor: f32, _pad0: u32, _pad1: u32 };",
        "@group(0) @binding(0) var<storage, read> x: array<f32>;",
        "@group(0) @binding(1) var<storage, read_write> held: array<f32>;",
        "@group(0) @binding(2) var<uniform> params: Params;",
    ]
    assert "var<storage, read> kept: array<f32>" in passes[4].declarations
    assert "var<storage, read_write> y: array<f32>" in passes[4].declarations
    assert [i.id for i in handle.render(pair, pair, times=0, profile={"webgpu": {}})] == ["begin", "end"]


def test_requirements_are_conditions(shared: Registry, tmp_path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["requires"] = {"features": ["shader-f16"], "subgroupMinSize": 16}

    handle = shared.load(write(tmp_path, change))
    pair = ((2, 3), "float32")
    able = {"features": ["shader-f16"], "adapterInfo": {"subgroupMinSize": 32, "subgroupMaxSize": 32}}
    assert handle.explain(pair, times=0, profile={"webgpu": able}).variant == "whole"
    for less, because in (
        ({**able, "features": []}, "shader-f16"),
        ({**able, "adapterInfo": {"subgroupMinSize": 8, "subgroupMaxSize": 32}}, "subgroupMinSize"),
        ({"features": ["shader-f16"]}, "subgroupMinSize"),
    ):
        decision = handle.explain(pair, times=0, profile={"webgpu": less})
        assert decision.chosen is None and because in decision.candidates[-1].because
    small = {"limits": {"maxComputeInvocationsPerWorkgroup": 32}}
    decision = shared.load(write(tmp_path / "other")).explain(pair, times=0, profile={"webgpu": small})
    assert decision.chosen is None and decision.candidates[-1].found == "32"


def test_loops_end(shared: Registry, tmp_path: Path) -> None:
    from registry import BackendError

    handle = shared.load(write(tmp_path))
    pair = ((2, 3), "float32")
    for times, message in ((5000, "its loops make more than 4096 passes"), (70_000, "0 to 65535")):
        with pytest.raises(BackendError, match=message):
            handle.render(pair, pair, times=times, profile={"webgpu": {}})


def at(*path: Any) -> Callable[[Any], Change]:
    """A change that puts a value at a path."""

    def make(value: Any) -> Change:
        def change(manifest: dict[str, Any]) -> None:
            place: Any = manifest
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value

        return change

    return make


STEPS = ("variants", 0)
GROUP = (*STEPS, "passes", 1)
FAMILY = ("variants", 1, "variants", 0)
WRONG: dict[str, tuple[Change, str, str]] = {
    "an older key": (at("constants")({"a": 1}), "$.constants", "unknown key 'constants'"),
    "a bare attribute": (
        at("attributes")({"factor": 1.0}),
        "$.attributes.factor",
        "found 1; needed: `object`",
    ),
    "a tensor argument": (at("args", "x")({"kind": "tensor"}), "$.args.x.kind", "allowed: 'bool'"),
    "a scalar like a tensor": (at("args", "x")({"kind": "u32"}), "$.args.x", "a name that is no tensor's"),
    "a port's name": (at("inputs", "a b")({}), '$.inputs["a b"]', "letters, digits and _"),
    "a port's dtype": (at("inputs", "x", "dtype")("S"), "$.inputs.x.dtype", "unknown dtype"),
    "in and out": (at("outputs", "x")({}), "$.outputs.x", "in place is not supported"),
    "packed": (at("inputs", "x", "layout")("packed"), "$.inputs.x.layout", "uint8 and nothing else"),
    "storage": (at("inputs", "x", "storage")("float16"), "$.inputs.x.storage", "the port's one dtype"),
    "narrowing": (at("inputs", "x", "narrowing")("checked"), "$.inputs.x.narrowing", "only where int64"),
    "an unknown feature": (at("requires", "features")(["f16"]), "$.requires.features[0]", "shader-f16"),
    "a subgroup of none": (
        at("requires", "subgroupMinSize")(0),
        "$.requires.subgroupMinSize",
        "at least 1",
    ),
    "no clause": (at("when")([]), "$.when", "at least one"),
    "no clause of a variant": (at(*STEPS, "when")([]), "$.variants[0].when", "at least one"),
    "a clause": (at("when")(["ranks.x >"]), "$.when[0]", "expression"),
    "a clause of a variant": (at(*STEPS, "when", 1)("nope"), "$.variants[0].when[1]", "unknown name 'nope'"),
    "a binding": (
        at(*STEPS, "passes", 0, "bindings", 0)("xx"),
        "$.variants[0].passes[0].bindings[0]",
        "'xx'",
    ),
    "a handle": (
        at("bindings", "other")({"elementType": "f32"}),
        "$.bindings.other",
        "no tensor and has no struct",
    ),
    "a handle's length": (at("bindings", "x", "length")(0), "$.bindings.x.length", "at least 1"),
    "a handle's value": (
        at("bindings", "params", "struct", 0, "value")("nope"),
        "$.bindings.params.struct[0].value",
        "unknown name 'nope'",
    ),
    "a uniform with elements": (
        at("bindings", "params", "elementType")("f32"),
        "$.bindings.params",
        "struct alone",
    ),
    "storage with a struct": (at("bindings", "held", "struct")([COUNT]), "$.bindings.held", "elementType"),
    "an unknown constant": (
        at("bindings", "x", "elementType")("$nope"),
        "$.bindings.x.elementType",
        "'nope'",
    ),
    "no shader": (
        lambda m: m["variants"][0]["passes"][2].pop("shader"),
        "$.variants[0].passes[2]",
        "without shader",
    ),
    "no dispatch": (
        lambda m: m["variants"][0]["passes"][2].pop("dispatch"),
        "$.variants[0].passes[2]",
        "without dispatch",
    ),
    "a derived value of a pass": (
        at(*GROUP, "passes", 0, "derive", "share")("repeat.nope"),
        "$.variants[0].passes[1].passes[0].derive.share",
        "repeat has no 'nope'",
    ),
    "a reserved name": (
        at(*STEPS, "passes", 2, "derive")({"shapes": 1}),
        "$.variants[0].passes[2].derive.shapes",
        "choose another name",
    ),
    "a group with a shader": (
        at(*GROUP, "shader")("x.wgsl"),
        "$.variants[0].passes[1]",
        "id, repeat and passes",
    ),
    "passes without repeat": (
        lambda m: m["variants"][0]["passes"][1].pop("repeat"),
        "$.variants[0].passes[1]",
        "repeat: {index, count}",
    ),
    "a counter's name": (at(*GROUP, "repeat", "index")("count"), "$.variants[0].passes[1].passes[0]", "own"),
    "a count": (at(*GROUP, "repeat", "count")("nope"), "$.variants[0].passes[1].passes[0]", "'nope'"),
    "one id twice": (at(*GROUP, "id")("begin"), "$.variants[0].passes[0].id", "an id of its own"),
    "scratch like a tensor": (
        at(*STEPS, "intermediates", 0, "id")("x"),
        "$.variants[0].intermediates",
        "no tensor's",
    ),
    "superseded by itself": (
        at(*STEPS, "supersededBy")(["steps"]),
        "$.variants[0].supersededBy",
        "another variant's id",
    ),
    "superseded by a later one": (
        at(*STEPS, "supersededBy")(["whole"]),
        "$.variants[0].supersededBy",
        "which is tried later",
    ),
    "in a family": (
        at(*FAMILY, "passes", 0, "bindings", 0)("xx"),
        "$.variants[1].variants[0].passes[0].bindings[0]",
        "'xx'",
    ),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_has_its_place(shared: Registry, tmp_path: Path, case: Any) -> None:
    change, path, message = case
    with pytest.raises(ManifestError) as caught:
        shared.load(write(tmp_path, change))
    assert message in str(caught.value)
    assert caught.value.path is not None and caught.value.path.startswith(path), caught.value.path
    assert caught.value.file == str(tmp_path / "manifest.json")


def test_int64(shared: Registry, tmp_path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["typeConstraints"]["T"] = ["int64"]
        manifest["inputs"]["x"].update(storage="int32", narrowing="checked")

    with pytest.raises(ManifestError, match="int64 stored as 32 bits; needed: int64; what narrows"):
        shared.load(write(tmp_path, change))


def test_a_tensor_in_and_out(shared: Registry, tmp_path: Path) -> None:
    """Dialect 1.0 says it by one role on both sides."""
    manifest = {
        "name": "Twice",
        "inputs": [{"role": "x"}],
        "outputs": [{"role": "x"}],
        "args": {"x": {"kind": "tensor", "semantic": "x", "role": "inout"}},
        "variants": [{"id": "a", "passes": [{"shader": "a.wgsl", "bindings": [], "dispatch": {"x": 1}}]}],
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ManifestError, match=r"\$\.outputs\[0\]\.role: .*in place is not supported"):
        shared.load(tmp_path)


# metadata.json

METADATA: dict[str, tuple[Change, str]] = {
    "no name": (lambda m: m.pop("name"), "name is None"),
    "another op": (at("name")("test.example.Other"), "the manifest's op is 'test.example.Affine'"),
    "another backend": (at("backend", "type")("cuda"), "backend.type is 'cuda'"),
    "no dialect": (lambda m: m["webgpu"].pop("manifestSpec"), "webgpu.manifestSpec is None"),
    "a draft": (at("webgpu", "manifestSpec")("2.0"), "'2.0'; this version reads 1.0, 2.1"),
    "a number": (at("webgpu", "manifestSpec")(2.1), "webgpu.manifestSpec is 2.1; needed: a text"),
    "another algorithm": (at("digest", "algorithm")("sha512"), "needed: 'sha256'"),
    "no digests": (at("digest", "files")([]), "digest.files is []"),
    "no manifest": (lambda m: m["digest"]["files"].pop("manifest.json"), "lacks manifest.json"),
    "a path upwards": (at("digest", "files", "../x")("y"), "digest.files has '../x'"),
    "an absolute path": (at("digest", "files", "/etc/passwd")("y"), "digest.files has '/etc/passwd'"),
    "no variants": (at("webgpu", "variants")({}), "webgpu.variants is empty"),
    "a variant of nothing": (at("webgpu", "variants", "whole")([]), "webgpu.variants.whole is []"),
    "an unlisted template": (at("webgpu", "variants", "whole")(["x.wgsl"]), "names 'x.wgsl'"),
    "a variant too many": (
        at("webgpu", "variants", "more")(["copy.wgsl.jinja"]),
        "'more' is not in the manifest",
    ),
    "a variant too few": (
        lambda m: m["webgpu"]["variants"].pop("spare"),
        "'spare' is not in webgpu.variants",
    ),
    "a template too few": (
        at("webgpu", "variants", "steps")(["copy.wgsl.jinja"]),
        "webgpu.variants.steps lacks 'affine.wgsl.jinja'",
    ),
    "a false digest": (at("digest", "files", "copy.wgsl.jinja")("x"), "copy.wgsl.jinja: sha256 is"),
}


@pytest.mark.parametrize("case", METADATA.values(), ids=METADATA.keys())
def test_metadata(shared: Registry, tmp_path: Path, case: Any) -> None:
    change, message = case
    with pytest.raises(PackageError) as caught:
        shared.load(write(tmp_path, metadata=change))
    assert message in str(caught.value) and str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("name", ["metadata.json", "manifest.json", *TEMPLATES])
def test_a_truncated_file(shared: Registry, tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, metadata=nothing)
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(PackageError, match=name):
        shared.load(folder)


def test_the_dialect_of_the_metadata_counts(shared: Registry, tmp_path: Path) -> None:
    def older(document: dict[str, Any]) -> None:
        document["webgpu"] = {"manifestSpec": "1.0"}

    with pytest.raises(ManifestError, match="unknown key 'conformance'"):
        shared.load(write(tmp_path, metadata=older))
