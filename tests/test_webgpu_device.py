"""The WebGPU backend beyond the numbers: failing shaders, lost devices, buffers, batches, limits."""

from __future__ import annotations

import gc
import multiprocessing
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TEMPLATES
from forms import FORMS

from registry import BackendError, ContractError, NoPlanError, Registry, RegistryWarning
from registry.dtypes import numpy_dtype
from registry_webgpu.devices import DEVICES

SLN = "com.microsoft::SkipLayerNormalization"
V = np.ones(4, np.float32)
BIAS = np.array([1, 2, 3, 4], np.float32)


def bias_add(reg: Any, x: np.ndarray, bias: np.ndarray = BIAS, **named: Any) -> Any:
    return reg.run("BiasAdd", X=x, bias=bias, skip=np.ones_like(x), backend="webgpu", **named)


def device_of(reg: Registry) -> Any:
    return DEVICES.get()


# float16 with an odd number of elements


def test_odd_float16(webgpu: Registry) -> None:
    x = np.arange(1, 10, dtype=np.float16).reshape(1, 3, 3)
    bias = np.array([0.5, 0.25, 0.125], np.float16)
    got = webgpu.run("BiasAdd", X=x, bias=bias, skip=x, backend="webgpu")
    want = [[[2.5, 4.25, 6.125], [8.5, 10.25, 12.125], [14.5, 16.25, 18.125]]]
    np.testing.assert_array_equal(got, np.array(want, np.float16))
    got = webgpu.run("LayerNormalization", X=x[0], Scale=np.ones(3, np.float16), backend="webgpu")
    np.testing.assert_allclose(got.astype(float), [[-1.2247, 0, 1.2247]] * 3, atol=1e-3)
    padded = np.full((2, 3, 3), 7, np.float16)
    webgpu.run("BiasAdd", X=x, bias=bias, skip=x, backend="webgpu", out=padded[:1])
    np.testing.assert_array_equal(padded[0], np.array(want[0], np.float16))
    assert (padded[1] == 7).all()
    tensor = webgpu.to_device(x, "webgpu")
    result = webgpu.run("BiasAdd", X=tensor, bias=bias, skip=x)
    assert result.size == 9
    np.testing.assert_array_equal(result.numpy(), np.array(want, np.float16))


def test_many_rows(webgpu: Registry) -> None:
    rows = 65537
    x = (np.arange(rows) % 5)[:, None] + np.arange(4)
    got = webgpu.run("LayerNormalization", X=x.astype(np.float32), Scale=V, backend="webgpu")
    want = [-1.34163542, -0.44721181, 0.44721181, 1.34163542]
    np.testing.assert_allclose(got, np.broadcast_to(want, (rows, 4)), atol=2e-6)
    for rows in (1048577, 4194241):
        zeros = np.zeros((1, rows, 4), np.float32)
        got = webgpu.run("BiasAdd", X=zeros, bias=BIAS, skip=zeros + 1, backend="webgpu")
        assert (got == BIAS + 1).all()


# Shaders that fail


BREAKAGES: dict[str, tuple[Callable[[str], str], str]] = {
    "syntax error": (lambda text: text.replace("fn main(", "fn main(("), "WGSL line"),
    "unknown binding": (
        lambda text: text.replace("params.count", "parameters.count"),
        "parameters",
    ),
    "workgroup too large": (
        lambda text: re.sub(r"@workgroup_size\(.*\)", "@workgroup_size(2048)", text),
        "2048",
    ),
    "deep nesting": (
        lambda text: text + f"fn deep() -> f32 {{ return {'(' * 3000}1.0{')' * 3000}; }}\n",
        "nests over 256 brackets",
    ),
    "an endless statement": (
        lambda text: text + f"const LONG: f32 = {'1.0 + ' * 14000}1.0;\n",
        "one statement has over",
    ),
    "undefined name": (
        lambda text: text + "// {{ nothing_of_that_name + 1 }}\n",
        "nothing_of_that_name",
    ),
    "template syntax": (lambda text: text + "{% if %}", "bias-add.wgsl.jinja"),
    "attribute access": (
        lambda text: text + "// {{ shapes.__class__.__mro__[0] }}\n",
        "bias-add.wgsl.jinja",
    ),
}


