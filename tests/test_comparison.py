"""Comparing backends: what passes, what fails and how it is said, and what a comparison cannot hide."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import registry_manifests
import registry_numpy
from registry import (
    Availability,
    Backend,
    BackendError,
    Claim,
    ContractError,
    Predicate,
    Registry,
    hookimpl,
)
from registry.comparing import text

HEADER = text.HEADER
X = np.arange(12, dtype=np.float32).reshape(3, 4)
V = np.ones(4, np.float32)
LN = {"X": X, "Scale": V}
N4 = (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + np.float32(1e-5))


class Stranger(Backend):
    """Writes what ``answer`` makes of the right result."""

    name = "stranger"

    def __init__(self, answer: Any):
        self.answer = answer

    def claims(self, op: Any) -> Any:
        return [Claim("only")]

    def prepare(self, request: Any, claim: Any, options: Any) -> Any:
        def run(inputs: Any, outputs: Any) -> None:
            self.answer(inputs, outputs)

        return run


def plugin(*backends: Backend, **hooks: Any) -> Any:
    made = {"registry_backends": lambda: backends, **hooks}
    return SimpleNamespace(__name__="stranger", **{name: hookimpl(hook) for name, hook in made.items()})


def with_stranger(answer: Any, **hooks: Any) -> Registry:
    return Registry(
        [registry_manifests, registry_numpy, plugin(Stranger(answer), **hooks)], entry_points=False
    )


def rows(report: Any, backend: str) -> Any:
    return [row for row in report.rows if row.backend == backend]


# What passes


@pytest.mark.parametrize(
    ("op", "shapes", "outputs"),
    [
        ("LayerNormalization", {"X": (2, 3, 8), "Scale": (8,)}, ("Y", "Mean", "InvStdDev")),
        ("LayerNormalization", {"X": (2, 3, 7), "Scale": (1,), "B": (7,)}, ("Y",)),
        (
            "SkipLayerNormalization",
            {"input": (6, 8), "skip": (6, 8), "gamma": (8,), "beta": (8,), "bias": (8,)},
            ("output", "input_skip_bias_sum"),
        ),
        ("BiasAdd", {"X": (2, 3, 8), "bias": (8,), "skip": (2, 3, 8)}, ("Y",)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_eligible_variant_is_run_and_judged(
    webgpu: Registry, op: str, shapes: Any, outputs: tuple[str, ...], dtype: str
) -> None:
    draw = np.random.default_rng(0)
    call = {name: draw.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    report = webgpu.compare(op, **call, outputs=outputs)
    assert report.ok and report.against == "the float64 reference"
    eligible = [
        (row.backend, row.variant)
        for row in webgpu.explain(op, **call, outputs=outputs, backend=["webgpu", "numpy"]).eligible
    ]
    expected = [(*candidate, output) for candidate in eligible for output in outputs]
    assert [(row.backend, row.variant, row.output) for row in report.rows] == expected
    assert {"webgpu", "numpy"} <= {row.backend for row in report.rows} or dtype == "float16"
    for row in report.rows:
        assert row.verdict is not None and row.verdict.compared > 0 and not row.error
    names = [variant for variant in webgpu.op(op).variants if ("webgpu", variant) not in eligible]
    assert {name for backend, name, _ in report.skipped if backend == "webgpu"} == set(names)
    assert all(reason for _, _, reason in report.skipped)


def test_an_empty_tensor_passes_and_says_so(shared: Registry) -> None:
    report = shared.compare("LayerNormalization", X=X[:0], Scale=V, outputs=("Y", "Mean"))
    assert report.ok and len(report.rows) >= 4
    for row in report.rows:
        assert row.verdict is not None
        assert (row.verdict.compared, row.verdict.note) == (0, "0 elements compared")
    assert {cells[HEADER.index("compared")] for cells in report.table()} == {"0"}


def test_nan_is_counted(shared: Registry) -> None:
    x = X.copy()
    x[1, 2] = np.nan
    report = shared.compare("LayerNormalization", X=x, Scale=V, backend="numpy")
    assert report.ok
    for row in report.rows:
        assert row.verdict is not None
        assert (row.verdict.nan_actual, row.verdict.nan_expected, row.verdict.nan_matching) == (4, 4, 4)
        assert row.verdict.compared == 8
    assert {cells[HEADER.index("NaN")] for cells in report.table()} == {"4 of 4 match"}
    assert "4 of 4 match" in str(report)


# What is considered


def test_backends_and_variants_can_be_named(webgpu: Registry) -> None:
    report = webgpu.compare("LayerNormalization", **LN, backend="numpy")
    assert {row.backend for row in report.rows} == {"numpy"} and not report.skipped
    report = webgpu.compare("LayerNormalization", **LN, backend=("numpy", "webgpu"))
    assert next(row.backend for row in report.rows) == "numpy"
    report = webgpu.compare("LayerNormalization", **LN, variant="last_axis")
    assert [(row.backend, row.variant) for row in report.rows] == [("webgpu", "last_axis")]
    report = webgpu.compare("LayerNormalization", **LN, device="webgpu:0")
    assert {row.backend for row in report.rows} == {"webgpu"} and report.ok
    for wrong, message in (
        ({"backend": "numpi"}, "did you mean 'numpy'"),
        ({"variant": "last_axes"}, "did you mean 'last_axis"),
        ({"backend": "numpy", "device": "webgpu:0"}, "belongs to backend 'webgpu'"),
        ({"outputs": "Z"}, "no output 'Z'"),
        ({"out": np.empty_like(X)}, "compare allocates its own outputs"),
        ({"profile": {"webgpu": {}}}, "profile"),
        ({"epsilon": -1.0}, "epsilon is -1"),
    ):
        with pytest.raises(ContractError, match=message):
            webgpu.compare("LayerNormalization", **LN, **wrong)


@pytest.mark.parametrize("pair", [{"X": ((3, 4), "float32")}, {"Scale": ((4,), "float32")}])
def test_pairs_are_no_data(shared: Registry, pair: Any) -> None:
    with pytest.raises(ContractError, match=r"pair; .* needs an array"):
        shared.compare("LayerNormalization", **{**LN, **pair})


@pytest.mark.parametrize("kind", ["mixed", "all"])
def test_device_tensors_are_compared_too(webgpu: Registry, kind: str) -> None:
    call = {
        "X": webgpu.to_device(X, "webgpu"),
        "Scale": webgpu.to_device(V, "webgpu") if kind == "all" else V,
    }
    report = webgpu.compare("LayerNormalization", **call, outputs=("Y", "Mean", "InvStdDev"))
    assert report.ok
    assert {row.backend for row in report.rows} == {"numpy", "webgpu"}
    np.testing.assert_array_equal(call["X"].numpy(), X)


def test_names_positions_and_mappings(shared: Registry) -> None:
    for report in (
        shared.compare("LayerNormalization", X, V, backend="numpy"),
        shared.compare("LayerNormalization", inputs=LN, backend="numpy", attrs={"epsilon": 0.5}),
        shared.compare("ai.onnx::LayerNormalization", x=X, scale=V, b=None, backend="numpy", axis=-1),
    ):
        assert report.ok and [row.variant for row in report.rows] == ["blocked", "reference"]


def test_nothing_that_ran_is_no_success(webgpu: Registry) -> None:
    wide = {name: value.astype(np.float64) for name, value in LN.items()}
    report = webgpu.compare("LayerNormalization", **wide, backend="webgpu")
    assert not report.rows and not report.ok and not report.as_dict()["ok"]
    assert any("f64" in reason for _, _, reason in report.skipped)
    assert "skipped: webgpu" in str(report)
    report = Registry([registry_manifests], entry_points=False).compare("LayerNormalization", **LN)
    assert not report.rows and not report.ok


# What fails


def answer_with(value: Any) -> Any:
    def answer(inputs: Any, outputs: Any) -> None:
        outputs["Y"][...] = value

    return answer


def test_one_wrong_element_is_named() -> None:
    wrong = N4.copy()
    wrong[1, 2] += 0.25
    report = with_stranger(answer_with(wrong)).compare("LayerNormalization", **LN)
    assert not report.ok and all(row.ok for row in rows(report, "numpy"))
    (row,) = rows(report, "stranger")
    verdict = row.verdict
    assert verdict is not None and not row.ok
    assert (verdict.worst, verdict.compared) == ((1, 2), 12)
    assert verdict.worst_actual == pytest.approx(wrong[1, 2])
    assert verdict.worst_expected == pytest.approx(N4[1, 2])
    assert verdict.max_abs == pytest.approx(0.25, rel=1e-4)
    text = str(report)
    for part in ("FAILS", "[1, 2]", f"{wrong[1, 2]:.5f}", f"{N4[1, 2]:.5f}", "1 of 12 elements"):
        assert part in text


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (np.nan, "NaN on one side only"),
        (np.inf, "infinity on one side only"),
        (0, "times the tolerance"),
        (N4 * (1 + 1e-5), "times the tolerance"),
    ],
)
def test_wrong_numbers(value: Any, why: str) -> None:
    report = with_stranger(answer_with(value)).compare("LayerNormalization", **LN)
    (row,) = rows(report, "stranger")
    assert not report.ok and row.verdict is not None and why in (row.verdict.reason or "")


def test_the_last_digits_may_differ() -> None:
    report = with_stranger(answer_with(N4 + np.float32(1e-6))).compare("LayerNormalization", **LN)
    assert report.ok


def test_an_untouched_output_fails() -> None:
    """A kernel that does not write must not pass because its memory happens to hold the right numbers."""
    report = with_stranger(lambda inputs, outputs: None).compare("LayerNormalization", **LN)
    assert not rows(report, "stranger")[0].ok
    zeros = with_stranger(lambda inputs, outputs: None).compare("LayerNormalization", X=X * 0, Scale=V)
    assert not rows(zeros, "stranger")[0].ok  # nor because fresh memory is often zero


def test_one_wrong_output_among_several() -> None:
    def answer(inputs: Any, outputs: Any) -> None:
        outputs["Y"][...] = N4
        outputs["Mean"][...] = X.mean(-1, keepdims=True)
        outputs["InvStdDev"][...] = 0

    report = with_stranger(answer).compare("LayerNormalization", **LN, outputs=("InvStdDev", "Y", "Mean"))
    assert [(row.output, row.ok) for row in rows(report, "stranger")] == [
        ("InvStdDev", False),
        ("Y", True),
        ("Mean", True),
    ]
    assert not report.ok


def test_a_variance_that_overflowed_is_found() -> None:
    x = np.array([[500, -500, 500, -500]], np.float16)
    seven = np.full(4, 7, np.float16)
    report = with_stranger(answer_with(7)).compare("LayerNormalization", X=x, Scale=V.astype("f2"), B=seven)
    (row,) = rows(report, "stranger")
    assert (
        not row.ok
        and row.verdict is not None
        and row.verdict.worst_expected in (pytest.approx(8), pytest.approx(6))
    )
    assert all(row.ok for row in rows(report, "numpy"))


def test_an_infinity_is_not_the_largest_number() -> None:
    x = np.full((1, 1, 4), 60000, np.float16)
    call = {"X": x, "bias": x[0, 0], "skip": x}
    assert with_stranger(answer_with(np.inf)).compare("BiasAdd", **call).ok
    assert not with_stranger(answer_with(60000)).compare("BiasAdd", **call).ok
    top = with_stranger(answer_with(65504)).compare("BiasAdd", **call)
    assert rows(top, "stranger")[0].verdict is not None


class Elsewhere:
    """A tensor of a backend whose memory is its own."""

    def __init__(self, array: np.ndarray):
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype.name


class Careless(Stranger):
    """Keeps tensors of its own and hands back what it likes when they are read."""

    def owns(self, array: object) -> bool:
        return isinstance(array, Elsewhere)

    def place(self, array: Any, options: Any) -> Any:
        return Elsewhere(array)

    def empty(self, shape: Any, dtype: Any, device: Any, options: Any) -> Any:
        return Elsewhere(np.zeros(shape, dtype))

    def host(self, tensor: Any) -> Any:
        return self.answer(tensor.array)

    def prepare(self, request: Any, claim: Any, options: Any) -> Any:
        def run(inputs: Any, outputs: Any) -> None:
            outputs["Y"].array[...] = N4

        return run


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda array: array, None),
        (lambda array: array.astype(np.float64), "dtype float64, expected float32"),
        (lambda array: array.astype(np.float16), "dtype float16, expected float32"),
        (lambda array: array.astype(object), "dtype object, expected float32"),
        (lambda array: array[:1], "shape [1, 4], expected [3, 4]"),
        (lambda array: array.T, "shape [4, 3], expected [3, 4]"),
        (lambda array: array[None], "shape [1, 3, 4], expected [3, 4]"),
        (lambda array: array[:0], "shape [0, 4], expected [3, 4]"),
    ],
)
def test_a_result_of_another_form_fails(answer: Any, reason: str | None) -> None:
    backend = Careless(lambda array: array)
    reg = Registry([registry_manifests, registry_numpy, plugin(backend)], entry_points=False)
    tensor = reg.to_device(X, "stranger")
    backend.answer = lambda array: array if array is tensor.array else answer(array)
    report = reg.compare("LayerNormalization", X=tensor, Scale=V, backend="stranger")
    (row,) = report.rows
    assert row.verdict is not None and row.verdict.reason == reason
    assert report.ok == (reason is None)
    if reason:
        assert reason in str(report)


def test_outputs_lie_on_the_device_that_is_named() -> None:
    placed: list[Any] = []

    class Several(Careless):
        def place(self, array: Any, options: Any) -> Any:
            placed.append(options.get("device"))
            return Elsewhere(array)

    reg = Registry(
        [registry_manifests, registry_numpy, plugin(Several(lambda array: array))], entry_points=False
    )
    report = reg.compare("LayerNormalization", **LN, device="stranger:1")
    assert report.ok and set(placed) == {"1"}
    assert report.system["devices"]["stranger"] == {"name": "stranger"}


@pytest.mark.parametrize(
    "error",
    [
        BackendError("the driver gave up", backend="stranger"),
        RuntimeError("the driver gave up"),
        ZeroDivisionError("the driver gave up"),
    ],
)
@pytest.mark.parametrize("when", ["running", "preparing"])
def test_a_failure_is_a_row(error: Exception, when: str) -> None:
    def fail(*_: Any) -> Any:
        raise error

    backend: Any = Stranger(fail)
    if when == "preparing":
        backend.prepare = fail
    reg = Registry([registry_manifests, registry_numpy, plugin(backend)], entry_points=False)
    report = reg.compare("LayerNormalization", **LN, outputs=("Y", "Mean"))
    found = rows(report, "stranger")
    assert not report.ok and [row.output for row in found] == ["Y", "Mean"]
    assert all(row.verdict is None and "the driver gave up" in row.error for row in found)
    assert all(row.ok for row in rows(report, "numpy"))
    assert "failed" in str(report) and "the driver gave up" in str(report)


def test_a_backend_that_is_out_is_skipped_with_its_reason() -> None:
    class Absent(Stranger):
        def probe(self, options: Any) -> Availability:
            return Availability(False, "the library is installed", "not found", "pip install it")

    class Picky(Stranger):
        name = "picky"

        def claims(self, op: Any) -> Any:
            return [
                Claim("only", when=(Predicate("rank is 7", "7", lambda request, device: "2"), "ranks.X == 7"))
            ]

    reg = Registry(
        [registry_manifests, registry_numpy, plugin(Absent(None), Picky(None))], entry_points=False
    )
    report = reg.compare("LayerNormalization", **LN)
    assert report.ok and {row.backend for row in report.rows} == {"numpy"}
    assert ("picky", "only", "rank is 7: 2") in report.skipped
    report = reg.compare("LayerNormalization", **LN, backend=["stranger", "numpy"])
    assert ("stranger", "only", "the library is installed: not found") in report.skipped


# Without a reference


@pytest.mark.parametrize(
    ("value", "ok"), [(N4, True), (N4 + np.float32(1e-6), True), (N4 + np.float32(1e-3), False)]
)
def test_without_a_reference_backends_are_held_against_each_other(value: Any, ok: bool) -> None:
    reg = with_stranger(answer_with(value))
    reg.catalog.plugins.references.clear()
    report = reg.compare("LayerNormalization", **LN)
    assert report.against == "the first result: no reference is known for ai.onnx::LayerNormalization"
    assert report.against in str(report)
    assert report.ok is ok and rows(report, "numpy")[0].ok
    assert rows(report, "stranger")[0].ok is ok


def test_a_single_result_without_a_reference_was_held_against_nothing() -> None:
    """One result that agrees with itself proves nothing, so the report must not call it a success."""
    reg = with_stranger(answer_with(123))
    reg.catalog.plugins.references.clear()
    report = reg.compare("LayerNormalization", **LN, backend="stranger")
    assert not report.ok or "itself" in str(report) or "alone" in str(report)


def test_a_strangers_reference_judges_its_op() -> None:
    from registry.judging.accuracy import Expected

    def reference(tensors: Any, attrs: Any) -> Any:
        value = np.full(tensors["X"].shape, 123.0)
        return {"Y": Expected(value, np.abs(value), np.ones(()))}

    reg = with_stranger(answer_with(123))
    reg.catalog.plugins.references["ai.onnx::LayerNormalization"] = reference
    report = reg.compare("LayerNormalization", **LN)
    assert [row.ok for row in report.rows] == [False, False, True]


# The report


def test_the_report_is_plain_data() -> None:
    x = X.copy()
    x[0, 0] = np.nan
    report = with_stranger(answer_with(np.inf)).compare("LayerNormalization", X=x, Scale=V, outputs="Y")
    data = json.loads(json.dumps(report.as_dict()))
    assert data["ok"] is False and data["against"] == "the float64 reference"
    assert data["request"].startswith("ai.onnx::LayerNormalization")
    assert [row["ok"] for row in data["rows"]] == [True, True, False]
    row = data["rows"][-1]
    assert (row["backend"], row["variant"], row["output"]) == ("stranger", "only", "Y")
    assert len(row["worst"]) == 2 and row["nan_expected"] == 4 and row["inf_actual"] == 12
    assert all(
        {"error", "reason", "compared", "max_abs", "max_ulp"} <= entry.keys() for entry in data["rows"]
    )


def test_the_report_is_json_for_strict_readers(shared: Registry) -> None:
    """Infinity and NaN are no JSON numbers: other languages refuse them."""
    data = with_stranger(answer_with(np.nan)).compare("LayerNormalization", **LN).as_dict()
    json.dumps(data, allow_nan=False)


def test_the_printed_table_is_aligned(shared: Registry) -> None:
    lines = str(shared.compare("LayerNormalization", **LN, backend="numpy")).splitlines()
    assert lines[1].strip() == "against the float64 reference"
    start = lines[2].index("verdict")
    assert [line[start:].startswith("ok") for line in lines[3:6]] == [True, True, False]
