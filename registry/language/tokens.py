"""Reading a template with Jinja's parser, from tokens of our own cutting. Imports jinja2: import it late.

Jinja's own lexer is used inside ``{{ }}`` and ``{% %}`` only: around them it treats line ends, blanks
and ``raw`` unlike the published format, whose whitespace rules are these, in this order:

1. One line end at the very end of the template is dropped.
2. Blanks and tabs from the start of a line up to ``{%``, ``{#`` or ``{-`` are dropped.
3. A line end (a lone ``\\n``) right after ``%}``, ``#}`` or ``-}`` is dropped.
4. ``{%-``, ``{{-`` and ``{#-`` drop all whitespace before them, ``-%}``, ``-}}`` and ``-#}`` after them.

``\\r`` is kept, so in files with Windows line ends rule 3 never applies, as in the original.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NoReturn

from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.lexer import Token, TokenStream

from .syntax import ENVIRONMENT, FOREIGN, MAX_TEXT, ExpressionParser, RawToken, checked

MAX_NESTING: Final = 32  # statements inside one another

_INDENT = re.compile(r"^[ \t]+(?=\{[%#-])", re.M)
_OPENING = re.compile(r"\{([{%#])(-?)")
_BLANKS = re.compile(r"\s*")
_CLOSING: Final = {"{": re.compile(r"(-?)\}\}"), "%": re.compile(r"(-?)%\}"), "#": re.compile(r"(-?)#\}")}
_TAGS: Final = {"{": ("variable_begin", "variable_end"), "%": ("block_begin", "block_end")}
_RULES: Final = ENVIRONMENT.lexer.rules["variable_begin"][1:]  # the first one ends the tag
_KNOWN = ("set", "if", "for", "break", "continue", "macro", "call", "filter")
_REFUSED = ("autoescape", "block", "do", "extends", "from", "import", "include", "print", "raw", "with")


class _TemplateParser(ExpressionParser):
    """Jinja's grammar of statements, for those that the format has."""

    def __init__(self, source: str) -> None:
        super().__init__(ENVIRONMENT, "")
        self.stream = TokenStream(_tokens(source), None, None)

    def parse_statement(self) -> nodes.Node | list[nodes.Node]:
        token = self.stream.current
        if len(self._tag_stack) >= MAX_NESTING:
            self.fail(f"more than {MAX_NESTING} statements inside one another")
        if token.value in ("break", "continue"):
            next(self.stream)
            kind = nodes.Break if token.value == "break" else nodes.Continue
            return kind(lineno=token.lineno)
        if token.value in ("generation", "endgeneration"):
            next(self.stream)
            return []
        if token.value == "include":  # those that can be are written out before this
            self.fail('an include is one path in quotes and nothing else: {% include "file" %}')
        if token.value in _REFUSED:
            self.fail(f"there is no statement {token.value!r}; known statements: {', '.join(_KNOWN)}")
        return super().parse_statement()


def parse_statements(source: str) -> list[nodes.Node]:
    """The statements of a template, with the lines of its source.

    Raises:
        TemplateSyntaxError: the text is no template, a tag exceeds 4096 characters, or statements are
            nested too deeply.
    """
    return _TemplateParser(source).parse().body


def _tokens(source: str) -> Iterator[Token]:
    text, breaks = _trimmed(source)
    position = 0
    while opening := _OPENING.search(text, position):
        line = _line(breaks, opening.start())
        data = text[position : opening.start()]
        if opening[2]:
            data = data.rstrip()
        if data:
            yield Token(_line(breaks, position), "data", data)
        sign = opening[1]
        if sign == "#":
            closing = _CLOSING[sign].search(text, opening.end())
            if closing is None:
                _fail("a comment '{#' is not closed", line)
        else:
            begin, end = _TAGS[sign]
            inside, closing = _inside(text, opening.end(), _CLOSING[sign], breaks, line)
            yield Token(line, begin, opening[0])
            yield from ENVIRONMENT.lexer.wrap(checked(inside))
            yield Token(_line(breaks, closing.start()), end, closing[0])
        position = closing.end()
        if closing[1]:
            position = _end(_BLANKS, text, position)
    if position < len(text):
        yield Token(_line(breaks, position), "data", text[position:])


def _trimmed(source: str) -> tuple[str, list[int]]:
    """The text after rules 1 to 3, and for each line end of the source what precedes it in the text."""
    text = _INDENT.sub("", source.removesuffix("\n"))
    pieces: list[str] = []
    breaks: list[int] = []
    start = length = 0
    for match in re.finditer("\n", text):
        dropped = text[max(0, match.start() - 2) : match.start()] in ("%}", "#}", "-}")
        piece = text[start : match.start() if dropped else match.end()]
        pieces.append(piece)
        length += len(piece)
        breaks.append(length - 1)
        start = match.end()
    return "".join([*pieces, text[start:]]), breaks


def _line(breaks: list[int], position: int) -> int:
    return 1 + bisect_left(breaks, position)


def _inside(
    text: str, position: int, closing: re.Pattern[str], breaks: list[int], line: int
) -> tuple[list[RawToken], re.Match[str]]:
    """The raw tokens from a position to the end of its tag, and that end."""
    found: list[RawToken] = []
    start, brackets = position, 0
    while True:
        if brackets == 0 and (end := closing.match(text, position)):
            return found, end
        if position >= len(text):
            _fail("a tag is not closed", line)
        if position - start > MAX_TEXT:
            _fail(f"a tag has more than {MAX_TEXT} characters", line)
        matches = ((rule.tokens, rule.pattern.match(text, position)) for rule in _RULES)
        kind, match = next((pair for pair in matches if pair[1]), ("", None))
        if match is None:
            sign = text[position]
            advice = f"; {FOREIGN[sign]}" if sign in FOREIGN else ""
            _fail(f"unexpected {sign!r}{advice}", _line(breaks, position))
        found.append((_line(breaks, position), str(kind), match[0]))
        if kind == "operator":
            brackets += (match[0] in "([{") - (match[0] in ")]}")
            if brackets < 0:
                _fail(f"unexpected {match[0]!r}", _line(breaks, position))
        position = match.end()


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position


def _fail(reason: str, line: int) -> NoReturn:
    raise TemplateSyntaxError(reason, line)