@pytest.mark.parametrize("case", BREAKAGES.values(), ids=BREAKAGES.keys())
def test_a_broken_template_never_gives_an_answer(
    webgpu: Registry, seeds: Any, tmp_path: Path, case: Any
) -> None:
    change, message = case
    good = seeds["BiasAdd"]
    shutil.copytree(Path(good.op.file).parent, tmp_path / "broken")
    template = tmp_path / "broken/bias-add.wgsl.jinja"
    text = template.read_text()
    template.write_text(change(text))
    assert template.read_text() != text
    x = np.array([[[10, 20, 30, 40]]], np.float32)
    before = good(X=x, bias=BIAS, skip=x)
    broken = webgpu.load(tmp_path / "broken")
    for _ in range(2):
        with pytest.raises(BackendError, match=message) as caught:
            broken(X=x + 1, bias=BIAS, skip=x, variant="vec4")
        assert (caught.value.op, caught.value.backend, caught.value.variant) == (
            "com.microsoft::BiasAdd",
            "webgpu",
            "vec4",
        )
    with (
        pytest.warns(RegistryWarning, match="trying the next candidate"),
        pytest.raises(NoPlanError, match=message),
    ):
        broken(X=x + 1, bias=BIAS, skip=x)
    np.testing.assert_array_equal(good(X=x, bias=BIAS, skip=x), before)


def test_the_line_is_told(webgpu: Registry, seeds: Any, tmp_path: Path) -> None:
    shutil.copytree(Path(seeds["BiasAdd"].op.file).parent, tmp_path / "broken")
    template = tmp_path / "broken/bias-add.wgsl.jinja"
    template.write_text(template.read_text() + "\nfn broken() -> u32 { return 1.5f; }\n")
    x = np.ones((1, 1, 4), np.float32)
    with pytest.raises(BackendError) as caught:
        webgpu.load(tmp_path / "broken")(X=x, bias=BIAS, skip=x, variant="vec4")
    assert "`fn broken() -> u32 { return 1.5f; }`" in str(caught.value)
    assert caught.value.line is not None and caught.value.line > 1


# Devices


def test_a_lost_device_is_opened_anew(webgpu: Registry, fresh: Registry) -> None:
    x = np.array([[[10, 20, 30, 40]]], np.float32)
    want = bias_add(fresh, x)
    tensor = fresh.to_device(x, "webgpu")
    device_of(fresh)._gpu.destroy()
    with pytest.raises(BackendError, match=r"BiasAdd webgpu wide: .*lost") as caught:
        bias_add(fresh, x)
    assert caught.value.lost
    np.testing.assert_array_equal(bias_add(fresh, x), want)
    with pytest.raises(BackendError, match="lost"):
        tensor.numpy()
    with pytest.raises(BackendError, match="X is a tensor of another device, or of one that was lost"):
        fresh.run("BiasAdd", X=tensor, bias=BIAS, skip=x)


def test_a_forked_child_says_so_instead_of_hanging(webgpu: Registry) -> None:
    """Driver threads do not survive a fork; the child must not wait for them."""
    x = np.array([[[10, 20, 30, 40]]], np.float32)
    want = bias_add(webgpu, x)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()

    def child() -> None:
        try:
            bias_add(webgpu, x)
            queue.put("ran")
        except BackendError as error:
            webgpu.refresh()
            chosen = webgpu.explain("BiasAdd", x, BIAS, x).backend
            queue.put((chosen, str(error)))

    process = context.Process(target=child, daemon=True)
    process.start()
    try:
        chosen, message = queue.get(timeout=60)
    finally:
        process.join(10)
        process.kill()
    assert chosen == "numpy" and "'spawn'" in message
    np.testing.assert_array_equal(bias_add(webgpu, x), want)


