"""The NumPy backend: claims each of its ops whole, in two forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from registry import (
    Availability,
    Backend,
    Claim,
    ContractError,
    Executable,
    Expected,
    Op,
    Refusal,
    Request,
)
from registry.judging.accuracy import round_to

from . import (
    bias_add,
    blocks,
    layer_normalization,
    rms_normalization,
    simplified_layer_normalization,
    skip_layer_normalization,
    skip_simplified_layer_normalization,
)
from .normalize import scratch_bytes

NumpyArray = np.ndarray[Any, Any]

REFERENCE_BYTES = 11 * 8  # float64 tensors that the plain formula holds at once


@dataclass(frozen=True)
class Forms:
    """An op's plain formula in float64 and its fast form."""

    reference: Callable[[Mapping[str, NumpyArray], Mapping[str, Any]], Mapping[str, Expected]]
    blocked: Callable[[Mapping[str, NumpyArray], Mapping[str, Any], Mapping[str, NumpyArray]], None]


KERNELS: Mapping[str, Forms] = {
    module.OP: Forms(module.reference, module.blocked)
    for module in (
        bias_add,
        layer_normalization,
        rms_normalization,
        simplified_layer_normalization,
        skip_layer_normalization,
        skip_simplified_layer_normalization,
    )
}


class NumpyBackend(Backend):
    """Runs on the CPU: the fallback that exists for every op, dtype and option of the contract."""

    name = "numpy"
    priority = 100

    def __init__(self) -> None:
        blocks.reset()  # a new registry reads the number of threads anew

    def probe(self, options: Mapping[str, Any]) -> Availability:
        """Available unless the number of threads is set to nonsense."""
        try:
            threads = blocks.thread_count()
        except ContractError as error:
            found = str(error).removesuffix(f"; needed: {blocks.THREADS_NEEDED}")
            return Availability(False, "the number of threads is known", found, blocks.THREADS_NEEDED)
        return Availability(True, name=f"NumPy {np.__version__}", details={"threads": threads})

    def imagine(self, profile: Mapping[str, Any]) -> Availability:
        """A described CPU is this one: nothing in a profile matters here."""
        return self.probe({})

    def claims(self, op: Op) -> Sequence[Claim | Refusal]:
        """``blocked`` is the fast form, ``reference`` the float64 formula rounded once."""
        if op.package is not None:
            return []
        if op.id not in KERNELS:
            return [Refusal("the op is built in", op.id, ", ".join(KERNELS))]
        return [Claim("blocked", priority=1), Claim("reference")]

    def prepare(self, request: Request, claim: Claim, options: Mapping[str, Any]) -> Executable:
        """Binds the form to the request's attributes."""
        forms = KERNELS[request.op.id]
        return _Reference(forms, request) if claim.variant == "reference" else _Blocked(forms, request)

    def copier(self, nbytes: int, options: Mapping[str, Any]) -> Callable[[], None]:
        """A copy by NumPy, on one thread."""
        source = np.ones(nbytes // 2, np.uint8)  # not zeros: they need not be in memory
        target = np.empty_like(source)
        return partial(np.copyto, target, source)

    def scratch_bytes(self, request: Request, claim: Claim, availability: Availability) -> int:
        """Every thread's blocks, or the reference's tensors in float64."""
        shape = next(iter(request.inputs.values())).shape
        if claim.variant == "reference":
            return REFERENCE_BYTES * math.prod(shape)
        return scratch_bytes(shape, request.attrs.get("axis", -1))


@dataclass(frozen=True)
class _Blocked:
    forms: Forms
    request: Request

    def __call__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        self.forms.blocked(inputs, self.request.attrs, outputs)


@dataclass(frozen=True)
class _Reference:
    forms: Forms
    request: Request

    def __call__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        # NumPy sums a row in the order it lies in memory.
        plain = {role: np.asarray(value, order="C") for role, value in inputs.items()}
        with np.errstate(all="ignore"):  # NaN and infinity are values here
            expected = self.forms.reference(plain, self.request.attrs)
        for role, out in outputs.items():
            out[...] = round_to(expected[role].value, self.request.outputs[role].dtype)
