"""A case: one request as plain data, small enough to print and to read back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np

from ..calling.arrays import NumpyArray
from ..calling.request import TensorType
from ..dtypes import DTYPES, FLOATS, finfo, numpy_dtype
from ..errors import ContractError
from ..judging.accuracy import round_to
from ..judging.judge import poisoned

Layout = Literal["plain", "strided", "reversed", "transposed", "swapped", "read-only"]
Special = Literal["", "constant", "subnormal", "nan", "inf", "-inf"]

MAX_ELEMENTS = 2**28
"""More than any case needs; a text read back must not ask for all memory."""


class Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one tensor is made.

    Attributes:
        shape: its dimensions.
        dtype: a logical dtype.
        centre, spread: floating-point elements are normal numbers with this mean and standard deviation,
            kept finite; integers are small ones.
        special: ``constant`` is one number throughout, ``subnormal`` numbers below the smallest normal one;
            ``nan``, ``inf`` and ``-inf`` put that into some of the rows.
        layout: ``strided`` leaves gaps in the last dimension, ``reversed`` runs it backwards, ``transposed``
            has the dimensions in reverse order in memory, ``swapped`` the foreign byte order.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    centre: float = 0.0
    spread: float = 1.0
    special: Special = ""
    layout: Layout = "plain"


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request as data. ``str()`` is JSON on one line; `read_case` reads it back.

    Attributes:
        inputs: tensors by role or calling name.
        outputs: the outputs asked for, in order.
        attrs, args: attributes and scalar arguments.
        out: arrays to write, by output; only shape, dtype and layout count.
        seed: of the elements; each tensor has a stream of its own.
        again: inputs that are given a second time, by keyword.
        broken: what of the contract the request breaks; empty when it is legal.
    """

    inputs: dict[str, Tensor]
    outputs: tuple[str, ...]
    attrs: dict[str, Any] = {}
    args: dict[str, Any] = {}
    out: dict[str, Tensor] = {}
    seed: int = 0
    again: tuple[str, ...] = ()
    broken: str = ""

    def __str__(self) -> str:
        return json.dumps(self.as_dict(), separators=(",", ":"))

    def as_dict(self) -> dict[str, Any]:
        """The case as plain data, without what is the default."""
        plain: dict[str, Any] = _compact(self)
        return plain

    def pairs(self) -> dict[str, Any]:
        """The keyword arguments of the call without data: ``(shape, dtype)`` pairs."""
        return self._call({name: (tensor.shape, tensor.dtype) for name, tensor in self.inputs.items()})

    def call(self) -> dict[str, Any]:
        """The keyword arguments of the call, its arrays made anew; the same ones each time."""
        named = self._call(self.arrays())
        if self.out:
            named["out"] = {role: _poison(tensor) for role, tensor in self.out.items()}
        return named

    def arrays(self) -> dict[str, NumpyArray]:
        """The input arrays in their layouts."""
        return {name: _lay(_draw(t, name, self.seed), t.layout) for name, t in self.inputs.items()}

    def _call(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        again = {name: inputs[name] for name in self.again}
        return {**self.args, **again, "inputs": inputs, "attrs": self.attrs, "outputs": list(self.outputs)}


def read_case(text: str) -> Case:
    """The case that ``str(case)`` printed.

    Raises:
        ContractError: it is no JSON, or no case; says where.
    """
    if not isinstance(text, str):
        raise ContractError(f"the case is of type {type(text).__name__}; needed: a text")
    try:
        case = msgspec.convert(json.loads(text), Case)
    except (ValueError, RecursionError) as error:  # msgspec's ValidationError is a ValueError
        raise ContractError(f"the case cannot be read: {error}") from error
    for name, tensor in {**case.inputs, **case.out}.items():
        if tensor.dtype not in DTYPES:
            raise ContractError(f"the case's {name} is {tensor.dtype!r}; needed: one of {', '.join(DTYPES)}")
        if min(tensor.shape, default=0) < 0 or math.prod(tensor.shape) > MAX_ELEMENTS:
            needed = f"dimensions of at least 0 and at most {MAX_ELEMENTS} elements"
            raise ContractError(f"the case's {name} has shape {list(tensor.shape)}; needed: {needed}")
        if not (math.isfinite(tensor.centre) and 0 <= tensor.spread < math.inf):
            raise ContractError(f"the case's {name}: centre and spread are finite, spread is at least 0")
    if case.seed < 0:
        raise ContractError(f"the case's seed is {case.seed}; needed: at least 0")
    missing = [name for name in case.again if name not in case.inputs]
    if missing:
        raise ContractError(f"the case gives {missing[0]} again, which is not among its inputs")
    return case


def _compact(value: Any) -> Any:
    """A case as plain data without what is the default."""
    if isinstance(value, dict):
        return {name: _compact(item) for name, item in value.items()}
    if not isinstance(value, msgspec.Struct):
        return value
    fields = msgspec.structs.fields(value)
    pairs = {field.encode_name: (getattr(value, field.name), field.default) for field in fields}
    return {name: _compact(item) for name, (item, default) in pairs.items() if item != default and item != {}}


def _draw(tensor: Tensor, name: str, seed: int) -> NumpyArray:
    dtype = numpy_dtype(tensor.dtype)
    stream = np.random.default_rng([seed, *name.encode()])
    if tensor.dtype not in FLOATS:
        low = -100 if dtype.kind == "i" else 0
        return stream.integers(low, 2 if dtype.kind == "b" else 100, tensor.shape).astype(dtype)
    limits = finfo(dtype)
    if tensor.special == "subnormal":
        values = stream.uniform(-1, 1, tensor.shape) * float(limits.smallest_normal)
    else:
        shape = () if tensor.special == "constant" else tensor.shape
        values = np.broadcast_to(tensor.centre + tensor.spread * stream.standard_normal(shape), tensor.shape)
    array = np.array(round_to(np.clip(values, float(limits.min), float(limits.max)), tensor.dtype))
    if tensor.special in ("nan", "inf", "-inf") and array.size:
        rows = array.size // array.shape[-1] if array.ndim else 1
        array.reshape(-1)[stream.integers(0, array.size, max(1, rows // 3))] = float(tensor.special)
    return array


def _poison(tensor: Tensor) -> NumpyArray:
    return _lay(poisoned(TensorType(tensor.shape, tensor.dtype)), tensor.layout)


def _lay(array: NumpyArray, layout: Layout) -> NumpyArray:
    """The same elements, otherwise in memory. A scalar has one layout only, and bfloat16 one byte order."""
    if layout == "strided" and array.ndim:
        wide = poisoned(TensorType((*array.shape[:-1], 2 * array.shape[-1]), array.dtype.name))
        wide[..., ::2] = array
        return wide[..., ::2]
    if layout == "reversed" and array.ndim:
        return np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    if layout == "transposed" and array.ndim:
        return np.asfortranarray(array)
    if layout == "swapped" and array.dtype.kind != "V":
        return array.astype(array.dtype.newbyteorder("S"))
    if layout == "read-only":
        array.flags.writeable = False
    return array
