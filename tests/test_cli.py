"""The command line: every command, as text and as JSON, good calls and bad ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner, Result
from test_package import write

import registry
from registry.cli import main

SLN = "com.microsoft::SkipLayerNormalization"
LN_SHAPES = ("X=2x3x8", "Scale=8")
LN_RUN = ("run", "LayerNormalization", *LN_SHAPES)


def invoke(*arguments: str, code: int = 0) -> Result:
    """Runs a command, which must leave with that code and never by an exception of its own."""
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, (
        f"{result.exit_code}: {result.output}{result.stderr}\n{result.exception!r}"
    )
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output + result.stderr
    return result


def json_of(*arguments: str, code: int = 0) -> Any:
    return json.loads(invoke(*arguments, "--json", code=code).stdout)


def complaint(*arguments: str) -> str:
    """What a bad call says, on standard error, in one paragraph."""
    result = invoke(*arguments, code=2)
    assert not result.stdout.strip(), "a bad call prints nothing on standard output"
    assert "\n\n" not in result.stderr.strip()
    return result.stderr


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    draw = np.random.default_rng(5)
    np.savez(
        tmp_path / "ln.npz",
        X=draw.standard_normal((2, 3, 8)).astype("f4"),
        Scale=np.ones(8, "f4"),
        unrelated=np.zeros(3),
    )
    return tmp_path / "ln.npz"


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = tmp_path / "device.json"
    path.write_text(json.dumps({"webgpu": {"features": ["shader-f16"], "adapterInfo": {"vendor": "acme"}}}))
    return str(path)


# What there is


def test_ops() -> None:
    text = invoke("ops").stdout
    found = json_of("ops")
    assert [entry["op"] for entry in found] == list(registry.ops())
    for entry in found:
        assert entry["op"] in text and str(entry["variants"]) in text
        assert entry["variants"] == len(registry.op(entry["op"]).variants) and Path(entry["file"]).is_file()
    assert "beta?" in text and "gamma" in text


@pytest.mark.parametrize("name", ["SkipLayerNormalization", SLN, "com.microsoft.SkipLayerNormalization"])
def test_op(name: str) -> None:
    text = invoke("op", name).stdout
    for part in (
        SLN,
        "input_skip_bias_sum",
        "residualT",
        "required",
        "epsilon",
        "shape (H)",
        "beta_bias_vec4",
        "norm-skip-row-vec4.wgsl.jinja",
        "bfloat16",
    ):
        assert part in text
    found = json_of("op", name)
    assert (found["domain"], found["name"]) == ("com.microsoft", "SkipLayerNormalization")
    assert [port["role"] for port in found["inputs"]] == ["input", "skip", "gamma", "beta", "bias"]
    assert found["attributes"]["epsilon"] == pytest.approx(1e-12)
    assert len(found["variants"]) == len(registry.op(name).variants)


def test_backends() -> None:
    text = invoke("backends").stdout
    found = {entry["name"]: entry for entry in json_of("backends")}
    assert found["numpy"]["available"] and found["numpy"]["device"] == f"NumPy {np.__version__}"
    assert {"numpy", "webgpu"} <= found.keys() and "numpy" in text and "webgpu" in text
    for status in registry.backends():
        assert found[status.name]["available"] == status.available
        assert found[status.name]["automatic"] == status.automatic
        if not status.available:
            assert status.found.split()[0] in text
        elif not status.automatic:
            assert "by name only" in text and "never wins an automatic choice" in text


# Runs


def test_run_from_files(archive: Path, tmp_path: Path) -> None:
    tensors = np.load(archive)
    want = registry.run("LayerNormalization", X=tensors["X"], Scale=tensors["Scale"], backend="numpy")
    np.save(tmp_path / "x.npy", tensors["X"])
    np.save(tmp_path / "scale.npy", tensors["Scale"])
    for given in (
        ("--from", str(archive)),
        (f"X={tmp_path / 'x.npy'}", f"Scale={tmp_path / 'scale.npy'}"),
        (f"x={tmp_path / 'x.npy'}", "--from", str(archive)),
    ):
        found = json_of("run", "LayerNormalization", *given, "--backend", "numpy")
        assert (found["op"], found["backend"], found["variant"]) == (
            "ai.onnx::LayerNormalization",
            "numpy",
            "blocked",
        )
        (fact,) = found["outputs"]
        assert (fact["output"], fact["shape"], fact["dtype"]) == ("Y", [2, 3, 8], "float32")
        np.testing.assert_allclose(fact["first"], want.reshape(-1)[:4], rtol=1e-6)
        np.testing.assert_allclose([fact["min"], fact["max"]], [want.min(), want.max()], rtol=1e-6)
    text = invoke("run", "LayerNormalization", "--from", str(archive), "--backend", "numpy").stdout
    assert "ai.onnx::LayerNormalization on numpy, variant blocked" in text and "float32" in text


def test_a_file_may_hold_more_than_the_op_takes(archive: Path) -> None:
    found = json_of("run", "LayerNormalization", "--from", str(archive), "--backend", "numpy")
    assert len(found["outputs"]) == 1


@pytest.mark.parametrize("shape", ["2x3x8", "2,3,8", "[2, 3, 8]", "2 x 3 x 8"])
def test_shapes_can_be_written_in_several_ways(shape: str) -> None:
    found = json_of("run", "LayerNormalization", f"X={shape}", "Scale=8", "--backend", "numpy")
    assert found["outputs"][0]["shape"] == [2, 3, 8]


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [
        ("", "float32"),
        (":f32", "float32"),
        (":f16", "float16"),
        (":bf16", "bfloat16"),
        (":f64", "float64"),
        (":float16", "float16"),
        (":bfloat16", "bfloat16"),
    ],
)
def test_drawn_tensors(spec: str, dtype: str) -> None:
    call = ("run", "LayerNormalization", f"X=2x3x8{spec}", f"Scale=8{spec}", "--backend", "numpy")
    first = json_of(*call)
    assert first["outputs"][0]["dtype"] == dtype
    assert first == json_of(*call) == json_of(*call, "--seed", "0")
    other = json_of(*call, "--seed", "1")
    assert other["outputs"][0]["first"] != first["outputs"][0]["first"]


def test_one_more_tensor_changes_no_other(tmp_path: Path) -> None:
    drawn = []
    for extra in ((), ("beta=8",), ("beta=8", "bias=8")):
        file = tmp_path / f"{len(extra)}.npz"
        invoke(
            "run",
            "SkipLayerNormalization",
            "input=3x8",
            "skip=3x8",
            "gamma=8",
            *extra[:1],
            "--backend",
            "numpy",
            "--outputs",
            "input_skip_bias_sum",
            "--save",
            str(file),
        )
        drawn.append(np.load(file)["input_skip_bias_sum"])
    np.testing.assert_array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[0], drawn[2])


def test_a_scalar_can_be_drawn() -> None:
    found = json_of("run", "LayerNormalization", "X=3x4", "Scale=[]", "--backend", "numpy")
    assert found["outputs"][0]["shape"] == [3, 4]
    assert json_of("explain", "LayerNormalization", "X=3x4", "Scale=:f32")["backend"] == "numpy"


def test_attributes(archive: Path) -> None:
    call = ("run", "LayerNormalization", "--from", str(archive), "--backend", "numpy")
    small, large = (
        json_of(*call, "--set", f"epsilon={value}")["outputs"][0]["max"] for value in ("1e-5", "100")
    )
    assert abs(large) < abs(small) / 2
    found = json_of(
        "run",
        "LayerNormalization",
        "X=2x3x8",
        "Scale=8",
        "--set",
        "axis=1",
        "--outputs",
        "Mean",
        "--set",
        "epsilon=0.5",
        "--backend",
        "numpy",
    )
    assert found["outputs"][0]["shape"] == [2, 1, 1]


def test_outputs() -> None:
    call = ("run", "LayerNormalization", *LN_SHAPES, "--backend", "numpy")
    for asked, names in (("Mean", ["Mean"]), ("InvStdDev,Y", ["InvStdDev", "Y"]), ("Y, Mean", ["Y", "Mean"])):
        assert [fact["output"] for fact in json_of(*call, "--outputs", asked)["outputs"]] == names


def test_backends_variants_and_devices(webgpu: Any) -> None:
    call = ("run", "LayerNormalization", *LN_SHAPES)
    wide = ("run", "LayerNormalization", "X=2x8:f64", "Scale=8:f64")
    assert json_of(*call, "--backend", "webgpu")["backend"] == "webgpu"
    assert json_of(*call, "--backend", "webgpu,numpy")["backend"] == "webgpu"
    assert json_of(*call, "--backend", "numpy,webgpu")["backend"] == "numpy"
    assert json_of(*call, "--backend", "numpy, webgpu")["backend"] == "numpy"
    assert json_of(*wide, "--backend", "webgpu,numpy")["backend"] == "numpy"
    assert json_of(*call, "--variant", "last_axis")["variant"] == "last_axis"
    assert json_of(*call, "--variant", "reference")["backend"] == "numpy"
    assert json_of(*call, "--device", "webgpu:0")["backend"] == "webgpu"


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
def test_saved_outputs_come_back(tmp_path: Path, dtype: str) -> None:
    saved = tmp_path / "out.npz"
    call = (
        "run",
        "LayerNormalization",
        f"X=5x9:{dtype}",
        f"Scale=9:{dtype}",
        "--outputs",
        "Y,Mean",
        "--backend",
        "numpy",
    )
    facts = json_of(*call, "--save", str(saved))["outputs"]
    with np.load(saved) as archive:
        assert sorted(archive.files) == ["Mean", "Y"]
        y = archive["Y"]
        assert archive["Mean"].dtype == np.float32 and archive["Mean"].shape == (5, 1)
    if dtype == "bf16":
        y = y.view(ml_dtypes.bfloat16)  # what .npy files can keep of bfloat16 is its bits
    assert y.shape == (5, 9)
    np.testing.assert_allclose(y.reshape(-1)[:4].astype(float), facts[0]["first"], rtol=1e-6)
    np.save(tmp_path / "y.npy", y)
    again = json_of(
        "run", "LayerNormalization", f"X={tmp_path / 'y.npy'}", f"Scale=9:{dtype}", "--backend", "numpy"
    )
    assert again["outputs"][0]["dtype"] == facts[0]["dtype"]


def test_a_file_saved_without_suffix_has_the_name_that_was_asked(tmp_path: Path) -> None:
    invoke("run", "LayerNormalization", *LN_SHAPES, "--backend", "numpy", "--save", str(tmp_path / "plain"))
    assert (tmp_path / "plain").exists() or (tmp_path / "plain.npz").exists()


def test_values_json_cannot_write(tmp_path: Path) -> None:
    """NaN and Infinity are no JSON: other readers refuse the whole text."""
    np.save(tmp_path / "x.npy", np.array([[np.nan, 1, 2, 3]], "f4"))
    result = invoke(
        "run", "LayerNormalization", f"X={tmp_path / 'x.npy'}", "Scale=4", "--backend", "numpy", "--json"
    )

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is not JSON")

    json.loads(result.stdout, parse_constant=refuse)


def test_an_empty_run() -> None:
    found = json_of("run", "LayerNormalization", "X=0x8", "Scale=8", "--backend", "numpy")
    assert found["outputs"][0] == {
        "output": "Y",
        "shape": [0, 8],
        "dtype": "float32",
        "min": None,
        "max": None,
        "mean": None,
        "first": [],
    }


# Explaining, rendering, comparing


def test_explain(profile: str) -> None:
    text = invoke("explain", "LayerNormalization", *LN_SHAPES, "--backend", "numpy").stdout
    assert "chosen" in text and "blocked" in text and "every condition holds" in text
    found = json_of("explain", "LayerNormalization", *LN_SHAPES, "--profile", profile)
    assert (found["backend"], found["variant"]) == ("webgpu", "wide_rows")
    assert {"backend", "variant", "verdict", "because", "found", "needed"} <= found["candidates"][0].keys()
    assert found["request"].startswith("ai.onnx::LayerNormalization")


def test_a_request_is_not_broken_into_the_width_of_its_table(profile: str) -> None:
    shapes = ("X=2x3x8", "bias=8", "skip=2x3x8")
    lines = invoke("explain", "BiasAdd", *shapes, "--profile", profile).stdout.splitlines()
    assert lines[0] == "com.microsoft::BiasAdd  X f32[2, 3, 8]  bias f32[8]  skip f32[2, 3, 8]  ->  Y"


def test_an_error_lists_some_variants_of_many() -> None:
    said = complaint(
        "explain", "SkipLayerNormalization", "input=3x8", "skip=3x8", "gamma=8", "--variant", "rows_bet"
    )
    assert "did you mean 'rows_beta'" in said and said.rstrip().endswith(" more") and len(said) < 800


def test_explain_without_a_choice(profile: str) -> None:
    call = ("explain", "LayerNormalization", "X=2x8:f64", "Scale=8:f64", "--profile", profile)
    found = json_of(*call, code=1)
    assert found["backend"] is None and {row["verdict"] for row in found["candidates"]} == {"rejected"}
    assert "rejected" in invoke(*call, code=1).stdout


def test_large_shapes_need_no_memory(profile: str) -> None:
    call = ("explain", "LayerNormalization", "X=1000000x1000000", "Scale=1000000", "--profile", profile)
    assert json_of(*call)["variant"] == "wide_rows"  # in parts
    found = json_of(*call, "--set", "axis=0", code=1)
    because = {row["because"] for row in found["candidates"]}
    assert because == {"every tensor fits one storage binding, on the host in parts"}


def test_render(profile: str) -> None:
    call = ("render", "BiasAdd", "X=2x3x8:f16", "bias=8:f16", "skip=2x3x8:f16", "--profile", profile)
    text = invoke(*call).stdout
    assert text.startswith("// pass main: bias-add-wide.wgsl.jinja, (1, 1, 1) workgroups")
    assert "@compute @workgroup_size(256)" in text
    assert "enable f16;" in invoke(*call, "--variant", "vec4").stdout
    (found,) = json_of(*call)
    assert found["source"] in text and found["language"] == "wgsl" and found["dispatch"] == [1, 1, 1]
    assert found["uniforms"] == {"count": 6}
    assert found["constants"]["word"] == "vec4<u32>"


def test_render_lint(profile: str, tmp_path: Path) -> None:
    call = ("render", "BiasAdd", "X=2x3x8", "bias=8", "skip=2x3x8", "--profile", profile, "--lint")
    assert invoke(*call).stdout == "nothing found in main\n"
    assert json_of(*call) == []
    folder = write(tmp_path / "package", without_scalars)
    head = "@compute @workgroup_size(4)\nfn main(@builtin(global_invocation_id) thread: vec3<u32>) {"
    body = "if (thread.x > 3u) { return; }\nworkgroupBarrier();\nloop {}"
    (folder / "scale.wgsl.jinja").write_text(f"{head}\n{body}\n}}")
    call = ("render", str(folder), "x=2x3x5", "--profile", profile, "--lint")
    first, second = invoke(*call, code=1).stdout.splitlines()
    assert first.startswith(
        "pass_0:3: divergent-barrier: `(thread.x > 3u)` returns before the barrier of line 4"
    )
    assert second.startswith("pass_0:5: endless-loop: ")
    rows = json_of(*call, code=1)
    assert [(row["pass"], row["line"], row["rule"]) for row in rows] == [
        ("pass_0", 3, "divergent-barrier"),
        ("pass_0", 5, "endless-loop"),
    ]
    call = ("render", "LayerNormalization", *LN_SHAPES, "--backend", "numpy", "--lint")
    assert "numpy has no source text" in invoke(*call, code=1).stderr


def test_the_source_is_not_wrapped(profile: str) -> None:
    source = registry.render(
        "SkipLayerNormalization",
        ((6, 768), "float32"),
        ((6, 768), "float32"),
        ((768,), "float32"),
        profile=json.loads(Path(profile).read_text()),
    )[0].source
    text = invoke(
        "render", "SkipLayerNormalization", "input=6x768", "skip=6x768", "gamma=768", "--profile", profile
    ).stdout
    assert source in text


def test_a_backend_without_source() -> None:
    call = ("render", "LayerNormalization", *LN_SHAPES, "--backend", "numpy")
    result = CliRunner().invoke(main, call)
    assert result.exit_code == 1 and not result.stdout
    assert result.stderr == "numpy has no source text; name another with --backend.\n"
    assert json_of(*call) == []


def test_render_without_a_choice(profile: str) -> None:
    result = CliRunner().invoke(
        main, ["render", "LayerNormalization", "X=2x8:f64", "Scale=8:f64", "--profile", profile]
    )
    assert result.exit_code in (1, 2) and "rejected" in result.stderr and "Traceback" not in result.output


def test_compare(webgpu: Any, archive: Path) -> None:
    found = json_of("compare", "LayerNormalization", "--from", str(archive), "--outputs", "Y,Mean")
    assert found["ok"] and found["against"] == "the float64 reference"
    assert {row["backend"] for row in found["rows"]} == {"numpy", "webgpu"}
    text = invoke("compare", "LayerNormalization", "--from", str(archive), "--backend", "numpy").stdout
    assert "against the float64 reference" in text and "blocked" in text and "ok" in text
    text = invoke("compare", "LayerNormalization", *LN_SHAPES, "--backend", "webgpu").stdout
    assert "skipped: webgpu" in text


def test_a_failed_comparison_leaves_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    from registry_numpy import backend

    original = backend._Blocked.__call__

    def wrong(self: Any, inputs: Any, outputs: Any) -> None:
        original(self, inputs, outputs)
        outputs["Y"][0, 0, 0] += 1

    monkeypatch.setattr(backend._Blocked, "__call__", wrong)
    call = ("compare", "LayerNormalization", *LN_SHAPES, "--backend", "numpy")
    assert "FAILS" in invoke(*call, code=1).stdout
    found = json_of(*call, code=1)
    assert not found["ok"] and [row["ok"] for row in found["rows"]] == [False, True]
    assert found["rows"][0]["worst"] == [0, 0, 0]


def test_nothing_to_compare_leaves_with_1() -> None:
    found = json_of(
        "compare", "LayerNormalization", "X=2x8:f64", "Scale=8:f64", "--backend", "webgpu", code=1
    )
    assert found["rows"] == [] and not found["ok"] and found["skipped"]


# Packages


def without_scalars(manifest: dict[str, Any]) -> None:
    manifest["args"]["times"]["required"] = False
    manifest["variants"][0]["passes"][0]["bindings"][2]["struct"]["fields"][2]["default"] = 0
    manifest["variants"][1]["passes"][0]["bindings"][2] = manifest["variants"][0]["passes"][0]["bindings"][2]
    manifest["variants"][1]["passes"][1]["bindings"][2] = manifest["variants"][0]["passes"][0]["bindings"][2]


def test_a_package_folder_stands_for_an_op(webgpu: Any, tmp_path: Path, profile: str) -> None:
    folder = str(write(tmp_path / "package", without_scalars))
    assert "test.example::Scale" in invoke("op", folder).stdout
    assert json_of("op", folder)["name"] == "Scale"
    assert json_of("explain", folder, "x=2x3x5", "--profile", profile)["variant"] == "one_pass"
    assert json_of("render", folder, "x=2x3x5", "--profile", profile)[0]["shader"] == "scale.wgsl.jinja"
    found = json_of("run", folder, "X=2x3x5", "--set", "factor=2", "--seed", "3")
    plain = json_of("run", folder, "X=2x3x5", "--seed", "3")
    assert found["op"] == "test.example::Scale" and found["backend"] == "webgpu"
    np.testing.assert_allclose(
        found["outputs"][0]["first"], 2 * np.array(plain["outputs"][0]["first"]), rtol=1e-6
    )
    report = json_of("compare", folder, "x=2x3x5")
    assert report["ok"] and "no reference is known" in report["against"]
    assert [row["variant"] for row in report["rows"]] == ["one_pass", "two_passes"]


def test_scalar_arguments_can_be_given(webgpu: Any, tmp_path: Path) -> None:
    folder = str(write(tmp_path / "package"))
    found = json_of("run", folder, "X=2x3x5", "--set", "times=2", "--set", "offset=0.5", "--set", "factor=0")
    assert found["outputs"][0]["first"] == [1, 1, 1, 1]


def test_integers_can_be_drawn(webgpu: Any, tmp_path: Path) -> None:
    folder = str(write(tmp_path / "package", lambda m: m["args"]["times"].update(required=False)))
    found = json_of("explain", folder, "X=4:int32")
    assert "i32" in found["request"] or "int32" in found["request"]


def test_a_broken_package(tmp_path: Path) -> None:
    folder = write(tmp_path / "package")
    (folder / "scale.wgsl.jinja").unlink()
    assert "PackageError" in complaint("op", str(folder))
    assert "no manifest.json" in complaint("run", str(tmp_path), "x=3")


# Bad calls


BAD = {
    "unknown op": (("run", "LayerNormalisation", "X=3"), "did you mean 'LayerNormalization'"),
    "unknown op shown": (("op", "BiasAd"), "did you mean 'BiasAdd'"),
    "unknown input": (("run", "LayerNormalization", "X=2x8", "Scal=8"), "did you mean 'Scale'"),
    "no spec": (("run", "LayerNormalization", "X"), "needed: name=file.npy or name=2x8x768:f16"),
    "missing input": (("run", "LayerNormalization", "X=2x8"), "required input Scale is missing"),
    "wrong shape": (("run", "LayerNormalization", "X=2x8", "Scale=5"), "Scale has shape [5]"),
    "unknown dtype": (("run", "LayerNormalization", "X=2x8:f33", "Scale=8"), "f33"),
    "dtype of no tensor": (("run", "LayerNormalization", "X=2x8:complex64", "Scale=8"), "complex64"),
    "negative shape": (("run", "LayerNormalization", "X=-2x8", "Scale=8"), "-2x8"),
    "unknown attribute": ((*LN_RUN, "--set", "epsilom=1"), "did you mean 'epsilon'"),
    "attribute without value": ((*LN_RUN, "--set", "epsilon"), "needed: name=value"),
    "attribute of a wrong kind": ((*LN_RUN, "--set", "epsilon=small"), "needed: a number"),
    "attribute null": ((*LN_RUN, "--set", 'epsilon={"a": 1}'), "needed: a number"),
    "attribute NaN": ((*LN_RUN, "--set", "epsilon=NaN"), "epsilon is nan"),
    "unknown output": ((*LN_RUN, "--outputs", "Z"), "no output 'Z'"),
    "output twice": ((*LN_RUN, "--outputs", "Y,Y"), "asked for twice"),
    "unknown backend": ((*LN_RUN, "--backend", "numpi"), "did you mean 'numpy'"),
    "unknown variant": ((*LN_RUN, "--variant", "blockd"), "did you mean 'blocked'"),
    "unknown device": ((*LN_RUN, "--device", "gpu:0"), "no backend 'gpu'"),
    "device of another backend": (
        (*LN_RUN, "--device", "webgpu:0", "--backend", "numpy"),
        "belongs to backend",
    ),
    "no such file": (("run", "LayerNormalization", "X=none.npy", "Scale=8"), "none.npy: cannot be read"),
    "no such archive": (("run", "LayerNormalization", "--from", "none.npz"), "none.npz: cannot be read"),
    "wrong suffix": (("run", "LayerNormalization", "X=x.txt", "Scale=8"), "a .npy file"),
    "archive of another kind": (("run", "LayerNormalization", "--from", "x.npy"), "a .npz file"),
    "no candidate": (
        ("run", "LayerNormalization", "X=2x8:f64", "Scale=8:f64", "--backend", "webgpu"),
        "NoPlanError",
    ),
    "too large": (
        ("run", "LayerNormalization", "X=1000000x1000000x1000000", "Scale=8", "--backend", "numpy"),
        "1000000",
    ),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_bad_calls(case: Any) -> None:
    arguments, message = case
    assert message in complaint(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nonsense",), "No such command 'nonsense'"),
        (("run",), "Missing argument"),
        (("run", "LayerNormalization", "--bakend", "numpy"), "--backend"),
        ((*LN_RUN, "--seed", "many"), "not a valid integer"),
        (("explain", "LayerNormalization", *LN_SHAPES, "--profile", "none.json"), "does not exist"),
        ((*LN_RUN, "--profile", "none.json"), "No such option"),
        (("ops", "more"), "unexpected extra argument"),
    ],
)
def test_bad_options(arguments: tuple[str, ...], message: str) -> None:
    result = invoke(*arguments, code=2)
    assert message in result.stderr and "Usage:" in result.stderr


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not JSON",
        "[]",
        "7",
        "null",
        '{"webgpu": 7}',
        '{"webgpu": {"limit": {}}}',
        '{"webgpu": {"limits": {"maxBufferSize": "many"}}}',
        '{"cuda": {}}',
        "\xff",
    ],
)
def test_profiles_of_any_kind(tmp_path: Path, text: str) -> None:
    path = tmp_path / "device.json"
    path.write_bytes(text.encode("latin-1"))
    for command in ("explain", "render"):
        assert complaint(command, "LayerNormalization", *LN_SHAPES, "--profile", str(path))


@pytest.mark.parametrize("data", [b"", b"nonsense", b"PK\x03\x04broken", b"\x93NUMPY\x01\x00broken"])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_files_of_any_kind(tmp_path: Path, data: bytes, suffix: str) -> None:
    path = tmp_path / f"data{suffix}"
    path.write_bytes(data)
    given = ("--from", str(path)) if suffix == ".npz" else (f"X={path}",)
    assert str(path.name) in complaint("run", "LayerNormalization", *given, "Scale=8")


def test_pickles_are_not_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], object), allow_pickle=True)
    assert "x.npy: no readable .npy file" in complaint(
        "run", "LayerNormalization", f"X={tmp_path / 'x.npy'}", "Scale=8"
    )
    np.savez(tmp_path / "x.npz", X=np.array([{"a": 1}], object))
    assert "x.npz: no readable .npz file" in complaint(
        "run", "LayerNormalization", "--from", str(tmp_path / "x.npz")
    )


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "x.npy").mkdir()
    assert "cannot be read" in complaint("run", "LayerNormalization", f"X={tmp_path / 'x.npy'}", "Scale=8")


def test_a_result_that_cannot_be_saved(tmp_path: Path) -> None:
    target = str(tmp_path / "no folder" / "out.npz")
    assert "no folder" in complaint(
        "run", "LayerNormalization", *LN_SHAPES, "--backend", "numpy", "--save", target
    )


def test_a_tensor_given_twice() -> None:
    """A tensor given twice is a mistake, as it is in Python; only an archive may be overruled."""
    for again in ("x=3x8", "X=3x8"):
        assert "twice" in complaint("run", "LayerNormalization", "X=2x8", again, "Scale=8")


# Help


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("", ("ops", "op", "backends", "run", "explain", "render", "compare", "--version")),
        ("ops", ("--json", "List the operators")),
        ("op", ("NAME", "package folder")),
        ("backends", ("Doctor", "--json")),
        (
            "run",
            (
                "--from",
                "--set",
                "--outputs",
                "--backend",
                "--variant",
                "--device",
                "--seed",
                "--save",
                "--json",
                "NAME=SHAPE[:DTYPE]",
                "X=2x8x768:f16",
            ),
        ),
        ("explain", ("--profile", "--json", "which candidate would run")),
        ("render", ("--profile", "source")),
        ("compare", ("--seed", "float64 reference")),
    ],
)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help(command: str, parts: tuple[str, ...], flag: str) -> None:
    text = invoke(*([command] if command else []), flag).stdout
    for part in parts:
        assert part in " ".join(text.split())


def test_the_list_of_commands_is_cut_nowhere() -> None:
    assert "..." not in invoke("--help").stdout.partition("Commands:")[2]


def test_every_command_has_help() -> None:
    for name, command in main.commands.items():
        assert command.help and command.help.strip().endswith("."), name
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert parameter.help, f"{name} {parameter.name}"


def test_version() -> None:
    assert registry.__version__ in invoke("--version").stdout


# As a program


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "registry", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_as_a_module(tmp_path: Path) -> None:
    call = ("run", "LayerNormalization", *LN_SHAPES, "--backend", "numpy", "--json")
    done = program(*call)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == json_of(*call[:-1])
    done = program("run", "LayerNormalization", "X=2x8", "Scale=7")
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("ContractError: ") and "Traceback" not in done.stderr


def test_a_redirected_table_is_whole() -> None:
    done = program(
        "explain", "SkipLayerNormalization", "input=3x8", "skip=3x8", "gamma=8", "--backend", "numpy"
    )
    assert done.returncode == 0 and "\x1b" not in done.stdout and "every condition holds" in done.stdout


def test_an_attribute_among_tensors_is_told_where_it_goes() -> None:
    found = invoke("explain", "LayerNormalization", *LN_SHAPES, "axis=9", code=2)
    assert "axis is no tensor; it goes by --set axis=9" in found.stdout + found.stderr


# Measuring


BIAS_ADD = ("BiasAdd", "X=1x6x8", "bias=8", "skip=1x6x8")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, in use."""
    monkeypatch.setenv("REGISTRY_TUNED", "1")
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_tune(cache: Path, default: None) -> None:
    assert json_of("tune", "--list") == []
    found = json_of("tune", *BIAS_ADD, "--backend", "numpy")
    assert found["kept"] and found["choice"]["static"]["variant"] == "blocked"
    assert {row["variant"] for row in found["rows"]} == {"blocked", "reference"}
    registry.refresh()
    decision = json_of("explain", *BIAS_ADD, "--backend", "numpy")
    assert decision["candidates"][0]["because"] == f"by measurement of {found['choice']['date'][:10]}"
    (kept,) = json_of("tune", "--list")
    assert kept["op"] == "com.microsoft::BiasAdd" and kept["choice"] == found["choice"]
    assert "X float32 8x8" in invoke("tune", "--list", "BiasAdd").stdout
    assert json_of("tune", "--list", "LayerNormalization") == []
    text = invoke("tune", *BIAS_ADD, "--backend", "numpy").stdout
    assert "chosen by measurement of" in text and "results judged by the float64 reference" in text
    assert json_of("tune", "--clear", "LayerNormalization") == {"removed": 0}
    assert "1 removed from" in invoke("tune", "--clear").stdout
    assert json_of("tune", "--list") == [] and not list(cache.rglob("*.json"))


