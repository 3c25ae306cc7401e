"""The second implementation of WebGPU, Dawn: how it is chosen, what it guards, every source under Tint."""

from __future__ import annotations

import gc
import re
import sys
import threading
from typing import Any

import numpy as np
import pytest
from conftest import TEMPLATES
from forms import FORMS, check
from grid import DTYPES, HIDDEN, VARIANTS, cases, device, forms_of

import registry_manifests
import registry_numpy
import registry_webgpu
from registry import BackendError, ContractError, NoPlanError, Registry
from registry_webgpu.adapter import adapters
from registry_webgpu.devices import DEVICES
from registry_webgpu.implementations import IMPLEMENTATIONS

X = np.array([[[10, 20, 30, 40]]], np.float32)
BIAS = np.array([1, 2, 3, 4], np.float32)
F16 = "the adapter has no shader-f16: Tint compiles this in test_every_source_compiles, wgpu runs it"


def on_dawn(**options: Any) -> Registry:
    reg = Registry([registry_manifests, registry_numpy, registry_webgpu], entry_points=False)
    reg.configure(options={"webgpu": {"implementation": "dawn", **options}})
    return reg


@pytest.fixture(scope="module")
def dawn() -> Registry:
    """A registry on Dawn, where wgpudawn and an adapter for it are at hand."""
    reg = on_dawn()
    status = next(s for s in reg.backends() if s.name == "webgpu")
    if not status.available:
        pytest.skip(f"no Dawn: {status.because}: {status.found}")
    return reg


@pytest.fixture(scope="module")
def bare(dawn: Registry) -> Registry:
    """The same on a device of the caller's that has no optional feature, subgroups least of all."""
    adapter = adapters(IMPLEMENTATIONS["dawn"])[0]
    return on_dawn(device=adapter.request_device_sync(required_limits=dict(adapter.limits)))


def bias_add(reg: Registry, x: Any = X, **named: Any) -> Any:
    return reg.run("BiasAdd", X=x, bias=BIAS, skip=np.ones_like(X), backend="webgpu", **named)


# Choosing


def test_an_unknown_implementation_is_an_error(fresh: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ContractError, match=r"implementation is 'dwan' \(did you mean 'dawn'\?\); needed: wgpu or"
    ):
        fresh.configure(options={"webgpu": {"implementation": "dwan"}})
    monkeypatch.setenv("REGISTRY_WEBGPU_IMPLEMENTATION", "tint")
    fresh.infer("BiasAdd", X=X, bias=BIAS, skip=X)  # read once: the variable came later
    fresh.refresh()
    with pytest.raises(ContractError, match="REGISTRY_WEBGPU_IMPLEMENTATION is 'tint'; needed: wgpu or dawn"):
        fresh.run("BiasAdd", X=X, bias=BIAS, skip=X)
    monkeypatch.delenv("REGISTRY_WEBGPU_IMPLEMENTATION")
    fresh.refresh()
    assert fresh.run("BiasAdd", X=X, bias=BIAS, skip=X).shape == X.shape


def test_a_missing_package_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wgpudawn", None)
    reg = on_dawn()
    status = next(s for s in reg.backends() if s.name == "webgpu")
    assert (status.available, status.because, status.found) == (False, "wgpudawn is installed", "not found")
    assert status.needed == "pip install 'kernel-registry[dawn]'"
    assert reg.explain("BiasAdd", X=X, bias=BIAS, skip=X).backend == "numpy"
    with pytest.raises(NoPlanError, match="wgpudawn is installed"):
        reg.run("BiasAdd", X=X, bias=BIAS, skip=X, device="webgpu:dawn")