def test_the_callers_device_is_used_and_left_alone(webgpu: Registry, fresh: Registry) -> None:
    wgpu = pytest.importorskip("wgpu")
    mine = wgpu.gpu.enumerate_adapters_sync()[0].request_device_sync(label="mine")
    fresh.configure(options={"webgpu": {"device": mine}})
    x = np.array([[[10, 20, 30, 40]]], np.float32)
    np.testing.assert_array_equal(bias_add(fresh, x), x + BIAS + 1)
    assert device_of_options(fresh, mine)._gpu is mine
    tensor = fresh.to_device(x, "webgpu")
    assert tensor.device.startswith("webgpu:own-")
    result = fresh.run("BiasAdd", X=tensor, bias=BIAS, skip=x)
    assert result.device == tensor.device
    np.testing.assert_array_equal(result.numpy(), x + x + BIAS)
    bias, before = fresh.to_device(BIAS, "webgpu"), tensor.home.counts["submits"]
    fresh.run("BiasAdd", X=tensor, bias=bias, skip=tensor)
    assert tensor.home.counts["submits"] == before + 1  # at once: the caller's own work may come next
    fresh.configure(options={"webgpu": {}})
    fresh.refresh()
    assert mine.create_buffer(size=16, usage=wgpu.BufferUsage.STORAGE) is not None


def device_of_options(reg: Registry, device: Any) -> Any:
    return DEVICES.get(device)


def test_devices_by_name(webgpu: Registry) -> None:
    status = next(s for s in webgpu.backends() if s.name == "webgpu")
    part = status.device.split()[0].upper()
    x = np.ones((1, 1, 4), np.float32)
    want = bias_add(webgpu, x)
    np.testing.assert_array_equal(bias_add(webgpu, x, device=f"webgpu:{part}"), want)
    with pytest.raises(NoPlanError, match="no adapter 'nothing like this'"):
        bias_add(webgpu, x, device="webgpu:nothing like this")
    with pytest.raises(NoPlanError, match="no adapter '99'"):
        bias_add(webgpu, x, device="webgpu:99")


# Device tensors


def test_device_tensors_stay(webgpu: Registry) -> None:
    x = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)
    scale = np.ones(8, np.float32)
    want = webgpu.run("LayerNormalization", X=x, Scale=scale, backend="webgpu")
    tensor = webgpu.to_device(x, "webgpu")
    got = webgpu.run("LayerNormalization", X=tensor, Scale=scale)
    assert got.device == "webgpu:0" and got.shape == (5, 8) and got.dtype == "float32"
    np.testing.assert_array_equal(got.numpy(), want)
    twice = webgpu.run("LayerNormalization", X=got, Scale=webgpu.to_device(scale, "webgpu"))
    np.testing.assert_allclose(twice.numpy(), want, atol=1e-4)
    out = webgpu.empty((5, 8), "float32", "webgpu")
    assert webgpu.run("LayerNormalization", X=tensor, Scale=scale, out=out) is out
    np.testing.assert_array_equal(out.numpy(), want)
    host = np.empty((5, 8), np.float32)
    webgpu.run("LayerNormalization", X=tensor, Scale=scale, out=host)
    np.testing.assert_array_equal(host, want)
    with pytest.raises(ContractError, match="never overwrite inputs"):
        webgpu.run("LayerNormalization", X=tensor, Scale=scale, out=tensor)


def test_a_named_backend_moves_tensors_and_says_so(webgpu: Registry) -> None:
    x = np.ones((2, 4), np.float64)
    tensor = webgpu.to_device(x, "webgpu")
    with pytest.raises(NoPlanError, match='backend="numpy" to move them through the host'):
        webgpu.run("LayerNormalization", X=tensor, Scale=x[0])
    got = webgpu.run("LayerNormalization", X=tensor, Scale=x[0], backend="numpy")
    assert got.device == "webgpu:0" and got.dtype == "float64"
    plan = webgpu.last()
    assert plan is not None and "through the host" in plan.decision.notes[0]
    with pytest.raises(NoPlanError, match="tensors stay on their device"):  # a list is automatic within
        webgpu.run("LayerNormalization", X=tensor, Scale=x[0], backend=["numpy"])


