"""This backend beside NumPy's and ONNX Runtime's CPU kernels: milliseconds of a call, and ratios.

    pip install '.[bench]' && python bench.py

Outputs are given to all (``out=``, io-binding) and inputs take turns, so that none is in the cache. The sides
take turns too; given is the median of each side's calls, with two threads.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

os.environ["NUMBA_NUM_THREADS"] = os.environ["REGISTRY_NUM_THREADS"] = "2"

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import registry

SIZES = ((1366, 768), (4096, 1024), (2048, 4096), (21846, 768))
OPS = {
    "SkipLayerNormalization": ("com.microsoft", ("input", "skip", "gamma", "beta"), ("output",)),
    "LayerNormalization": ("", ("X", "Scale", "B"), ("Y",)),
    "SimplifiedLayerNormalization": ("", ("X", "scale"), ("Y",)),
}
SETS, TURNS, CALLS = 8, 5, 8

Run = Callable[[int], object]


def onnx_runtime(op: str, tensors: list[dict[str, np.ndarray]], out: np.ndarray) -> Run:
    domain, inputs, outputs = OPS[op]
    node = helper.make_node(op, inputs, outputs, domain=domain)
    declare = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        op,
        [declare(name, TensorProto.FLOAT, tensors[0][name].shape) for name in inputs],
        [declare(name, TensorProto.FLOAT, out.shape) for name in outputs],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    # Threads that spin after a call would take the cores from the other sides.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    bindings = []
    for named in tensors:
        binding = session.io_binding()
        for name, value in named.items():
            binding.bind_input(name, "cpu", 0, np.float32, value.shape, value.ctypes.data)
        binding.bind_output(outputs[0], "cpu", 0, np.float32, out.shape, out.ctypes.data)
        bindings.append(binding)
    return lambda turn: session.run_with_iobinding(bindings[turn % SETS])


def ours(op: str, backend: str, tensors: list[dict[str, np.ndarray]], out: np.ndarray) -> Run:
    plan = registry.prepare(op, **tensors[0], backend=backend)
    return lambda turn: plan(**tensors[turn % SETS], out=out)


def main() -> None:
    draw = np.random.default_rng(0)
    print(f"onnxruntime {onnxruntime.__version__}, numpy {np.__version__}; float32, 2 threads, milliseconds")
    for op, (_, inputs, _) in OPS.items():
        for rows, hidden in SIZES:
            wide = 2 if "skip" in inputs else 1
            tensors = [
                {
                    name: draw.standard_normal((rows, hidden)[position >= wide :]).astype(np.float32)
                    for position, name in enumerate(inputs)
                }
                for _ in range(SETS)
            ]
            out = np.empty((rows, hidden), np.float32)
            sides = {
                "numba": ours(op, "numba", tensors, out),
                "numpy": ours(op, "numpy", tensors, out),
                "onnxruntime": onnx_runtime(op, tensors, out),
            }
            times: dict[str, list[float]] = {side: [] for side in sides}
            for turn in range(TURNS):
                for side, run in sides.items():
                    run(turn)
                    for call in range(CALLS):
                        start = time.perf_counter()
                        run(turn + call)
                        times[side].append(1e3 * (time.perf_counter() - start))
            medians = {side: statistics.median(values) for side, values in times.items()}
            ratios = [f"{medians[side] / medians['numba']:.1f}" for side in ("numpy", "onnxruntime")]
            values = " ".join(f"{side} {value:.2f}" for side, value in medians.items())
            print(f"{op} {rows} x {hidden}: {values}; ratios {' '.join(ratios)}", flush=True)


if __name__ == "__main__":
    main()
