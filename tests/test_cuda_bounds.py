"""No CUDA kernel reads or writes beyond its tensors: every one of them begins or ends where memory does.

Pages end at multiples of 16 bytes, so that an access which leaves a tensor and stays within 16 aligned bytes
of it cannot be a fault, here or anywhere. That what lies there has no part in results, and is not written,
is checked by its value. A fault ends a process's use of the device, so that this file is also a program: it
runs the cases whose numbers it reads, and names each before it begins.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from forms import FORMS, Form
from guarded import Guarded, obstacle

import registry_cuda
import registry_manifests
from registry import Registry
from registry_cuda.tensor import Tensor

Arrays = dict[str, np.ndarray[Any, Any]]

VARIANTS = ("rows_registers", "rows_split", "rows_block")
DTYPES = ("float32", "float16", "bfloat16", "float64")
HIDDEN = (1, 5, 768, 1000, 1023, 4097)
ROWS = (1, 3, 24)
"""With 24, tensors of rows end aligned whatever the length, and so do those of a third of the rows."""

PLACES = {"begin": ("begin", True), "end": ("end", False), "aligned end": ("end", True)}
"""Where all tensors of a call lie: the arguments of `Guarded.place`."""

SCRATCH = "scratch"
POISON = 0xFF
"""A byte around tensors; several are a NaN of any dtype."""

MARGIN = 256
"""Bytes on both sides of a tensor that are looked at."""

MEMORY = 2 * max(ROWS) * max(HIDDEN) * 8
APART = MEMORY // 2 // 16 * 16
WORKERS = min(16, os.cpu_count() or 1)


# What is run


@dataclass(frozen=True)
class Work:
    """A case in numbers: its inputs and right outputs by role, and what runs it on device tensors."""

    inputs: Arrays
    outputs: Arrays
    launch: Callable[[Mapping[str, Any]], object]


@dataclass(frozen=True)
class Case:
    """A call of an op by a variant."""

    op: str
    variant: str
    dtype: str
    hidden: int
    form: Form
    rows: int

    def __str__(self) -> str:
        tensors = f"{self.rows} rows of {self.hidden} {self.dtype}"
        return f"{self.op} {self.variant}, form {self.form.name!r}, {tensors}"

    def work(self, reg: Registry) -> Work:
        """With the results of ordinary tensors as the right ones."""
        call = self.form.call(self.rows, self.hidden, self.dtype)
        assert call is not None
        how = {"attrs": call["attrs"], "backend": "cuda", "variant": self.variant}
        inputs = {role: np.asarray(value) for role, value in call["inputs"].items()}
        roles = call["outputs"]
        ordinary = {role: reg.to_device(value, "cuda") for role, value in inputs.items()}
        results = [reg.host(item) for item in reg.run(self.op, inputs=ordinary, outputs=roles, **how)]

        def launch(tensors: Mapping[str, Any]) -> None:
            given = {role: tensors[role] for role in inputs}
            out = {role: tensors[role] for role in roles}
            reg.run(self.op, inputs=given, outputs=roles, out=out, **how)

        return Work(inputs, dict(zip(roles, results, strict=True)), launch)


@dataclass(frozen=True)
class Mistake:
    """A kernel that reads or writes one element too many, which is to be found."""

    read: int
    written: int

    SIZE = 6
    CODE = r"""
    extern "C" __global__ void careless(const float* x, float* y, long long read, long long written) {
        const volatile float* from = x;    // is read, though the value is not used
        const float value = from[read];
        (void)value;
        y[0] = x[0];
        y[written] = x[0];
    }
    """

    def __str__(self) -> str:
        return f"mistake x[{self.read}] y[{self.written}]"

    def work(self, reg: Registry) -> Work:
        """x of ``SIZE`` elements, y of one."""
        import cupy

        kernel = cupy.RawKernel(self.CODE, "careless")
        x = np.arange(1, self.SIZE + 1, dtype=np.float32)

        def launch(tensors: Mapping[str, Any]) -> None:
            kernel((1,), (1,), (tensors["x"], tensors["y"], np.int64(self.read), np.int64(self.written)))

        return Work({"x": x}, {"y": x[:1].copy()}, launch)


def tensors_of(form: Form) -> int:
    """How many tensors a call takes and gives."""
    return len(form.shapes(6, 8) or ()) + len(form.outputs)


def fullest(forms: Sequence[Form]) -> list[Form]:
    """The forms with the most tensors."""
    most = max(map(tensors_of, forms))
    return [form for form in forms if tensors_of(form) == most]


def groups() -> Iterator[list[Case]]:
    """Every op, variant, dtype and length, with half of the op's fullest forms; every other form meets every
    variant once."""
    cells = list(itertools.product(DTYPES, HIDDEN))
    for op, forms in FORMS.items():
        full = fullest(forms)
        others = [form for form in forms if form not in full]
        for variant in ("bias_add",) if op.endswith("::BiasAdd") else VARIANTS:
            random.Random(f"{op} {variant}").shuffle(others)
            for place, (dtype, hidden) in enumerate(cells):
                half = (DTYPES.index(dtype) + HIDDEN.index(hidden)) % 2
                chosen = [*(full[half::2] or full), *others[place :: len(cells)]]
                yield [
                    Case(op, variant, dtype, hidden, form, rows)
                    for form, rows in itertools.product(chosen, ROWS)
                    if form.shapes(rows, hidden) is not None
                ]


GROUPS = tuple(groups())
MISTAKES = (Mistake(Mistake.SIZE, 0), Mistake(-1, 0), Mistake(0, 1))
CASES: tuple[Case | Mistake, ...] = (*itertools.chain.from_iterable(GROUPS), *MISTAKES)


# In a process of its own


class Differs(Exception):
    """A tensor, or what lies around it, is not as it should be."""


class Memories:
    """Guarded memory for every tensor of a call, one call at a time."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        self.device = int(cupy.cuda.runtime.getDevice())
        cupy.cuda.runtime.free(0)  # which makes the device's context, if there is none
        most = max(map(tensors_of, itertools.chain.from_iterable(FORMS.values()))) + 1  # and scratch
        self.memories = [Guarded(self.device, MEMORY) for _ in range(most)]

    def run(self, work: Work, place: str, only: str | None) -> None:
        """Runs it on tensors in their places: all of them, or ``only`` that role, the others apart.

        Raises:
            Differs: an output has other bits than on ordinary tensors, or other bytes have changed.
        """
        runtime = self.cupy.cuda.runtime
        unused = iter(self.memories)
        tensors, found = {}, {}

        def put(role: str, nbytes: int) -> tuple[Guarded, int]:
            memory = next(unused)
            runtime.memset(memory.begin, POISON, memory.size)
            apart = 0 if only in (None, role) else APART
            return memory, memory.place(nbytes, *PLACES[place], apart)

        def scratch(nbytes: int) -> Any:
            return self.pointer(*put(SCRATCH, nbytes), nbytes)

        for role, value in (work.inputs | work.outputs).items():
            memory, address = found[role] = put(role, value.nbytes)
            if role in work.inputs:
                runtime.memcpy(address, value.ctypes.data, value.nbytes, runtime.memcpyHostToDevice)
            pointer = self.pointer(memory, address, value.nbytes)
            if value.dtype.name == "bfloat16":
                tensors[role] = Tensor(self.cupy.ndarray(value.shape, np.uint16, pointer))
            else:
                tensors[role] = self.cupy.ndarray(value.shape, value.dtype, pointer)
        with self.cupy.cuda.using_allocator(scratch):
            work.launch(tensors)
        runtime.deviceSynchronize()
        for role, value in (work.inputs | work.outputs).items():
            self.check(role, value.tobytes(), *found[role])

    def pointer(self, memory: Guarded, address: int, nbytes: int) -> Any:
        """CuPy's pointer to a part of the memory."""
        cuda = self.cupy.cuda
        return cuda.MemoryPointer(cuda.UnownedMemory(address, nbytes, memory, self.device), 0)

    def check(self, role: str, want: bytes, memory: Guarded, address: int) -> None:
        """Looks at a tensor's bytes and at those around it."""
        runtime = self.cupy.cuda.runtime
        first = max(memory.begin, address - MARGIN)
        got = np.empty(min(memory.end, address + len(want) + MARGIN) - first, np.uint8)
        runtime.memcpy(got.ctypes.data, first, got.nbytes, runtime.memcpyDeviceToHost)
        before = address - first
        inside = slice(before, before + len(want))
        if got[inside].tobytes() != want:
            raise Differs(f"{role} has not the bits that it has as an ordinary tensor")
        got[inside] = POISON
        if wrong := np.flatnonzero(got != POISON).tolist():
            raise Differs(f"{role}: written at {[at - before for at in wrong]}, of {len(want)} bytes")


