"""The CUDA backend where there is no GPU: choices, sources, machine code, and the kernels run on the CPU."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import COMPILER, run_on_cpu
from forms import FORMS, Form

import registry_cuda
import registry_manifests
import registry_numpy
from registry import ContractError, NoPlanError, Registry
from registry.calling.call import parse_call
from registry.calling.parts import device_bytes
from registry.calling.request import Request, bind
from registry.errors import BackendError
from registry.judging.accuracy import judge, round_to
from registry_cuda import compiler, devices, sources
from registry_cuda.problem import element_of, read_problem
from registry_cuda.variants import VARIANTS

DTYPES = ("float32", "float16", "bfloat16", "float64")
H200 = {"cuda": {"computeCapability": [9, 0], "multiProcessorCount": 132, "name": "H200"}}
ARCHITECTURES = ((7, 0), (8, 0), (9, 0))
SKIP = "com.microsoft::SkipLayerNormalization"
EVERYTHING = ("output", "mean", "inv_std_var", "input_skip_bias_sum")

needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("cupy") is None, reason="no NVRTC: CuPy is not installed"
)
needs_cpu = pytest.mark.skipif(COMPILER is None, reason="g++ is not installed")


@pytest.fixture(scope="module")
def reg() -> Registry:
    return Registry([registry_manifests, registry_numpy, registry_cuda], entry_points=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cpu")


def skip_pairs(rows: int, hidden: int, dtype: str) -> dict[str, Any]:
    vector = ((hidden,), dtype)
    full = ((rows, hidden), dtype)
    return {"input": full, "skip": full, "gamma": vector, "beta": vector, "bias": vector}


def request_of(reg: Registry, op: str, **call: Any) -> Request:
    return bind(parse_call(reg.op(op), (), call))


# Which variant


@pytest.mark.parametrize(
    ("rows", "hidden", "dtype", "variant"),
    [
        (4096, 768, "float32", "rows_registers"),
        (1, 24576, "float16", "rows_registers"),
        (1, 24577, "float16", "rows_split"),
        (131, 24577, "bfloat16", "rows_split"),
        (132, 24577, "bfloat16", "rows_block"),
        (132, 12289, "float64", "rows_block"),
        (132, 12288, "float64", "rows_registers"),
        (1000, 2**23, "float32", "rows_split"),
        (1, 2**24, "float32", "rows_split"),
    ],
)
def test_choice(reg: Registry, rows: int, hidden: int, dtype: str, variant: str) -> None:
    decision = reg.explain(
        "LayerNormalization", X=((rows, hidden), dtype), Scale=((hidden,), dtype), profile=H200
    )
    assert (decision.backend, decision.variant) == ("cuda", variant), decision


def test_every_call_is_claimed(reg: Registry) -> None:
    for op, forms in FORMS.items():
        for form in forms:
            pairs = form.pairs(6, 8, "bfloat16")
            if pairs is not None:
                assert reg.explain(op, **pairs, profile=H200).backend == "cuda"


def test_reasons_name_what_is_needed(reg: Registry) -> None:
    decision = reg.explain(
        "LayerNormalization", X=((1, 30000), "float32"), Scale=((1,), "float32"), profile=H200
    )
    row = decision.rejected[0]
    assert (row.variant, row.found) == ("rows_registers", "30000 elements of float32")
    assert "24576" in row.needed


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        (5, "needed: a mapping"),
        ({}, "needed: two integers"),
        ({"computeCapability": [9]}, "needed: two integers"),
        ({"computeCapability": [6, 1]}, r"needed: at least \[7, 0\]"),
        ({"computeCapability": [9, 0], "multiprocessorCount": 3}, "did you mean 'multiProcessorCount'"),
        ({"computeCapability": [9, 0], "multiProcessorCount": 0}, "needed: at least 1"),
    ],
)
def test_malformed_profiles(reg: Registry, profile: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        reg.explain(
            "BiasAdd", **FORMS["com.microsoft::BiasAdd"][0].pairs(3, 4, "float32"), profile={"cuda": profile}
        )


# What stands in the way


class Driver:
    """A CuPy whose driver does as it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: Any):
        def get_device_count() -> int:
            if isinstance(count, Exception):
                raise count
            return int(count)

        runtime = SimpleNamespace(getDeviceCount=get_device_count)
        nvrtc = SimpleNamespace(getVersion=lambda: (13, 0))
        names = {
            "cupy": ModuleType("cupy"),
            "cupy.cuda": SimpleNamespace(runtime=runtime),
            "cupy_backends": ModuleType("cupy_backends"),
            "cupy_backends.cuda": ModuleType("cupy_backends.cuda"),
            "cupy_backends.cuda.libs": SimpleNamespace(nvrtc=nvrtc),
        }
        for name, module in names.items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)


