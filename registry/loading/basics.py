"""What parts of a manifest need alike: names spelled as names, known, given once, some but not too many.

Each function refuses, with a `ManifestError`, what is not as needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import suggestion
from .documents import refuse, step

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAME = "a name of letters, digits and _, no digit first"


def need_identifiers(names: Iterable[str], path: str) -> None:
    for name in names:
        need_match(IDENTIFIER, name, step(path, name), NAME)


def need_match(pattern: re.Pattern[str], text: str, path: str, needed: str) -> None:
    if not pattern.fullmatch(text):
        refuse(repr(text), needed, path)


def need_known(name: str, known: Iterable[str], what: str, path: str) -> None:
    """A near name is suggested."""
    names = list(dict.fromkeys(known))
    if name not in names:
        refuse(f"unknown {what} {name!r}{suggestion(name, names)}", one_of(names), path)


def one_of(names: Sequence[str]) -> str:
    return f"one of {', '.join(names)}" if names else "none is declared"


def need_entries(value: Any, path: str) -> None:
    if not value:
        refuse(f"nothing ({value!r})", "at least one entry, or leave the key out", path)


def need_at_most(limit: int, items: Sequence[Any], what: str, path: str) -> None:
    if len(items) > limit:
        refuse(f"{len(items)} {what}", f"at most {limit}", path)


def need_unique(names: Sequence[str], what: str, path: str, tail: str, skip: int = 0) -> None:
    """The fault lies at the second one: ``path[index]`` and ``tail``, the first ``skip`` not counted."""
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in first:
            where = f"{step(path, index - skip)}{tail}"
            refuse(f"{what} {name!r} again", f"each {what} once", where)
        first[name] = index
