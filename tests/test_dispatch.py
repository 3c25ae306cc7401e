"""Plans, the memo, explicit and automatic choice, the environment, threads, and what import costs."""

from __future__ import annotations

import threading
import warnings
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest

import registry
import registry_numpy
from registry import (
    Availability,
    Backend,
    BackendError,
    ContractError,
    NoPlanError,
    Registry,
    RegistryWarning,
    hookimpl,
)
from registry.planning.memo import Memo
from registry.planning.readers import Readers
from registry_webgpu.devices import DEVICES

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
        assert decision.candidates[0].because == "adapter is hardware"
        assert decision.candidates[0].needed == 'a GPU, or backend="webgpu"'


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
    assert len({row.backend for row in fresh.explain("LayerNormalization", **LN).candidates}) == 2
    fresh.refresh()
    assert {row.backend for row in fresh.explain("LayerNormalization", **LN).candidates} == {"numpy"}


def test_the_environment_goes_before_configure(fresh: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_BACKENDS", "webgpu")
    fresh.refresh()
    fresh.configure(backends=["numpy"])
    assert {row.backend for row in fresh.explain("LayerNormalization", **LN).candidates} == {"webgpu"}


def test_zero_in_the_environment_is_no(fresh: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REGISTRY_WEBGPU_SOFTWARE", "REGISTRY_FROZEN"):
        monkeypatch.setenv(name, "0")
    fresh.refresh()
    assert not fresh.catalog.environment.accepts_software("webgpu") and not fresh.catalog.environment.frozen


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
    assert {row.backend for row in caught.value.decision.candidates} == {"webgpu"}
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
    assert {row.backend for row in fresh.explain("LayerNormalization", **LN).candidates} == {"numpy"}
    fresh.run("LayerNormalization", **LN)
    fresh.configure(backends=None)
    assert len({row.backend for row in fresh.explain("LayerNormalization", **LN).candidates}) == 2


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
    for name in (lambda epsilon: {"epsilon": epsilon}, lambda epsilon: {"attrs": {"epsilon": epsilon}}):
        fresh.run("LayerNormalization", **LN, **name(1), backend="numpy")
        with pytest.raises(ContractError, match="needed: a number"):
            fresh.run("LayerNormalization", **LN, **name(True), backend="numpy")


def test_hundred_equal_calls_render_once(
    webgpu: Registry, fresh: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    import registry_webgpu.backend as backend

    rendered = []
    before = DEVICES.get().counts["pipelines"]
    original = backend.render_variant
    monkeypatch.setattr(backend, "render_variant", lambda *a: rendered.append(1) or original(*a))
    x, scale = np.ones((3, 1237), np.float32), np.ones(1237, np.float32)  # a length no other test has
    for seed in range(100):
        fresh.run("LayerNormalization", X=x + seed, Scale=scale, backend="webgpu")
    assert len(rendered) == 1
    assert DEVICES.get().counts["pipelines"] == before + 1


def test_batch_size_makes_no_new_pipeline(webgpu: Registry, fresh: Registry) -> None:
    before = DEVICES.get().counts["pipelines"]
    for rows in (1, 2, 3, 50, 1000):
        fresh.run(
            "SkipLayerNormalization",
            *[np.ones((rows, 2044), np.float32)] * 2,
            np.ones(2044, np.float32),
            backend="webgpu",
        )
        fresh.run(
            "LayerNormalization",
            X=np.ones((rows, 2044), np.float32),
            Scale=np.ones(1, np.float32),
            backend="webgpu",
        )
    assert DEVICES.get().counts["pipelines"] == before + 2


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
        ({**LN, "epsilon": 0.5}, r"epsilon is 0\.5; this plan was made for 1e-05"),
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
    assert rejected.needed == "another variant or backend"
    with pytest.raises(BackendError, match="it is broken today") as caught:
        fresh.run("LayerNormalization", **LN, variant="blocked")
    assert (caught.value.op, caught.value.variant, caught.value.line) == (
        "ai.onnx::LayerNormalization",
        "blocked",
        3,
    )


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


# Keys tell apart whatever changes the answer


@pytest.mark.parametrize("scalar", [np.float32, np.float64, np.array, float])
def test_scalars_of_every_kind_count_by_value(fresh: Registry, scalar: Any) -> None:
    for epsilon in (1e-5, 10.0, 1e-5):
        got = fresh.run("LayerNormalization", **LN, epsilon=scalar(epsilon), backend="numpy")
        want = (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + epsilon)
        np.testing.assert_allclose(got, want, rtol=1e-5)
    axes = [fresh.run("LayerNormalization", X=X, Scale=np.float32(1), axis=np.int64(a)) for a in (1, 0, 1)]
    np.testing.assert_array_equal(axes[0], axes[2])
    assert not np.array_equal(axes[0], axes[1])


def test_rank_0_tensors_may_differ(fresh: Registry) -> None:
    for scale in (1, 2, 1):
        got = fresh.run("LayerNormalization", X=X, Scale=np.array(scale, np.float32), backend="numpy")
        np.testing.assert_allclose(got[0, 3], 1.3416354 * scale, rtol=1e-5)


def test_names_and_order_of_arguments_count(fresh: Registry) -> None:
    """Tensors of one kind under other names; each call once more, when the memo answers."""
    run = partial(fresh.run, "SkipLayerNormalization", backend="numpy")
    n = run(X, X, V)
    two, three = V * 2, V * 3
    plan = fresh.prepare("SkipLayerNormalization", X, X, two, three, backend="numpy")
    for call in (run, run, plan, plan):
        for vectors, named in (
            ((two, three), {}),
            ((two,), {"beta": three}),
            ((), {"gamma": two, "beta": three}),
            ((), {"beta": three, "gamma": two}),
            ((), {"inputs": {"gamma": two, "beta": three}}),
            ((), {"inputs": {"beta": three, "gamma": two}}),
        ):
            np.testing.assert_allclose(call(X, X, *vectors, **named), n * 2 + 3, rtol=1e-5)
    for named in ({"gamma": two, "bias": three}, {"inputs": {"gamma": two, "bias": three}}) * 2:
        shifted = run(X, X, **named)  # all of a row by as much
        np.testing.assert_allclose(shifted, n * 2, rtol=1e-5)


def test_the_memo_lets_the_oldest_go(fresh: Registry) -> None:
    class Op:
        """Stands for that of a package, which lives as long as somebody has it."""

    memo = Memo(Readers(fresh.catalog), size=2)
    first, later = Op(), Op()
    gone = weakref.ref(first)
    for op, rows in ((first, 1), (later, 2), (later, 3)):
        values = (X[:rows],)
        key, _ = memo.find(op, values, {}, values)
        memo.put(key, Any, memo.generation)
    del op, first, key
    assert [memo.find(later, (X[:n],), {}, (X[:n],))[1] for n in (1, 2, 3)] == [None, Any, Any]
    assert gone() is None


def test_names_in_any_collection(fresh: Registry) -> None:
    for outputs in ({"Y"}, {"Y": 1}.keys(), iter(["Y"])):
        (got,) = fresh.run("LayerNormalization", **LN, outputs=outputs, backend="numpy")
        assert isinstance(got, np.ndarray)


def test_a_plan_made_while_settings_change_is_not_kept(fresh: Registry, monkeypatch: Any) -> None:
    numpy = fresh.catalog.backend("numpy")
    original = numpy.prepare

    def prepare(*arguments: Any) -> Any:
        monkeypatch.setattr(numpy, "prepare", original)
        fresh.configure(options={"numpy": {}})
        return original(*arguments)

    monkeypatch.setattr(numpy, "prepare", prepare)
    fresh.run("LayerNormalization", **LN, backend="numpy")
    stale = fresh.last()
    fresh.run("LayerNormalization", **LN, backend="numpy")
    assert fresh.last() is not stale


def test_a_fallback_from_a_lost_device_is_not_remembered(fresh: Registry, monkeypatch: Any) -> None:
    numpy = fresh.catalog.backend("numpy")
    original = numpy.prepare
    lost = [BackendError("gone for a moment", backend="numpy", lost=True)]

    def prepare(*arguments: Any) -> Any:
        if lost:
            raise lost.pop()
        return original(*arguments)

    monkeypatch.setattr(numpy, "prepare", prepare)
    with warnings.catch_warnings(), pytest.raises(NoPlanError, match="gone for a moment") as caught:
        warnings.simplefilter("error", RegistryWarning)  # there is no next candidate to warn of
        fresh.run("LayerNormalization", **LN, backend="numpy")
    assert isinstance(caught.value.__cause__, BackendError)
    fresh.run("LayerNormalization", **LN, backend="numpy")


def test_settings_are_set_one_by_one(fresh: Registry) -> None:
    fresh.configure(backends=["numpy"])
    fresh.configure(options={"webgpu": {}})
    assert {row.backend for row in fresh.explain("LayerNormalization", **LN).candidates} == {"numpy"}
    with pytest.raises(ContractError, match=r"webgpu has no option 'divice' \(did you mean 'device'"):
        fresh.configure(options={"webgpu": {"divice": "1"}})
    with pytest.raises(ContractError, match="needed: a mapping by name"):
        fresh.configure(options={"webgpu": 3})  # type: ignore[dict-item]
    with pytest.raises(ContractError, match="leaves no backend"):
        fresh.configure(backends=[])


def test_options_last_until_they_are_set_anew() -> None:
    class Told(Backend):
        name = "told"
        option_names = ("device", "mode")

        def probe(self, options: Any) -> Availability:
            return Availability(True, name=options.get("mode", "unset"))

    class plugin:
        @hookimpl
        def registry_backends() -> Any:  # type: ignore[misc]
            return [Told()]

    reg = Registry([registry_numpy, plugin], entry_points=False)

    def device() -> str:
        return next(status.device for status in reg.backends() if status.name == "told")

    assert device() == "unset"
    reg.configure(options={"told": {"mode": "fast"}})
    assert device() == "fast"
    reg.configure(options={"numpy": {}})
    assert device() == "fast"
    reg.configure(options={"told": {}})
    assert device() == "unset"


def test_what_a_backend_raises_while_running(fresh: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(inputs: Any, outputs: Any) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(fresh.catalog.backend("numpy"), "prepare", lambda *arguments: run)
    with pytest.raises(BackendError, match="LayerNormalization numpy blocked: ZeroDivisionError") as caught:
        fresh.run("LayerNormalization", **LN, backend="numpy")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    "wrong",
    [
        {"backend": 5}, {"backend": [5]}, {"device": 5}, {"variant": 5}, {"inputs": [X]}, {"attrs": "axis"},
        {"profile": "webgpu"}, {"profile": {"webgpu": {}}, "backend": "numpy"}, {"epsilon": 10**400},
        {"stash_type": 10**400}, {"outputs": 5}, {"backend": []},
    ],
)  # fmt: skip
def test_options_of_the_wrong_kind(shared: Registry, wrong: Any) -> None:
    with pytest.raises(ContractError):
        shared.explain("LayerNormalization", **LN, **wrong)


def test_more_of_the_wrong_kind(shared: Registry) -> None:
    for op in (None, 5, [1], b"BiasAdd"):
        with pytest.raises(ContractError, match="named by text"):
            shared.run(op, X)  # type: ignore[arg-type]
    with pytest.raises(ContractError, match="device is 5"):
        shared.to_device(X, 5)  # type: ignore[arg-type]
    assert shared.op("BiasAdd") is shared.op("com.microsoft.BiasAdd")


def test_the_device_of_the_tensors_decides(webgpu: Registry, fresh: Registry) -> None:
    """A caller's device without float16 is asked about float16, not the default device."""
    wgpu = pytest.importorskip("wgpu")
    plain = wgpu.gpu.enumerate_adapters_sync()[0].request_device_sync(label="plain")
    half = {"X": X.astype(np.float16), "Scale": V.astype(np.float16)}
    assert fresh.explain("LayerNormalization", **half, backend="webgpu").chosen is not None
    fresh.configure(options={"webgpu": {"device": plain}})
    tensor = fresh.to_device(half["X"], "webgpu")
    fresh.configure(options={"webgpu": {}})
    named = {"X": tensor, "Scale": half["Scale"], "variant": "last_axis_row_vec4"}
    decision = fresh.explain("LayerNormalization", **named)
    assert decision.chosen is None and "f16Ok(dtypes.T)" in str(decision)


def test_a_refresh_leaves_prepared_plans_on_their_device(webgpu: Registry, fresh: Registry) -> None:
    x, scale = fresh.to_device(X, "webgpu"), fresh.to_device(V, "webgpu")
    out = fresh.empty(X.shape, "float32", "webgpu")
    plan = fresh.prepare("LayerNormalization", X=x, Scale=scale)
    want = plan(X=x, Scale=scale).numpy()
    fresh.refresh()
    assert plan(X=x, Scale=scale, out=out) is out
    np.testing.assert_array_equal(out.numpy(), want)
    np.testing.assert_array_equal(fresh.run("LayerNormalization", X=x, Scale=scale).numpy(), want)


@pytest.mark.parametrize(
    "call",
    [
        lambda r: r.run("LayerNormalization", **LN, inputs={1: X}),
        lambda r: r.run("LayerNormalization", **LN, attrs={1: 2}),
        lambda r: r.configure(backends=5),
        lambda r: r.configure(backends=[[]]),
        lambda r: r.configure(options=5),
        lambda r: r.load(5),
        lambda r: r.empty((2,), 5, "webgpu"),
        lambda r: r.empty(2, "float32", "webgpu"),
        lambda r: r.explain("LayerNormalization", **LN, profile={}),
        lambda r: r.run("LayerNormalization", **LN, epsilon=ENDLESS),
        lambda r: r.run("LayerNormalization", **LN, out=ENDLESS),
        lambda r: r.prepare("LayerNormalization", **LN, backend="numpy")(**LN, epsilon=np.array([1.0, 2.0])),
    ],
)
def test_calls_of_the_wrong_kind(fresh: Registry, call: Any) -> None:
    with pytest.raises(ContractError):
        call(fresh)


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


def test_outputs_that_do_not_fit_memory(fresh: Registry) -> None:
    x = np.broadcast_to(np.float32(1), (10**7, 10**7))
    with pytest.raises(BackendError, match="does not fit memory"):
        fresh.run("LayerNormalization", X=x, Scale=np.ones(1, np.float32), backend="numpy")


def test_the_largest_epsilon_is_the_same_everywhere(webgpu: Registry) -> None:
    largest = 3.4028235e38
    named = {"input": X, "skip": X, "gamma": V, "epsilon": largest}
    assert webgpu.explain("SkipLayerNormalization", **named, backend="webgpu").chosen is not None
    assert np.abs(webgpu.run("SkipLayerNormalization", **named, backend="webgpu")).max() < 1e-17
