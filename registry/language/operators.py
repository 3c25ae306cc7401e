"""The operators of the manifest language on plain values, with JavaScript's results on doubles."""

from __future__ import annotations

import math
from typing import Any, NoReturn

from .meter import MANY, spend
from .values import (
    LIST,
    NUMBER,
    OBJECT,
    UNDEFINED,
    EvaluationError,
    Features,
    Number,
    bounded,
    describe,
    kind,
    raw_text,
    squash,
)

_PLAIN = frozenset({bool, int, float, str})


def add(left: Number, right: Number) -> Number:
    """``left + right``; Float if either side is."""
    result = left + right
    return squash(result) if isinstance(result, int) else result


def subtract(left: Number, right: Number) -> Number:
    """``left - right``; Float if either side is."""
    result = left - right
    return squash(result) if isinstance(result, int) else result


def multiply(left: Number, right: Number) -> Number:
    """``left * right``; Float if either side is."""
    result = left * right
    return squash(result) if isinstance(result, int) else result


def divide(left: Number, right: Number) -> float:
    """``left / right``, always a Float; an infinity or NaN where the divisor is zero."""
    if right == 0:
        if left == 0 or math.isnan(left):
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1, right)
    return left / right


def floor_divide(left: Number, right: Number) -> Number:
    """The quotient rounded down (-7 // 2 is -4); not finite where the quotient is not."""
    quotient = divide(left, right)
    if not math.isfinite(quotient):
        return quotient
    floor = math.floor(quotient)
    return floor if isinstance(left, int) and isinstance(right, int) else float(floor)


def remainder(left: Number, right: Number) -> Number:
    """The remainder with the sign of the dividend (-7 % 4 is -3); NaN for a zero divisor."""
    if right == 0 or math.isinf(left):
        return math.nan
    result = math.fmod(left, right)
    return int(result) if isinstance(left, int) and isinstance(right, int) else result


def power(left: Number, right: Number) -> Number:
    """``left ** right``; Integer for an Integer to a non-negative Integer.

    Raises:
        EvaluationError: the power is not a finite number.
    """
    try:
        result = math.pow(left, right)
    except (OverflowError, ValueError):
        result = math.nan
    if not math.isfinite(result):
        raise EvaluationError("the power is no finite number")
    whole = isinstance(left, int) and isinstance(right, int) and right >= 0
    return int(result) if whole else result


def boolean_power(left: Any, right: Any) -> Number:
    """``left ** right`` where a side is a boolean, which counts as 0 or 1."""
    if isinstance(left, NUMBER) and isinstance(right, NUMBER):
        return power(left, right)
    refuse("**", left, right)


def signed(sign: int, value: Any) -> Number:
    """``-value`` or ``+value`` of a number or a boolean."""
    if not isinstance(value, NUMBER):
        raise EvaluationError(f"a sign needs a number, found {describe(value)}")
    return value * sign


def refuse(symbol: str, left: Any, right: Any) -> NoReturn:
    """Raises EvaluationError: the operands of an arithmetic operator are not both numbers."""
    raise EvaluationError(f"{symbol!r} needs two numbers, found {describe(left)} and {describe(right)}")


def join(left: Any, right: Any) -> str | list[Any]:
    """``left + right`` where a side is no number: the texts of both if one is text, or two lists.

    Raises:
        EvaluationError: the sides are neither, or the result is too long.
    """
    if isinstance(left, str) or isinstance(right, str):
        return concatenate(left, right)
    if isinstance(left, LIST) and isinstance(right, LIST):
        return list(bounded([*left, *right]))
    raise EvaluationError(
        f"'+' needs two numbers, two lists or a text, found {describe(left)} and {describe(right)}"
    )


def concatenate(left: Any, right: Any) -> str:
    """The texts of both sides, one after the other.

    Raises:
        EvaluationError: a side is null, undefined, an object or a function; the text is too long.
    """
    for side in (left, right):
        if side is None or side is UNDEFINED:
            raise EvaluationError(f"{kind(side)} has no text form")
    return str(bounded(raw_text(left) + raw_text(right)))


def equal(left: Any, right: Any) -> bool:
    """Equality of two values of one kind: by value, but of lists and objects by identity.

    Null and undefined equal each other and nothing else.

    Raises:
        EvaluationError: the kinds differ, where the answer could only rest on a silent conversion.
    """
    if type(left) is type(right) and type(left) in _PLAIN:  # nearly always
        return bool(left == right)
    if left is None or left is UNDEFINED:
        return right is None or right is UNDEFINED
    if right is None or right is UNDEFINED:
        return False
    if kind(left) != kind(right):
        raise EvaluationError(
            f"found {describe(left)} and {describe(right)}, which are of different kinds; "
            "write both sides as numbers, or both as quoted text"
        )
    return identical(left, right)


def identical(left: Any, right: Any) -> bool:
    """Equality without conversion, false for different kinds, as ``in`` compares."""
    what = kind(left)
    if what != kind(right):
        return False
    return bool(left == right) if what in ("number", "text", "boolean") else left is right


def contains(needle: Any, holder: Any) -> bool:
    """``needle in holder``: an element of a list, a part of a text, a key of an object.

    Raises:
        EvaluationError: any other combination; only an undefined holder contains nothing.
    """
    if needle is not None and needle is not UNDEFINED:
        if holder is UNDEFINED:
            return False
        if isinstance(holder, LIST):
            if len(holder) >= MANY:
                spend(len(holder))
            return any(identical(needle, item) for item in holder)
        if isinstance(needle, str):
            if isinstance(holder, str) and len(holder) >= MANY:
                spend(len(holder) // MANY)
            if isinstance(holder, (str, *OBJECT)):
                return needle in holder
            if isinstance(holder, Features):
                return False
    raise EvaluationError(f"cannot look for {describe(needle)} in {describe(holder)}")
