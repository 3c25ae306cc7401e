"""Runs the CUDA kernels on the CPU, so that their results can be tested where there is no GPU.

The rendered source is compiled as C++ beside a few lines that stand for CUDA. Each thread of a block is a
fibre; all of them run to their next barrier or shuffle in turn. Blocks run one after the other.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from registry.calling.request import Request
from registry.dtypes import numpy_dtype
from registry_cuda.launch import INTEGERS, POINTERS, argument_struct
from registry_cuda.problem import read_problem
from registry_cuda.variants import VARIANTS

COMPILER = shutil.which("g++")
SHIM = r"""
#include <ucontext.h>
#include <stdlib.h>
#include <string.h>
static float fabs(float value) { return __builtin_fabsf(value); }
static double fabs(double value) { return __builtin_fabs(value); }
static float sqrt(float value) { return __builtin_sqrtf(value); }
static double sqrt(double value) { return __builtin_sqrt(value); }
template <typename X> static bool isfinite(X value) { return __builtin_isfinite(value); }
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct Place3 { unsigned x; };
static Place3 threadIdx, blockIdx;

static constexpr int MOST_THREADS = 1024;
static ucontext_t scheduler, fibres[MOST_THREADS];
static int sites[MOST_THREADS];    // the kind of sync each thread waits at; 0 when it has ended
static double slots[2][MOST_THREADS];
static int turns[MOST_THREADS];

static void wait_at(int site) {
    const unsigned self = threadIdx.x;
    sites[self] = site;
    swapcontext(&fibres[self], &scheduler);
}
static void __syncthreads() { wait_at(1); }
static void __syncwarp() { wait_at(3); }
static unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return static_cast<unsigned>(((static_cast<unsigned long long>(high) << 32) | low) >> (by & 31));
}
template <typename W> static W __shfl_xor_sync(unsigned, W value, int step) {
    const unsigned self = threadIdx.x;
    double* slot = slots[turns[self] ^= 1];
    slot[self] = value;
    wait_at(2);
    return static_cast<W>(slot[self ^ step]);
}
template <typename X> static X __ldg(const X* from) { return *from; }
template <typename X> static X __ldcs(const X* from) { return *from; }
template <typename X> static void __stcs(X* to, X value) { *to = value; }
template <typename To, typename From> static To same_bits(From value) {
    To made; memcpy(&made, &value, sizeof made); return made;
}
static float __uint_as_float(unsigned bits) { return same_bits<float>(bits); }
static unsigned __float_as_uint(float value) { return same_bits<unsigned>(value); }
static double __longlong_as_double(long long bits) { return same_bits<double>(bits); }
static long long __double_as_longlong(double value) { return same_bits<long long>(value); }
static float from_half(unsigned short bits) { return same_bits<_Float16>(bits); }
static unsigned short to_half(float value) { return same_bits<unsigned short>(static_cast<_Float16>(value)); }
"""
RUNNER = r"""
static Tensors argument;
static void (*entry)(const Tensors);
static void fibre() {
    entry(argument);
    sites[threadIdx.x] = 0;
    swapcontext(&fibres[threadIdx.x], &scheduler);
}
extern "C" int run(void (*function)(const Tensors), const void* packed, int grid, int threads) {
    memcpy(&argument, packed, sizeof argument);
    entry = function;
    constexpr size_t STACK = 64 * 1024;
    int failed = 0;
    char* stacks = static_cast<char*>(malloc(STACK * threads));
    for (int block = 0; block < grid && !failed; ++block) {
        blockIdx.x = block;
        for (int i = 0; i < threads; ++i) {
            turns[i] = 0;
            getcontext(&fibres[i]);
            fibres[i].uc_stack.ss_sp = stacks + STACK * i;
            fibres[i].uc_stack.ss_size = STACK;
            makecontext(&fibres[i], fibre, 0);
        }
        for (bool running = true; running;) {
            for (int i = 0; i < threads; ++i) {
                threadIdx.x = i;
                swapcontext(&scheduler, &fibres[i]);
            }
            for (int i = 0; i < threads; ++i) failed |= sites[i] != sites[0];    // not all at one barrier
            running = sites[0] != 0 && !failed;
        }
    }
    free(stacks);
    return failed;
}
"""


def translate(source: str) -> str:
    """The C++ that a CUDA source stands for."""
    source = re.sub(r"W value;\s*asm\(.*?\);\s*return value;", "return from_half(stored);", source)
    source = re.sub(r'T stored;\s*asm\("cvt.rn.f16.*?\);\s*return stored;', "return to_half(value);", source)
    return "\n".join((SHIM, source, RUNNER))


def compile_on_cpu(source: str, folder: Path) -> ctypes.CDLL:
    """The source as a library; compiled once for a folder."""
    text = translate(source)
    stem = folder / hashlib.sha256(text.encode()).hexdigest()[:16]
    if not stem.with_suffix(".so").exists():
        stem.with_suffix(".cpp").write_text(text)
        options = ["-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-D__CUDA_ARCH__=700"]
        exact = ["-ffp-contract=off", "-fno-math-errno"]
        files = ["-o", str(stem.with_suffix(".so")), str(stem.with_suffix(".cpp"))]
        subprocess.run([str(COMPILER), *options, *exact, *files], check=True)
    return ctypes.CDLL(str(stem.with_suffix(".so")))


def run_on_cpu(
    request: Request,
    inputs: dict[str, np.ndarray[Any, Any]],
    variant: str,
    folder: Path,
    multiprocessors: int = 3,
    aligned: bool = True,
) -> dict[str, np.ndarray[Any, Any]]:
    """The asked outputs of a request by a variant, by role."""
    problem, chosen = read_problem(request), VARIANTS[variant]
    library = compile_on_cpu(chosen.kernel(problem).source(aligned), folder)
    outputs = {
        role: np.full(request.outputs[role].shape, 7, numpy_dtype(request.outputs[role].dtype))
        for role in request.asked
    }
    wide = problem.dtype == "float64"
    scratch = np.full(chosen.parts(problem) * problem.rows + 1, np.nan, np.float64 if wide else np.float32)
    tensors = {part: np.asarray({**inputs, **outputs}[role]) for part, role in problem.roles.items()}
    tensors["parts"] = scratch
    numbers = {
        "rows": problem.rows,
        "first_row": 0,
        "skip_rows": problem.skip_rows,
        "pieces": chosen.pieces(problem, problem.rows, multiprocessors),
    }
    pointers = [tensors[part].ctypes.data for part in POINTERS if part in tensors]
    integers = [numbers[name] for name in INTEGERS]
    memory = argument_struct(tensors, wide).pack(*pointers, *integers, problem.epsilon)
    for item in chosen.launches(problem, problem.rows, multiprocessors):
        failed = library.run(getattr(library, item.function), memory, item.grid, item.threads)
        assert not failed, f"{item.function}: threads wait at different barriers"
    return outputs