def only_one_wheel(name: str) -> str:
    if name == "cupy-cuda13x":
        return "13.6"
    raise metadata.PackageNotFoundError(name)


@pytest.mark.parametrize(
    ("count", "because", "found"),
    [
        (
            RuntimeError("cudaErrorNoDevice: no CUDA-capable device\nmore"),
            "the driver answers",
            "cudaErrorNoDevice",
        ),
        (0, "there is a device", "none"),
    ],
)
def test_no_driver_and_no_device(
    monkeypatch: pytest.MonkeyPatch, count: Any, because: str, found: str
) -> None:
    Driver(monkeypatch, count)
    monkeypatch.setattr(metadata, "version", only_one_wheel)
    here = devices.probe(None)
    assert not here.available and here.condition == because and found in here.found
    assert "\n" not in here.found and "NVIDIA GPU" in here.needed


def test_two_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    Driver(monkeypatch, 1)
    monkeypatch.setattr(metadata, "version", lambda name: "13.6")
    here = devices.probe(None)
    assert not here.available and "cupy-cuda12x, cupy-cuda13x" in here.found and "uninstall" in here.needed


@pytest.mark.parametrize("error", [ImportError("\n====\nlibcuda.so.1 is missing\n===="), OSError("broken")])
def test_failing_import(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    class Broken:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            if name.partition(".")[0] == "cupy":
                raise error

    for name in [name for name in sys.modules if name.partition(".")[0] in ("cupy", "cupy_backends")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(metadata, "version", only_one_wheel)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    here = devices.probe(None)
    text = "ImportError: libcuda.so.1 is missing" if isinstance(error, ImportError) else "OSError: broken"
    assert not here.available and here.condition == "cupy imports" and here.found == text


def test_without_cupy(monkeypatch: pytest.MonkeyPatch, reg: Registry) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    fresh = Registry([registry_manifests, registry_numpy, registry_cuda], entry_points=False)
    status = next(s for s in fresh.backends() if s.name == "cuda")
    assert (status.because, status.found) == ("cupy is installed", "not found")
    assert "kernel-registry[cuda13]" in status.needed
    x = np.ones((1, 2, 3), np.float32)
    assert fresh.run("BiasAdd", X=x, bias=x[0, 0], skip=x).tolist() == [[[3.0] * 3] * 2]
    with pytest.raises(NoPlanError, match="cupy is installed"):
        fresh.run("BiasAdd", X=x, bias=x[0, 0], skip=x, backend="cuda")


# Sources


def test_render(reg: Registry) -> None:
    passes = reg.render(SKIP, **skip_pairs(1024, 768, "float16"), outputs=EVERYTHING, profile=H200)
    assert [(item.id, item.language, item.dispatch) for item in passes] == [
        ("rows_registers", "cuda", (1024, 1, 1))
    ]
    assert "constexpr Index H = 768;" in passes[0].source
    assert "constexpr bool WRITES_SUM = true;" in passes[0].source
    assert passes[0].uniforms["rows"] == 1024
    split = reg.render("LayerNormalization", X=((1, 2**24), "float32"), Scale=((), "float32"), profile=H200)
    assert [item.id for item in split] == ["measure_segments", "normalize_segments"]
    assert split[0].dispatch == (16 * 132, 1, 1)  # as many as the device takes, and no more than segments
    short = reg.render("LayerNormalization", X=((1, 2**17), "float32"), Scale=((), "float32"), profile=H200)
    assert short[0].dispatch == (32, 1, 1)


def test_a_batch_size_makes_no_new_source(reg: Registry) -> None:
    for op, forms in FORMS.items():
        for form in forms:
            calls = [form.pairs(rows, 8, "float32") for rows in (12, 30)]
            if None not in calls:
                one, other = (reg.render(op, **call, profile=H200)[0].source for call in calls if call)
                assert one == other, form.name


def test_peak_memory(reg: Registry) -> None:
    few = {"X": ((64, 768), "float32"), "Scale": ((768,), "float32")}
    long = {"X": ((1, 2**24), "float32"), "Scale": ((), "float32")}
    assert reg.peak_memory("LayerNormalization", **few, profile=H200) == {"cuda": 0}
    assert reg.peak_memory("LayerNormalization", **long, profile=H200) == {"cuda": 4096 * 3 * 4}
    wide = {role: (shape, "float64") for role, (shape, _) in long.items()}
    assert reg.peak_memory("LayerNormalization", **wide, profile=H200) == {"cuda": 8192 * 3 * 8}


@pytest.mark.parametrize(
    ("shape", "full", "axis"),
    [
        ((), (2, 3, 4), 2),
        ((4,), (2, 3, 4), 2),
        ((4,), (2, 3, 4), 1),
        ((3, 4), (2, 3, 4), 1),
        ((3, 1), (2, 3, 4), 1),
        ((2, 1, 4), (2, 3, 4), 1),
        ((2, 3, 4), (2, 3, 4), 2),
        ((1, 3, 1), (2, 3, 4), 2),
        ((2, 1, 1), (2, 3, 4), 0),
        ((1,), (1,), 0),
    ],
)
def test_which_element_belongs_to_a_place(shape: tuple[int, ...], full: tuple[int, ...], axis: int) -> None:
    expression = element_of(shape, full, axis).replace("/", "//")
    places = np.broadcast_to(np.arange(np.prod(shape, dtype=int)).reshape(shape), full)
    rows = places.reshape(int(np.prod(full[:axis])), -1)
    for number, row in enumerate(rows):
        got = [eval(expression, {"number": number, "column": column}) for column in range(len(row))]
        assert got == row.tolist(), expression


@pytest.mark.parametrize("op", FORMS)
def test_parts_with_rows_of_their_own(reg: Registry, op: str) -> None:
    """By these bytes host tensors are cut into chunks: they must come to the whole tensor."""
    for form in FORMS[op]:
        for dtype in ("float16", "float64"):
            pairs = form.pairs(6, 8, dtype)
            assert pairs is not None
            request = request_of(reg, op, **pairs)
            problem = read_problem(request)
            for part in problem.by_row:
                whole = device_bytes(request.tensors[problem.roles[part]])
                assert problem.rows * problem.row_bytes(part) == whole, f"{form.name}: {part}"


# Machine code


def compiled_sources(reg: Registry, dtype: str) -> list[tuple[str, str]]:
    """A name and a source for every kernel over what changes its text most."""
    found = []
    longest = sources.LONGEST[dtype]
    for variant, lengths in (
        ("rows_registers", (1, 7, 64, 768, 1000, 1023, 4096, longest - 1, longest)),
        ("rows_block", (9001, 2**20)),
        ("rows_split", (9001, 2**24)),
    ):
        for hidden in lengths:
            pairs = skip_pairs(4, hidden, dtype)
            few = {role: pairs[role] for role in ("input", "skip", "gamma")}
            for aligned, inputs, outputs in (
                (True, pairs, EVERYTHING),
                (False, pairs, EVERYTHING),
                (True, few, None),
            ):
                if not aligned and hidden < sources.ACROSS_FROM:
                    continue  # the shortest rows change least
                problem = read_problem(request_of(reg, SKIP, inputs=inputs, outputs=outputs))
                source = VARIANTS[variant].kernel(problem).source(aligned)
                found.append((f"{variant} {hidden} {aligned} {len(inputs)}", source))
    for hidden in (768, 1023):
        call = FORMS["com.microsoft::BiasAdd"][0].pairs(3, hidden, dtype)
        assert call is not None
        problem = read_problem(request_of(reg, "BiasAdd", **call))
        found.append((f"bias_add {hidden}", sources.bias_add(problem).source()))
    return found


@needs_compiler
@pytest.mark.parametrize("capability", ARCHITECTURES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_compiles_without_spilling(reg: Registry, dtype: str, capability: tuple[int, int]) -> None:
    from cupy_backends.cuda.libs import nvrtc

    architecture = 10 * capability[0] + capability[1]
    if architecture not in nvrtc.getSupportedArchs():
        pytest.skip(f"NVRTC {nvrtc.getVersion()} has no sm_{architecture}")
    options = (f"--gpu-architecture=sm_{architecture}", "--ptxas-options=-v", *compiler.OPTIONS)
    for name, source in compiled_sources(reg, dtype):
        code, log = compiler.run_nvrtc(source, options)
        spills = re.findall(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log
        )
        assert code.startswith(b"\x7fELF") and spills, name
        # Of a few bytes the compiler itself thinks that they cost less than fewer blocks at once.
        assert all(int(size) <= 16 for each in spills for size in each), f"{name} on sm_{architecture}: {log}"


@needs_compiler
def test_a_source_that_does_not_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BackendError, match=r"line 2: .*undefined") as caught:
        compiler.compile_source("// one\n__global__ void f() { b = 1; }", (8, 0))
    assert caught.value.line == 2


@needs_compiler
def test_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = 'extern "C" __global__ void once() {}'
    made = compiler.compile_source(source, (8, 0))
    compiler.compile_source.cache_clear()
    monkeypatch.setattr(compiler, "run_nvrtc", None)
    assert compiler.compile_source(source, (8, 0)) == made


@needs_compiler
def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compiler.compile_source('extern "C" __global__ void quiet() {}', (8, 0)).startswith(b"\x7fELF")


@needs_compiler
def test_newer_and_older_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = 'extern "C" __global__ void age() {}'
    assert b".target compute_" in compiler.compile_source(source, (99, 0)).replace(b"sm_", b"compute_")
    with pytest.raises(BackendError, match=r"compute capability 3\.0; needed: "):
        compiler.compile_source(source, (3, 0))


# Results, on the CPU


def check_on_cpu(
    reg: Registry, op: str, form: Form, size: tuple[int, int], dtype: str, variant: str, folder: Path
) -> None:
    call = form.call(*size, dtype)
    assert call is not None
    first, *_ = call["inputs"].values()
    table = first.reshape(-1, first.shape[-1])
    table[0, -1], table[1, 0] = np.nan, -np.inf
    table[2] = (table[2].astype(np.float64) / 100 + 1000).astype(first.dtype)
    request = request_of(reg, op, **call)
    got = run_on_cpu(request, call["inputs"], variant, folder)
    expected = reg.catalog.plugins.references[op](call["inputs"], {**reg.op(op).attributes, **call["attrs"]})
    for role in request.asked:
        verdict = judge(got[role], expected[role], dtype if got[role].dtype != np.float32 else "float32")
        assert verdict.ok, f"{request} {variant} {role}: {verdict}"


def hardest(op: str) -> list[Form]:
    """Of each kind of broadcast, the form with the most tensors."""
    kinds: dict[str, Form] = {}
    for form in FORMS[op]:
        kinds[" ".join(form.name.split()[:3])] = form
    return sorted(kinds.values(), key=lambda form: -len(form.outputs))[:4]


@needs_cpu
@pytest.mark.parametrize("op", FORMS)
def test_results(reg: Registry, folder: Path, op: str) -> None:
    cases = (
        ("rows_registers", (9, 7)),
        ("rows_split", (3, 9001)),
        ("rows_registers", (6, 1000)),
        ("rows_block", (3, 17000)),
    )
    if op == "com.microsoft::BiasAdd":
        cases = (("bias_add", (9, 7)), ("bias_add", (6, 1024)))
    for turn, form in enumerate(hardest(op) * (4 if len(FORMS[op]) == 1 else 1)):
        variant, size = cases[turn % len(cases)]
        check_on_cpu(reg, op, form, size, DTYPES[turn % len(DTYPES)], variant, folder)


@needs_cpu
@pytest.mark.parametrize("variant", ["rows_registers", "rows_split"])
def test_rows_that_begin_far_off(reg: Registry, folder: Path, variant: str) -> None:
    """The first estimate of the mean, which is counted from there, leaves a rest."""
    op = "ai.onnx::LayerNormalization"
    x = np.random.default_rng(0).standard_normal((2, 4096)).astype(np.float32)
    x[:, 0] = 1000, -3000
    inputs = {"X": x, "Scale": np.ones(4096, np.float32)}
    request = request_of(reg, op, inputs=inputs, outputs=("Y", "Mean", "InvStdDev"))
    expected = reg.catalog.plugins.references[op](inputs, reg.op(op).attributes)
    for role, value in run_on_cpu(request, inputs, variant, folder).items():
        assert judge(value, expected[role], "float32").ok, role


@needs_cpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("variant", "hidden"), [("rows_registers", 520), ("rows_registers", 131), ("rows_block", 17000)]
)
def test_bits_do_not_depend_on_the_batch_or_the_address(
    reg: Registry, folder: Path, variant: str, hidden: int, dtype: str
) -> None:
    """Alone or among others, aligned or not, by one block or several: a row's bits are its own."""
    draw = np.random.default_rng(0)
    full = {
        role: round_to(draw.standard_normal(shape) + 3, dtype)
        for role, (shape, _) in skip_pairs(5, hidden, dtype).items()
    }
    outputs = {"outputs": EVERYTHING}
    every = run_on_cpu(request_of(reg, SKIP, inputs=full, **outputs), full, variant, folder)
    part = {
        role: np.ascontiguousarray(value[2:4]) if value.ndim == 2 else value for role, value in full.items()
    }
    request = request_of(reg, SKIP, inputs=part, **outputs)
    results = [run_on_cpu(request, part, variant, folder, aligned=aligned) for aligned in (True, False)]
    if variant == "rows_block":
        results += [
            run_on_cpu(request, part, "rows_split", folder, multiprocessors=count) for count in (1, 9)
        ]
    for result in results:
        for role, value in result.items():
            assert value.tobytes() == every[role][2:4].tobytes(), role
