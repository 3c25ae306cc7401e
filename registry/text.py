"""Tables and counts as plain text, and what no text from strange hands may hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

# All but tabs and line ends: they would reach a terminal, move its cursor and set its title; or, as marks of
# direction, show a text in another order than it has.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# A text that is not closed goes on to the end: or each of its quotes would be looked through anew.
_BRACKET = re.compile(r'"(?:[^"\\]|\\.?)*(?:"|\Z)|[\[\]{}]', re.S)


def odd_character(text: str) -> str | None:
    """The first control character, mark of direction or half of a surrogate pair in a text, written out; None
    where there is none."""
    match = None if text.isascii() and text.isprintable() else _CONTROL.search(text)
    return None if match is None else f"U+{ord(match[0]):04X}"


def counted(number: int, what: str) -> str:
    """``1 row``, ``2 rows``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def lay_out(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of cells in columns, indented by two spaces."""
    table = [header, *rows]
    widths = [max(len(line[column]) for line in table) for column in range(len(header))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]


def leaves(value: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What nested mappings hold that is no mapping, one by one, each with the keys that lead to it."""
    if not isinstance(value, Mapping):
        yield path, value
        return
    for key, item in value.items():
        yield from leaves(item, *path, str(key))


def json_depth(text: str) -> int:
    """How deeply objects and lists of a JSON text lie in each other; told without recursion."""
    depth = deepest = 0
    for found in _BRACKET.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        deepest = max(deepest, depth)
    return deepest
