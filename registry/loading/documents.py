"""Text to plain data: YAML or JSON from untrusted hands, with bounds on what it may cost.

YAML is read with the scalars of YAML 1.2's core schema (``1e-5`` is a number, ``no`` and dates are
text, ``010`` is ten), no tags and no merge keys. In both formats a key given twice is an error.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from typing import Any, Literal, NoReturn

import yaml

from ..errors import ManifestError
from ..text import odd_character

Format = Literal["yaml", "json"]

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_NODES = 20_000  # with every alias written out; a text counts one more per 256 characters
MAX_ENTRIES = 1024  # of one list or object
MAX_KEY = 256  # characters

_TOO_MANY = f"the document has more than {MAX_NODES} values, aliases and families written out"

# Names every JavaScript object has: an expression must never find anything behind them.
_DANGEROUS = frozenset({
    "constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString",
    "toString", "valueOf", "__defineGetter__", "__defineSetter__", "__lookupGetter__",
    "__lookupSetter__", "__proto__",
})  # fmt: skip
_PLAIN_KEY = re.compile(r"[\w$-]+")
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]')
_NULL = re.compile(r"|~|null|Null|NULL")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]{1,400}|0o[0-7]{1,400}|0x[0-9a-fA-F]{1,400}")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)


def read_document(text: str, form: Format) -> Any:
    """The document as dicts, lists and scalars, without ``$comment`` keys; numbers are finite doubles, and
    texts can be printed.

    Raises:
        ManifestError: malformed, a key twice, a forbidden key, too large, too wide or too deep; has the
            path, and the message the line, where they are known.
    """
    if len(text) > MAX_BYTES:
        raise ManifestError(f"{len(text)} characters; needed: at most {MAX_BYTES}")
    document = _YamlReader(text).document() if form == "yaml" else _read_json(text)
    measure(document)
    return _clean(document, "$")


def step(path: str, key: str | int) -> str:
    """The path of a member: ``$.name``, ``$[3]``, or ``$["odd key"]``."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if _PLAIN_KEY.fullmatch(key) else f"{path}[{json.dumps(key)}]"


def refuse(found: str, needed: str, path: str) -> NoReturn:
    """Raises ManifestError: says what was found at a place, and what is needed there."""
    raise ManifestError(f"found {found}; needed: {needed}", path=path)


