"""Package folders: what is accepted and refused, what a loaded op may do, and ops nobody has heard of."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from registry import (
    BackendError,
    ContractError,
    ManifestError,
    NoPlanError,
    PackageError,
    Registry,
    RegistryWarning,
)

IN = {"type": "read-only-storage"}
OUT = {"type": "storage"}


def binding(name: str, arg: str | None, buffer: dict[str, str], element: str) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "buffer": buffer, "elementType": element}
    return made | ({"arg": arg} if arg else {})


PARAMS = {
    "name": "params",
    "buffer": {"type": "uniform"},
    "struct": {
        "name": "Params",
        "fields": [
            {"name": "count", "type": "u32", "value": "numel(shapes.x)"},
            {"name": "factor", "type": "f32", "value": "attrs.factor"},
            {"name": "times", "type": "u32"},
            {"name": "offset", "type": "f32", "default": 0.0},
        ],
    },
}
SCALE: dict[str, Any] = {
    "domain": "test.example",
    "name": "Scale",
    "description": "y = x * factor + times * offset.",
    "inputs": [{"role": "X", "dtype": "T"}],
    "outputs": [{"role": "Y", "dtype": "T", "shape": "shapes.x"}],
    "args": {
        "x": {"kind": "tensor", "semantic": "X", "role": "input"},
        "y": {"kind": "tensor", "semantic": "Y", "role": "output"},
        "times": {"kind": "u32"},
        "offset": {"kind": "f32", "required": False},
    },
    "attributes": {"factor": 1.0},
    "typeConstraints": {"T": ["float32", "int32", "uint32"]},
    "tunables": {"WORKGROUP": 64},
    "constants": {"scalar": "dtypes.T"},
    "variants": [
        {
            "id": "one_pass",
            "priority": 1,
            "tunables": {"WORKGROUP": 8},
            "passes": [
                {
                    "shader": "scale.wgsl.jinja",
                    "bindings": [
                        binding("x", "x", IN, "$scalar"),
                        binding("y", "y", OUT, "$scalar"),
                        PARAMS,
                    ],
                    "dispatch": {"threads": "numel(shapes.x)", "workgroupSize": "tunables.WORKGROUP"},
                }
            ],
        },
        {
            "id": "two_passes",
            "when": ["ranks.x == 3", "dtypes.T == 'f32'"],
            "intermediates": [{"id": "scaled", "dtype": "float32", "shape": ["numel(shapes.x)"]}],
            "passes": [
                {
                    "id": "multiply",
                    "shader": "grid.wgsl.jinja",
                    "constants": {"first": True},
                    "bindings": [
                        binding("x", "x", IN, "f32"),
                        binding("scaled", None, OUT, "f32"),
                        PARAMS,
                    ],
                    "dispatch": {"x": "dim(shapes.x, 2)", "y": "dim(shapes.x, 1)", "z": "dim(shapes.x, 0)"},
                },
                {
                    "id": "add",
                    "shader": "grid.wgsl.jinja",
                    "constants": {"first": False},
                    "bindings": [
                        binding("scaled", None, IN, "f32"),
                        binding("y", "y", OUT, "f32"),
                        PARAMS,
                    ],
                    "dispatch": {"x": "dim(shapes.x, 2)", "y": "dim(shapes.x, 1)", "z": "dim(shapes.x, 0)"},
                },
            ],
        },
    ],
}
TEMPLATES = {
    "scale.wgsl.jinja": """{{ env.wgsl.resourceDeclarations }}
