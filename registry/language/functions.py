"""The functions that expressions can call.

Arguments convert as in JavaScript: numeric text counts as a number, null and undefined are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..dtypes import STORAGE
from . import shapes
from .operators import divide
from .values import (
    LIST,
    OBJECT,
    EvaluationError,
    Features,
    Number,
    describe,
    raw_text,
    to_number,
    truthy,
)

_DTYPE_BYTES = {name: size for name, (size, _) in STORAGE.items()} | {
    scalar: size for size, scalar in STORAGE.values()
}
_ONNX_CODES = {
    "float32": 1, "uint8": 2, "int8": 3, "int16": 5, "int32": 6, "int64": 7, "bool": 9,
    "float16": 10, "float64": 11, "uint32": 12, "bfloat16": 16,
}  # fmt: skip


def _rounded(value: Number, rounding: Callable[[Number], int]) -> Number:
    return rounding(value) if math.isfinite(value) else value


def ceil(value: Any) -> Number:
    """The least integer of at least ``value``."""
    return _rounded(to_number(value), math.ceil)


def floor(value: Any) -> Number:
    """The greatest integer of at most ``value``."""
    return _rounded(to_number(value), math.floor)


def minimum(*values: Any) -> Number:
    """The least value; Infinity without any, NaN if one is no number."""
    numbers = [to_number(value) for value in values]
    return math.nan if any(map(math.isnan, numbers)) else min(numbers, default=math.inf)


def maximum(*values: Any) -> Number:
    """The greatest value; -Infinity without any, NaN if one is no number."""
    numbers = [to_number(value) for value in values]
    return math.nan if any(map(math.isnan, numbers)) else max(numbers, default=-math.inf)


def power(base: Any, exponent: Any) -> Number:
    """``base`` to the ``exponent``; where it has no finite value an infinity or NaN."""
    x, y = float(to_number(base)), float(to_number(exponent))
    if x == 0 and y < 0:
        odd = y % 2 == 1
        return math.copysign(math.inf, x) if odd else math.inf
    if abs(x) == 1 and not math.isfinite(y):
        return math.nan
    if y == 0:
        return 1
    try:
        return math.nan if math.isnan(y) else math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:
        return math.nan


def ceil_div(dividend: Any, divisor: Any) -> Number:
    """The quotient rounded up; Infinity or NaN for a zero divisor."""
    return _rounded(divide(to_number(dividend), to_number(divisor)), math.ceil)


def log2_ceil(value: Any) -> Number:
    """The least integer n >= 0 with 2**n >= ``value``."""
    number = to_number(value)
    if math.isnan(number) or number == math.inf:
        return number
    if number <= 1:
        return 0
    mantissa, exponent = math.frexp(number)
    return exponent - 1 if mantissa == 0.5 else exponent


def pow2_ceil(value: Any) -> Number:
    """The least power of two of at least ``value``, and at least 1."""
    exponent = log2_ceil(value)
    return exponent if not math.isfinite(exponent) else math.inf if exponent > 1023 else 2**exponent


def has(owner: Any, key: Any) -> bool:
    """Whether an object has an entry ``key``; false for everything that is no object."""
    return isinstance(owner, OBJECT) and (key if isinstance(key, str) else raw_text(key)) in owner


def dtype_bytes(dtype: Any) -> int:
    """Bytes per element in a device buffer, by a dtype's name or its scalar type's."""
    return _known(_DTYPE_BYTES, dtype)


def onnx_dtype_code(dtype: Any) -> int:
    """ONNX's number of a dtype (TensorProto.DataType)."""
    return _known(_ONNX_CODES, dtype)


def _known(table: Mapping[str, int], dtype: Any) -> int:
    if isinstance(dtype, str) and dtype in table:
        return table[dtype]
    raise EvaluationError(f"needs a dtype ({', '.join(table)}), found {describe(dtype)}")


def pick(pairs: Any, default: Any = None) -> Any:
    """The value of the first pair whose condition is true (lists, objects are), or ``default``."""
    good = isinstance(pairs, LIST) and all(isinstance(pair, LIST) and len(pair) >= 2 for pair in pairs)
    if not good:
        raise EvaluationError(f"needs a list of [condition, value] pairs, found {describe(pairs)}")
    for condition, value, *_ in pairs:
        if truthy(condition) or isinstance(condition, (*LIST, *OBJECT)):
            return value
    return default


def device_functions(features: Features) -> dict[str, Callable[..., bool]]:
    """The functions that depend on a device: ``f16Ok`` and ``f16Allowed``.

    Args:
        features: the device's features in WebGPU's spelling; ``shader-f16`` is the one that counts.
    """
    has_f16 = features.has("shader-f16")

    def f16_ok(dtype: Any) -> bool:
        """False only for float16 on a device without it."""
        return has_f16 or dtype not in ("f16", "float16")

    def f16_allowed(dtype: Any) -> bool:
        """True for float32, and for float16 on a device that has it."""
        return dtype in ("f32", "float32") or (has_f16 and dtype in ("f16", "float16"))

    return {"f16Ok": f16_ok, "f16Allowed": f16_allowed}


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "ceil": ceil,
    "floor": floor,
    "min": minimum,
    "max": maximum,
    "pow": power,
    "ceilDiv": ceil_div,
    "pow2ceil": pow2_ceil,
    "log2ceil": log2_ceil,
    "numel": shapes.numel,
    "dim": shapes.dim,
    "cols": shapes.dim,
    "rank": shapes.rank,
    "rows": shapes.rows,
    "outer": shapes.outer,
    "inner": shapes.inner,
    "prefix": shapes.prefix,
    "suffix": shapes.suffix,
    "fill": shapes.fill,
    "moveAxis": shapes.move_axis,
    "permuteShape": shapes.permute_shape,
    "reversedAxes": shapes.reversed_axes,
    "broadcastShape": shapes.broadcast_shape,
    "matmulShape": shapes.matmul_shape,
    "broadcastable": shapes.broadcastable,
    "sameShape": shapes.same_shape,
    "hasAxis": shapes.has_axis,
    "axisValue": shapes.axis_value,
    "isUniqueIntList": shapes.is_unique_int_list,
    "has": has,
    "dtypeBytes": dtype_bytes,
    "onnxDtypeCode": onnx_dtype_code,
    "pick": pick,
}

RESERVED: Final = frozenset(FUNCTIONS) | frozenset(
    [
        *("repeat", "tunables", "dtypes", "logicalDtypes", "tensorDtypes", "ranks", "shapes"),
        *("present", "args", "attrs", "device", "env", "constants", "derive", "source"),
        *("DISPATCH_FOLD_WIDTH", "f16Ok", "f16Allowed"),
        *("true", "false", "none", "True", "False", "None", "range", "loop", "namespace", "dict"),
    ]
)
"""Names that a derived value may not take; a manifest's type variables come on top."""
