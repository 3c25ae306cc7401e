"""Plans, the memo, explicit and automatic choice, the environment, threads, and what import costs."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import registry
from registry import BackendError, ContractError, NoPlanError, Registry, RegistryWarning

X = np.arange(12, dtype=np.float32).reshape(3, 4)
V = np.ones(4, np.float32)
LN = {"X": X, "Scale": V}


def test_automatic_choice_takes_no_software_adapter(webgpu: Registry) -> None:
    status = {s.name: s for s in webgpu.backends()}
    decision = webgpu.explain("LayerNormalization", **LN)
    if status["webgpu"].automatic:
        assert decision.backend == "webgpu"
    else:
        assert decision.backend == "numpy"
        assert decision.rows[0].because == "adapter is hardware"
        assert decision.rows[0].needed == 'a GPU, or backend="webgpu"'


@pytest.mark.parametrize(
    "options",
    [
        {"backend": "webgpu"},
        {"device": "webgpu"},
        {"device": "webgpu:0"},
        {"variant": "last_axis"},
        {"backend": ["webgpu", "numpy"]},
    ],
)
def test_naming_it_accepts_software(webgpu: Registry, options: Any) -> None:
    webgpu.run("LayerNormalization", **LN, **options)
    plan = webgpu.last()
    assert plan is not None and plan.backend == "webgpu"


@pytest.mark.parametrize(
    ("name", "value"), [("REGISTRY_BACKENDS", "webgpu,numpy"), ("REGISTRY_WEBGPU_SOFTWARE", "1")]
)
def test_the_environment_accepts_software(
    webgpu: Registry, fresh: Registry, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    fresh.refresh()
    assert fresh.explain("LayerNormalization", **LN).backend == "webgpu"


def test_the_environment_is_read_once(fresh: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fresh.explain("LayerNormalization", **LN).chosen is not None
    monkeypatch.setenv("REGISTRY_BACKENDS", "numpy")
    assert len({row.backend for row in fresh.explain("LayerNormalization", **LN).rows}) == 2
    fresh.refresh()
    assert {row.backend for row in fresh.explain("LayerNormalization", **LN).rows} == {"numpy"}


def test_an_unknown_backend_is_an_error_everywhere(fresh: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ({"backend": "numpi"}, {"backend": ["numpy", "numpi"]}, {"device": "numpi:0"}):
        with pytest.raises(ContractError, match="did you mean 'numpy'"):
            fresh.run("LayerNormalization", **LN, **wrong)
    with pytest.raises(ContractError, match="no backend 'cuda'"):
        fresh.configure(backends=["cuda"])
    with pytest.raises(ContractError, match="no backend 'cuda'"):
        fresh.configure(options={"cuda": {}})
    monkeypatch.setenv("REGISTRY_BACKENDS", "numpy, cuda")
    fresh.refresh()
    with pytest.raises(ContractError, match="no backend 'cuda'"):
        fresh.run("LayerNormalization", **LN)


def test_a_named_backend_never_falls_back(webgpu: Registry) -> None:
    x = np.zeros((2, 4), np.float64)
    with pytest.raises(NoPlanError) as caught:
        webgpu.run("LayerNormalization", X=x, Scale=np.ones(4), backend="webgpu")
    assert "dtypes.T" in str(caught.value) and "f64" in str(caught.value)
    assert caught.value.decision is not None
    assert {row.backend for row in caught.value.decision.rows} == {"webgpu"}
    webgpu.run("LayerNormalization", X=x, Scale=np.ones(4), backend=["webgpu", "numpy"])
    plan = webgpu.last()
    assert plan is not None and plan.backend == "numpy"


def test_a_named_variant_never_falls_back(webgpu: Registry) -> None:
    with pytest.raises(NoPlanError, match="last_axis_row_vec4"):
        webgpu.run("LayerNormalization", X=X[:, :3], Scale=V[:3], variant="last_axis_row_vec4")
    with pytest.raises(ContractError, match="did you mean 'last_axis_row_vec4'"):
        webgpu.run("LayerNormalization", **LN, variant="last_axis_rov_vec4")


def test_configured_order(fresh: Registry) -> None:
    fresh.configure(backends=["numpy"])
    assert {row.backend for row in fresh.explain("LayerNormalization", **LN).rows} == {"numpy"}
    fresh.run("LayerNormalization", **LN)
    fresh.configure(backends=None)
    assert len({row.backend for row in fresh.explain("LayerNormalization", **LN).rows}) == 2


# Plans and the memo


def test_equal_calls_share_a_plan(fresh: Registry) -> None:
    fresh.run("LayerNormalization", **LN, backend="numpy")
    first = fresh.last()
    fresh.run("LayerNormalization", X=X + 1, Scale=V, backend="numpy")
    assert fresh.last() is first
    for other in (
        {"X": X[:2], "Scale": V},
        {"X": X.astype(np.float64), "Scale": V.astype(np.float64)},
        {**LN, "epsilon": 0.5},
        {**LN, "outputs": ("Y", "Mean")},
        {**LN, "axis": 1},
        {**LN, "axis": 1.0},
    ):
        fresh.run("LayerNormalization", **other, backend="numpy")
        assert fresh.last() is not first


def test_attribute_types_are_part_of_the_key(fresh: Registry) -> None:
    fresh.run("LayerNormalization", **LN, epsilon=1, backend="numpy")
    with pytest.raises(ContractError, match="needed: a number"):
        fresh.run("LayerNormalization", **LN, epsilon=True, backend="numpy")


def test_hundred_equal_calls_render_once(
    webgpu: Registry, fresh: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    import registry_webgpu.backend as backend

    rendered = []
    original = backend.render_variant
    monkeypatch.setattr(backend, "render_variant", lambda *a: rendered.append(1) or original(*a))
    for seed in range(100):
        fresh.run("LayerNormalization", X=X + seed, Scale=V, backend="webgpu")
    device = fresh.catalog.backend("webgpu")._device({})  # type: ignore[attr-defined]
    assert len(rendered) == 1
    assert device.counts["pipelines"] == 1


def test_batch_size_makes_no_new_pipeline(webgpu: Registry, fresh: Registry) -> None:
    for rows in (1, 2, 3, 50, 1000):
        fresh.run(
            "SkipLayerNormalization",
            *[np.ones((rows, 8), np.float32)] * 2,
            np.ones(8, np.float32),
            backend="webgpu",
        )
        fresh.run(
            "LayerNormalization",
            X=np.ones((rows, 8), np.float32),
            Scale=np.ones(1, np.float32),
            backend="webgpu",
        )
    device = fresh.catalog.backend("webgpu")._device({})  # type: ignore[attr-defined]
    assert device.counts["pipelines"] == 2


@pytest.mark.parametrize("backend", ["numpy", "webgpu"])
def test_plans(webgpu: Registry, backend: str) -> None:
    plan = webgpu.prepare("LayerNormalization", **LN, backend=backend)
    assert (plan.backend, plan.decision.backend) == (backend, backend)
    want = webgpu.run("LayerNormalization", X=X * 2, Scale=V, backend=backend)
    np.testing.assert_array_equal(plan(X=X * 2, Scale=V), want)
    np.testing.assert_array_equal(plan(X * 2, V), want)
    out = np.empty_like(X)
    assert plan(x=X * 2, scale=V, out=out) is out
    np.testing.assert_array_equal(out, want)
    for wrong, message in (
        ({"X": X[:2], "Scale": V}, r"made for numpy float32 \[3, 4\]"),
        ({"X": X.astype(np.float16), "Scale": V}, "made for numpy float32"),
        ({"X": X}, "takes X, Scale"),
        ({**LN, "B": V}, "takes X, Scale"),
        ({**LN, "backend": "numpy"}, "settled"),
        ({**LN, "epsilon": 0.5}, "another epsilon"),
        ({**LN, "out": X}, "shared with X"),
        ({**LN, "out": np.empty((4, 3), np.float32)}, r"needed: float32 \[3, 4\]"),
    ):
        with pytest.raises(ContractError, match=message):
            plan(**wrong)


@pytest.mark.parametrize("backend", ["numpy", "webgpu"])
def test_threads(webgpu: Registry, backend: str) -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            x = np.random.default_rng(seed).standard_normal((5, 8)).astype(np.float32)
            want = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
            for _ in range(20):
                got = webgpu.run("LayerNormalization", X=x, Scale=np.ones(8, np.float32), backend=backend)
                np.testing.assert_allclose(got, want, atol=1e-5)
                plan = webgpu.last()
                assert plan is not None and plan.backend == backend
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


@pytest.mark.parametrize("backend", ["numpy", "webgpu"])
@pytest.mark.parametrize(
    ("op", "named", "shapes"),
    [
        (
            "SkipLayerNormalization",
            {"input": (0, 2, 4), "skip": (0, 2, 4), "gamma": (4,)},
            {
                "output": (0, 2, 4),
                "mean": (0, 2, 1),
                "inv_std_var": (0, 2, 1),
                "input_skip_bias_sum": (0, 2, 4),
            },
        ),
        (
            "SkipLayerNormalization",
            {"input": (2, 0, 4), "skip": (0, 4), "gamma": (4,)},
            {"output": (2, 0, 4)},
        ),
        ("BiasAdd", {"X": (0, 2, 4), "bias": (4,), "skip": (0, 2, 4)}, {"Y": (0, 2, 4)}),
        ("BiasAdd", {"X": (1, 4, 0), "bias": (0,), "skip": (1, 4, 0)}, {"Y": (1, 4, 0)}),
        (
            "LayerNormalization",
            {"X": (0, 4), "Scale": (4,)},
            {"Y": (0, 4), "Mean": (0, 1), "InvStdDev": (0, 1)},
        ),
        ("LayerNormalization", {"X": (1, 0, 10), "Scale": (10,)}, {"Y": (1, 0, 10)}),
    ],
)
def test_empty_tensors(webgpu: Registry, backend: str, op: str, named: Any, shapes: Any) -> None:
    tensors = {name: np.zeros(shape, np.float32) for name, shape in named.items()}
    try:
        got = webgpu.run(op, **tensors, outputs=tuple(shapes), backend=backend)
    except NoPlanError:
        assert backend == "webgpu" and op == "SkipLayerNormalization"  # no shader variant for these options
        return
    assert {name: getattr(got, name).shape for name in shapes} == shapes
    if backend == "webgpu":
        first = webgpu.op(op).inputs[0].role
        placed = webgpu.to_device(tensors[first], "webgpu")
        rest = {name: value for name, value in tensors.items() if name != first}
        assert webgpu.run(op, **{first: placed}, **rest).numpy().size == 0


def test_normalised_size_zero_is_refused(shared: Registry) -> None:
    for backend in ("numpy", "webgpu"):
        with pytest.raises(ContractError, match="needed"):
            shared.run(
                "LayerNormalization",
                X=np.zeros((3, 0), np.float32),
                Scale=np.zeros(0, np.float32),
                backend=backend,
            )


def test_a_failing_claim_gives_way_with_a_warning(fresh: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = fresh.catalog.backend("numpy")
    original = numpy.prepare

    def prepare(request: Any, claim: Any, options: Any) -> Any:
        if claim.variant == "blocked":
            raise BackendError("it is broken today", backend="numpy", line=3)
        return original(request, claim, options)

    monkeypatch.setattr(numpy, "prepare", prepare)
    with pytest.warns(RegistryWarning, match="it is broken today; trying the next"):
        fresh.run("LayerNormalization", **LN, backend="numpy")
    plan = fresh.last()
    assert plan is not None and plan.variant == "reference"
    rejected = plan.decision.rejected[-1]
    assert (rejected.variant, rejected.because) == ("blocked", "it could not be prepared")
    with pytest.raises(BackendError, match="it is broken today") as caught:
        fresh.run("LayerNormalization", **LN, variant="blocked")
    assert (caught.value.op, caught.value.variant, caught.value.line) == (
        "ai.onnx::LayerNormalization",
        "blocked",
        3,
    )


def test_import_is_light() -> None:
    heavy = ("wgpu", "cupy", "jinja2", "yaml", "torch")
    code = f"import sys, registry; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]" and not done.stderr


def test_numpy_alone_loads_no_wgpu() -> None:
    code = (
        "import sys, numpy as np, registry\n"
        "x = np.ones((2, 4), np.float32)\n"
        "registry.run('LayerNormalization', X=x, Scale=x[0], backend='numpy')\n"
        "print('wgpu' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False" and not done.stderr


def test_the_module_is_one_shared_registry(default: None) -> None:
    np.testing.assert_array_equal(
        registry.run("LayerNormalization", **LN, backend="numpy"),
        registry.prepare("LayerNormalization", **LN, backend="numpy")(**LN),
    )
    assert {s.name for s in registry.backends()} >= {"numpy", "webgpu"}
    assert len(registry.ops()) >= 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        registry.refresh()


def test_an_isolated_registry_has_nothing_of_its_own() -> None:
    alone = Registry(entry_points=False)
    assert alone.ops() == () and alone.backends() == ()
    with pytest.raises(ContractError, match="ops: none"):
        alone.run("LayerNormalization", **LN)
