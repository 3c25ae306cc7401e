"""The CUDA backend on a GPU: every claim and form against the reference, and arrays of every kind."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crowd import CALLS, THREADS, crowd
from forms import FORMS, HIDDEN, MANY_ROWS, ROWS, check

import registry_cuda
import registry_manifests
import registry_numpy
from registry import BackendError, ContractError, NoPlanError, Registry
from registry.dtypes import numpy_dtype
from registry.judging.accuracy import round_to
from registry_cuda import staging
from registry_cuda.launch import load_function
from registry_cuda.tensor import Tensor

DTYPES = ("float32", "float16", "bfloat16", "float64")
SKIP = "com.microsoft::SkipLayerNormalization"
EVERYTHING = ("output", "mean", "inv_std_var", "input_skip_bias_sum")
VARIANTS = {
    op: ("bias_add",) if op.endswith("::BiasAdd") else ("rows_registers", "rows_split", "rows_block")
    for op in FORMS
}
CLAIMS = [
    (op, variant, dtype) for op, variants in VARIANTS.items() for variant in variants for dtype in DTYPES
]


@pytest.fixture(scope="module")
def cupy(cuda: Registry) -> Any:
    import cupy

    return cupy


@pytest.fixture(scope="module")
def torch(cuda: Registry) -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    return torch


def troubled(call: dict[str, Any]) -> dict[str, Any]:
    """The call with a NaN, an infinity and a big offset, each in a row of its own."""
    first, *_ = call["inputs"].values()
    rows = first.reshape(-1, first.shape[-1])
    rows[0, -1], rows[1, 0] = np.nan, -np.inf
    rows[2] = (rows[2].astype(np.float64) / 100 + 1000).astype(first.dtype)
    return call


def skip_call(rows: int, hidden: int, dtype: str, seed: int = 0) -> dict[str, Any]:
    draw = np.random.default_rng([seed, rows, hidden])
    shapes = {
        "input": (rows, hidden),
        "skip": (rows, hidden),
        **dict.fromkeys(("gamma", "beta", "bias"), (hidden,)),
    }
    return {
        "inputs": {
            role: round_to(draw.standard_normal(shape) + 0.5, dtype) for role, shape in shapes.items()
        },
        "outputs": EVERYTHING,
    }


def same(got: Any, want: Any) -> None:
    """Two results, of several outputs, agree bit for bit."""
    for one, other in zip(got, want, strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


# Numbers


@pytest.mark.parametrize(("op", "variant", "dtype"), CLAIMS)
def test_every_form(cuda: Registry, op: str, variant: str, dtype: str) -> None:
    ran = 0
    for place, form in enumerate(FORMS[op]):
        if (place + DTYPES.index(dtype)) % 2 and len(FORMS[op]) > 8:
            continue  # every form runs in two dtypes
        for rows, hidden in ((6, 8), (9, 7)):
            call = form.call(rows, hidden, dtype)
            if call is not None:
                check(cuda, op, troubled(call), "cuda", variant)
                ran += 1
    assert ran > 0


@pytest.mark.parametrize(("op", "variant", "dtype"), CLAIMS)
def test_every_size(cuda: Registry, op: str, variant: str, dtype: str) -> None:
    form = max(FORMS[op], key=lambda form: (len(form.shapes(1, 8) or ()), len(form.outputs)))
    longer = (9001,) if variant != "rows_registers" else (8191, 12288)
    sizes = [*itertools.product(ROWS, HIDDEN + longer), (MANY_ROWS, 1), (MANY_ROWS, 4), (MANY_ROWS, 7)]
    for rows, hidden in sizes:
        call = form.call(rows, hidden, dtype)
        if call is not None:
            check(cuda, op, call, "cuda", variant)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 3, 200])
def test_long_rows(cuda: Registry, rows: int, dtype: str) -> None:
    for hidden in (24577, 100_000):
        check(cuda, SKIP, skip_call(rows, hidden, dtype), "cuda")


def test_very_long_row(cuda: Registry) -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((1, 2**24), np.float32) * 0.001 + 10000
    call = {"inputs": {"X": x, "Scale": np.ones((), np.float32)}, "outputs": ("Y", "Mean", "InvStdDev")}
    check(cuda, "LayerNormalization", call, "cuda", "rows_split")


def test_every_bfloat16(cuda: Registry) -> None:
    every = np.arange(65536, dtype=np.uint16).view(numpy_dtype("bfloat16"))
    x = every.reshape(1, 256, 256)
    bias = np.zeros(256, x.dtype)
    for skip in (np.zeros_like(x), np.random.default_rng(0).permutation(every).reshape(x.shape)):
        with np.errstate(invalid="ignore"):  # the reference meets signalling NaN
            check(cuda, "BiasAdd", {"inputs": {"X": x, "bias": bias, "skip": skip}}, "cuda")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("variant", "hidden"),
    [("rows_registers", 768), ("rows_registers", 1000), ("rows_registers", 1003), ("rows_block", 30000)],
)
def test_bits_do_not_depend_on_the_batch(cuda: Registry, variant: str, hidden: int, dtype: str) -> None:
    call = skip_call(70, hidden, dtype)
    every = cuda.run(SKIP, **call, backend="cuda", variant=variant)
    part = {role: value[5:6] if value.ndim == 2 else value for role, value in call["inputs"].items()}
    for other in (variant, "rows_split") if variant == "rows_block" else (variant,):
        same(
            cuda.run(SKIP, inputs=part, outputs=EVERYTHING, backend="cuda", variant=other),
            [a[5:6] for a in every],
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_addresses_of_any_alignment(cuda: Registry, cupy: Any, dtype: str) -> None:
    for rows, hidden in ((5, 768), (5, 1003), (3, 30000)):
        call = skip_call(rows, hidden, dtype)
        want = cuda.run(SKIP, **call, backend="cuda")
        for offset in (1, 2, 3):
            moved = {}
            for role, value in call["inputs"].items():
                bits = value.reshape(-1).view(f"u{value.dtype.itemsize}")
                memory = cupy.zeros(bits.size + offset, bits.dtype)
                memory[offset:] = cupy.asarray(bits)
                shifted = memory[offset:].reshape(value.shape)
                moved[role] = Tensor(shifted) if dtype == "bfloat16" else shifted.view(value.dtype)
            got = cuda.run(SKIP, inputs=moved, outputs=EVERYTHING)
            same([cuda.host(item) for item in got], want)


# Kinds of arrays


def test_cupy(cuda: Registry, cupy: Any) -> None:
    call = skip_call(6, 768, "float32")
    inputs = {role: cupy.asarray(value) for role, value in call["inputs"].items()}
    got = cuda.run(SKIP, inputs=inputs, outputs=EVERYTHING)
    assert all(type(item) is cupy.ndarray for item in got)
    same([item.get() for item in got], cuda.run(SKIP, **call, backend="cuda"))
    plan = cuda.last()
    assert plan is not None and cuda.explain(SKIP, inputs=inputs).backend == "cuda"
    for role, value in call["inputs"].items():
        assert inputs[role].get().tobytes() == value.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch(cuda: Registry, torch: Any, dtype: str) -> None:
    call = skip_call(6, 768, dtype)
    inputs = {
        role: torch.from_numpy(value.astype(np.float64)).to(getattr(torch, dtype)).cuda()
        for role, value in call["inputs"].items()
    }
    got = cuda.run(SKIP, inputs=inputs, outputs=EVERYTHING)
    want = cuda.run(SKIP, **call, backend="cuda")
    for one, other in zip(got, want, strict=True):
        assert isinstance(one, torch.Tensor) and one.is_cuda and str(one.dtype) == f"torch.{other.dtype.name}"
        np.testing.assert_array_equal(one.double().cpu().numpy(), other.astype(np.float64))
    with pytest.raises(ContractError, match="needs grad"):
        cuda.run(SKIP, inputs={**inputs, "input": inputs["input"].clone().requires_grad_()})
    turned = {**inputs, "input": inputs["input"].T.contiguous().T}
    for one, other in zip(cuda.run(SKIP, inputs=turned, outputs=EVERYTHING), got, strict=True):
        assert torch.equal(one, other)
    out = torch.empty_like(inputs["input"])
    assert cuda.run(SKIP, inputs=inputs, out=out) is out
    assert torch.equal(out, got[0])


def test_torch_and_a_row_that_needs_scratch(cuda: Registry, torch: Any) -> None:
    call = skip_call(2, 100_000, "float32")
    want = cuda.run(SKIP, **call, backend="cuda", variant="rows_split")
    inputs = {role: torch.from_numpy(value).cuda() for role, value in call["inputs"].items()}
    with torch.cuda.stream(torch.cuda.Stream()):
        got = cuda.run(SKIP, inputs=inputs, outputs=EVERYTHING, variant="rows_split", backend="cuda")
        same([item.cpu().numpy() for item in got], want)


def test_torch_stream(cuda: Registry, torch: Any) -> None:
    """Work is ordered after what is on torch's current stream."""
    stream = torch.cuda.Stream()
    x = torch.zeros(1, 4096, 1024, device="cuda")
    bias = torch.ones(1024, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(20):
            x = cuda.run("BiasAdd", X=x, bias=bias, skip=x.mul(1)) / 2
        total = x.sum()
    stream.synchronize()
    want = 0.0
    for _ in range(20):
        want = (want + 1 + want) / 2
    assert total.item() == pytest.approx(want * x.numel(), rel=1e-5)


def test_gapped_tensors_on_a_side_stream(cuda: Registry, torch: Any) -> None:
    """The copy that makes a tensor dense waits for what the side stream does before, like the kernel."""
    stream = torch.cuda.Stream()
    wide = torch.zeros(512, 2 * 4096, device="cuda")
    scale = torch.ones(4096, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        slow = torch.rand(4096, 4096, device="cuda")
        for _ in range(30):
            slow = slow @ slow / 4096
        wide[:, ::2] = torch.arange(4096, device="cuda") + slow.sum() * 0
        got = cuda.run("RMSNormalization", X=wide[:, ::2], scale=scale)
        doubled = got * 2
    stream.synchronize()
    row = np.arange(4096, dtype=np.float64)
    want = 2 * row / np.sqrt(np.square(row).mean() + 1e-5)
    np.testing.assert_allclose(doubled.cpu().numpy(), np.tile(want, (512, 1)), rtol=1e-6)


def test_a_copy_is_explained(cuda: Registry, cupy: Any) -> None:
    x, scale = cupy.ones((4, 16), np.float32)[:, ::2], cupy.ones(8, np.float32)
    notes = cuda.explain("RMSNormalization", X=x, scale=scale).notes
    assert notes == ("copies X on the device first, to be dense",)
    assert cuda.explain("RMSNormalization", X=x.copy(), scale=scale).notes == ()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_results_of_another_backend_come_back_as_the_first_tensor(torch: Any, dtype: str) -> None:
    x = torch.ones(2, 8, device="cuda", dtype=getattr(torch, dtype))
    got = Registry().run("RMSNormalization", X=x, scale=x[0], backend="numpy")
    assert type(got) is torch.Tensor and got.device == x.device and got.dtype == x.dtype
    assert (got - 1).abs().max() < 1e-2


def test_cupy_stream(cuda: Registry, cupy: Any) -> None:
    want = cupy.asnumpy(
        cuda.run("BiasAdd", X=cupy.ones((1, 64, 1024)), bias=cupy.ones(1024), skip=cupy.ones((1, 64, 1024)))
    )
    with cupy.cuda.Stream(non_blocking=True) as stream:
        x = cupy.ones((1, 64, 1024))
        got = cuda.run("BiasAdd", X=x, bias=cupy.ones(1024), skip=x)
        stream.synchronize()
        np.testing.assert_array_equal(got.get(), want)


class Shares:
    """An array of a library nobody knows."""

    def __init__(self, array: Any):
        self.shape, self.dtype = array.shape, array.dtype
        self.array = array


class SharesDlpack(Shares):
    """One that offers its memory by DLPack."""

    def __dlpack__(self, **named: Any) -> Any:
        return self.array.__dlpack__(**named)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class SharesInterface(Shares):
    """One that offers its memory as CUDA memory."""

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.array.__cuda_array_interface__


@pytest.mark.parametrize("kind", [SharesDlpack, SharesInterface])
def test_memory_that_is_shared(cuda: Registry, cupy: Any, kind: type[Shares]) -> None:
    x = cupy.asarray(np.random.default_rng(0).standard_normal((2, 3, 8), np.float32))
    bias = x[0, 0].copy()
    want = cuda.run("BiasAdd", X=x, bias=bias, skip=x)
    got = cuda.run("BiasAdd", X=kind(x), bias=kind(bias), skip=kind(x))
    np.testing.assert_array_equal(cuda.host(got), want.get())


def test_to_device_and_back(cuda: Registry) -> None:
    for dtype in DTYPES:
        value = round_to(np.array([[1, -0.0, np.inf, 3.140625]]), dtype)
        tensor = cuda.to_device(value, "cuda:0")
        assert cuda.host(tensor).tobytes() == value.tobytes()
        assert tuple(tensor.shape) == (1, 4)
        got = cuda.host(cuda.run("LayerNormalization", X=tensor, Scale=tensor))
        same([got], [cuda.run("LayerNormalization", X=value, Scale=value, backend="cuda")])
    assert cuda.empty((2, 0), "bfloat16", "cuda").shape == (2, 0)
    with pytest.raises((BackendError, ContractError)):
        cuda.empty((2,), "float32", "cuda:99")


@pytest.mark.parametrize(
    "view",
    [
        lambda b: b[1:3],
        lambda b: b[:, ::-1],
        lambda b: b.T,
        lambda b: b[::2],
        lambda b: b[:, 1:],
        lambda b: b[::-1, ::-2],
    ],
)
def test_views(cuda: Registry, cupy: Any, view: Any) -> None:
    base = cupy.asarray(np.random.default_rng(0).standard_normal((8, 8), np.float32))
    x = view(base)
    scale = cupy.arange(2 * x.shape[-1], dtype=np.float32)[::2]
    got = cuda.run("LayerNormalization", X=x, Scale=scale)
    want = cuda.run("LayerNormalization", X=x.copy(), Scale=scale.copy())
    np.testing.assert_array_equal(got.get(), want.get())
    out = cupy.full((x.shape[0], 2 * x.shape[1]), 7, np.float32)
    cuda.run("LayerNormalization", X=x, Scale=scale, out=out[:, ::2])
    np.testing.assert_array_equal(out[:, ::2].get(), want.get())
    assert (out[:, 1::2] == 7).all()


def test_broadcast_view(cuda: Registry, cupy: Any) -> None:
    x = cupy.broadcast_to(cupy.arange(4, dtype=np.float32), (5, 4))
    got = cuda.run("LayerNormalization", X=x, Scale=cupy.ones(4, np.float32))
    np.testing.assert_allclose(
        got.get(), np.tile([-1.34163542, -0.44721181, 0.44721181, 1.34163542], (5, 1)), atol=2e-6
    )


def test_out(cuda: Registry, cupy: Any) -> None:
    call = skip_call(6, 768, "float32")
    want = cuda.run(SKIP, **call, backend="cuda")
    inputs = {role: cupy.asarray(value) for role, value in call["inputs"].items()}
    out = [cupy.empty(item.shape, item.dtype) for item in want]
    got = cuda.run(SKIP, inputs=inputs, outputs=EVERYTHING, out=out)
    assert all(one is other for one, other in zip(got, out, strict=True))
    same([item.get() for item in got], want)
    host = [np.empty_like(item) for item in want]
    cuda.run(SKIP, **call, backend="cuda", out=host)
    same(host, want)
    memory = cupy.zeros((9, 768), np.float32)
    with pytest.raises(ContractError, match="never overwrite"):
        cuda.run("LayerNormalization", X=memory[:6], Scale=inputs["gamma"], out=memory[3:])
    with pytest.raises(ContractError, match="share memory"):
        pair = {"output": memory[:6], "input_skip_bias_sum": memory[3:]}
        cuda.run(SKIP, inputs=inputs, out=pair)


def test_devices_do_not_mix(cuda: Registry, cupy: Any) -> None:
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one device only")
    call = skip_call(6, 768, "float32")
    want = cuda.run(SKIP, **call, backend="cuda")
    with cupy.cuda.Device(1):
        inputs = {role: cupy.asarray(value) for role, value in call["inputs"].items()}
    got = cuda.run(SKIP, inputs=inputs, outputs=EVERYTHING)
    assert all(item.device.id == 1 for item in got)
    same([item.get() for item in got], want)
    same(cuda.run(SKIP, **call, device="cuda:1"), want)
    assert cupy.cuda.runtime.getDevice() == 0
    with pytest.raises(ContractError, match="several devices"):
        cuda.run(SKIP, inputs={**inputs, "skip": cupy.zeros((6, 768), np.float32)})


# Host arrays


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_host_arrays(cuda: Registry, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In chunks the bits are those of one piece; host arrays of odd strides and orders come out the same."""
    call = skip_call(4099, 768, dtype)
    whole = cuda.run(SKIP, **call, backend="cuda")
    monkeypatch.setattr(staging, "CHUNK_BYTES", 100_000)
    same(cuda.run(SKIP, **call, backend="cuda"), whole)
    turned = {role: np.asfortranarray(value) for role, value in call["inputs"].items()}
    same(cuda.run(SKIP, inputs=turned, outputs=EVERYTHING, backend="cuda"), whole)
    out = np.empty((4099, 2 * 768), whole[0].dtype)
    cuda.run(SKIP, **{**call, "outputs": "output"}, backend="cuda", out=out[:, ::2])
    same([out[:, ::2]], whole[:1])
    batched = {
        role: value.reshape(1, 4099, 768) if value.ndim == 2 else value
        for role, value in call["inputs"].items()
    }
    batched["input"] = np.concatenate([batched["input"]] * 3)
    thrice = cuda.run(SKIP, inputs=batched, outputs=EVERYTHING, backend="cuda")
    same(
        [part for item in thrice for part in item],
        [item.reshape(part.shape) for item, many in zip(whole, thrice, strict=True) for part in many],
    )


def test_affine_by_row_in_chunks(cuda: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((7, 300, 64), np.float32)
    scale = draw.standard_normal((7, 1, 64), np.float32)
    shift = draw.standard_normal((300, 1), np.float32)
    monkeypatch.setattr(staging, "CHUNK_BYTES", 50_000)
    check(
        cuda,
        "LayerNormalization",
        {"inputs": {"X": x, "Scale": scale, "B": shift}, "outputs": ("Y",)},
        "cuda",
    )


def test_host_and_device_mix(cuda: Registry, cupy: Any) -> None:
    call = skip_call(6, 768, "float32")
    want = cuda.run(SKIP, **call, backend="cuda")
    mixed = {**call["inputs"], "input": cupy.asarray(call["inputs"]["input"])}
    got = cuda.run(SKIP, inputs=mixed, outputs=EVERYTHING)
    assert all(isinstance(item, cupy.ndarray) for item in got)
    same([item.get() for item in got], want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (2, 3, 1)])
def test_there_and_back(cuda: Registry, shape: tuple[int, ...], dtype: str) -> None:
    """Scalars too."""
    value = round_to(np.random.default_rng(0).standard_normal(shape), dtype)
    for array in (value, np.asarray(value, order="F"), value[..., ::-1] if shape else value):
        back = cuda.host(cuda.to_device(array, "cuda"))
        assert back.shape == shape and back.dtype == value.dtype and back.tobytes() == array.tobytes()


def test_empty(cuda: Registry, cupy: Any) -> None:
    for shape in ((0, 2, 4), (2, 0, 4)):
        x = cupy.zeros(shape, np.float32)
        got = cuda.run(SKIP, input=x, skip=x, gamma=cupy.ones(4, np.float32), outputs=EVERYTHING)
        assert [item.shape for item in got] == [shape, (*shape[:2], 1), (*shape[:2], 1), shape]


def test_threads(cuda: Registry, cupy: Any) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            call = skip_call(40, 768, "float32", seed)
            inputs = {role: cupy.asarray(value) for role, value in call["inputs"].items()}
            want = cuda.run(SKIP, **call, backend="cuda")
            for _ in range(50):
                same([item.get() for item in cuda.run(SKIP, inputs=inputs, outputs=EVERYTHING)], want)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def in_a_thread(work: Callable[[], None]) -> None:
    """Runs it in a new thread, and raises what it raises."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


def test_a_thread_without_a_context(cuda: Registry, cupy: Any, torch: Any) -> None:
    """A new thread has none until CUDA's runtime is first asked for something, and a library may take it."""
    from cupy_backends.cuda.api import driver

    call = skip_call(40, 768, "float32")
    want = cuda.run(SKIP, **call, backend="cuda")
    shared = {role: cupy.asarray(value) for role, value in call["inputs"].items()}
    foreign = {role: torch.from_numpy(value).cuda() for role, value in call["inputs"].items()}
    device = driver.ctxGetDevice()

    def check_into_given() -> None:
        results = [cupy.full_like(cupy.asarray(item), np.nan) for item in want]

        def work() -> None:
            assert driver.ctxGetCurrent() == 0
            cuda.run(SKIP, inputs=shared, out=dict(zip(EVERYTHING, results, strict=True)))

        in_a_thread(work)
        same([item.get() for item in results], want)

    def load_anew() -> None:
        assert driver.ctxGetCurrent() == 0
        load_function.cache_clear()
        x, bias = shared["input"][None, :7], shared["bias"]
        Registry([registry_manifests, registry_cuda], entry_points=False).run(
            "BiasAdd", X=x, bias=bias, skip=x
        )

    def taken() -> None:
        driver.ctxSetCurrent(0)
        got = cuda.run(SKIP, inputs=foreign, outputs=EVERYTHING)
        same([item.cpu() for item in got], want)

    def another() -> None:
        results = [cupy.full_like(cupy.asarray(item), np.nan) for item in want]
        made = driver.ctxCreate(device)
        try:
            cuda.run(SKIP, inputs=shared, out=dict(zip(EVERYTHING, results, strict=True)))
            assert driver.ctxGetCurrent() == made
        finally:
            driver.ctxDestroy(made)
        same([item.get() for item in results], want)

    check_into_given()
    for work in (load_anew, taken, another):
        in_a_thread(work)


def test_a_crowd(cuda: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in test_threads: several ops and dtypes, shared plans, batches, while settings change."""
    monkeypatch.setenv("REGISTRY_TUNED", "1")
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path))
    reg = Registry([registry_manifests, registry_numpy, registry_cuda], entry_points=False)
    found = crowd(reg, "cuda", ("float32", "float16", "bfloat16"), on_device=True, disturbances=8)
    assert found >= THREADS * CALLS


def test_a_graph_can_be_captured(cuda: Registry, torch: Any) -> None:
    x = torch.randn(64, 768, device="cuda")
    scale = torch.ones(768, device="cuda")
    out = torch.empty_like(x)
    want = cuda.run("LayerNormalization", X=x, Scale=scale)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        cuda.run("LayerNormalization", X=x, Scale=scale, out=out)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, want)


def test_tensors_stay_where_they_are(cuda: Registry, cupy: Any) -> None:
    x = cupy.ones((1, 2, 3), np.float32)
    with pytest.raises(NoPlanError, match="tensors stay on their device"):
        cuda.run("BiasAdd", X=x, bias=x[0, 0], skip=x, backend=["numpy"])
    moved = cuda.run("BiasAdd", X=x, bias=x[0, 0], skip=x, backend="numpy")
    assert isinstance(moved, cupy.ndarray) and moved.tolist() == [[[3.0] * 3] * 2]


def test_judged_like_the_others(cuda: Registry) -> None:
    report = cuda.compare(SKIP, inputs=skip_call(65, 1000, "float16")["inputs"], outputs=EVERYTHING)
    assert {"rows_registers", "rows_block", "rows_split"} <= set(str(report).split())
    assert report.ok, str(report)
