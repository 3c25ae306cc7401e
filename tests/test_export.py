"""Ops written as packages: what comes back is the op, down to the shader's text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from forms import FORMS, check

from registry import ContractError, NoPlanError, PackageError, Registry
from registry.cli import main
from registry.handle import Handle
from registry.judging.accuracy import judge
from registry.opinfo import Op
from registry.packaging.export import export_op
from registry.packaging.test_json import run_cases
from registry.packaging.test_json_writing import write_cases

OPS = sorted(FORMS)
DIALECTS = ("2.1", "1.0")
FULL = {
    "features": ["shader-f16", "subgroups"],
    "wgslLanguageFeatures": ["subgroup_id"],
    "adapterInfo": {"subgroupMinSize": 32, "subgroupMaxSize": 32},
}
BASE: dict[str, Any] = {}
KINDS = {
    "2.1": (("float32", FULL), ("float16", FULL), ("float32", BASE), ("float16", BASE)),
    "1.0": (("float32", BASE), ("float16", FULL)),
}
SIZES = ((2, 8), (3, 7), (2, 768), (1, 1), (6, 4097), (70_002, 4))


@pytest.fixture(scope="module")
def exported(shared: Registry, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """Every op in both dialects, by id and dialect."""
    folders = {}
    for op in OPS:
        for dialect in DIALECTS:
            folders[op, dialect] = folder = tmp_path_factory.mktemp("exported") / "package"
            export_op(shared, shared.op(op), folder, dialect)
    return folders


def takers(reg: Registry, op: str | Op, call: dict[str, Any]) -> list[str] | None:
    """Every variant that takes the call, in order; None where the call is refused."""
    try:
        return [row.variant for row in reg.explain(op, **call).eligible]
    except ContractError:
        return None


def source(reg: Registry, op: str | Op, call: dict[str, Any], variant: str) -> list[tuple[Any, ...]]:
    """Text, uniforms and grid of every pass."""
    passes = reg.render(op, **call, variant=variant)
    return [(p.source, sorted(p.uniforms.items()), p.dispatch) for p in passes]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("op", OPS)
def test_the_package_renders_what_the_op_renders(
    shared: Registry, exported: Any, op: str, dialect: str
) -> None:
    """For every form, over several sizes, dtypes and devices: the same variants with the same text."""
    package = shared.load(exported[op, dialect]).op
    assert package.package is not None and package.package.dialect == dialect
    assert package.package.listed is not None
    compared: set[tuple[str, int]] = set()
    for number, form in enumerate(FORMS[op]):
        # Every form at one size, and the first at all.
        for rows, hidden in SIZES if number == 0 else SIZES[number % 3 : number % 3 + 1]:
            for kind, (dtype, device) in enumerate(KINDS[dialect]):
                call = form.pairs(rows, hidden, dtype)
                if call is None:
                    continue
                call["profile"] = {"webgpu": device}
                ours = takers(shared, op, call)
                assert takers(shared, package, call) == ours
                for variant in ours or ():
                    if number and (variant, kind) in compared:
                        continue
                    compared.add((variant, kind))
                    right, found = (source(shared, each, call, variant) for each in (op, package))
                    # Ours fold a large grid evenly; the dialects fill rows of 65,535.
                    parts = slice(2 if rows > 65_535 else None)
                    assert [p[parts] for p in found] == [p[parts] for p in right]
    assert len(compared) > 5


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("op", OPS)
def test_its_own_tests_pass(webgpu: Registry, exported: Any, op: str, dialect: str) -> None:
    outcomes = run_cases(webgpu, webgpu.load(exported[op, dialect]).op, "webgpu")
    assert not isinstance(outcomes, str), outcomes
    assert len(outcomes) >= 8
    assert {outcome.state for outcome in outcomes} == {"passed"}, outcomes


@pytest.mark.parametrize("op", OPS)
def test_it_runs_and_is_judged_by_the_reference(webgpu: Registry, exported: Any, op: str) -> None:
    handle = webgpu.load(exported[op, "2.1"])
    call = FORMS[op][-1].call(6, 8, "float32")
    assert call is not None
    check(webgpu, handle.op, call, "webgpu")
    report = handle.compare(**call)
    assert report.ok and report.against == "the float64 reference"
    assert {row.backend for row in report.rows} == {"webgpu"}


def test_what_the_contract_refuses_no_variant_takes(shared: Registry, exported: Any) -> None:
    for dialect in DIALECTS:
        handle = shared.load(exported["com.microsoft::BiasAdd", dialect])
        pairs = {
            name: (shape, "float32")
            for name, shape in (("X", (2, 3, 8)), ("bias", (7,)), ("skip", (2, 3, 8)))
        }
        with pytest.raises(NoPlanError, match="sameShape"):
            handle.render(**pairs, profile={"webgpu": FULL})
        with pytest.raises(ContractError, match="needed: one of float32, float16"):
            handle.infer(**{name: (shape, "float64") for name, (shape, _) in pairs.items()})


def test_the_files(shared: Registry, exported: Any) -> None:
    folder = exported["com.microsoft::SkipLayerNormalization", "2.1"]
    text = (folder / "README.md").read_text()
    for wanted in (
        "# com.microsoft.SkipLayerNormalization",
        "`input` | `inputT`",
        "`epsilon`",
        "`rows_beta`",
    ):
        assert wanted in text
    metadata = json.loads((folder / "build/webgpu/metadata.json").read_text())
    listed = set(metadata["digest"]["files"])
    assert listed == {p.name for p in (folder / "build/webgpu").iterdir()} - {"metadata.json"}
    assert metadata["name"] == "com.microsoft.SkipLayerNormalization"
    manifest = json.loads((folder / "build/webgpu/manifest.json").read_text())
    assert manifest["inputs"]["betaT"] == {
        "onnx": "beta", "dtype": "T", "rank": 1, "description": "Shift, shape (H).", "optional": True,
    }  # fmt: skip
    assert set(metadata["webgpu"]["variants"]) == {variant["id"] for variant in manifest["variants"]}
    for name in listed:
        if name.endswith(".jinja"):
            assert "source." not in (folder / "build/webgpu" / name).read_text().split("#}")[-1]


def test_where_it_is_not_written(shared: Registry, tmp_path: Path) -> None:
    op = shared.op("BiasAdd")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(PackageError, match="not empty"):
        export_op(shared, op, tmp_path / "full", "2.1")
    with pytest.raises(PackageError, match="not empty"):
        export_op(shared, op, tmp_path / "full/file", "2.1")
    with pytest.raises(PackageError, match="cannot be written"):
        export_op(shared, op, Path("/proc/none"), "2.1")
    with pytest.raises(ContractError, match=r"2\.0.*needed: 1\.0 or 2\.1"):
        export_op(shared, op, tmp_path / "new", "2.0")


def test_the_command(shared: Registry, tmp_path: Path) -> None:
    run, count = CliRunner().invoke, len(shared.op("RMSNormalization").variants)
    done = run(main, ["export", "RMSNormalization", str(tmp_path / "a"), "--dialect", "1.0"])
    assert done.exit_code == 0, done.output
    assert "ai.onnx::RMSNormalization in" in done.output and f"dialect 1.0, {count} variants" in done.output
    done = run(main, ["export", "RMSNormalization", str(tmp_path / "b"), "--json"])
    facts = json.loads(done.output)
    assert (facts["dialect"], facts["variants"]) == ("2.1", count) and "manifest.json" in facts["digests"]
    assert run(main, ["export", "RMSNormalization", str(tmp_path / "b")]).exit_code == 2
    done = run(main, ["test", str(tmp_path / "a"), "--cases", "1", "--backend", "numpy", "--json"])
    assert json.loads(done.output)["test.json"][0]["reason"] == "no backend here takes it"
    done = run(main, ["test", str(tmp_path / "a"), "--cases", "0", "--backend", "numpy"])
    assert done.exit_code == 0 and done.output.startswith("its own tests"), done.output
    (tmp_path / "b/build/webgpu/test.json").unlink()
    done = run(main, ["test", str(tmp_path / "b"), "--cases", "0"])
    assert done.exit_code == 1 and "has no test.json" in done.output
    done = run(main, ["test", "RMSNormalization", "--cases", "0"])
    assert done.exit_code == 2 and "is no package" in done.output


# test.json


def spoiled(folder: Path, change: Any) -> Path:
    """Changes the tests of a package, whose digest then has to go too."""
    path = folder / "test.json"
    document = json.loads(path.read_text())
    replaced = change(document)
    path.write_text(json.dumps(document if replaced is None else replaced))
    (folder / "metadata.json").unlink()
    return folder


@pytest.fixture
def bias_add(shared: Registry, tmp_path: Path) -> Path:
    export_op(shared, shared.op("BiasAdd"), tmp_path / "package", "2.1")
    return tmp_path / "package/build/webgpu"


def states(reg: Registry, folder: Path) -> list[str]:
    outcomes = run_cases(reg, reg.load(folder).op, "webgpu")
    assert not isinstance(outcomes, str), outcomes
    return [outcome.state for outcome in outcomes]


def test_a_wrong_answer_fails(webgpu: Registry, bias_add: Path) -> None:
    def change(document: Any) -> None:
        document["cases"] = document["cases"][:2]
        document["cases"][0]["outputs"]["Y"]["data"]["values"][5] += 1

    outcomes = run_cases(webgpu, webgpu.load(spoiled(bias_add, change)).op, "webgpu")
    assert [outcome.state for outcome in outcomes] == ["failed", "passed"]  # type: ignore[union-attr]
    assert "1 of 48 elements differ" in outcomes[0].reason  # type: ignore[union-attr]


def test_without_answers_the_reference_judges(webgpu: Registry, bias_add: Path) -> None:
    def change(document: Any) -> None:
        document["fixtureArrays"] = {"ones": [1] * 8}
        case = document["cases"][0]
        document["cases"] = [case]
        del case["outputs"]["Y"]["data"], case["outputs"]["Y"]["tolerance"]
        case["inputs"]["bias"]["data"] = {"kind": "values", "values": {"$ref": "#/fixtureArrays/ones"}}
        case["inputs"]["X"]["data"] = {"kind": "fillFloat32", "sinStep": 0.1, "cosStep": 0.2, "scale": 3}

    assert states(webgpu, spoiled(bias_add, change)) == ["passed"]
    template = bias_add / "bias-add-wide.wgsl.jinja"
    text = template.read_text()
    template.write_text(text.replace("+ offset", "- offset"))
    assert states(webgpu, bias_add) == ["failed"]


def test_cases_that_are_skipped(webgpu: Registry, bias_add: Path) -> None:
    def change(document: Any) -> None:
        document["cases"] = document["cases"][:1]
        document["cases"][0]["skipGpu"] = {"category": "permanent", "reason": "subnormal"}

    outcomes = run_cases(webgpu, webgpu.load(spoiled(bias_add, change)).op, "webgpu")
    assert [(o.state, o.reason) for o in outcomes] == [("skipped", "subnormal")]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "change",
    [
        lambda document: [],
        lambda document: {"tests": []},
        lambda document: document["cases"][0].pop("name") and None,
        lambda document: document["cases"][0]["inputs"]["X"].update(dtype="float8"),
        lambda document: document["cases"][0]["inputs"]["X"].update(shape=[2, 3]),
        lambda document: document["cases"][0]["inputs"]["X"].update(shape=[10**9, 3]),
        lambda document: document["cases"][0]["inputs"]["X"]["data"].update(kind="random"),
        lambda document: document["cases"][0]["inputs"].update(other={}),
    ],
)
def test_tests_of_another_form(shared: Registry, bias_add: Path, change: Any) -> None:
    found = run_cases(shared, shared.load(spoiled(bias_add, change)).op)
    assert isinstance(found, str) and "the form of test.json is not known" in found


def test_no_tests_and_tests_of_another_digest(shared: Registry, bias_add: Path) -> None:
    op = shared.load(bias_add).op
    text = (bias_add / "test.json").read_text()
    (bias_add / "test.json").write_text(text + " ")
    with pytest.raises(PackageError, match=r"test\.json: sha256 is"):
        run_cases(shared, op)
    (bias_add / "test.json").unlink()
    assert run_cases(shared, op) == "the package has no test.json"


def test_the_cases_are_the_reference(shared: Registry) -> None:
    op = shared.op("RMSNormalization")
    document = write_cases(shared, op, {spec.role: spec.arg for spec in (*op.inputs, *op.outputs)})
    case = document["cases"][0]
    tensors = {
        role: np.float32(entry["data"]["values"]).reshape(entry["shape"])
        for role, entry in case["inputs"].items()
    }
    want = shared.catalog.plugins.references[op.id](
        {spec.role: tensors[spec.arg] for spec in op.inputs if spec.arg in tensors}, op.attributes
    )["Y"]
    (output,) = case["outputs"].values()
    assert judge(np.float32(output["data"]["values"]).reshape(output["shape"]), want, "float32").ok


def test_the_handle_tells_its_provenance(shared: Registry, exported: Any) -> None:
    folder = exported["com.microsoft::BiasAdd", "1.0"]
    handle = shared.load(folder)
    assert isinstance(handle, Handle)
    assert handle.package.provenance == str(folder / "build/webgpu")
