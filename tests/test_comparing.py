"""Reports of comparisons: cases, means, histograms, inputs of the worst element, tolerances, the page."""

from __future__ import annotations

import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from test_comparison import LN, N4, V, X, answer_with, with_stranger
from test_package import write

import registry_manifests
import registry_numpy
from registry import Claim, ContractError, Registry, conformance
from registry.cli import main
from registry.comparing.text import bucket_names
from registry.conformance import Case, Tensor, checks
from registry.errors import ManifestError
from registry.judging.accuracy import Expected, combine, judge
from registry.judging.judge import make_judge, tolerances
from registry.judging.rounding import BUCKETS, histogram, round_to, ulps
from registry.loading.loader import load_manifest
from registry.manifest import ToleranceRule

NUMPY = Registry([registry_manifests, registry_numpy], entry_points=False)


# Numbers


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_histogram_counts_by_the_distance_from_the_answer(dtype: str) -> None:
    """Steps away from the rounded answer, and from there on to the answer itself; powers of two included."""
    for centre in (1.5, -1.5, 2.0, -1024.0, 0.0):
        near = round_to(np.full(1, centre), dtype)
        bits = near.view(f"u{near.itemsize}")
        for steps in (0, 1, 2, 3, 600, 30000):
            actual = (bits + bits.dtype.type(steps)).view(near.dtype)
            if not np.isfinite(actual.astype(np.float64)).all():
                continue
            distance = ulps(actual, near, dtype)
            counts = histogram(actual, near.astype(np.float64), near, distance)
            assert sum(counts) == 1 and len(counts) == len(BUCKETS) + 1 == len(bucket_names())
            place = counts.index(1)
            assert place == len(BUCKETS) or steps <= BUCKETS[place]
            assert place == 0 or steps > BUCKETS[place - 1]


def test_correct_rounding_is_half_a_unit_at_most() -> None:
    values = np.random.default_rng(0).standard_normal(4000) * 10.0 ** np.random.default_rng(1).integers(-9, 5)
    for dtype in ("float16", "bfloat16", "float32"):
        with np.errstate(all="ignore"):
            verdict = judge(round_to(values, dtype), Expected(values, np.abs(values), np.zeros(())), dtype)
        assert sum(verdict.histogram[:2]) == verdict.compared == 4000
        assert verdict.max_ulp == verdict.mean_ulp == 0 and 0 < verdict.mean_abs < verdict.max_abs
    # A unit more is between half a unit and one and a half from the answer.
    off = np.nextafter(values.astype(np.float32), np.float32(np.inf))
    verdict = judge(off, Expected(values, np.abs(values), np.zeros(())), "float32")
    assert sum(verdict.histogram[2:4]) == 4000 and verdict.mean_ulp == 1


def test_means() -> None:
    value = np.array([1.0, 2.0, 0.0, np.nan, np.inf])
    actual = np.array([1.5, 2.0, 0.25, np.nan, np.inf])
    verdict = judge(actual, Expected(value, np.abs(value), np.ones(())), "float64")
    assert (verdict.compared, verdict.mean_abs, verdict.max_abs) == (3, 0.25, 0.5)
    assert (verdict.mean_rel, verdict.max_rel) == (0.25, np.inf), "the mean leaves out where the answer is 0"
    assert sum(verdict.histogram) == 3


def test_verdicts_add_up() -> None:
    def verdict(*values: float) -> Any:
        right = np.ones(len(values))
        return judge(np.array(values), Expected(right, right, right), "float64")

    one, two = verdict(1.0, np.nan, 1.25), verdict(3.0)
    both = combine([one, two])
    assert (both.compared, both.max_abs, both.nan_actual, both.ok) == (3, 2.0, 1, False)
    assert both.mean_abs == pytest.approx((0 + 0.25 + 2) / 3) and sum(both.histogram) == 3
    assert both.reason == one.reason, "NaN on one side only is worse than any number"
    form = judge(np.ones(2), Expected(np.ones(3), np.ones(3), np.ones(3)), "float64")
    assert combine([verdict(1.0 + 1e-12), form]).reason == form.reason, (
        "another shape is worse than what passes"
    )


def test_integers_have_to_be_equal() -> None:
    expected = Expected(np.array([1.0, 2.0]), np.ones(2), np.ones(()))
    assert judge(np.array([1, 2], np.int32), expected, "int32").ok
    assert not judge(np.array([1, 3], np.int32), expected, "int32").ok


# Tolerances


def with_tolerance(said: dict[str, ToleranceRule], answer: Any) -> Registry:
    import msgspec

    reg = with_stranger(answer)
    op = reg.op("LayerNormalization")
    extensions = msgspec.structs.replace(op.manifest.registry, tolerance=said)
    object.__setattr__(op, "manifest", msgspec.structs.replace(op.manifest, registry=extensions))
    return reg