def test_released_tensors(webgpu: Registry) -> None:
    tensor = webgpu.to_device(np.ones((2, 4), np.float32), "webgpu")
    tensor.release()
    tensor.release()
    with pytest.raises(ContractError, match="released"):
        tensor.numpy()
    with pytest.raises(ContractError, match="released"):
        webgpu.run("LayerNormalization", X=tensor, Scale=V)


def test_batches(webgpu: Registry) -> None:
    x = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    tensor, scale = webgpu.to_device(x, "webgpu"), webgpu.to_device(V, "webgpu")
    plan = webgpu.prepare("LayerNormalization", X=tensor, Scale=scale)
    want = tensor
    for _ in range(5):
        want = plan(X=want, Scale=scale)
    before = device_of(webgpu).counts["submits"]
    with webgpu.batch():
        got = tensor
        for _ in range(5):
            got = plan(X=got, Scale=scale)
        assert device_of(webgpu).counts["submits"] == before
    assert device_of(webgpu).counts["submits"] == before + 1
    np.testing.assert_array_equal(got.numpy(), want.numpy())
    for _ in range(2):  # the inner one is part of the outer one, and leaves no trace
        before = device_of(webgpu).counts["submits"]
        with webgpu.batch():
            with webgpu.batch():
                plan(X=tensor, Scale=scale)
            plan(X=tensor, Scale=scale)
            assert device_of(webgpu).counts["submits"] == before
        assert device_of(webgpu).counts["submits"] == before + 1
    with webgpu.batch(), webgpu.batch():
        inside = plan(X=tensor, Scale=scale).numpy()  # reading back flushes
    np.testing.assert_array_equal(inside, plan(X=tensor, Scale=scale).numpy())
    with pytest.raises(RuntimeError, match="mine"), webgpu.batch():
        kept = plan(X=tensor, Scale=scale)
        raise RuntimeError("mine")
    np.testing.assert_array_equal(kept.numpy(), inside)


def test_a_failure_names_what_goes_down_with_it(webgpu: Registry) -> None:
    def broken(recorder: Any) -> None:
        raise RuntimeError("it cannot be recorded")

    zeros = np.zeros((1, 1, 4), np.float32)
    x, bias, y = (webgpu.to_device(array, "webgpu") for array in (zeros + 1, BIAS, zeros))
    home = device_of(webgpu)
    home.flush()
    lost = r"recorded and not run: com.microsoft::BiasAdd wide\)"
    with pytest.raises(BackendError, match=lost), webgpu.batch():
        webgpu.run("BiasAdd", X=x, bias=bias, skip=x, out=y)
        home.record("broken", broken)
    assert not y.numpy().any()
    webgpu.run("BiasAdd", X=x, bias=bias, skip=x, out=y)
    np.testing.assert_array_equal(y.numpy(), zeros + 2 + BIAS)


def test_work_goes_out_after_some_operations(webgpu: Registry) -> None:
    tensor, scale = (webgpu.to_device(np.ones(4, np.float32), "webgpu") for _ in range(2))
    plan = webgpu.prepare("LayerNormalization", X=tensor, Scale=scale)
    before = device_of(webgpu).counts["submits"]
    for _ in range(40):
        plan(X=tensor, Scale=scale)
    assert 2 <= device_of(webgpu).counts["submits"] - before <= 4


def test_uploads_do_not_overtake_recorded_work(webgpu: Registry) -> None:
    """A buffer that recorded work still reads must not be written by a later upload."""
    first = np.full((3, 4), 1, np.float32) * BIAS
    tensor = webgpu.to_device(first, "webgpu")
    plan = webgpu.prepare("LayerNormalization", X=tensor, Scale=V)
    want = plan(X=tensor, Scale=V).numpy()
    with webgpu.batch():
        got = plan(X=tensor, Scale=V)
        tensor.release()
        others = [webgpu.to_device(np.zeros((3, 4), np.float32), "webgpu") for _ in range(8)]
        again = [plan(X=other, Scale=V * 3) for other in others]
    np.testing.assert_array_equal(got.numpy(), want)
    assert all((a.numpy() == 0).all() for a in again)


