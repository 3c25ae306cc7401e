"""Host time of a call, beside what the backend's own library takes for the same steps.

    python benchmarks/host.py --out host.jsonl
    python benchmarks/host.py --backends numpy,cuda

Microseconds of a call whose tensors are so small that the device never holds the host up; medians of many
samples of many calls. A prepared plan and ``registry.run`` are measured with fresh outputs and with ``out=``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from system import keep, open_registry, system

from registry import Registry

Call = Callable[[], Any]
Named = Iterator[tuple[str, Call]]
SAMPLES = 41
CALLS = 100
ROWS, HIDDEN = 8, 768
SKIP = "com.microsoft::SkipLayerNormalization"
BOTH = ("output", "input_skip_bias_sum")
BATCH = 64


def host_inputs() -> dict[str, Any]:
    """The inputs of SkipLayerNormalization."""
    draw = np.random.default_rng(0)
    shapes = {"input": (ROWS, HIDDEN), "skip": (ROWS, HIDDEN)}
    shapes |= dict.fromkeys(("gamma", "beta", "bias"), (HIDDEN,))
    return {role: draw.standard_normal(shape, np.float32) for role, shape in shapes.items()}


def ours(reg: Registry, backend: str, kind: str, inputs: dict[str, Any], empty: Callable[[], Any]) -> Named:
    """``run`` and a plan, with one output and two, fresh and given."""
    for count, outputs in ((1, BOTH[:1]), (2, BOTH)):
        out = [empty() for _ in outputs]
        call = {**inputs, "outputs": outputs, "backend": backend}
        plan = reg.prepare(SKIP, **call)
        name = f"{kind}, {count} output{'s' * (count > 1)}"
        yield f"{name}: run", partial(reg.run, SKIP, **call)
        yield f"{name}: run, out=", partial(reg.run, SKIP, **call, out=out)
        yield f"{name}: plan", partial(plan, **inputs)
        yield f"{name}: plan, out=", partial(plan, **inputs, out=out)


def cuda_calls(reg: Registry) -> Named:
    """CuPy's launch and allocation, then ours on CuPy's arrays and on torch's."""
    import cupy

    pointers = ", ".join(f"float* p{index}" for index in range(7))
    kernel = cupy.RawKernel(f'extern "C" __global__ void nothing({pointers}, long long rows) {{}}', "nothing")
    inputs = {role: cupy.asarray(value) for role, value in host_inputs().items()}
    out = [cupy.empty((ROWS, HIDDEN), np.float32) for _ in BOTH]
    arguments = (*inputs.values(), *out, ROWS)
    yield "bare RawKernel launch", lambda: kernel((ROWS,), (128,), arguments)
    yield "cupy.empty", lambda: cupy.empty((ROWS, HIDDEN), np.float32)
    yield from ours(reg, "cuda", "CuPy", inputs, lambda: cupy.empty((ROWS, HIDDEN), np.float32))
    try:
        import torch
        from torch.nn import functional
    except ImportError:
        return
    if not torch.cuda.is_available():
        return
    tensors = {role: torch.from_numpy(value).cuda() for role, value in host_inputs().items()}
    yield "torch.empty", lambda: torch.empty((ROWS, HIDDEN), device="cuda")
    yield (
        "torch layer_norm alone",
        lambda: functional.layer_norm(tensors["input"], (HIDDEN,), tensors["gamma"], tensors["beta"]),
    )
    yield from ours(reg, "cuda", "torch", tensors, lambda: torch.empty((ROWS, HIDDEN), device="cuda"))