@compute @workgroup_size({{ tunables.WORKGROUP }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < params.count) {
    y[id.x] = {{ scalar }}(f32(x[id.x]) * params.factor + f32(params.times) * params.offset);
  }
}
""",
    "grid.wgsl.jinja": """{{ env.wgsl.resourceDeclarations }}
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
  let i = id.x + n.x * (id.y + n.y * id.z);
  {% if first %}
  scaled[i] = x[i] * params.factor;
  {% else %}
  y[i] = scaled[i] + f32(params.times) * params.offset;
  {% endif %}
}
""",
}

Change = Callable[[dict[str, Any]], object]


def write(folder: Path, change: Change = lambda manifest: None, **templates: str) -> Path:
    """A package folder with the manifest above, changed, and its templates, some replaced by stem."""
    manifest = copy.deepcopy(SCALE)
    change(manifest)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for name, text in TEMPLATES.items():
        (folder / name).write_text(templates.get(name.partition(".")[0], text))
    return folder


def add_metadata(folder: Path) -> dict[str, Any]:
    """Writes metadata.json with the digest of every other file."""
    files = {
        path.name: base64.b64encode(hashlib.sha256(path.read_bytes()).digest()).decode()
        for path in folder.iterdir()
        if path.name != "metadata.json"
    }
    metadata = {
        "name": "test.example.Scale",
        "backend": {"type": "webgpu"},
        "webgpu": {"manifestSpec": "1.0"},
        "digest": {"algorithm": "sha256", "files": files},
    }
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return metadata


def shader(name: str) -> Change:
    """A change that makes the first pass name another template."""
    return lambda manifest: manifest["variants"][0]["passes"][0].update(shader=name)


# Folders


@pytest.mark.parametrize("inside", ["", "build/webgpu"])
@pytest.mark.parametrize("metadata", [False, True])
def test_both_layouts_load(shared: Registry, tmp_path: Path, inside: str, metadata: bool) -> None:
    root = write(tmp_path / inside)
    if metadata:
        add_metadata(root)
    for folder in (tmp_path, str(tmp_path)):
        handle = shared.load(folder)
        assert handle.id == "test.example::Scale"
        assert handle.op.package is not None and handle.op.package.folder == root
        assert set(handle.op.package.templates) == set(TEMPLATES)
        assert str(root) in repr(handle)


def test_a_file_between_two_layouts(shared: Registry, tmp_path: Path) -> None:
    """A repository may hold both; the folder named is the one that counts."""
    write(tmp_path, lambda m: m.update(name="Outer"))
    write(tmp_path / "build/webgpu", lambda m: m.update(name="Inner"))
    assert shared.load(tmp_path).id == "test.example::Outer"


def remove(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def replace(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def link_out(folder: Path) -> None:
    outside = folder.parent / "secret.wgsl.jinja"
    outside.write_text("a secret")
    (folder / "scale.wgsl.jinja").unlink()
    (folder / "scale.wgsl.jinja").symlink_to(outside)


def link_folder_out(folder: Path) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "scale.wgsl").write_text("a secret")
    (folder / "sub").symlink_to(outside)
    write(folder, shader("sub/scale.wgsl"))


def link_manifest_out(folder: Path) -> None:
    (folder / "manifest.json").rename(folder.parent / "elsewhere.json")
    (folder / "manifest.json").symlink_to(folder.parent / "elsewhere.json")


def named(name: str) -> Callable[[Path], object]:
    return lambda folder: write(folder, shader(name))


def sibling(folder: Path) -> None:
    """A neighbour whose name begins like the package's."""
    write(folder, shader("../package-2/scale.wgsl"))
    (folder.parent / "package-2").mkdir()
    (folder.parent / "package-2/scale.wgsl").write_text("a secret")


