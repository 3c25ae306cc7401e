"""Templates in several files: ``{% include "file" %}`` is replaced by the file's text before anything else.

Not a statement: the path is a text in quotes, and there are no dashes. A path that begins with a dot counts
from the folder of the including file, any other from the root. A line with nothing else on it is replaced as
a whole, its end included.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .templates import MAX_SOURCE, TemplateError

MAX_INCLUDES: Final = 256

_INCLUDE = re.compile(
    r"""(?m)(?P<alone>^[ \t]*)?\{%[ \t]*include[ \t]+(?:"(?P<a>[^"\n]*)"|'(?P<b>[^'\n]*)')[ \t]*%\}"""
    r"""(?(alone)(?P<end>[ \t]*(?:\n|\Z))?)"""
)

Read = Callable[[str], str | None]
"""Gives the text of a file by its path from the root, None where there is none."""


@dataclass(frozen=True)
class Expanded:
    """A template with all that it includes; ``places`` has the file and line each of its lines came from."""

    text: str
    places: tuple[tuple[str, int], ...]

    def place(self, line: int) -> tuple[str, int]:
        """The file and line behind a line of the text, both counted from 1."""
        return self.places[min(line, len(self.places)) - 1]


def expand(name: str, read: Read) -> Expanded:
    """The template of that name with its includes written out.

    Raises:
        TemplateError: a file is missing, lies outside the root, includes itself, or the whole has more than
            98,304 characters or 256 includes; names the chain of files.
    """
    pieces: list[tuple[str, int, str]] = []
    budget = [MAX_SOURCE, MAX_INCLUDES]

    def walk(file: str, chain: tuple[str, ...], line: int) -> None:
        text = read(file)
        if text is None:
            by = f", which {' > '.join(chain[:-1])} includes," if chain[:-1] else ""
            raise TemplateError(f"{file!r}{by} is missing", line=line)
        if len(text) > MAX_SOURCE:
            raise TemplateError(f"{file!r} has more than {MAX_SOURCE} characters", line=line)
        at = 0
        for match in _INCLUDE.finditer(text):
            here = text.count("\n", 0, match.start()) + 1
            whole = match.group("end") is not None
            start = match.start() if whole else match.start() + len(match.group("alone") or "")
            stop = match.end()
            put(file, text.count("\n", 0, at) + 1, text[at:start])
            budget[1] -= 1
            inner = _resolve(match.group("a") or match.group("b") or "", file, here)
            if inner in chain or budget[1] < 0:
                what = "in a circle" if inner in chain else f"more than {MAX_INCLUDES} times"
                raise TemplateError(f"includes {what}: {' > '.join((*chain, inner))}", line=here)
            walk(inner, (*chain, inner), here)
            at = stop
        put(file, text.count("\n", 0, at) + 1, text[at:])

    def put(file: str, line: int, text: str) -> None:
        budget[0] -= len(text)
        if budget[0] < 0:
            raise TemplateError(f"with its includes it has more than {MAX_SOURCE} characters", line=line)
        pieces.append((file, line, text))

    walk(name, (name,), 1)
    return Expanded("".join(text for _, _, text in pieces), _places(pieces))


def included(file: str, text: str) -> list[str]:
    """The files that a text includes, by their paths from the root; none if it is too long for a template.

    Raises:
        TemplateError: a path leads out of the root, or names nothing; there are more than 256.
    """
    found: dict[str, None] = {}
    for number, match in enumerate(_INCLUDE.finditer(text) if len(text) <= MAX_SOURCE else ()):
        line = text.count("\n", 0, match.start()) + 1
        if number >= MAX_INCLUDES:
            raise TemplateError(f"includes more than {MAX_INCLUDES} times", line=line)
        found[_resolve(match.group("a") or match.group("b") or "", file, line)] = None
    return list(found)


def _resolve(path: str, file: str, line: int) -> str:
    parts = path.replace("\\", "/").split("/")
    folder = file.split("/")[:-1] if path.startswith(".") else []
    for part in parts:
        if part == ".." and not folder:
            raise TemplateError(f"include {path!r} leads out of the package", line=line)
        if part == "..":
            folder.pop()
        elif part not in ("", "."):
            folder.append(part)
    if not folder:
        raise TemplateError(f"include {path!r} names no file", line=line)
    return "/".join(folder)


def _places(pieces: list[tuple[str, int, str]]) -> tuple[tuple[str, int], ...]:
    places: list[tuple[str, int]] = []
    begins = True  # whether the next piece begins a line
    for file, line, text in pieces:
        if not text:
            continue
        if begins:
            places.append((file, line))
        places += [(file, line + number) for number in range(1, text.count("\n") + 1)]
        begins = text.endswith("\n")
        if begins:
            places.pop()
    return tuple(places) or ((pieces[0][0], 1),)