WIDE = {"float32": ToleranceRule(relative=1e-2)}
NONE = {"float32": ToleranceRule(relative=0.0, steps=0.0)}


def test_one_tolerance_is_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the manifest allows is right for compare, test, tune and bench alike; what it forbids is wrong."""
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path))

    def answer(inputs: Any, outputs: Any) -> None:
        outputs["Y"][...] = NUMPY.run("LayerNormalization", **inputs) + np.float32(1e-3)

    case = Case({"X": Tensor((3, 4)), "Scale": Tensor((4,))}, ("Y",))
    for said, right in (({}, False), (WIDE, True), (NONE, False)):
        reg = with_tolerance(said, answer)
        (row,) = (row for row in reg.compare("LayerNormalization", **LN).rows if row.backend == "stranger")
        (outcome,) = conformance.check(reg, "LayerNormalization", case, "stranger")
        benched = reg.bench("LayerNormalization", **LN, backend="stranger").ok
        tuned = reg.tune("LayerNormalization", **LN, backend="stranger").choice is not None
        assert (row.ok, outcome.ok, benched, tuned) == (right,) * 4, said


def test_a_manifest_s_tolerance_may_be_in_steps() -> None:
    near = NUMPY.run("LayerNormalization", **LN)
    off = np.nextafter(np.nextafter(near, np.float32(9)), np.float32(9)) + 0 * near
    strict = {"float32": ToleranceRule(relative=0.0, steps=1.0)}
    assert (
        with_tolerance({"float32": ToleranceRule(relative=0.0, steps=4.0)}, answer_with(off))
        .compare("LayerNormalization", **LN, backend="stranger")
        .ok
    )
    assert (
        not with_tolerance(strict, answer_with(off))
        .compare("LayerNormalization", **LN, backend="stranger")
        .ok
    )


def test_what_is_left_out_is_as_by_default() -> None:
    reg = with_tolerance({"float16": ToleranceRule(steps=3.0)}, None)
    found = tolerances(reg.catalog, reg.op("LayerNormalization"))
    plain = tolerances(reg.catalog, reg.op("BiasAdd"))
    assert (found["float16"].steps, found["float16"].relative) == (3.0, plain["float16"].relative)
    assert found["float32"] == plain["float32"] and plain["float64"].relative == 1e-12


def test_a_package_has_the_tolerance_of_our_op_of_its_name(seeds: Any, shared: Registry) -> None:
    """Unless it has one of its own."""
    import msgspec

    package, op = seeds["BiasAdd"].op, shared.op("BiasAdd")
    kept = package.manifest, op.manifest

    def say(op: Any, said: dict[str, ToleranceRule]) -> None:
        extensions = msgspec.structs.replace(op.manifest.registry, tolerance=said)
        object.__setattr__(op, "manifest", msgspec.structs.replace(op.manifest, registry=extensions))

    try:
        say(op, WIDE)
        assert tolerances(shared.catalog, package)["float32"].relative == 1e-2
        say(package, NONE)
        assert tolerances(shared.catalog, package)["float32"].relative == 0.0
    finally:
        for each, manifest in zip((package, op), kept, strict=True):
            object.__setattr__(each, "manifest", manifest)


def test_a_tolerance_is_read_from_a_file_and_shown(tmp_path: Path) -> None:
    text = (Path(registry_manifests.__file__).parent / "com.microsoft/BiasAdd.yaml").read_text()
    file = tmp_path / "BiasAdd.yaml"
    file.write_text(text.replace("registry:\n", "registry:\n  tolerance: {float16: {steps: 2}}\n", 1))
    assert load_manifest(file).manifest.registry.tolerance["float16"].steps == 2
    file.write_text(text.replace("registry:\n", "registry:\n  tolerance: {int32: {steps: 2}}\n", 1))
    with pytest.raises(ManifestError, match="floating-point dtype"):
        load_manifest(file)
    said = {"tolerance": {"float32": {"relative": 0.5}}}
    folder = write(tmp_path / "package", lambda manifest: manifest.update(registry=said))
    shown = CliRunner().invoke(main, ["op", str(folder)]).stdout
    assert re.search(r"float32 +0.5 +default", shown)


# Rows


def test_the_inputs_of_the_worst_element_are_shown() -> None:
    x = np.arange(2 * 3 * 40, dtype=np.float32).reshape(2, 3, 40)
    scale = np.linspace(1, 2, 40, dtype=np.float32)
    right = np.asarray(NUMPY.run("LayerNormalization", X=x, Scale=scale))
    right[1, 2, 37] += 1
    report = with_stranger(answer_with(right)).compare("LayerNormalization", X=x, Scale=scale)
    (row,) = report.failures
    named = {each.name: each for each in row.inputs}
    assert named["X"].place == "[1, 2, 24:40]" and named["Scale"].place == "[24:40]"
    assert named["X"].values == tuple(x[1, 2, 24:40]) and named["Scale"].values == tuple(scale[24:])
    assert (named["X"].size, named["X"].low, named["X"].high) == (40, x[1, 2].min(), x[1, 2].max())
    assert "X[1, 2, 24:40] = 224" in str(report) and "of 40: 200 to 239" in str(report)
    row_of_json = report.as_dict()["rows"][-1]
    assert row_of_json["inputs"][0]["name"] == "X" and len(row_of_json["inputs"][0]["values"]) == 16


def test_infinities_are_shown() -> None:
    x = np.full((1, 2, 4), 60000, np.float16)
    x[0, 1] = 1
    report = NUMPY.compare("BiasAdd", X=x, bias=x[0, 0], skip=x)
    assert report.ok and {cells[-1] for cells in report.table()} == {"4 of 4 match"}
    surplus = np.full((1, 2, 4), np.inf, np.float16)
    report = with_stranger(answer_with(surplus)).compare("BiasAdd", X=x, bias=x[0, 0], skip=x)
    assert "4 of 4 match, 4 too many" in str(report)


def test_a_line_for_each_backend_is_last() -> None:
    report = with_stranger(answer_with(0)).compare("LayerNormalization", **LN)
    numpy, stranger = str(report).splitlines()[-2:]
    assert numpy.strip().startswith("numpy agrees: 2 results; worst: ")
    assert re.match(r" *stranger fails: 1 of 1 result; worst: only Y, .* times the tolerance", stranger)
    assert [(v.backend, v.ok, v.failed) for v in report.backends] == [
        ("numpy", True, 0),
        ("stranger", False, 1),
    ]


def test_an_output_that_the_reference_does_not_give() -> None:
    reg = with_stranger(answer_with(N4))
    original = reg.catalog.plugins.references["ai.onnx::LayerNormalization"]
    only = lambda tensors, attrs: {"Y": original(tensors, attrs)["Y"]}  # noqa: E731
    reg.catalog.plugins.references["ai.onnx::LayerNormalization"] = only
    report = reg.compare("LayerNormalization", **LN, outputs=("Y", "Mean"), backend="numpy")
    notes = {row.output: row.verdict.note for row in report.rows if row.verdict}
    assert report.ok and "first result" in str(notes["Mean"]) and notes["Y"] is None


# Several cases


def test_cases_that_are_given() -> None:
    calls = [
        {"X": X},
        {"X": X[0], "epsilon": 0.5},
        {"inputs": {"X": X.astype("f8"), "Scale": V.astype("f8")}},
    ]
    report = NUMPY.compare("LayerNormalization", Scale=V, cases=calls[:2], backend="numpy")
    assert report.ok and [case.number for case in report.cases] == [0, 1]
    assert "2 cases" in report.request and "epsilon=0.5" in report.cases[1].request
    assert len(report.rows) == 4 and len(report.table()) == 2
    total = report.totals[0].verdict
    assert total is not None and total.compared == 16
    report = NUMPY.compare("LayerNormalization", cases=calls[2:])
    assert report.ok and report.rows[0].dtype == "float64"
    for wrong, message in (
        ([], "needed: a number, or a sequence"),
        ([1], "a mapping of arguments"),
        (True, "needed: a number"),
        ("text", "needed: a number"),
        ([{"X": X}, {"X": X[0, 0]}], "case 1: ai.onnx::LayerNormalization"),
    ):
        with pytest.raises(ContractError, match=message):
            NUMPY.compare("LayerNormalization", Scale=V, cases=wrong)
    with pytest.raises(ContractError, match="cases=0; needed: an integer of at least 1"):
        NUMPY.compare("LayerNormalization", cases=0)
    with pytest.raises(ContractError, match="cases=2 draws the arguments itself; remove Scale"):
        NUMPY.compare("LayerNormalization", Scale=V, cases=2)


def test_drawn_cases_are_those_of_registry_test(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    original = checks.make_ready

    def spy(registry: Any, op: Any, case: Case, *more: Any) -> Any:
        tried.append(str(case))
        return original(registry, op, case, *more)

    monkeypatch.setattr("registry.conformance.suite.make_ready", spy)
    conformance.run(NUMPY, "LayerNormalization", cases=5, seed=5, checks=["accuracy"])
    report = NUMPY.compare("LayerNormalization", cases=5, seed=5)
    assert [case.drawn for case in report.cases] == tried
    assert all(shlex.split(case.command)[-2:] == ["--case", case.drawn] for case in report.cases)
    assert report.ok and report.seed == 5 and "drawn with seed 5" in report.request


def test_a_case_in_which_nothing_runs_does_not_fail_the_others() -> None:
    reg = with_stranger(answer_with(N4))
    backend = reg.catalog.backend("stranger")
    backend.claims = lambda op: [Claim("only", when=('dtypes.T == "f32"',))]  # type: ignore[method-assign]
    wide = {name: value.astype("f8") for name, value in LN.items()}
    report = reg.compare("LayerNormalization", cases=[LN, wide], backend="stranger")
    assert report.ok and "nothing ran in cases 1" in str(report) and not report.skipped
    assert not reg.compare("LayerNormalization", cases=[wide], backend="stranger").ok


def test_the_command_line_takes_cases(tmp_path: Path) -> None:
    def run(*words: str, code: int = 0) -> Any:
        done = CliRunner().invoke(main, ["compare", "BiasAdd", *words, "--backend", "numpy"])
        assert done.exit_code == code, done.output + done.stderr
        return done

    drawn = str(Case({n: Tensor((1, 2, 4) if n != "bias" else (4,)) for n in ("X", "bias", "skip")}, ("Y",)))
    shapes = ("X=1x2x8", "bias=8", "skip=1x2x8")
    done = run(*shapes, "--case", "X=2x3x5:f16 bias=5:f16 skip=2x3x5:f16", "--case", drawn, "--json")
    found = json.loads(done.stdout)
    assert [case["request"].split("  ")[1][:12] for case in found["cases"]] == [
        "X f32[1, 2, ",
        "X f16[2, 3, ",
        "X f32[1, 2, ",
    ]
    assert found["cases"][2]["drawn"] == drawn and {row["dtype"] for row in found["rows"]} == {
        "float32",
        "float16",
    }
    assert found["backends"][0]["ok"] and "devices" in found["system"]
    page = tmp_path / "page.html"
    done = run("--cases", "2", "--seed", "1", "--html", str(page))
    assert "2 cases, drawn with seed 1" in done.stdout and "numpy agrees: 4 results in 2 cases" in done.stdout
    assert "<html" in page.read_text(encoding="utf-8")
    assert "one or the other" in run("--cases", "2", "--case", "X=2", code=2).output
    assert "cannot be written" in run(*shapes, "--html", str(tmp_path), code=2).stderr
    assert "'unclosed" in run("--case", "X='unclosed", code=2).stderr


# The page


class Links(HTMLParser):
    """Whatever could make a page ask for something, and the texts of its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self.found += [
            f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "srcset", "data", "action")
        ]
        self.found += [f"{tag} {name}" for name, _ in attrs if name.startswith("on")]


