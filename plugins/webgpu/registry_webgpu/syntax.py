"""WGSL as far as its statements: functions, blocks and loops as a tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .words import Words, closing, split, tokens


class Unreadable(Exception):
    """The text does not read as WGSL. Attribute: ``line``, how far it did."""

    def __init__(self, line: int):
        super().__init__("this does not read as WGSL: brackets, or the end of a statement")
        self.line = line


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
    parameters: tuple[Parameter, ...]
    workgroup: Words
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Module:
    """A source: its functions, the address space of each global variable, the built-ins in its structs."""

    functions: tuple[Function, ...]
    variables: Mapping[str, str]
    builtins: Mapping[str, Mapping[str, str]]


def parse(source: str) -> Module:
    """Reads a source.

    Raises:
        Unreadable: brackets do not match, or a statement does not end.
    """
    reader = _Reader(source)
    try:
        return reader.module()
    except (IndexError, ValueError):  # the words ran out, or one that must follow does not
        raise Unreadable(reader.line) from None


class _Reader:
    """Goes through the tokens once."""

    def __init__(self, source: str):
        self._texts, self._lines = tokens(source)
        self._at = 0

    @property
    def line(self) -> int:
        """The line of the word that comes next; the last where there is none."""
        return self._lines[min(self._at, len(self._lines) - 1)]

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
        name = self._next()
        parameters = self._parameters(self._bracketed())
        self._words_before("{")  # the result's type
        workgroup = attributes.get("workgroup_size", self._words(self._at))
        return Function(name, parameters, workgroup, self._block())

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
        while self._texts[self._at : self._at + 1] == ["@"]:
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
        self._at = self._texts.index(stop, start)
        return self._words(start, self._at)

    def _words_to(self, stop: str) -> Words:
        words = self._words_before(stop)
        self._next()
        return words

    def _peek(self) -> str:
        return self._texts[self._at]

    def _next(self) -> str:
        self._at += 1
        return self._texts[self._at - 1]

    def _expect(self, text: str) -> None:
        if self._next() != text:
            raise ValueError(f"{text} is needed")


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
