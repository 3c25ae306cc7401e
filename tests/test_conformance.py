"""Conformance: what conforms passes, what is wrong is caught, shrunk and shown again by one line."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from test_cli import complaint, invoke, json_of
from test_package import write

import registry_manifests
import registry_numpy
from registry import Backend, Claim, ContractError, Registry, RegistryError, conformance, hookimpl
from registry.calling.request import Request
from registry.conformance import Case, Tensor, read_case
from registry.hookspecs import Executable
from registry.judging.accuracy import round_to
from registry.opinfo import Op
from registry_numpy.backend import NumpyBackend

LN = "ai.onnx::LayerNormalization"
BIAS_ADD = "com.microsoft::BiasAdd"
OPS = (
    BIAS_ADD,
    LN,
    "ai.onnx::RMSNormalization",
    "ai.onnx::SimplifiedLayerNormalization",
    "com.microsoft::SkipLayerNormalization",
    "com.microsoft::SkipSimplifiedLayerNormalization",
)
quiet = hypothesis.settings(
    max_examples=25, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
)


@pytest.mark.parametrize("op", OPS)
def test_every_op_conforms(shared: Registry, op: str) -> None:
    report = conformance.run(shared, op, cases=8, seed=3)
    assert report.ok, report
    assert (report.legal, report.illegal) == (8, 8)
    available = {status.name for status in shared.backends() if status.available}
    assert {backend.backend for backend in report.backends} == available
    numpy = next(backend for backend in report.backends if backend.backend == "numpy")
    assert numpy.requests == 8 and dict(numpy.variants) == {"blocked": 8, "reference": 8}
    assert all(0 <= ulp < 20 for backend in report.backends for ulp in backend.worst.values())


def test_one_seed_one_run(shared: Registry) -> None:
    first, again, other = (conformance.run(shared, LN, cases=6, seed=s, backend="numpy") for s in (1, 1, 2))
    assert first == again
    assert first.backends != other.backends


# Backends that are wrong


Wrong = Callable[[Mapping[str, Any], Mapping[str, Any]], None]


def plugin(fault: Wrong, op: str = BIAS_ADD, **settings: Any) -> Any:
    """A plugin with a backend called ``wrong``: NumPy's reference with a fault put in afterwards."""
    reference = NumpyBackend()

    class Faulty(Backend):
        name = "wrong"

        def claims(self, target: Op) -> Sequence[Claim]:
            return [Claim("only")] if target.id == op else []

        def prepare(self, request: Request, claim: Claim, options: Mapping[str, Any]) -> Executable:
            right = reference.prepare(request, Claim("reference"), options)

            def run(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
                right(inputs, outputs)
                fault(inputs, outputs)

            return run

    class Plugin:
        @hookimpl
        def registry_backends(self) -> list[Backend]:
            backend = Faulty()
            for name, value in settings.items():
                setattr(backend, name, value)
            return [backend]

    return Plugin()


def registry_with(*plugins: object) -> Registry:
    return Registry([registry_manifests, registry_numpy, *plugins], entry_points=False)


def adds(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    outputs["Y"][...] += outputs["Y"].dtype.type(1e-3)


def sums_in_half(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    outputs["Y"][...] = round_to(inputs["X"] + inputs["bias"], "float16") + inputs["skip"]


def overwrites_an_input(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    if inputs["skip"].flags.writeable:
        inputs["skip"][...] = 0


def wrong_at_odd_lengths(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    if outputs["Y"].shape[-1] % 2 and outputs["Y"].shape[-1] > 1:
        outputs["Y"][..., -1] = 7


class Counting:
    """Every run adds one more than the last."""

    runs = 0

    def __call__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        self.runs += 1
        outputs["Y"].reshape(-1)[:1] *= outputs["Y"].dtype.type(1 + self.runs % 2)


def fails(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    raise ZeroDivisionError("no luck")


FAULTS: dict[str, tuple[Wrong, str]] = {
    "adds": (adds, "times the tolerance"),
    "sums in half": (sums_in_half, "times the tolerance"),
    "overwrites an input": (overwrites_an_input, "the input skip was modified"),
    "odd lengths": (wrong_at_odd_lengths, "times the tolerance"),
    "fails": (fails, "ZeroDivisionError: no luck"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_backend_is_caught_and_its_line_shows_it_again(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fault, reason = FAULTS[name]
    faulty = registry_with(plugin(fault))
    monkeypatch.setattr("registry.commands.conformance.shared", lambda: faulty)
    found = invoke("test", "BiasAdd", "--backend", "wrong", "--cases", "15", code=1).stdout
    (line,) = [text.strip() for text in found.splitlines() if text.strip().startswith("registry test")]
    words = shlex.split(line)
    assert words[-4:] == ["--backend", "wrong", "--variant", "only"]
    replayed = invoke(*words[1:], code=1).stdout
    assert reason in found and reason in replayed and line in replayed
    # Shrunk: nothing is left in the case that does not matter.
    case = read_case(words[4])
    assert case.seed < 100 and not case.out
    assert case.inputs["X"].shape == ((1, 1, 3) if name == "odd lengths" else (1, 1, 1))


def test_results_that_change_from_run_to_run() -> None:
    report = conformance.run(registry_with(plugin(Counting())), BIAS_ADD, cases=10, backend="wrong")
    assert not report.ok and report.failures[0].backend == "wrong"


def test_the_right_backends_are_not_blamed() -> None:
    report = conformance.run(registry_with(plugin(adds)), BIAS_ADD, cases=10)
    assert [failure.backend for failure in report.failures] == ["wrong"]
    assert {backend.backend for backend in report.backends} == {"wrong", "numpy"}


@pytest.mark.parametrize("promised", [False, True])
def test_nan_is_noted_where_it_is_not_promised(promised: bool) -> None:
    def clean(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        np.nan_to_num(outputs["Y"], copy=False)

    def clean_and_spoil(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        clean(inputs, outputs)
        outputs["Y"][0] = 9

    case = Case({"X": Tensor((6, 8), special="nan"), "Scale": Tensor((8,))}, ("Y",), seed=4)
    assert not np.isnan(case.arrays()["X"][0]).any()
    (outcome,) = conformance.check(
        registry_with(plugin(clean, LN, extremes_promised=promised)), LN, case, "wrong"
    )
    assert outcome.ok is not promised
    assert len(outcome.notes) == (not promised)
    # A row that no NaN reaches is judged all the same.
    spoilt = registry_with(plugin(clean_and_spoil, LN, extremes_promised=promised))
    assert not conformance.replay(spoilt, LN, case, "wrong").ok


def test_what_is_legal_must_not_pass_as_illegal(shared: Registry) -> None:
    tensor = Tensor((1, 2, 3))
    case = Case({"X": tensor, "bias": Tensor((3,)), "skip": tensor}, ("Y",), broken="it is not")
    report = conformance.replay(shared, BIAS_ADD, case)
    assert not report.ok
    assert "it was not refused, although it is not" in str(report)


# Packages


def test_a_package_is_tested_by_what_its_variants_accept(webgpu: Registry, tmp_path: Path) -> None:
    found = json_of("test", str(write(tmp_path)), "--cases", "6")
    (backend,) = found["backends"]
    assert found["ok"] and found["illegal"] == 6
    assert set(backend["variants"]) == {"one_pass", "two_passes"}


def test_two_kernels_of_a_package_that_disagree(webgpu: Registry, tmp_path: Path) -> None:
    from test_package import TEMPLATES

    spoilt = TEMPLATES["grid.wgsl.jinja"].replace("scaled[i] = x[i]", "scaled[i] = 2.0 * x[i]")
    write(tmp_path, grid=spoilt)
    found = json_of("test", str(tmp_path), "--cases", "12", code=1)
    (failure,) = found["failures"]
    assert failure["variant"] == "two_passes" and failure["op"] == str(tmp_path)
    # Alone it has nothing to be judged by; beside the other one it has.
    assert not json_of("test", str(tmp_path), "--case", json.dumps(failure["case"]), code=1)["ok"]


# Cases as data


@pytest.mark.parametrize("op", OPS)
def test_cases_come_back_from_their_text(shared: Registry, op: str) -> None:
    @quiet
    @hypothesis.given(conformance.legal(shared, op), conformance.illegal(shared, op))
    def there_and_back(legal: Case, illegal: Case) -> None:
        assert read_case(str(legal)) == legal
        assert str(read_case(str(illegal))) == str(illegal)  # NaN is not equal to itself
        assert illegal.broken and not legal.broken
        for name, array in legal.arrays().items():
            again = read_case(str(legal)).arrays()[name]
            assert (array.tobytes(), array.strides, array.dtype) == (
                again.tobytes(),
                again.strides,
                again.dtype,
            )

    there_and_back()


def test_layouts_are_what_they_say() -> None:
    arrays = {
        layout: Case({"X": Tensor((3, 4), layout=layout)}, ("Y",)).arrays()["X"]
        for layout in ("plain", "strided", "reversed", "transposed", "swapped", "read-only")
    }
    assert all(np.array_equal(array, arrays["plain"]) for array in arrays.values())
    assert arrays["strided"].strides == (32, 8)
    assert arrays["reversed"].strides == (16, -4)
    assert arrays["transposed"].strides == (4, 12)
    assert not arrays["swapped"].dtype.isnative
    assert not arrays["read-only"].flags.writeable


def test_elements_are_what_they_say() -> None:
    def elements(**made: Any) -> Any:
        return Case({"X": Tensor((50, 40), **made)}, ("Y",)).arrays()["X"].astype(np.float64)

    far = elements(centre=10000.0, spread=1e-3)
    assert abs(far.mean() - 10000) < 1e-3 and 0 < far.std() < 2e-3
    assert np.isfinite(elements(dtype="float16", spread=1e5)).all()
    assert len(np.unique(elements(special="constant"))) == 1
    assert 0 < np.abs(elements(special="subnormal")).max() < np.finfo(np.float32).smallest_normal
    holes = np.isnan(elements(special="nan")).any(axis=1)
    assert holes.any() and not holes.all()
    assert (elements(special="-inf") == -np.inf).any()
    assert set(np.unique(elements(dtype="bool"))) == {0, 1}


NO_CASE = {
    "no JSON": ("{", "cannot be read"),
    "a list": ("[]", "Expected `object`"),
    "no outputs": ('{"inputs":{}}', "missing required field `outputs`"),
    "unknown field": ('{"inputs":{},"outputs":["Y"],"input":{}}', "unknown field `input`"),
    "dtype": ('{"inputs":{"X":{"shape":[1],"dtype":"f7"}},"outputs":["Y"]}', "X is 'f7'; needed: one of"),
    "shape": ('{"inputs":{"X":{"shape":[-1]}},"outputs":["Y"]}', r"X has shape \[-1\]"),
    "size": ('{"inputs":{"X":{"shape":[65536,65536]}},"outputs":["Y"]}', "at most 268435456 elements"),
    "spread": ('{"inputs":{"X":{"shape":[1],"spread":NaN}},"outputs":["Y"]}', "finite"),
    "seed": ('{"inputs":{},"outputs":["Y"],"seed":-1}', "at least 0"),
    "again": ('{"inputs":{},"outputs":["Y"],"again":["X"]}', "not among its inputs"),
}


@pytest.mark.parametrize("text, message", NO_CASE.values(), ids=NO_CASE.keys())
def test_what_is_no_case(text: str, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        read_case(text)


# The command


def test_the_command_prints_a_table_and_what_was_not_exercised() -> None:
    found = invoke(
        "test", "SkipLayerNormalization", "--backend", "numpy", "--cases", "3", "--seed", "7"
    ).stdout
    assert "3 legal and 3 illegal requests, seed 7" in found
    assert "every illegal request was refused" in found
    one = json_of("test", "LayerNormalization", "--backend", "numpy", "--variant", "blocked", "--cases", "2")
    (backend,) = one["backends"]
    assert backend["variants"] == {"blocked": 2} and one["ok"] and one["seed"] == 0


def test_variants_that_nothing_reached_are_named(webgpu: Registry) -> None:
    report = conformance.run(webgpu, LN, cases=1, backend="webgpu")
    (backend,) = report.backends
    assert len(backend.unexercised) + len(backend.variants) == len(webgpu.op(LN).variants)
    assert f"not exercised: webgpu {backend.unexercised[0]}, " in str(report)


WRONG_CALLS = {
    "op": (("NoSuchOp",), "no op 'NoSuchOp'"),
    "backend": (("BiasAdd", "--backend", "nmpy"), "did you mean 'numpy'"),
    "variant": (("BiasAdd", "--variant", "blokced"), "no variant 'blokced'"),
    "case": (("BiasAdd", "--case", "{}"), "cannot be read"),
    "illegal": (("BiasAdd", "--case", '{"inputs":{},"outputs":["Y"]}'), "required input X is missing"),
}


@pytest.mark.parametrize("arguments, message", WRONG_CALLS.values(), ids=WRONG_CALLS.keys())
def test_wrong_calls_of_the_command(arguments: tuple[str, ...], message: str) -> None:
    assert message in complaint("test", *arguments)


# Without hypothesis


def test_only_drawing_needs_hypothesis(shared: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("registry.conformance.s")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(RegistryError, match=r"pip install 'kernel-registry\[conformance\]'"):
        conformance.run(shared, LN)
    case = Case({"X": Tensor((2, 8)), "Scale": Tensor((8,))}, ("Y",))
    assert conformance.replay(shared, LN, case, "numpy").ok


@pytest.mark.parametrize(
    "modules, absent", [("registry", "registry.conformance"), ("registry.cli", "hypothesis")]
)
def test_nothing_of_it_is_loaded_before_it_is_used(modules: str, absent: str) -> None:
    code = f"import sys, {modules}; assert {absent!r} not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("cases", [0, -1, "x", None])
def test_no_case_is_no_success(cases: Any) -> None:
    with pytest.raises(ContractError, match="at least 1"):
        conformance.run(Registry(), "BiasAdd", cases=cases)