def test_the_environment_comes_before_the_option(dawn: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_WEBGPU_IMPLEMENTATION", "dawn")
    reg = on_dawn()
    reg.configure(options={"webgpu": {"implementation": "wgpu"}})
    assert reg.catalog.availability("webgpu").details["implementation"] == "dawn"


def test_both_in_one_process(webgpu: Registry, dawn: Registry) -> None:
    """A device's name says which implementation is meant, and their tensors stay apart."""
    here = webgpu.catalog.availability("webgpu", "webgpu:dawn")
    assert here.details["implementation"] == "dawn"
    assert webgpu.catalog.availability("webgpu").details["implementation"] == "wgpu"
    want = X + BIAS + 1
    first = webgpu.to_device(X, "webgpu")
    second = webgpu.to_device(X, "webgpu:dawn")
    assert (first.device, second.device) == ("webgpu:0", "webgpu:dawn:0")
    for tensor in (first, second):
        got = webgpu.run("BiasAdd", X=tensor, bias=BIAS, skip=np.ones_like(X))
        assert got.device == tensor.device
        np.testing.assert_array_equal(got.numpy(), want)
    explained = [webgpu.explain("BiasAdd", X, BIAS, X, device=d) for d in ("webgpu", "webgpu:dawn")]
    assert [decision.notes for decision in explained] == [(), ("webgpu is dawn here",)]
    with pytest.raises(ContractError, match="several devices: webgpu:0, webgpu:dawn:0"):
        webgpu.run("BiasAdd", X=first, bias=BIAS, skip=second)
    np.testing.assert_array_equal(bias_add(dawn), want)
    assert dawn.to_device(X, "webgpu").device == "webgpu:dawn:0"


def test_the_callers_device_says_which_it_is(dawn: Registry, bare: Registry) -> None:
    mine = bare.catalog.options("webgpu")["device"]
    reg = Registry([registry_manifests, registry_numpy, registry_webgpu], entry_points=False)
    reg.configure(options={"webgpu": {"device": mine}})
    assert reg.catalog.availability("webgpu").details["implementation"] == "dawn"
    tensor = reg.to_device(X, "webgpu")
    assert tensor.device.startswith("webgpu:dawn:own-")
    result = bias_add(reg, tensor)
    assert result.device == tensor.device
    np.testing.assert_array_equal(result.numpy(), X + BIAS + 1)


# Guards


def test_a_broken_shader_names_its_line(dawn: Registry, seeds: Any, tmp_path: Any) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    manifest = folder / "manifest.json"
    manifest.write_text((seeds["BiasAdd"].op.package.folder / "manifest.json").read_text())
    text = (TEMPLATES / "bias-add.wgsl.jinja").read_text()
    for added, message in (
        ("fn broken() -> u32 { return 1.5f; }", "WGSL line [0-9]+: `fn broken"),
        (f"fn deep() -> f32 {{ return {'(' * 3000}1.0{')' * 3000}; }}", "nests over 256 brackets"),
        (f"fn deep() -> f32 {{ return {'(' * 200}1.0{')' * 200}; }}", "maximum parser recursive depth"),
    ):
        (folder / "bias-add.wgsl.jinja").write_text(f"{text}\n{added}\n")
        with pytest.raises(BackendError, match=message) as caught:
            dawn.load(folder)(X=X, bias=BIAS, skip=X, variant="vec4")
        assert "While calling" not in str(caught.value) and caught.value.variant == "vec4"
    np.testing.assert_array_equal(bias_add(dawn), X + BIAS + 1)


def test_a_lost_device_is_opened_anew(dawn: Registry) -> None:
    from wgpudawn.backends.dawn import extras

    want = bias_add(dawn)
    tensor = dawn.to_device(X, "webgpu")
    DEVICES.get("dawn")._gpu.destroy()
    with pytest.raises(BackendError, match=r"BiasAdd webgpu \w+: .*lost") as caught:
        bias_add(dawn)
    assert caught.value.lost
    gc.collect()  # of a failed upload's frames ended the process once
    np.testing.assert_array_equal(bias_add(dawn), want)
    with pytest.raises(BackendError, match="lost"):
        tensor.numpy()
    # Once Dawn has reported a loss it is silent: work on device tensors is told at the next read-back.
    tensor = dawn.to_device(X, "webgpu")
    gpu = DEVICES.get("dawn")._gpu
    gpu.destroy()
    extras.process_events()
    result = bias_add(dawn, tensor)
    with pytest.raises(BackendError, match="lost") as caught:
        result.numpy()
    assert caught.value.lost
    np.testing.assert_array_equal(bias_add(dawn), want)


def test_batches_and_uploads_keep_their_order(dawn: Registry) -> None:
    rows = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    tensor, scale = dawn.to_device(rows, "webgpu"), dawn.to_device(BIAS, "webgpu")
    plan = dawn.prepare("LayerNormalization", X=tensor, Scale=scale)
    want = plan(X=tensor, Scale=scale).numpy()
    counts = DEVICES.get("dawn").counts
    before = counts["submits"]
    with dawn.batch():
        chain = [plan(X=tensor, Scale=scale) for _ in range(4)]
        assert counts["submits"] == before
    assert counts["submits"] == before + 1
    assert all((result.numpy() == want).all() for result in chain)
    with dawn.batch():
        kept = plan(X=tensor, Scale=scale)
        tensor.release()
        others = [plan(X=dawn.to_device(rows * 0, "webgpu"), Scale=scale) for _ in range(8)]
    np.testing.assert_array_equal(kept.numpy(), want)
    assert all((other.numpy() == 0).all() for other in others)


def test_large_tensors_come_back_in_pieces(dawn: Registry) -> None:
    """More than the staging buffer holds, and more than one upload between submissions."""
    x = np.arange(5_000_000 * 4, dtype=np.float32).reshape(1, -1, 4) % 1024
    got = dawn.run("BiasAdd", X=x, bias=BIAS, skip=np.ones_like(x), backend="webgpu")
    np.testing.assert_array_equal(got, x + BIAS + 1)


def test_threads_on_two_devices(dawn: Registry, bare: Registry) -> None:
    """wgpudawn has one list of errors for all devices: a call must not meet another thread's."""
    homes = [
        DEVICES.get(reg.catalog.options("webgpu").get("device"), IMPLEMENTATIONS["dawn"])
        for reg in (dawn, bare)
    ]
    assert homes[0] is not homes[1] and homes[0].lock is homes[1].lock  # so rare that only this tells
    failures: list[str] = []

    def work(reg: Registry, home: Any) -> None:
        for turn in range(20):
            x = X + turn
            if (bias_add(reg, x) != x + BIAS + 1).any():
                failures.append(f"{home.location}: wrong result")
            try:
                home.pipeline(f"fn main() -> u32 {{ return {turn}.5f; }}", (), "broken")
            except BackendError:
                continue
            failures.append(f"{home.location}: a broken shader was taken")

    threads = [threading.Thread(target=work, args=pair) for pair in zip((dawn, bare), homes, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# Every source, and variants that run


@pytest.mark.dawn
@pytest.mark.parametrize("op", FORMS)
def test_every_source_compiles(tint: Any, op: str) -> None:
    """Tint takes every source, float16 and subgroups too, whatever this machine's adapters have."""
    devices = [device("dawn", subgroups, software) for subgroups, software in ((True, True), (False, False))]
    limit = tint.limits["max-storage-buffers-per-shader-stage"]
    compiled = 0
    for case in cases(op, [(hidden, here) for hidden in HIDDEN for here in devices]):
        try:
            module = tint.create_shader_module(code=case.source, label="wgsl")
            if case.source.count("var<storage") <= limit:
                stage = {"module": module, "entry_point": "main"}
                tint.create_compute_pipeline(layout="auto", compute=stage)
        except IMPLEMENTATIONS["dawn"].api.GPUError as error:
            pytest.fail(f"{op} {case.call}: {error}\n{case.source}")
        compiled += 1
    assert compiled >= len(HIDDEN)


FAMILY = re.compile(
    r"(wide_|split_|)(rows|stats_mean|stats_inv|stats_both)"
    r"(_plain|_residual|_bias|_beta|_stats|_mean_only|_inv_std_dev_only)*"
)


def at_the_ends(variants: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Of each family, whose variants differ in their optional tensors, those with the fewest and the most.

    Tint compiles them all, and wgpu runs them all."""
    families: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for op, variant in variants:
        member = FAMILY.fullmatch(variant)
        families.setdefault((op, member[1] if member else variant), []).append((op, variant))
    return [pair for family in families.values() for pair in dict.fromkeys((family[0], family[-1]))]


RUN = at_the_ends(VARIANTS)


@pytest.mark.dawn
@pytest.mark.parametrize(("op", "variant"), RUN, ids=[variant for _, variant in RUN])
def test_variant(dawn: Registry, bare: Registry, op: str, variant: str) -> None:
    """Right results with subgroups, and without where that makes another source."""
    form = forms_of(op)[variant][0]
    sizes = ((3, 8), (3, 7), (3, 1), (65, 33), (2, 1000), (1, 4097))
    calls = {dtype: [form.call(*size, dtype) for size in sizes] for dtype in DTYPES}
    ran: set[str] = set()
    wanted: set[str] = set()
    for dtype in set(DTYPES) & set(dawn.op(op).manifest.type_constraints["T"]):
        for call in filter(None, calls[dtype]):
            pinned = {**call, "backend": "webgpu", "variant": variant}
            if dawn.explain(op, **pinned, profile={"webgpu": {"features": ["shader-f16"]}}).chosen:
                wanted.add(dtype)
            if dawn.explain(op, **pinned).chosen is None:
                continue
            ran.add(dtype)
            check(dawn, op, call, "webgpu", variant)
            if bare.render(op, **pinned) != dawn.render(op, **pinned):
                check(bare, op, call, "webgpu", variant)
    if wanted == {"float16"} and not ran:
        pytest.skip(F16)
    assert ran >= wanted - {"float16"} and ran
