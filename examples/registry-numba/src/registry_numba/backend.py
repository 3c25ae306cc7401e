"""The Numba backend: what it claims, and how a request becomes arguments of the kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from registry import Availability, Backend, Claim, Executable, Op, Predicate, Refusal, Request

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Names:
    """What an op calls its tensors; None for what it has not."""

    x: str
    scale: str
    y: str
    inverse: str | None = None
    skip: str | None = None
    bias: str | None = None
    shift: str | None = None
    total: str | None = None
    mean: str | None = None
    centre: bool = True


_SKIP = {
    "x": "input",
    "scale": "gamma",
    "y": "output",
    "inverse": "inv_std_var",
    "skip": "skip",
    "bias": "bias",
    "total": "input_skip_bias_sum",
    "mean": "mean",
}

OPS: Mapping[str, Names] = {
    "ai.onnx::LayerNormalization": Names("X", "Scale", "Y", "InvStdDev", shift="B", mean="Mean"),
    "ai.onnx::RMSNormalization": Names("X", "scale", "Y", centre=False),
    "ai.onnx::SimplifiedLayerNormalization": Names("X", "scale", "Y", "inv_std_var", centre=False),
    "com.microsoft::SkipLayerNormalization": Names(**_SKIP, shift="beta"),
    "com.microsoft::SkipSimplifiedLayerNormalization": Names(**_SKIP, centre=False),
}


class NumbaBackend(Backend):
    """Runs on the CPU, on as many threads as Numba uses (``NUMBA_NUM_THREADS``)."""

    name = "numba"
    priority = 150  # before NumPy, behind what has a device of its own
    api_version = 1

    def probe(self, options: Mapping[str, Any]) -> Availability:
        """Whether Numba is installed; importing it takes a second, which is left to the first run."""
        if find_spec("numba") is None:
            return Availability(False, "numba is installed", "not found", "pip install numba")
        return Availability(True, name="the CPU, by Numba")

    def claims(self, op: Op) -> Sequence[Claim | Refusal]:
        """One variant of every op, for float32 and float64 with one scale for all rows."""
        if op.id not in OPS:
            return [Refusal("the op is a normalization", op.id, ", ".join(OPS))]
        return [Claim("fused", when=('dtypes.T in ["f32", "f64"]', ONE_SCALE))]

    def prepare(self, request: Request, claim: Claim, options: Mapping[str, Any]) -> Executable:
        """Binds the kernel to the request's shapes and attributes."""
        return Fused(OPS[request.op.id], request)

    def scratch_bytes(self, request: Request, claim: Claim, availability: Availability) -> int | None:
        """Unknown: operands that are not C-ordered are copied, and only the arrays tell."""
        return None


def _normalized(request: Request) -> tuple[int, ...]:
    """The dimensions that are normalized together."""
    shape = request.inputs[OPS[request.op.id].x].shape
    return shape[int(request.attrs.get("axis", -1)) % len(shape) :]


def _several_scales(request: Request, device: Mapping[str, Any]) -> str | None:
    names = OPS[request.op.id]
    rank = len(_normalized(request))
    for name in filter(None, (names.scale, names.shift)):
        if name in request.inputs:
            shape = request.inputs[name].shape
            if math.prod(shape[: max(0, len(shape) - rank)]) != 1:
                return f"{name} {list(shape)}"
    return None


ONE_SCALE = Predicate(
    "scale and shift are the same for all rows", "dimensions that are normalized", _several_scales
)


class Fused:
    """The kernel for requests of one kind."""

    def __init__(self, names: Names, request: Request) -> None:
        from .kernel import compiled

        self.names = names
        self.norm = _normalized(request)
        self.length = math.prod(self.norm)
        self.epsilon = float(np.float32(request.attrs["epsilon"]))
        self.dtype = np.dtype(request.inputs[names.x].dtype)
        self.normalize = compiled(self.dtype)

    def __call__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """See `registry.hookspecs.Executable`."""
        names = self.names
        x = _plain(inputs[names.x]).reshape(-1, self.length)
        skip = inputs.get(names.skip or "")
        total, y, mean, inverse = (
            outputs.get(name or "") for name in (names.total, names.y, names.mean, names.inverse)
        )
        if mean is not None and not names.centre:
            mean[...] = 0
            mean = None
        # The kernel writes C-ordered memory; other outputs are filled from it.
        filled = [(out, _writable(out)) for out in (total, y, mean, inverse) if out is not None]
        plain = {id(out): memory for out, memory in filled}
        no_rows, no_row, no_numbers = (
            np.empty((0, self.length), self.dtype),
            np.empty(0, self.dtype),
            np.empty(0, np.float32),
        )
        sums = no_rows if total is None else plain[id(total)].reshape(x.shape)
        if total is None and y is None:
            sums = np.empty(x.shape, self.dtype)  # statistics alone: the sum needs a place
        self.normalize(
            x,
            no_rows if skip is None else _plain(skip).reshape(-1, self.length),
            *(
                no_row if (row := inputs.get(name or "")) is None else self._row(row)
                for name in (names.bias, names.scale, names.shift)
            ),
            sums,
            no_rows if y is None else plain[id(y)].reshape(x.shape),
            *(no_numbers if out is None else plain[id(out)].reshape(-1) for out in (mean, inverse)),
            self.epsilon,
            names.centre,
        )
        for out, memory in filled:
            if memory is not out:
                out[...] = memory

    def _row(self, operand: Array) -> Array:
        """One value for each element of a row."""
        shape = operand.shape[max(0, operand.ndim - len(self.norm)) :]
        return _plain(np.broadcast_to(operand.reshape(shape), self.norm)).reshape(-1)


def _plain(operand: Array) -> Array:
    """The operand in C order, itself where it is."""
    return np.require(operand, requirements=("C", "ALIGNED"))


def _writable(out: Array) -> Array:
    return out if out.flags.c_contiguous and out.flags.aligned else np.empty(out.shape, out.dtype)