def work_off(numbers: Sequence[int], places: Sequence[str], only: str | None) -> None:
    """Runs cases by their numbers. Each place is printed before it is begun."""
    reg = Registry([registry_manifests, registry_cuda], entry_points=False)
    memories = Memories()
    for number in numbers:
        print(json.dumps([number, "ordinary"]), flush=True)
        work = CASES[number].work(reg)
        for place in places:
            print(json.dumps([number, place]), flush=True)
            memories.run(work, place, only)


# In the tests


def run_apart(numbers: Sequence[int], *how: str) -> tuple[list[tuple[int, str]], str | None]:
    """What a process of its own has begun of the cases, and what ended it, if it was not their end."""
    done = subprocess.run(
        [sys.executable, __file__, *how],
        input=json.dumps(numbers),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    begun = [(number, place) for number, place in map(json.loads, done.stdout.splitlines())]
    if done.returncode == 0:
        return begun, None
    text = done.stderr.strip() or f"exit status {done.returncode}"
    last = text.splitlines()[-1]
    return begun, last if is_fault(last) or Differs.__name__ in last else text


def is_fault(error: str) -> bool:
    """Whether it is that of CUDA's runtime or driver for an access where nothing is mapped."""
    return "cudaErrorIllegalAddress" in error or "CUDA_ERROR_ILLEGAL_ADDRESS" in error


def failure(numbers: Sequence[int]) -> str | None:
    """What goes wrong first in some cases; of a fault, also which tensors have it alone."""
    begun, error = run_apart(numbers)
    if error is None:
        places = ["ordinary", *PLACES]
        assert begun == list(itertools.product(numbers, places)), "not all has run"
        return None
    if not begun:
        return error
    number, place = begun[-1]
    text = f"{CASES[number]}, {place}: {error}"
    if place not in PLACES or not is_fault(error):
        return text
    case = CASES[number]
    if isinstance(case, Mistake):
        roles = ["x", "y"]
    else:
        roles = [*(case.form.shapes(case.rows, case.hidden) or ()), *case.form.outputs, SCRATCH]
    with ThreadPoolExecutor(WORKERS) as pool:
        errors = list(pool.map(lambda role: run_apart([number], place, role)[1], roles))
    guilty = [role for role, error in zip(roles, errors, strict=True) if error is not None]
    return f"{text}; beyond {', '.join(guilty) or 'no tensor alone'}"


@pytest.fixture
def guarded(cuda: Registry) -> None:
    """Skips where there is no GPU with guarded memory."""
    against = obstacle(0)
    if against is not None:
        pytest.skip(f"no guarded memory: {against}")


def test_no_access_beyond_a_tensor(guarded: None) -> None:
    numbers = iter(range(len(CASES)))
    shares = [list(itertools.islice(numbers, len(group))) for group in GROUPS]
    random.Random(0).shuffle(shares)
    with ThreadPoolExecutor(WORKERS) as pool:
        parts = [list(itertools.chain.from_iterable(shares[k::WORKERS])) for k in range(WORKERS)]
        found = [text for text in pool.map(failure, parts) if text is not None]
    assert not found, "\n".join(found)


def test_mistakes_are_found(guarded: None) -> None:
    numbers = range(len(CASES) - len(MISTAKES), len(CASES))
    with ThreadPoolExecutor(len(MISTAKES)) as pool:
        after, before, written = pool.map(lambda number: str(failure([number])), numbers)
    assert after.startswith("mistake x[6] y[0], end: ") and after.endswith("; beyond x"), after
    assert before.startswith("mistake x[-1] y[0], begin: ") and before.endswith("; beyond x"), before
    assert "cudaErrorIllegalAddress" in after and "cudaErrorIllegalAddress" in before
    assert written.startswith("mistake x[0] y[1], begin: "), written
    assert written.endswith("y: written at [4, 5, 6, 7], of 4 bytes"), written


if __name__ == "__main__":
    one_place, one_role = sys.argv[1:] or (None, None)
    try:
        work_off(json.load(sys.stdin), [one_place] if one_place else list(PLACES), one_role)
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # what a fault has left cannot be tidied up
