"""Launches every CUDA kernel once, for tools that watch a process on a GPU.

    compute-sanitizer --tool memcheck python scripts/cuda_kernels.py
    compute-sanitizer --tool racecheck python scripts/cuda_kernels.py

Every dtype, row lengths on both sides of what changes a kernel, and every output. Tensors have allocations of
their own, without a pool, so that an access beyond one is seen.
"""

from __future__ import annotations

import cupy
import numpy as np

import registry
from registry.judging.accuracy import round_to
from registry_cuda.sources import LONGEST

LENGTHS = (1, 7, 64, 100, 127, 128, 130, 768, 1000, 1023, 1024, 4096, 8191, 8192, 12289, 24576, 30001)
ALSO_LONG = (1, 1000, 8192, 30001)
"""Lengths for which the kernels for long rows run, too."""

ROWS = 3
OUTPUTS = ("output", "mean", "inv_std_var", "input_skip_bias_sum")


def main() -> None:
    """Runs them and says how many."""
    cupy.cuda.set_allocator(None)
    draw = np.random.default_rng(0)
    count = 0
    for dtype, longest in LONGEST.items():

        def tensor(*shape: int, dtype: str = dtype) -> object:
            return registry.to_device(round_to(draw.standard_normal(shape), dtype), "cuda")

        for length in LENGTHS:
            x, skip = tensor(ROWS, length), tensor(ROWS, length)
            gamma, beta, bias = (tensor(length) for _ in range(3))
            variants = ["rows_registers"] if length <= longest else []
            variants += ["rows_split", "rows_block"] if length in ALSO_LONG else []
            for variant in variants:
                call = {"backend": "cuda", "variant": variant}
                registry.run("SkipLayerNormalization", x, skip, gamma, beta, bias, outputs=OUTPUTS, **call)
                registry.run("RMSNormalization", x, gamma, **call)
                count += 2
            registry.run("BiasAdd", tensor(1, ROWS, length), bias, tensor(1, ROWS, length), backend="cuda")
            count += 1
    cupy.cuda.runtime.deviceSynchronize()
    print(f"{count} calls")


if __name__ == "__main__":
    main()