def test_over_the_binding_limit(webgpu: Registry, seeds: Any) -> None:
    limit = webgpu.catalog.availability("webgpu").device["limits"]["maxStorageBufferBindingSize"]
    rows = limit // 16 + 1
    if rows * 16 > 2**28:
        pytest.skip(f"a tensor over this adapter's limit of {limit} bytes is too large for a test")
    x = np.zeros((rows, 4), np.float32)
    with pytest.raises(NoPlanError, match="every tensor fits one storage binding"):
        webgpu.run("LayerNormalization", X=x, Scale=V, axis=0, backend="webgpu")  # a row, never cut
    with pytest.raises(BackendError, match="maxStorageBufferBindingSize"):
        seeds["LayerNormalization"](X=x, Scale=V, variant="last_axis_row_vec4")


def test_a_stage_with_eight_storage_buffers(webgpu: Registry) -> None:
    shape = (3, 8)
    named = dict.fromkeys(("input", "skip"), (shape, "float32"))
    named |= dict.fromkeys(("gamma", "beta", "bias"), (shape[1:], "float32"))
    outputs = ("output", "input_skip_bias_sum")
    for limit, accepted in ((7, True), (6, False)):
        profile = {"webgpu": {"limits": {"maxStorageBuffersPerShaderStage": limit}}}
        got = webgpu.explain("SkipLayerNormalization", **named, outputs=outputs, profile=profile)
        assert (got.chosen is not None) == accepted
    assert any(row.because == "storage buffers fit one shader stage" for row in got.candidates)


def test_every_call_fits_eight_storage_buffers(shared: Registry) -> None:
    """What the specification promises of any device; the largest call goes in two passes then."""
    profile = {"webgpu": {"features": ["shader-f16"], "limits": {"maxStorageBuffersPerShaderStage": 8}}}
    for op, forms in FORMS.items():
        for form in forms:
            call = form.pairs(6, 8, "float16")
            assert call is not None
            assert shared.explain(op, **call, profile=profile).chosen is not None, form
    largest = max(FORMS[SLN], key=lambda form: len(form.outputs) + len(form.shapes(6, 8) or ()))
    passes = shared.render(SLN, **largest.pairs(6, 8, "float16"), profile=profile)
    assert [item.id for item in passes] == ["normalize", "statistics"]


def test_the_garbage_collector_gives_back_whole_buffers(webgpu: Registry) -> None:
    """A tensor dies in a cycle with its buffer: what goes back to the pool must not have died as well."""
    for value in range(4):
        tensor: Any = webgpu.to_device(np.full((3, 1237), value, np.float32), "webgpu")
        assert (tensor.numpy() == value).all()
        tensor.buffer.cycle = tensor.cycle = [tensor]
        del tensor
        gc.collect()


def test_threads_share_a_device(webgpu: Registry) -> None:
    """Buffers that threads and the garbage collector give back are used again, and nothing gets mixed up."""
    wrong: list[Any] = []

    def work(seed: int) -> None:
        draw = np.random.default_rng(seed)
        for turn in range(20):
            hidden = int(draw.choice([8, 33, 64]))
            x, scale = (draw.normal(size=shape).astype(np.float32) for shape in ((3, hidden), hidden))
            want = webgpu.run("LayerNormalization", X=x, Scale=scale, backend="numpy")
            there, by = webgpu.to_device(x, "webgpu"), webgpu.to_device(scale, "webgpu")
            with webgpu.batch():
                made = [webgpu.run("LayerNormalization", X=there, Scale=by) for _ in range(4)]
                del made[1:3], there
                made.append(webgpu.run("LayerNormalization", X=x, Scale=scale, backend="webgpu"))
            if not all(np.allclose(np.asarray(each), want, atol=1e-5) for each in made):
                wrong.append((seed, turn))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# Numbers that only a device can get wrong