REFUSED = {
    "no folder": (shutil.rmtree, PackageError, "no manifest.json"),
    "no manifest": (remove("manifest.json"), PackageError, "no manifest.json"),
    "no template": (remove("grid.wgsl.jinja"), PackageError, "grid.wgsl.jinja is missing"),
    "parent": (named("../../etc/passwd.wgsl"), PackageError, "outside the package"),
    "absolute": (named("/etc/passwd.wgsl"), PackageError, "outside the package"),
    "home": (named("~/x.wgsl"), PackageError, "missing"),
    "sibling": (sibling, PackageError, "outside the package"),
    "link out": (link_out, PackageError, "outside the package"),
    "link to a folder outside": (link_folder_out, PackageError, "outside the package"),
    "link from the manifest": (link_manifest_out, PackageError, "outside the package"),
    "suffix": (named("scale.txt"), PackageError, r"\.wgsl or \.wgsl\.jinja"),
    "no suffix": (named("scale"), PackageError, r"\.wgsl or \.wgsl\.jinja"),
    "manifest as template": (named("manifest.json"), PackageError, r"\.wgsl or \.wgsl\.jinja"),
    "zero byte": (named("sc\0ale.wgsl"), ManifestError, r"passes\[0\].shader: .* U\+0000"),
    "long name": (named("x" * 5000 + ".wgsl"), PackageError, "xxx"),
    "a folder": (
        lambda f: (f / "grid.wgsl.jinja").unlink() or (f / "grid.wgsl.jinja").mkdir(),
        PackageError,
        "missing",
    ),
    "large template": (
        replace("grid.wgsl.jinja", b" " * (4 * 2**20 + 1)),
        PackageError,
        "over 4194304 bytes",
    ),
    "large manifest": (replace("manifest.json", b" " * (4 * 2**20 + 1)), PackageError, "over 4194304 bytes"),
    "template no text": (replace("grid.wgsl.jinja", b"\xff\xfe"), PackageError, "not UTF-8"),
    "manifest no text": (replace("manifest.json", b"\xff\xfe"), PackageError, "not UTF-8"),
    "manifest no JSON": (replace("manifest.json", b"{"), ManifestError, "not JSON"),
    "manifest deep": (replace("manifest.json", b"[" * 100_000), ManifestError, "nested deeper"),
    "manifest a list": (replace("manifest.json", b"[]"), ManifestError, "a map of keys"),
    "manifest empty": (replace("manifest.json", b"{}"), ManifestError, "missing"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_package(shared: Registry, tmp_path: Path, case: Any) -> None:
    spoil, kind, message = case
    folder = write(tmp_path / "package")
    spoil(folder)
    with pytest.raises(kind, match=message) as caught:
        shared.load(folder)
    assert "package" in str(caught.value)
    assert "a secret" not in str(caught.value)


def test_a_link_inside_the_package_is_fine(shared: Registry, tmp_path: Path) -> None:
    folder = write(tmp_path / "package")
    (folder / "grid.wgsl.jinja").rename(folder / "real.wgsl.jinja")
    (folder / "grid.wgsl.jinja").symlink_to("real.wgsl.jinja")
    (tmp_path / "link").symlink_to(folder)
    assert shared.load(tmp_path / "link").id == "test.example::Scale"


# Digests


@pytest.mark.parametrize("name", ["manifest.json", *TEMPLATES])
def test_a_digest_that_does_not_match(shared: Registry, tmp_path: Path, name: str) -> None:
    folder = write(tmp_path)
    metadata = add_metadata(folder)
    shared.load(folder)
    (folder / name).write_bytes((folder / name).read_bytes() + b"\n")
    with pytest.raises(PackageError, match=rf"{name}: sha256 is .*; metadata.json says ") as caught:
        shared.load(folder)
    assert metadata["digest"]["files"][name] in str(caught.value)


@pytest.mark.parametrize("name", ["manifest.json", *TEMPLATES])
def test_a_file_without_digest_is_not_read(shared: Registry, tmp_path: Path, name: str) -> None:
    folder = write(tmp_path)
    metadata = add_metadata(folder)
    del metadata["digest"]["files"][name]
    (folder / "metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(PackageError, match=name):
        shared.load(folder)


def test_files_that_no_pass_names_are_not_checked(shared: Registry, tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "bench.json").write_text("{}")
    add_metadata(folder)
    (folder / "bench.json").write_text("{ }")
    shared.load(folder)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "null",
        "[]",
        "7",
        '"text"',
        "{}",
        '{"digest": null}',
        '{"digest": {}}',
        '{"digest": {"algorithm": "sha256"}}',
        '{"digest": {"algorithm": "sha256", "files": []}}',
        '{"digest": {"algorithm": "md5", "files": {}}}',
        '{"digest": {"algorithm": "sha256", "files": {"manifest.json": 7}}}',
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_metadata_of_any_kind(shared: Registry, tmp_path: Path, text: str) -> None:
    folder = write(tmp_path)
    (folder / "metadata.json").write_text(text)
    with pytest.raises(PackageError, match=r"metadata\.json"):
        shared.load(folder)


# Templates from strangers

HOSTILE = {
    "format": "{{ '{0.__class__}'.format(shapes) }}",
    "format map": "{{ '{x.__class__}'.format_map({'x': 1}) }}",
    "attr filter": "{{ shapes | attr('__class__') }}",
    "import": "{% import 'manifest.json' as m %}",
    "extends": "{% extends 'scale.wgsl.jinja' %}",
    "a long range": "{% for i in range(10 ** 9) %}x{% endfor %}",
    "changing": "{% set _ = shapes.update({'x': [1]}) %}",
}


@pytest.mark.parametrize("attack", HOSTILE.values(), ids=HOSTILE.keys())
def test_templates_reach_nothing(shared: Registry, tmp_path: Path, attack: str) -> None:
    handle = shared.load(write(tmp_path, scale=f"{attack}\n"))
    with pytest.raises(BackendError, match=r"scale\.wgsl\.jinja") as caught:
        handle.render(x=((2, 3), "float32"), times=1, profile={"webgpu": {}})
    assert (caught.value.op, caught.value.variant) == ("test.example::Scale", "one_pass")


UNDEFINED = {
    "attributes": "{{ shapes.__class__.__mro__ }}",
    "subscripts": "{{ shapes['__class__'] }}",
    "functions": "{{ ceilDiv.__globals__ }}",
    "bound methods": "{{ shapes.keys.__self__ }}",
    "internals": "{{ self._TemplateReference__context }}",
    "cycler": "{{ cycler.__init__.__globals__ }}",
    "an unknown name": "{% if missing %}a secret{% endif %}{{ missing.x.y }}",
}


@pytest.mark.parametrize("attack", UNDEFINED.values(), ids=UNDEFINED.keys())
def test_what_is_undefined_prints_nothing(shared: Registry, tmp_path: Path, attack: str) -> None:
    """So the format has it; a warning says what was lost."""
    handle = shared.load(write(tmp_path, scale=f"a{attack}z\n"))
    with pytest.warns(RegistryWarning, match=r"scale\.wgsl\.jinja prints what is undefined: "):
        (only,) = handle.render(x=((2, 3), "float32"), times=1, profile={"webgpu": {}})
    assert only.source == "az"


ENDLESS = {
    "a huge text": "{{ 'x' * 10 ** 9 }}",
    "a huge list": "{{ ([0] * 10 ** 9) | length }}",
    "a huge number": "{{ 10 ** (10 ** 9) }}",
    "padding": "{{ 'x' | center(10 ** 9) }}",
    "a wide format": "{{ '%1000000000d' % 1 }}",
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "doubling": "{% set n = namespace(t='x') %}{% for i in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
}
RENDER = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (4, 4))
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
import registry
handle = registry.load(sys.argv[1])
try:
    handle.render(x=((2, 3), "float32"), times=1, profile={"webgpu": {}})
except registry.BackendError as error:
    print("refused", str(error)[:200])
"""


@pytest.mark.parametrize("attack", ENDLESS.values(), ids=ENDLESS.keys())
def test_templates_end(tmp_path: Path, attack: str) -> None:
    """Within 4 seconds and 1 GiB a template is refused; it neither hangs nor takes the memory."""
    write(tmp_path, scale=f"{attack}\n")
    done = subprocess.run(
        [sys.executable, "-c", RENDER, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-400:]
    assert done.stdout.startswith("refused")


# A package beside the built-in op of its name


def test_loading_changes_no_name(fresh: Registry, tmp_path: Path) -> None:
    def bias_add(manifest: dict[str, Any]) -> None:
        manifest.update(domain="com.microsoft", name="BiasAdd")

    before = fresh.op("BiasAdd")
    x = np.ones((1, 2, 4), np.float32)
    call = {"X": x, "bias": x[0, 0], "skip": x, "backend": "numpy"}
    fresh.run("BiasAdd", **call)
    plan = fresh.last()
    handle = fresh.load(write(tmp_path, bias_add))
    assert handle.id == "com.microsoft::BiasAdd" and handle.op is not before
    assert fresh.op("BiasAdd") is before and before.package is None
    assert len(fresh.ops()) == 6
    np.testing.assert_array_equal(fresh.run("BiasAdd", **call), x * 3)
    assert fresh.last() is plan


def test_a_package_goes_by_the_name_of_its_op(webgpu: Registry, fresh: Registry, tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32)
    with pytest.raises(ContractError, match="no op 'Scale'"):
        fresh.run("Scale", x=x, times=0)
    handle = fresh.load(write(tmp_path / "one"))
    assert fresh.ops()[-1] == "test.example::Scale" and len(fresh.ops()) == 7
    for name in ("Scale", "test.example::Scale", "test.example.Scale"):
        np.testing.assert_array_equal(fresh.run(name, x=x, times=0, factor=2.0), x * 2)
        assert fresh.op(name) is handle.op
    again = fresh.load(tmp_path / "one")
    assert fresh.op("Scale") is again.op  # from the same place: the newer
    fresh.run("Scale", x=x, times=0)
    assert fresh.last().request.op is again.op  # type: ignore[union-attr]
    fresh.load(write(tmp_path / "two"))
    with pytest.raises(ContractError, match=r"several loaded packages are called 'Scale': .*one.*two"):
        fresh.run("Scale", x=x, times=0)
    assert [each.package.folder.name for each in fresh.packages()] == ["one", "two"]
    assert fresh.packages()[0].package.provenance == f"{tmp_path / 'one'}, no digests"


def test_a_package_runs_its_own_variants_only(seeds: Any, webgpu: Registry) -> None:
    x = np.ones((1, 2, 4), np.float32)
    call = {"X": x, "bias": x[0, 0], "skip": x}
    decision = seeds["BiasAdd"].explain(**call)
    assert decision.backend == "webgpu"
    assert {row.variant for row in decision.candidates if row.backend == "webgpu"} == {"vec4", "scalar"}
    assert not [row for row in decision.candidates if row.backend == "numpy" and row.verdict != "rejected"]
    wide = {name: value.astype(np.float64) for name, value in call.items()}
    with pytest.raises(ContractError, match="needed: one of float32, float16"):  # the package's own rule
        seeds["BiasAdd"](**wide)
    for variant in ("blocked", "reference"):
        with pytest.raises(ContractError, match=rf"no variant '{variant}'.*variants on .*: vec4, scalar"):
            seeds["BiasAdd"](**call, variant=variant)
    assert {row.backend for row in seeds["BiasAdd"].compare(**call).rows} == {"webgpu"}


def test_a_backend_without_a_variant_of_the_package_says_so(
    shared: Registry, seeds: Any, tmp_path: Path
) -> None:
    x = np.ones((1, 2, 4), np.float32)
    for handle, call in (
        (seeds["BiasAdd"], {"X": x, "bias": x[0, 0], "skip": x}),
        (shared.load(write(tmp_path)), {"x": x, "times": 1}),
    ):
        with pytest.raises(NoPlanError) as caught:
            handle(**call, backend="numpy")
        assert "numpy" in str(caught.value).partition("\n")[2], "no row says why numpy is out"


# The handle


def test_the_handle_has_the_methods_of_the_registry(webgpu: Registry, tmp_path: Path) -> None:
    handle = webgpu.load(write(tmp_path))
    x = np.arange(30, dtype=np.float32).reshape(2, 3, 5)
    call: dict[str, Any] = {"X": x, "times": 3, "offset": 0.5, "factor": 2.0}
    want = x * 2 + 1.5
    for result in (
        handle(**call),
        handle.run(**call),
        handle(x, times=3, offset=0.5, factor=2),
        handle.prepare(**call)(X=x),
        webgpu.run(handle.op, **call),
        handle(**call, backend="webgpu"),
        handle(**call, device="webgpu:0"),
        handle(**call, variant="two_passes"),
        handle(webgpu.to_device(x, "webgpu"), times=3, offset=0.5, factor=2).numpy(),
    ):
        np.testing.assert_array_equal(result, want)
        assert result.dtype == np.float32
    assert handle.infer(**call) == {"Y": ((2, 3, 5), "float32")}
    assert handle.explain(**call).variant == "one_pass"
    assert [item.shader for item in handle.render(**call)] == ["scale.wgsl.jinja"]
    report = handle.compare(**call)
    assert report.ok and "no reference is known for test.example::Scale" in report.against
    assert [(row.backend, row.variant) for row in report.rows] == [
        ("webgpu", "one_pass"),
        ("webgpu", "two_passes"),
    ]
    assert {row.verdict.compared for row in report.rows if row.verdict} == {30}


def test_variants_that_disagree_are_found_without_a_reference(webgpu: Registry, tmp_path: Path) -> None:
    wrong = TEMPLATES["grid.wgsl.jinja"].replace("scaled[i] + ", "scaled[i] + select(0.0, 1.0, i == 7u) + ")
    handle = webgpu.load(write(tmp_path, grid=wrong))
    x = np.arange(30, dtype=np.float32).reshape(2, 3, 5)
    report = handle.compare(x, times=0)
    assert not report.ok
    (row,) = [row for row in report.rows if not row.ok]
    assert row.variant == "two_passes" and row.verdict is not None
    assert (row.verdict.worst, row.verdict.worst_actual, row.verdict.worst_expected) == ((0, 1, 2), 8.0, 7.0)


def test_attributes_and_scalar_arguments(webgpu: Registry, tmp_path: Path) -> None:
    handle = webgpu.load(write(tmp_path))
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(handle(x, times=0), x)
    np.testing.assert_array_equal(handle(x, times=2, offset=0.25), x + 0.5)
    np.testing.assert_array_equal(handle(x, times=np.uint32(2), offset=np.float32(0.25)), x + 0.5)
    np.testing.assert_array_equal(handle(x, times=4, offset=0.25, factor=-1), 1 - x)
    plan = handle.prepare(x, times=2, offset=0.25)
    np.testing.assert_array_equal(plan(x, times=2), x + 0.5)
    for wrong, message in (
        ({}, r"required argument times \(u32\) is missing"),
        ({"times": -1}, "times is -1; needed: u32"),
        ({"times": 2**32}, "needed: u32"),
        ({"times": 1.5}, "needed: u32"),
        ({"times": True}, "needed: u32"),
        ({"times": 1, "offset": float("nan")}, "needed: f32"),
        ({"times": 1, "offset": "much"}, "needed: f32"),
        ({"times": 1, "factr": 2}, "did you mean 'factor'"),
        ({"tims": 1}, "did you mean 'times'"),
    ):
        with pytest.raises(ContractError, match=message):
            handle(x, **wrong)
    with pytest.raises(ContractError, match="times is 3; this plan was made for 2"):
        plan(x, times=3)


def test_what_is_rendered(shared: Registry, tmp_path: Path) -> None:
    handle = shared.load(write(tmp_path))
    pair = ((2, 3, 5), "float32")
    profile: dict[str, Any] = {"webgpu": {}}
    (only,) = handle.render(pair, times=7, factor=2, profile=profile)
    assert "@workgroup_size(8)" in only.source and only.dispatch == (4, 1, 1)
    assert only.uniforms == {"count": 30, "factor": 2.0, "times": 7, "offset": 0.0}
    first, second = handle.render(pair, times=7, variant="two_passes", profile=profile)
    assert (first.id, second.id) == ("multiply", "add")
    assert first.dispatch == second.dispatch == (5, 3, 2)
    assert "var<storage, read_write> scaled: array<f32>" in first.declarations
    assert "var<storage, read> scaled: array<f32>" in second.declarations


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32"])
def test_integers(webgpu: Registry, tmp_path: Path, dtype: str) -> None:
    handle = webgpu.load(write(tmp_path))
    x = np.arange(100).reshape(4, 25).astype(dtype)
    y = handle(x, times=2, offset=1.0, factor=3.0)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x * 3 + 2)
    assert next(row.variant for row in handle.compare(x, times=2).rows) == "one_pass"
    with pytest.raises(ContractError, match="needed: one of float32, int32, uint32"):
        handle(x.astype(np.int64), times=2)
    assert handle(x[:0], times=2).shape == (0, 25)


REVERSE = """{{ env.wgsl.resourceDeclarations }}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < params.count) { y[id.x] = x[params.count - 1u - id.x]; }
}
"""
NEGATE = REVERSE.replace("x[params.count - 1u - id.x]", "1u - x[id.x]")
COPIED = ("float32", "float16", "int8", "int16", "int32", "int64", "uint8", "uint32", "bool")


def copying(dtypes: tuple[str, ...]) -> Change:
    def change(manifest: dict[str, Any]) -> None:
        manifest["typeConstraints"]["T"] = list(dtypes)
        manifest["variants"] = manifest["variants"][:1]

    return change


@pytest.mark.parametrize("dtype", COPIED)
def test_every_dtype_survives_a_kernel(webgpu: Registry, tmp_path: Path, dtype: str) -> None:
    """The narrow integers and bool are 32 bits wide in a shader, one element to one element."""
    handle = webgpu.load(write(tmp_path, copying(COPIED), scale=REVERSE))
    x = (np.arange(-7, 8) * 11).astype(dtype).reshape(3, 5)
    for tensor in (x, webgpu.to_device(x, "webgpu")):
        y = handle(tensor, times=0)
        y = y if isinstance(y, np.ndarray) else y.numpy()
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y.reshape(-1), x.reshape(-1)[::-1])


def test_bool(webgpu: Registry, tmp_path: Path) -> None:
    handle = webgpu.load(write(tmp_path, copying(("bool",)), scale=NEGATE))
    x = np.array([True, False, False, True, True])
    y = handle(x, times=0)
    assert y.dtype == bool
    np.testing.assert_array_equal(y, ~x)


# Templates in several files


def test_a_template_includes_others(webgpu: Registry, tmp_path: Path) -> None:
    head, _, body = TEMPLATES["scale.wgsl.jinja"].partition("\n")
    including = f'{head}\n  {{% include "parts/body.wgsl.jinja" %}}\n'
    folder = write(tmp_path, scale=including)
    (folder / "parts").mkdir()
    (folder / "parts/body.wgsl.jinja").write_text("{% include './rest.wgsl.jinja' %}")
    (folder / "parts/rest.wgsl.jinja").write_text(body)
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(webgpu.load(folder)(x, times=0, factor=2.0), x * 2)
    (folder / "parts/rest.wgsl.jinja").write_text("fine\n{{ ceilDiv }}")
    with pytest.raises(BackendError, match=r"parts/rest\.wgsl\.jinja:2: .*no text form"):
        webgpu.load(folder)(x, times=0, variant="one_pass")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{% include 'other' %}", "other is missing"),
        ("{% include '/etc/passwd' %}", "etc/passwd is missing"),
        ("\n{% include '../x' %}", "line 2: include '../x' leads out of the package"),
        ("{% include '/' %}", "names no file"),
        ("{% include 'a/../../x' %}", "leads out of the package"),
    ],
)
def test_includes_stay_inside(shared: Registry, tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PackageError, match=re.escape(message)):
        shared.load(write(tmp_path, scale=text))


# Shapes of outputs


def no_shape(manifest: dict[str, Any]) -> None:
    del manifest["outputs"][0]["shape"]


def test_an_output_without_a_shape(webgpu: Registry, tmp_path: Path) -> None:
    handle = webgpu.load(write(tmp_path, no_shape))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with pytest.raises(ContractError, match="no shape for output Y; pass out="):
        handle(x, times=0)
    with pytest.raises(ContractError, match="pass out="):
        handle.infer(((2, 3), "float32"), times=0)
    flat = np.empty(6, np.float32)
    assert handle(x, times=0, factor=2.0, out=flat) is flat
    np.testing.assert_array_equal(flat, x.reshape(-1) * 2)
    pair = ((3, 2), "float32")
    assert handle.infer(((2, 3), "float32"), times=0, out=pair) == {"Y": pair}
    assert handle.explain(((2, 3), "float32"), times=0, out=pair).variant == "one_pass"
    with pytest.raises(ContractError, match="float16; needed: float32"):
        handle(x, times=0, out=np.empty(6, np.float16))


def test_the_shape_of_the_manifest_wins(webgpu: Registry, tmp_path: Path) -> None:
    handle = webgpu.load(write(tmp_path, lambda m: m["outputs"][0].update(shape="[numel(shapes.x)]")))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(handle(x, times=0), x.reshape(-1))
    with pytest.raises(ContractError, match=r"shape \[2, 3\]; needed: \[6\]"):
        handle(x, times=0, out=np.empty((2, 3), np.float32))
    with pytest.raises(ContractError, match="dimension of Y is computed from names"):
        handle.infer((("n", 3), "float32"), times=0)


@pytest.mark.parametrize("shape", ["[-1]", "[1.5]", "shapes.x[9]", '["a"]', "7"])
def test_a_shape_that_is_none(shared: Registry, tmp_path: Path, shape: str) -> None:
    handle = shared.load(write(tmp_path, lambda m: m["outputs"][0].update(shape=shape)))
    with pytest.raises(ContractError, match="shape of Y"):
        handle.infer(((2, 3), "float32"), times=0)


def test_optional_outputs_take_the_shape_of_our_op(seeds: Any, webgpu: Registry) -> None:
    handle = seeds["LayerNormalization"]
    assert [spec.shape for spec in handle.op.outputs] == ["shapes.X", None, None]
    x = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32)
    scale = np.ones(8, np.float32)
    asked = ("Y", "Mean", "InvStdDev")
    got = handle(X=x, Scale=scale, outputs=asked)
    want = webgpu.run("LayerNormalization", X=x, Scale=scale, outputs=asked, backend="numpy")
    for name in asked:
        assert getattr(got, name).shape == getattr(want, name).shape
        np.testing.assert_allclose(getattr(got, name), getattr(want, name), rtol=1e-5, atol=1e-5)
    assert handle.infer(X=x, Scale=scale, axis=1, outputs="Mean") == {"Mean": ((2, 1, 1), "float32")}
    mean = handle(X=x, Scale=scale, outputs="Mean")
    np.testing.assert_allclose(mean, want.Mean, atol=1e-6)
    report = handle.compare(X=x, Scale=scale, outputs=asked)
    assert report.ok and report.against == "the float64 reference"


# Faults that only a request brings out


REQUEST_FAULTS: dict[str, tuple[Change, str]] = {
    "too many workgroups": (
        lambda m: m["variants"][0]["passes"][0].update(dispatch={"x": 65536}),
        "at most 65535",
    ),
    "no whole number of workgroups": (
        lambda m: m["variants"][0]["passes"][0].update(dispatch={"x": "numel(shapes.x) / 4"}),
        "an integer",
    ),
    "a workgroup of none": (
        lambda m: m["variants"][0]["passes"][0].update(dispatch={"threads": 4, "workgroupSize": 0}),
        "at least 1",
    ),
    "a uniform out of range": (
        lambda m: m["variants"][0]["passes"][0]["bindings"][2]["struct"]["fields"][0].update(value=-1),
        "needed: u32",
    ),
    "a uniform without value": (
        lambda m: m["variants"][0]["passes"][0]["bindings"][2]["struct"]["fields"][0].pop("value"),
        "no value",
    ),
    "an element type of no size": (
        lambda m: m["variants"][0]["passes"][0]["bindings"][0].update(elementType="mat9x9", length=3),
        "mat9x9",
    ),
    "a binding longer than its tensor": (
        lambda m: m["variants"][0]["passes"][0]["bindings"][0].update(length=1000),
        "4000 bytes",
    ),
}


@pytest.mark.parametrize("case", REQUEST_FAULTS.values(), ids=REQUEST_FAULTS.keys())
def test_a_manifest_that_goes_wrong_on_a_request(webgpu: Registry, tmp_path: Path, case: Any) -> None:
    change, message = case
    handle = webgpu.load(write(tmp_path, change))
    x = np.arange(6, dtype=np.float32)
    with pytest.raises(BackendError, match=message) as caught:
        handle(x, times=0, variant="one_pass")
    assert (caught.value.op, caught.value.variant) == ("test.example::Scale", "one_pass")


def test_a_large_scratch_buffer_is_refused(webgpu: Registry, tmp_path: Path) -> None:
    handle = webgpu.load(
        write(tmp_path, lambda m: m["variants"][1]["intermediates"][0].update(shape=[2**31]))
    )
    with pytest.raises(BackendError, match="scratch scaled has 8589934592 bytes"):
        handle(np.ones((1, 1, 1), np.float32), times=0, variant="two_passes")


def test_scratch_begins_with_zeros_in_every_call(webgpu: Registry, tmp_path: Path) -> None:
    def with_sum(manifest: dict[str, Any]) -> None:
        one_pass = manifest["variants"][0]
        one_pass["intermediates"] = [{"id": "sum", "dtype": "float32", "shape": ["numel(shapes.x)"]}]
        one_pass["passes"][0]["bindings"].append({**binding("sum", None, OUT, "f32"), "scratch": "sum"})

    head, value = "    y[id.x] =", "f32(x[id.x])"
    adding = TEMPLATES["scale.wgsl.jinja"].replace(head, f"    sum[id.x] += {value};\n{head}")
    adding = adding.replace(f"({value} * params.factor", "(sum[id.x] * params.factor")
    handle = webgpu.load(write(tmp_path, with_sum, scale=adding))
    x = np.arange(6, dtype=np.float32)
    on_device, y = webgpu.to_device(x, "webgpu"), webgpu.empty((6,), "float32", "webgpu")
    with webgpu.batch():  # one after another in one submission, each in the buffer of the last one
        for _ in range(3):
            handle(on_device, times=0, variant="one_pass", out=y)
    np.testing.assert_array_equal(y.numpy(), x)
