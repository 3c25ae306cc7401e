"""WGSL as far as its statements: functions, blocks and loops as a tree, expressions as runs of words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

_TOKEN = re.compile(
    r"[A-Za-z_]\w*|0[xX][\da-fA-F.]+(?:[pP][+-]?\d+)?[uifh]?|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[uifh]?"
    r"|<<=|>>=|&&|\|\||->|==|!=|<=|>=|\+=|-=|\*=|/=|%=|&=|\|=|\^=|\+\+|--|<<|>>|\S"
)
_EDGE = re.compile(r"\n|//|/\*|\*/")
_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_OPEN, _CLOSE = "([{", ")]}"
ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=", "++", "--"})


class SyntaxTrouble(ValueError):
    """The text does not read as WGSL. Attribute: ``line``."""

    def __init__(self, message: str, line: int):
        super().__init__(message)
        self.line = line


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

    def __str__(self) -> str:
        text = " ".join(self.texts)
        return re.sub(r" ?([().,;\[\]]) ?", r"\1", text).replace(",", ", ").strip()

    @cached_property
    def uses(self) -> tuple[Use, ...]:
        """The names in it, without members; what ``workgroupUniformLoad`` reads is left out."""
        found = []
        texts = (*self.texts, "", "", "")
        skip_to = 0
        for at, text in enumerate(self.texts):
            if at < skip_to or not _NAME.match(text) or (at and texts[at - 1] == "."):
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
            if depth == 0 and text in ASSIGNMENTS:
                target = next((word for word in self.texts[:at] if _NAME.match(word)), "")
                return target, text, self.part(at + 1)
        return None

    def part(self, start: int, stop: int | None = None) -> Words:
        """A run within this one."""
        return Words(self.texts[start:stop], self.line, self.key + start)


@dataclass(frozen=True)
class Statement:
    """``kind`` is a keyword (``if``, ``for``, ``let``, ...), ``block`` or ``simple``.

    ``words`` is the condition, value or whole statement; ``before`` and ``after`` are what a ``for`` does
    before its loop and after each turn; ``body`` and ``otherwise`` are the blocks.
    """

    kind: str
    words: Words
    name: str = ""
    before: tuple[Statement, ...] = ()
    after: tuple[Statement, ...] = ()
    body: tuple[Statement, ...] = ()
    otherwise: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class Parameter:
    """A parameter with its attribute ``@builtin(...)`` and the first word of its type."""

    name: str
    line: int
    key: int
    builtin: str
    type: str


@dataclass(frozen=True)
class Function:
    """A function; ``workgroup`` are the words of ``@workgroup_size``, empty where there is none."""

    name: str
    line: int
    parameters: tuple[Parameter, ...]
    workgroup: Words
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Module:
    """A source: its functions, the address space of each global variable, the built-ins in its structs."""

    functions: tuple[Function, ...]
    variables: Mapping[str, str]
    builtins: Mapping[str, Mapping[str, str]]


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


def parse(source: str) -> Module:
    """Reads a source.

    Raises:
        SyntaxTrouble: brackets do not match, or a statement does not end.
    """
    return _Reader(source).module()


class _Reader:
    """Goes through the tokens once."""

    def __init__(self, source: str):
        self._texts: list[str] = []
        self._lines: list[int] = []
        self._at = 0
        for line, text in enumerate(_uncommented(source).split("\n"), 1):
            found = _TOKEN.findall(text)
            self._texts += found
            self._lines += [line] * len(found)

    def module(self) -> Module:
        functions, variables, builtins = [], {}, {}
        while self._at < len(self._texts):
            attributes = self._attributes()
            word = self._next()
            if word == "fn":
                functions.append(self._function(attributes))
            elif word == "struct":
                name = self._next()
                fields = self._parameters(self._bracketed())
                builtins[name] = {field.name: field.builtin for field in fields if field.builtin}
            elif word == "var":
                space = self._words_to(">") if self._peek() == "<" else self._words(self._at)
                name = self._next()
                variables[name] = space.texts[1] if space else "handle"
                self._words_to(";")
            elif word != ";":
                self._words_to(";")
        return Module(tuple(functions), variables, builtins)

    def _function(self, attributes: Mapping[str, Words]) -> Function:
        line = self._lines[self._at - 1]
        name = self._next()
        parameters = self._parameters(self._bracketed())
        while self._peek() != "{":
            self._next()
        empty = self._words(self._at)
        return Function(name, line, parameters, attributes.get("workgroup_size", empty), self._block())

    def _parameters(self, words: Words) -> tuple[Parameter, ...]:
        found = []
        for part in split(words, ","):
            at, builtin = 0, ""
            while part.texts[at : at + 1] == ("@",):
                end = closing(part.texts, at + 2) + 1 if part.texts[at + 2] == "(" else at + 2
                builtin = part.texts[at + 3] if part.texts[at + 1] == "builtin" else builtin
                at = end
            if part.texts[at:]:
                key = part.key + at
                found.append(Parameter(part.texts[at], self._lines[key], key, builtin, part.texts[at + 2]))
        return tuple(found)

    def _block(self) -> tuple[Statement, ...]:
        self._expect("{")
        found = []
        while self._peek() != "}":
            found += self._statement()
        self._next()
        return tuple(found)

    def _statement(self) -> list[Statement]:
        self._attributes()
        start = self._at
        word = self._next()
        if word == ";":
            return []
        if word == "{":
            self._at = start
            return [Statement("block", self._words(start), body=self._block())]
        if word == "if":
            condition = self._words_before("{")
            body = self._block()
            otherwise: tuple[Statement, ...] = ()
            if self._peek() == "else":
                self._next()
                otherwise = self._block() if self._peek() == "{" else tuple(self._statement())
            return [Statement("if", condition, body=body, otherwise=otherwise)]
        if word == "for":
            before, condition, after = split(self._bracketed(), ";")
            return [Statement("for", condition, "", _simple(before), _simple(after), self._block())]
        if word in ("while", "switch"):
            condition = self._words_before("{")
            return [Statement(word, condition, body=self._cases() if word == "switch" else self._block())]
        if word in ("loop", "continuing"):
            return [Statement(word, self._words(start), body=self._block())]
        self._at = start
        return list(_simple(self._words_to(";")))

    def _cases(self) -> tuple[Statement, ...]:
        self._expect("{")
        found = []
        while self._peek() != "}":
            values = self._words_before("{")
            found.append(Statement("case", values, body=self._block()))
        self._next()
        return tuple(found)

    def _attributes(self) -> dict[str, Words]:
        found = {}
        while self._peek(none="") == "@":
            self._next()
            name = self._next()
            found[name] = self._bracketed() if self._peek() == "(" else self._words(self._at)
        return found

    def _bracketed(self) -> Words:
        start = self._at + 1
        self._at = closing(self._texts, self._at)
        self._next()
        return self._words(start, self._at - 1)

    def _words(self, start: int, end: int | None = None) -> Words:
        line = self._lines[min(start, len(self._lines) - 1)]
        return Words(tuple(self._texts[start : start if end is None else end]), line, start)

    def _words_before(self, stop: str) -> Words:
        start = self._at
        while self._peek() != stop:
            self._next()
        return self._words(start, self._at)

    def _words_to(self, stop: str) -> Words:
        words = self._words_before(stop)
        self._next()
        return words

    def _peek(self, none: str | None = None) -> str:
        if self._at < len(self._texts):
            return self._texts[self._at]
        if none is not None:
            return none
        raise SyntaxTrouble("the source ends within a statement", self._lines[-1] if self._lines else 1)

    def _next(self) -> str:
        text = self._peek()
        self._at += 1
        return text

    def _expect(self, text: str) -> None:
        if self._peek() != text:
            raise SyntaxTrouble(f"{self._peek()!r} where {text!r} is needed", self._lines[self._at])
        self._next()


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


def _simple(words: Words) -> tuple[Statement, ...]:
    """The statement of a run of words without blocks; none for no words."""
    if not words:
        return ()
    first = words.texts[0]
    if first in ("let", "var", "const"):
        at = words.texts.index(">") + 1 if words.texts[1:2] == ("<",) else 1
        value = words.texts.index("=") + 1 if "=" in words.texts else len(words.texts)
        declared = words.part(value)
        return (Statement(first, Words(declared.texts, words.line, words.key + at), words.texts[at]),)
    if first in ("return", "break", "continue", "discard"):
        return (Statement(first, words.part(1)),)
    return (Statement("simple", words),)