def test_rows_do_not_depend_on_their_batch(webgpu: Registry) -> None:
    draw = np.random.default_rng(0)
    for dtype in ("float32", "float16", "bfloat16"):
        for hidden in (5, 64, 768, 1000, 1023):
            x = draw.normal(size=(24, hidden)).astype(numpy_dtype(dtype))
            scale = np.ones(hidden, x.dtype)
            for variant in ("wide_rows", "rows", "last_axis", "last_axis_row", "last_axis_row_vec4"):
                pairs = {"X": (x.shape, dtype), "Scale": (scale.shape, dtype)}
                if not webgpu.explain(
                    "LayerNormalization", **pairs, variant=variant, backend="webgpu"
                ).chosen:
                    continue
                whole, part, one = (
                    webgpu.run("LayerNormalization", X=rows, Scale=scale, variant=variant)
                    for rows in (x, x[:-1], x[5:6])
                )
                np.testing.assert_array_equal(whole[:-1].view(np.uint8), part.view(np.uint8))
                np.testing.assert_array_equal(whole[5:6].view(np.uint8), one.view(np.uint8))


def test_nan_and_inf_stay_in_their_row(webgpu: Registry) -> None:
    x = np.array([[1, 2, 3, 4], [1, np.nan, 3, 4], [1, np.inf, 3, 4], [0, 0, 0, 0]], np.float32)
    got = webgpu.run("LayerNormalization", X=x, Scale=V, backend="webgpu")
    np.testing.assert_allclose(got[0], [-1.34163542, -0.44721181, 0.44721181, 1.34163542], atol=2e-6)
    assert np.isnan(got[1]).all() and np.isnan(got[2]).all() and (got[3] == 0).all()


def test_pipelines_are_kept_apart(webgpu: Registry) -> None:
    """Everything that is baked into a shader is part of its key."""
    x = np.array([[0, 0.001, 0.002, 0.003]], np.float32)
    for epsilon, outer in (
        (1e-5, 0.4472136),
        (0.1, 0.0047434),
        (1e-12, 1.3416403),
        (1e-5, 0.4472136),
    ):
        got = webgpu.run("LayerNormalization", X=x, Scale=V, epsilon=epsilon, backend="webgpu")
        np.testing.assert_allclose(got[0, [0, 3]], [-outer, outer], rtol=2e-5)
    for dtype in (np.float32, np.float16, np.float32):
        got = webgpu.run("LayerNormalization", X=x.astype(dtype), Scale=V.astype(dtype), backend="webgpu")
        assert got.dtype == dtype
    for hidden in (4, 8, 4):
        row = np.arange(hidden, dtype=np.float32)[None]
        got = webgpu.run("LayerNormalization", X=row, Scale=np.ones(hidden, np.float32), backend="webgpu")
        want = (row - (hidden - 1) / 2) / np.sqrt((hidden**2 - 1) / 12 + 1e-5)
        np.testing.assert_allclose(got, want, atol=2e-6)


def test_subgroups_and_shared_memory_agree(webgpu: Registry) -> None:
    device = webgpu.catalog.availability("webgpu").device
    if not device["features"].has("subgroups"):
        pytest.skip("the adapter has no subgroups that compute right")
    from registry_webgpu.adapter import Found
    from registry_webgpu.device import Device
    from registry_webgpu.profile import make_profile

    real = DEVICES.get()
    plain = make_profile({"shader-f16"}, dict(real.profile.limits), dict(real.profile.adapter), (), "wgpu")
    found = real.found
    without = Device(Found(found.name, found.description, found.device, plain), "plain")
    draw = np.random.default_rng(3)
    for hidden in (8, 100, 257, 768):
        x = draw.normal(size=(7, hidden)).astype(np.float32)
        pair = {"X": x, "Scale": np.ones(hidden, np.float32)}
        plan = webgpu.prepare("LayerNormalization", **pair, backend="webgpu")
        with_subgroups = plan(**pair)
        DEVICES._open["0"] = DEVICES._open[""] = without
        try:
            other = webgpu.prepare("LayerNormalization", **pair, backend="webgpu")
            np.testing.assert_allclose(other(**pair), with_subgroups, atol=3e-6)
        finally:
            DEVICES._open["0"] = DEVICES._open[""] = real


def test_the_templates_are_where_the_tests_look() -> None:
    assert len(list(TEMPLATES.glob("*.wgsl.jinja"))) >= 5
