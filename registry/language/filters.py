"""The filters (``x | name``) and tests (``x is name``) of the manifest language."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from .members import (
    OBJECT_METHODS,
    capitalize,
    items,
    member,
    replace,
    sort_values,
    title,
)
from .operators import identical
from .values import (
    LIST,
    OBJECT,
    UNDEFINED,
    EvaluationError,
    bounded,
    check_size,
    describe,
    is_number,
    json_text,
    number_text,
    raw_text,
    tag,
    truthy,
)

_INTEGER_START = re.compile(r"\s*[+-]?\d+", re.A)
_FLOAT_START = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.A | re.I)


def _needs(value: Any, *kinds: type, what: str) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise EvaluationError(f"needs {what}, found {describe(value)}")
    return value


def _list(value: Any) -> Any:
    return _needs(value, list, tuple, what="a list")


def _text(value: Any) -> str:
    return str(_needs(value, str, what="text"))


def _length(value: Any) -> int:
    return len(_needs(value, list, tuple, str, Mapping, what="a list, a text or an object"))


def _join(value: Any, separator: str = "") -> str:
    parts = list(bounded(value)) if isinstance(value, str) else [raw_text(part) for part in _list(value)]
    size = sum(map(len, parts)) + len(_text(separator)) * max(0, len(parts) - 1)
    check_size(size, "characters of text")
    return separator.join(parts)


def _sort(
    value: Any, reverse: bool = False, case_sensitive: bool = False, attribute: str | None = None
) -> list[Any]:
    def key(element: Any) -> Any:
        return element if attribute is None else member(element, attribute)

    return sort_values(_list(value), reverse=reverse, case_sensitive=case_sensitive, key=key)


def _unique(value: Any) -> list[Any]:
    seen: set[tuple[object, ...]] = set()
    result = []
    for element in _list(value):
        plain = isinstance(element, str | int | float)
        mark = (is_number(element), type(element) is bool, element) if plain else (id(element),)
        if mark not in seen:
            seen.add(mark)
            result.append(element)
    return result


def _map(value: Any, attribute: str, default: Any = UNDEFINED) -> list[Any]:
    found = (member(element, _text(attribute)) for element in _list(value))
    return [default if element is UNDEFINED else element for element in found]


def _select(wanted: bool, value: Any, attribute: str, test: str = "", other: Any = None) -> list[Any]:
    def holds(element: Any) -> bool:
        entry = member(element, _text(attribute))
        if not test:
            return truthy(entry)
        if test in ("equalto", "eq"):
            return identical(entry, other)
        if test not in TESTS:
            raise EvaluationError(f"there is no test {test!r}; known tests: {', '.join(TESTS)}")
        return TESTS[test](entry)

    return [element for element in _list(value) if holds(element) is wanted]


def _indent(value: Any, width: int = 4, first: bool = False, blank: bool = False) -> str:
    lines = _text(value).split("\n")
    check_size(len(value) + len(lines) * width, "characters of text")
    return "\n".join(
        " " * width + line if (number or first) and (line or blank) else line
        for number, line in enumerate(lines)
    )


def _int(value: Any, default: Any = 0) -> Any:
    if isinstance(value, str):
        match = _INTEGER_START.match(value)
        return tag(float(match.group())) if match else default
    _needs(value, bool, int, float, what="a number, a boolean or text")
    return math.floor(value) if math.isfinite(value) else value


def _float(value: Any, default: Any = 0.0) -> Any:
    if isinstance(value, str):
        match = _FLOAT_START.match(value)
        return float(match.group()) if match else default
    return float(_needs(value, bool, int, float, what="a number, a boolean or text"))


def _string(value: Any) -> str:
    if is_number(value):
        return number_text(value, point=True)
    if isinstance(value, str | bool):
        return raw_text(value)
    return str(bounded(json_text(_list(value))))


def _tojson(value: Any) -> str:
    return str(bounded(json_text(None if value is UNDEFINED else value)))


def _abs(value: Any) -> Any:
    return abs(_needs(value, int, float, what="a number"))


def _default(value: Any, default: Any = "", boolean: Any = False) -> Any:
    return default if value is UNDEFINED or (truthy(boolean) and not truthy(value)) else value


def _first(value: Any) -> Any:
    return _list(value)[0] if _list(value) else UNDEFINED


def _last(value: Any) -> Any:
    return _list(value)[-1] if _list(value) else UNDEFINED


def _of_object(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda value, *rest, **named: method(_needs(value, Mapping, what="an object"), *rest, **named)


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "list": lambda value: list(_list(value)),
    "string": _string,
    "first": _first,
    "last": _last,
    "length": _length,
    "reverse": lambda value: list(reversed(_list(value))),
    "sort": _sort,
    "join": _join,
    "unique": _unique,
    "map": _map,
    "selectattr": lambda value, *rest: _select(True, value, *rest),
    "rejectattr": lambda value, *rest: _select(False, value, *rest),
    "upper": lambda value: bounded(bounded(_text(value)).upper()),
    "lower": lambda value: bounded(bounded(_text(value)).lower()),
    "title": lambda value: title(bounded(_text(value))),
    "capitalize": lambda value: capitalize(bounded(_text(value))),
    "trim": lambda value: _text(value).strip(),
    "indent": _indent,
    "replace": lambda value, *rest, **named: replace(_text(value), *rest, **named),
    "int": _int,
    "float": _float,
    "abs": _abs,
    "bool": lambda value: _needs(value, bool, what="a boolean"),
    "safe": lambda value: value,
    "tojson": _tojson,
    "default": _default,
    **{name: _of_object(method) for name, method in OBJECT_METHODS.items()},
    "items": _of_object(items),
}


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _parity(value: Any, wanted: int) -> bool:
    if not _is_integer(value):
        raise EvaluationError(f"needs an Integer, found {describe(value)}")
    return bool(value % 2 == wanted)


TESTS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "boolean": lambda value: isinstance(value, bool),
    "callable": callable,
    "odd": lambda value: _parity(value, 1),
    "even": lambda value: _parity(value, 0),
    "true": lambda value: value is True,
    "false": lambda value: value is False,
    "none": lambda value: value is None,
    "string": lambda value: isinstance(value, str),
    "number": is_number,
    "integer": _is_integer,
    "iterable": lambda value: isinstance(value, (str, *LIST)),
    "mapping": lambda value: isinstance(value, OBJECT),
    "sequence": lambda value: isinstance(value, (str, *LIST)),
    "lower": lambda value: isinstance(value, str) and value == bounded(value).lower(),
    "upper": lambda value: isinstance(value, str) and value == bounded(value).upper(),
    "defined": lambda value: value is not UNDEFINED,
    "undefined": lambda value: value is UNDEFINED,
}