def test_the_page_stands_on_its_own() -> None:
    x = X.copy()
    x[0, 0] = np.nan
    report = with_stranger(answer_with(1)).compare("LayerNormalization", cases=[{**LN, "X": x}, LN])
    page = report.html()
    links = Links()
    links.feed(page)
    assert not links.found and not links.tags & {"script", "link", "iframe", "img", "object"}
    assert "url(" not in page and "@import" not in page and "default-src 'none'" in page
    assert {"svg", "rect", "details", "table"} <= links.tags
    for part in ("stranger", "fails", "case 1", "X[", "4 of 4 match", "prefers-color-scheme", "NumPy"):
        assert part in page


def test_the_page_shows_sources_and_decisions(webgpu: Registry) -> None:
    page = webgpu.compare("LayerNormalization", **LN, backend=("webgpu", "numpy"), variant="last_axis").html()
    assert "@compute" in page and "every condition holds" in page and "last_axis, main" in page


def test_the_page_escapes_what_strangers_say() -> None:
    def fail(inputs: Any, outputs: Any) -> None:
        raise RuntimeError("<script>alert(1)</script>")

    page = with_stranger(fail).compare("LayerNormalization", **LN).html()
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert (
        "proves nothing" in Registry([registry_manifests], entry_points=False).compare("BiasAdd", X=X).html()
    )


def test_a_judge_of_touched_elements() -> None:
    """Extreme inputs reach their row and no other."""
    x = X.copy()
    x[1, 0] = np.inf
    extremes = {"X": ~np.isfinite(x), "Scale": np.zeros(4, bool)}
    judge = make_judge(
        NUMPY, NUMPY.op("LayerNormalization"), {"X": x, "Scale": V}, {"axis": -1, "epsilon": 1e-5}, extremes
    )
    assert judge.fair and judge.touched["Y"].any(axis=1).tolist() == [False, True, False]
