"""The values of the manifest language: their kinds, the number model, and their text.

Every number is an IEEE double. A Python ``int`` carries the tag *Integer*, a ``float`` the tag
*Float*; the tag decides how a number prints and whether it may index a list, never its value.
``bool`` is no number, ``None`` is null, ``UNDEFINED`` is what a missing member gives.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeGuard

from ..errors import shorten
from .meter import MANY, spend
from .meter import EvaluationError as EvaluationError

Number = int | float

# For isinstance: a tuple is several times faster than a union built on every call, and ``dict`` in
# front spares the usual case the walk through an abstract class.
NUMBER: Final = (int, float)
LIST: Final = (list, tuple)
OBJECT: Final = (dict, Mapping)
CONTAINER: Final = (str, list, tuple, dict, Mapping)

_SCALAR: Final = frozenset({int, float, bool, type(None)})  # spares them the walk, too

MAX_SIZE: Final = 4096  # elements of a list with all that it holds, characters of a text
_EXACT: Final = 2**53  # integers up to here are doubles as they stand
_NUMERIC_TEXT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?Infinity", re.A)


class Undefined:
    """The type of ``UNDEFINED``, the value of a member that does not exist. It is false."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "undefined"

    def __reduce__(self) -> str:
        return "UNDEFINED"


UNDEFINED: Final = Undefined()


class Features:
    """A read-only set of feature names. Expressions see ``.has(name)`` and ``.size``, nothing else.

    Deliberately no container: in expressions ``"x" in features`` and ``has(features, "x")`` are
    false.
    """

    __slots__ = ("_names",)

    def __init__(self, names: Iterable[str] = ()):
        self._names = frozenset(names)

    @property
    def size(self) -> int:
        """How many features there are."""
        return len(self._names)

    def has(self, name: object) -> bool:
        """Whether the feature ``name`` is there; false for anything that is no text."""
        return isinstance(name, str) and name in self._names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Features) and other._names == self._names

    def __hash__(self) -> int:
        return hash(self._names)

    def __repr__(self) -> str:
        return f"Features({sorted(self._names)})"


def is_number(value: object) -> TypeGuard[Number]:
    """Whether a value is an Integer or a Float."""
    exact = type(value)
    return exact is int or exact is float or (exact is not bool and isinstance(value, NUMBER))


def kind(value: object) -> str:
    """The kind of a value as error messages call it."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, NUMBER):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, LIST):
        return "list"
    if value is None:
        return "null"
    if value is UNDEFINED:
        return "undefined"
    return "function" if callable(value) else "object"


def truthy(value: object) -> bool:
    """False for false, 0, NaN, empty text, list and object, null, undefined; true for the rest."""
    return bool(value) and not (isinstance(value, float) and math.isnan(value))


def squash(value: int) -> Number:
    """An integer rounded to double precision; an infinity where it exceeds the range of doubles."""
    if -_EXACT <= value <= _EXACT:
        return value
    try:
        return int(float(value))
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def tag(value: Any) -> Any:
    """A number with the tag it carries when read: integral ones are ``int``. Others as they are."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    return squash(value) if type(value) is int else value


def retag(value: Any) -> Any:
    """``tag`` through lists, tuples and mappings; what needs no change comes back as it is."""
    if type(value) in _SCALAR:
        return tag(value)
    if isinstance(value, CONTAINER) and len(value) >= MANY:
        spend(1 if isinstance(value, str) else len(value))
    if isinstance(value, LIST):
        items = [retag(item) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, OBJECT):
        entries = {key: retag(item) for key, item in value.items()}
        return value if all(entries[key] is value[key] for key in entries) else entries
    return tag(value)


