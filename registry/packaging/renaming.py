"""Other names for what expressions and templates refer to; the text around them stays as it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

Path = tuple[str, ...]
Rename = Callable[[Path], Path]

_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.S)
_TOKEN = re.compile(
    r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?P<path>(?<![\w.])[A-Za-z_]\w*(?:\s*\.\s*[A-Za-z_]\w*)*)"""
)


def in_expression(text: str, rename: Rename) -> str:
    """An expression with every dotted path as ``rename`` has it; texts in quotes are left alone."""

    def put(match: re.Match[str]) -> str:
        if match["path"] is None:
            return match[0]
        path = _split(match["path"])
        renamed = rename(path)
        return match[0] if renamed == path else ".".join(renamed)

    return _TOKEN.sub(put, text)


def in_value(value: Any, rename: Rename) -> Any:
    """The same for every text in a value of a manifest."""
    if isinstance(value, str):
        return in_expression(value, rename)
    if isinstance(value, list):
        return [in_value(item, rename) for item in value]
    if isinstance(value, dict):
        return {key: in_value(item, rename) for key, item in value.items()}
    return value


def in_template(text: str, rename: Rename) -> str:
    """The same for the tags of a template."""
    return _TAG.sub(lambda tag: tag[0] if tag[0][1] == "#" else in_expression(tag[0], rename), text)


def roots(text: str) -> Iterator[str]:
    """The first name of every path in a template's tags, keywords too."""
    for tag in _TAG.finditer(text):
        if tag[0][1] != "#":
            yield from (_split(m["path"])[0] for m in _TOKEN.finditer(tag[0]) if m["path"])


def _split(path: str) -> Path:
    return tuple(part.strip() for part in path.split("."))