def measure(document: Any, nodes: int = 0) -> int:
    """Adds a document's nodes to a count, shared parts as often as they appear.

    Raises:
        ManifestError: more than ``MAX_NODES``, more than ``MAX_ENTRIES`` in one list or object, or nested
            deeper than ``MAX_DEPTH``.
    """
    pending = [(document, 0)]
    while pending:
        value, depth = pending.pop()
        nodes += 1 + (len(value) // 256 if isinstance(value, str) else 0)
        if nodes > MAX_NODES:
            raise ManifestError(_TOO_MANY)
        if isinstance(value, dict | list) and len(value) > MAX_ENTRIES:
            raise ManifestError(
                f"a list or an object has {len(value)} entries; needed: at most {MAX_ENTRIES}"
            )
        if depth > MAX_DEPTH:
            raise ManifestError(f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, dict):
            pending += [(item, depth + 1) for item in value.values()]
        elif isinstance(value, list):
            pending += [(item, depth + 1) for item in value]
    return nodes


def _clean(value: Any, path: str) -> Any:
    if isinstance(value, str):
        return _legible(value, path)
    if isinstance(value, list):
        return [_clean(item, step(path, index)) for index, item in enumerate(value)]
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        digits = f"{value.bit_length()} bits"
        raise ManifestError(f"the number is an integer of {digits}; needed: a finite double", path=path)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ManifestError(f"the number is {value}; needed: a finite number", path=path)
        # Integers and floats are one type in a manifest: 4.0 may stand where 4 may.
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if not isinstance(value, dict):
        return value
    cleaned = {}
    for key, item in value.items():
        if len(key) > MAX_KEY:
            raise ManifestError(f"a key has {len(key)} characters; needed: at most {MAX_KEY}", path=path)
        where = step(path, _legible(key, path))
        if key in _DANGEROUS:
            raise ManifestError(f"the key {key!r} is reserved; choose another name", path=where)
        if key in ("use", "$use"):
            raise ManifestError(
                f"the key {key!r} marks a fragment that packing the file should have filled in",
                path=where,
            )
        if key != "$comment":
            cleaned[key] = _clean(item, where)
        elif not isinstance(item, str):
            raise ManifestError(f"$comment is {item!r}; needed: text", path=where)
    return cleaned


def _legible(text: str, path: str) -> str:
    """The text, unless it holds what no file takes and no terminal should be sent."""
    odd = odd_character(text)
    if odd is not None:
        raise ManifestError(f"a text holds the character {odd}; needed: text without it", path=path)
    return text


class _YamlReader:
    """Builds the document from the parser's events; aliases share what their anchor holds."""

    def __init__(self, text: str):
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=loader))
        self._anchors: dict[str, Any] = {}
        self._nodes = 0

    def document(self) -> Any:
        try:
            next(self._events)
            if isinstance(next(self._events), yaml.StreamEndEvent):
                return None
            value = self._node(next(self._events), "$", 0)
            next(self._events)
            if not isinstance(event := next(self._events), yaml.StreamEndEvent):
                self._refuse(event, "a second document starts here; needed: one document", "$")
            return value
        except yaml.YAMLError as error:
            said = " ".join(str(error).replace('in "<unicode string>",', "at").split())
            raise ManifestError(f"not YAML: {said}") from error

    def _node(self, event: Any, path: str, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > 2 * MAX_NODES:  # keys count here, and what is shared counts once
            raise ManifestError(_TOO_MANY)
        if depth > MAX_DEPTH:
            self._refuse(event, f"nested deeper than {MAX_DEPTH} levels", path)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                self._refuse(event, f"the alias *{event.anchor} has no anchor before it", path)
            return self._anchors[event.anchor]
        if event.tag is not None:
            self._refuse(event, f"the tag {event.tag} is not allowed; needed: no tags", path)
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event.value) if event.implicit[0] else event.value
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(path, depth)
        else:
            value = self._mapping(path, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _sequence(self, path: str, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, step(path, len(items)), depth + 1))
        return items

    def _mapping(self, path: str, depth: int) -> dict[str, Any]:
        items: dict[str, Any] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, path, depth + 1)
            if not isinstance(key, str):
                self._refuse(event, f"the key {key!r} is no text; put it in quotes", path)
            where = step(path, key)
            if key == "<<":
                self._refuse(event, "merge keys (<<) are not allowed; alias whole values", where)
            if key in items:
                first = f"first on line {lines[key]}"
                self._refuse(event, f"the key {key!r} is given twice ({first})", where)
            lines[key] = event.start_mark.line + 1
            items[key] = self._node(next(self._events), where, depth + 1)
        return items

    @staticmethod
    def _scalar(text: str) -> str | int | float | bool | None:
        if _NULL.fullmatch(text):
            return None
        if _BOOL.fullmatch(text):
            return text.lower() == "true"
        if _INT.fullmatch(text):
            return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        if _FLOAT.fullmatch(text):
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        return text

    @staticmethod
    def _refuse(event: Any, reason: str, path: str) -> NoReturn:
        raise ManifestError(f"line {event.start_mark.line + 1}: {reason}", path=path)


def _read_json(text: str) -> Any:
    def constant(name: str) -> NoReturn:
        raise ManifestError(f"the number {name} is not JSON; needed: a finite number")

    try:
        document = json.loads(text, parse_constant=constant)
    except RecursionError as error:
        raise ManifestError(f"nested deeper than {MAX_DEPTH} levels") from error
    except ValueError as error:
        raise ManifestError(f"not JSON: {error}") from error
    _refuse_repeated_keys(text)
    return document


def _refuse_repeated_keys(text: str) -> None:
    """Walks the tokens of valid JSON, because the standard parser keeps neither path nor line."""
    open_values: list[tuple[set[str] | None, str | int]] = []  # keys so far (None: a list), where
    last = ""
    for token in _JSON_TOKEN.finditer(text):
        mark = token[0]
        if mark == "{":
            open_values.append((set(), ""))
        elif mark == "[":
            open_values.append((None, 0))
        elif mark in "}]":
            open_values.pop()
        elif mark == "," and isinstance(position := open_values[-1][1], int):
            open_values[-1] = (None, position + 1)
        elif mark == ":":
            key, keys = json.loads(last), open_values[-1][0]
            assert keys is not None
            open_values[-1] = (keys, key)
            if key in keys:
                path = "$"
                for _, place in open_values:
                    path = step(path, place)
                line = text.count("\n", 0, token.start()) + 1
                raise ManifestError(f"line {line}: the key {key!r} is given twice", path=path)
            keys.add(key)
        else:
            last = mark