def bounded(value: Any) -> Any:
    """The value itself.

    Raises:
        EvaluationError: its texts and lists, with all that they hold, exceed ``MAX_SIZE``.
    """
    count, elements, pending = 0, 0, [value]
    while pending:
        each = pending.pop()
        if type(each) not in _SCALAR and isinstance(each, CONTAINER):
            count += len(each)
            check_size(count, "characters and list elements")
            if not isinstance(each, str):
                elements += len(each)
                pending.extend(each.values() if isinstance(each, OBJECT) else each)
    if count >= MANY:
        spend(elements + (count - elements) // MANY)
    return value


def check_size(size: Number, unit: str) -> None:
    """Raise EvaluationError when ``size`` exceeds ``MAX_SIZE``."""
    if size > MAX_SIZE:
        raise EvaluationError(f"{size} {unit} are too many; the limit is {MAX_SIZE}")


def to_number(value: object) -> Number:
    """The number an argument stands for: numeric text converts, null and undefined are NaN.

    Raises:
        EvaluationError: a list, an object or a function.
    """
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, NUMBER):
        return value
    if isinstance(value, str):
        text = value.strip()
        if _NUMERIC_TEXT.fullmatch(text):
            return float(text)
        return math.nan if text else 0
    if value is None or value is UNDEFINED:
        return math.nan
    raise EvaluationError(f"needs a number, found {describe(value)}")


def number_text(value: Number, *, point: bool = False) -> str:
    """The shortest text of a double: ``0.00001``, ``1e-7``, ``1e+21``, ``Infinity``.

    With ``point`` an integral Float keeps one decimal (``2.0``), as templates print it.
    """
    if isinstance(value, int) and abs(value) <= _EXACT:
        return str(value)
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    pointed = point and isinstance(value, float) and number.is_integer()
    if number == 0:
        return ("-0.0" if math.copysign(1, number) < 0 else "0.0") if pointed else "0"
    negative, digit_tuple, power = Decimal(repr(number)).normalize().as_tuple()
    digits = "".join(map(str, digit_tuple))
    whole = len(digits) + int(power)  # digits before the decimal point
    if len(digits) <= whole <= 21:
        text = digits + "0" * (whole - len(digits)) + (".0" if pointed else "")
    elif 0 < whole <= 21:
        text = f"{digits[:whole]}.{digits[whole:]}"
    elif -6 < whole <= 0:
        text = "0." + "0" * -whole + digits
    else:
        mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
        text = f"{mantissa}e{whole - 1:+d}"
    return "-" + text if negative else text


def raw_text(value: object) -> str:
    """What ``~`` and ``+`` append: lists joined by commas, without brackets, null in them empty.

    Raises:
        EvaluationError: the value is an object or a function, or the text exceeds ``MAX_SIZE``.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, NUMBER):
        return number_text(value)
    if value is None or value is UNDEFINED:
        return ""
    if isinstance(value, LIST):
        return ",".join(raw_text(item) for item in bounded(value))
    raise EvaluationError(f"{describe(value)} has no text form")


def json_text(value: object) -> str:
    """The value as JSON on one line, with ``, `` and ``: ``; undefined prints as ``undefined``."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value is None:
        return "null"
    if isinstance(value, LIST):
        if len(value) >= MANY:
            spend(4 * len(value))  # numbers take long to write
        return "[" + ", ".join(json_text(item) for item in bounded(value)) + "]"
    if isinstance(value, OBJECT):
        entries = (f"{json_text(key)}: {json_text(item)}" for key, item in bounded(value).items())
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, bool | int | float):
        return raw_text(value)
    return repr(value) if isinstance(value, Undefined | Features) else "function"


def describe(value: object) -> str:
    """A value for an error message: its kind and its shortened text."""
    if value is None or value is UNDEFINED:
        return kind(value)
    try:
        text = short_text(value, 60)
    except EvaluationError:
        text = "one too large to show"
    return text if text == kind(value) else f"{kind(value)} {text}"


def short_text(value: object, width: int) -> str:
    """The value as JSON, cut to a number of characters; of a list no more than shows is written out."""
    if isinstance(value, LIST) and len(value) > width:
        value = value[:width]
    return shorten(json_text(value), width)