def test_tune_on_a_device(cache: Path, webgpu: registry.Registry) -> None:
    found = json_of("tune", *BIAS_ADD, "--on", "webgpu")
    assert {row["backend"] for row in found["rows"]} == {"webgpu"}
    (kept,) = json_of("tune", "--list")
    assert kept["class"]["tensors"]["X"] == "float32 8x8 on webgpu"


def test_tune_wants_an_op() -> None:
    assert "Missing argument 'OP'" in invoke("tune", code=2).stderr
    assert "no op 'BiasAd'" in complaint("tune", "--list", "BiasAd")
    assert "works on host arrays" in complaint("tune", *BIAS_ADD, "--on", "numpy")


def test_bench(tmp_path: Path) -> None:
    (row,) = json_of("bench", *BIAS_ADD, "--backend", "numpy")
    assert row["variant"] == "blocked" and row["us"] > 0 and row["device"]["name"] and row["date"]
    text = invoke("bench", *BIAS_ADD, "--backend", "numpy", "--variants").stdout
    assert "blocked" in text and "reference" in text and "GB/s" in text
    bad = invoke("bench", *BIAS_ADD, "--backend", "numpy", "--plot", str(tmp_path / "a.txt"), code=2)
    assert "GB/s" in bad.stdout and "--plot" in bad.stderr  # what was measured is not lost


def test_tunables_on_the_command_line(profile: str) -> None:
    pinned = ("--backend", "webgpu", "--profile", profile)
    assert (
        "@workgroup_size(64)" in invoke("render", *BIAS_ADD, *pinned, "--tunable", "WORKGROUP_SIZE=64").stdout
    )
    assert "no tunable 'ITEM' (did you mean 'ITEMS'?)" in complaint(
        "render", *BIAS_ADD, *pinned, "--tunable", "ITEM=1"
    )