def webgpu_calls(reg: Registry) -> Iterator[tuple[str, Call, int]]:
    """A dispatch submitted alone, and many in one submission, by wgpu-py and by us; calls of each."""
    shape = (1, 8, HIDDEN)
    x, y = (reg.to_device(np.ones(shape, np.float32), "webgpu") for _ in range(2))
    bias = reg.to_device(np.ones(HIDDEN, np.float32), "webgpu")
    gpu = x.home.found.device
    names = ("x", "bias", "skip", "y")
    bindings = "\n".join(
        f"@group(0) @binding({index}) var<storage, {'read_write' if name == 'y' else 'read'}> "
        f"{name}: array<f32>;"
        for index, name in enumerate(names)
    )
    source = (
        bindings
        + """
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&x)) { y[id.x] = x[id.x] + bias[id.x % arrayLength(&bias)] + skip[id.x]; }
}"""
    )
    module = gpu.create_shader_module(code=source)
    pipeline = gpu.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
    entries = [
        {"binding": index, "resource": {"buffer": tensor.buffer, "offset": 0, "size": tensor.nbytes}}
        for index, tensor in enumerate((x, bias, x, y))
    ]
    group = gpu.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)

    def by_hand(count: int) -> None:
        encoder = gpu.create_command_encoder()
        run = encoder.begin_compute_pass()
        for _ in range(count):
            run.set_pipeline(pipeline)
            run.set_bind_group(0, group)
            run.dispatch_workgroups(24)
        run.end()
        gpu.queue.submit([encoder.finish()])

    plan = reg.prepare("BiasAdd", X=x, bias=bias, skip=x, backend="webgpu")

    def by_us(count: int, call: Call) -> None:
        with reg.batch():
            for _ in range(count):
                call()

    run = partial(reg.run, "BiasAdd", X=x, bias=bias, skip=x, backend="webgpu")
    given = partial(plan, X=x, bias=bias, skip=x, out=y)
    for name, count in (("alone", 1), (f"one of {BATCH}", BATCH)):
        yield f"wgpu-py by hand, {name}", partial(by_hand, count), count
        yield f"run, {name}", partial(by_us, count, run), count
        yield f"plan, out=, {name}", partial(by_us, count, given), count


def numpy_calls(reg: Registry) -> Named:
    """The backend's function alone, then with the call around it."""
    inputs = host_inputs()
    for count, outputs in ((1, BOTH[:1]), (2, BOTH)):
        plan = reg.prepare(SKIP, **inputs, outputs=outputs, backend="numpy")
        out = {role: np.empty((ROWS, HIDDEN), np.float32) for role in outputs}
        yield f"the function alone, {count} outputs", partial(plan.executable, inputs, out)
    yield from ours(reg, "numpy", "NumPy", inputs, lambda: np.empty((ROWS, HIDDEN), np.float32))


def microseconds(call: Call, settle: Call, calls: int) -> tuple[float, float, float]:
    """Median, lowest and highest of a call."""
    call()
    samples = []
    for _ in range(SAMPLES):
        settle()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        samples.append(1e6 * (time.perf_counter() - begin) / calls)
    return statistics.median(samples), min(samples), max(samples)


def rows(reg: Registry, backend: str) -> Iterator[dict[str, Any]]:
    """A row for every call of a backend."""
    settle: Call = time.perf_counter  # nothing to wait for
    calls: Iterator[tuple[str, Call, int]]
    if backend == "webgpu":
        calls = webgpu_calls(reg)
        small = reg.to_device(np.ones(1, np.float32), "webgpu")
        settle = partial(reg.host, small)
    elif backend == "cuda":
        import cupy

        settle = cupy.cuda.runtime.deviceSynchronize
        calls = ((name, call, 1) for name, call in cuda_calls(reg))
    else:
        calls = ((name, call, 1) for name, call in numpy_calls(reg))
    for name, call, count in calls:
        middle, low, high = microseconds(call, settle, max(1, CALLS // count))
        yield {
            **{"backend": backend, "what": name, "us": middle / count},
            **{"us_low": low / count, "us_high": high / count},
        }


def main() -> None:
    """Measures, prints a table and writes a line of JSON for every row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backends", default="numpy,cuda,webgpu")
    parser.add_argument("--out", help="file for the rows, a line of JSON each")
    given = parser.parse_args()
    reg = open_registry()
    facts = system(reg)
    print(json.dumps(facts))
    for backend in given.backends.split(","):
        status = next(s for s in reg.backends() if s.name == backend)
        if not status.available:
            print(f"{backend}: {status.because}: {status.found}")
            continue
        for row in rows(reg, backend):
            spread = f"{row['us_low']:.1f} to {row['us_high']:.1f}"
            print(f"{backend:8}{row['what']:40}{row['us']:9.1f} us   {spread}", flush=True)
            keep(given.out, row, facts)


if __name__ == "__main__":
    main()
