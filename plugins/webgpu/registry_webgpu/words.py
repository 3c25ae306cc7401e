"""The words of a WGSL source, and runs of them: expressions, and statements without blocks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

_TOKEN = re.compile(
    r"[A-Za-z_]\w*|0[xX][\da-fA-F.]+(?:[pP][+-]?\d+)?[uifh]?|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[uifh]?"
    r"|<<=|>>=|&&|\|\||->|==|!=|<=|>=|\+=|-=|\*=|/=|%=|&=|\|=|\^=|\+\+|--|<<|>>|\S"
)
_EDGE = re.compile(r"\n|//|/\*|\*/")
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=", "++", "--"})


@dataclass(frozen=True)
class Use:
    """A name in an expression: a variable, or a call of a function with its arguments.

    ``member`` is what follows its dot; ``address`` tells whether its address is taken.
    """

    name: str
    member: str = ""
    address: bool = False
    call: bool = False
    arguments: tuple[Words, ...] = ()


@dataclass(frozen=True)
class Words:
    """A run of tokens: an expression, or a statement without blocks. ``key`` is its place in the source."""

    texts: tuple[str, ...]
    line: int
    key: int

    def __bool__(self) -> bool:
        return bool(self.texts)

    @cached_property
    def text(self) -> str:
        """As it would be written."""
        text = " ".join(self.texts)
        return re.sub(r" ?([().,;\[\]]) ?", r"\1", text).replace(",", ", ").strip()

    @cached_property
    def uses(self) -> tuple[Use, ...]:
        """The names in it, without members; what ``workgroupUniformLoad`` reads is left out."""
        found = []
        texts = (*self.texts, "", "", "")
        skip_to = 0
        for at, text in enumerate(self.texts):
            if at < skip_to or not _is_name(text) or (at and texts[at - 1] == "."):
                continue
            if texts[at + 1] == "(":
                end = closing(self.texts, at + 1)
                found.append(Use(text, call=True, arguments=tuple(split(self.part(at + 2, end), ","))))
                skip_to = end if text == "workgroupUniformLoad" else 0
                continue
            address = at > 0 and texts[at - 1] == "&" and (at < 2 or texts[at - 2] in ("(", ",", "="))
            found.append(Use(text, texts[at + 2] if texts[at + 1] == "." else "", address))
        return tuple(found)

    @cached_property
    def assignment(self) -> tuple[str, str, Words] | None:
        """What a statement assigns to, by which operator, and the value; None when it assigns nothing."""
        depth = 0
        for at, text in enumerate(self.texts):
            depth += (text in _OPEN) - (text in _CLOSE)
            if depth == 0 and text in _ASSIGNMENTS:
                target = next((word for word in self.texts[:at] if _is_name(word)), "")
                return target, text, self.part(at + 1)
        return None

    def part(self, start: int, stop: int | None = None) -> Words:
        """A run within this one."""
        return Words(self.texts[start:stop], self.line, self.key + start)


def closing(texts: Sequence[str], at: int) -> int:
    """The place of the bracket that closes the one at ``at``; the end where there is none."""
    depth = 0
    for place in range(at, len(texts)):
        depth += (texts[place] in _OPEN) - (texts[place] in _CLOSE)
        if depth == 0:
            return place
    return len(texts)


def split(words: Words, separator: str) -> list[Words]:
    """The runs between separators that stand in no bracket, template brackets included for commas."""
    parts, depth, start = [], 0, 0
    angles = separator == ","
    for at, text in enumerate(words.texts):
        depth += (text in _OPEN) - (text in _CLOSE)
        if angles:
            depth += (text == "<") - {">": 1, ">>": 2}.get(text, 0)
        if text == separator and depth == 0:
            parts.append(words.part(start, at))
            start = at + 1
    return [*parts, words.part(start)]


def tokens(source: str) -> tuple[list[str], list[int]]:
    """The words of a source and the line of each, without comments."""
    texts: list[str] = []
    lines: list[int] = []
    for number, line in enumerate(_uncommented(source).split("\n"), 1):
        found = _TOKEN.findall(line)
        texts += found
        lines += [number] * len(found)
    return texts, lines


def _is_name(text: str) -> bool:
    return text[0].isalpha() or text[0] == "_"


def _uncommented(source: str) -> str:
    """The source without comments, on the same lines. Block comments nest."""
    kept: list[str] = []
    depth = place = 0
    in_line = False
    for edge in _EDGE.finditer(source):
        if not depth and not in_line:
            kept.append(source[place : edge.start()])
        place = edge.end()
        if edge[0] == "\n":
            kept.append("\n")
            in_line = False
        elif not in_line and edge[0] == "//":
            in_line = not depth
        elif not in_line:
            kept.append(" ")
            depth = max(0, depth + (1 if edge[0] == "/*" else -1))
    return "".join(kept) if depth or in_line else "".join(kept) + source[place:]
