"""Reading expressions with Jinja's parser, and printing trees. Imports jinja2: import it late."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final, NoReturn

from jinja2 import Environment, nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.parser import Parser

from ..errors import shorten
from .expressions import ExpressionError

MAX_TEXT: Final = 4096  # characters of an expression
MAX_BRACKETS: Final = 32  # brackets inside brackets; the parser spends some 14 frames on each
MAX_DEPTH: Final = 100  # levels of the tree; evaluating it stays far from Python's own limit

RawToken = tuple[int, str, str]  # line, kind, text

KEYWORDS: Final = frozenset(["if", "else", "and", "or", "not", "in", "is"])
COMPARISONS: Final = {
    "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "lteq": "<=", "gteq": ">=",
    "in": "in", "notin": "not in",
}  # fmt: skip
OPPOSITE: Final = {
    "==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">",
    "in": "not in", "not in": "in",
}  # fmt: skip
BINARIES: Final = {
    nodes.Add: ("+", 6), nodes.Sub: ("-", 6), nodes.Mul: ("*", 7), nodes.Div: ("/", 7),
    nodes.FloorDiv: ("//", 7), nodes.Mod: ("%", 7), nodes.Pow: ("**", 8),
}  # fmt: skip

ENVIRONMENT = Environment()
_PLAIN_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_ESCAPE = re.compile(r"\\(.)", re.S)
FOREIGN = {"&": "write 'and'", "!": "write 'not'", "?": "write 'A if C else B'"}


class ExpressionParser(Parser):
    """Jinja's grammar, but ``+ - ~`` on one level, unchained comparisons, tests as bare names."""

    def parse_compare(self) -> nodes.Expr:
        left = self.parse_math1()
        while True:
            symbol = self.stream.current.type
            if symbol in COMPARISONS:
                next(self.stream)
            elif self.stream.skip_if("name:in"):
                symbol = "in"
            elif self.stream.current.test("name:not") and self.stream.look().test("name:in"):
                self.stream.skip(2)
                symbol = "notin"
            else:
                return left
            left = nodes.Compare(left, [nodes.Operand(symbol, self.parse_math1())])

    def parse_math1(self) -> nodes.Expr:
        left = self.parse_math2()
        while (symbol := self.stream.current.type) in ("add", "sub", "tilde"):
            next(self.stream)
            right = self.parse_math2()
            if symbol == "tilde":
                left = nodes.Concat([left, right])
            else:
                left = nodes.Add(left, right) if symbol == "add" else nodes.Sub(left, right)
        return left

    def parse_filter_expr(self, node: nodes.Expr) -> nodes.Expr:
        while self.stream.current.type == "pipe":
            node = self.parse_filter(node)  # type: ignore[assignment]
        while self.stream.current.test("name:is"):
            node = self.parse_test(node)
        return node

    def parse_test(self, node: nodes.Expr) -> nodes.Expr:
        next(self.stream)
        negated = self.stream.skip_if("name:not")
        name = self.stream.expect("name").value
        if self.stream.current.type == "lparen":
            self.fail(f"the test {name!r} takes no arguments")
        test = nodes.Test(node, name, [], [], None, None)
        return nodes.Not(test) if negated else test


def parse_tree(text: str) -> nodes.Expr:
    """The syntax tree of an expression.

    Raises:
        ExpressionError: the text is no expression, or it is longer or deeper nested than allowed.
    """
    if len(text) > MAX_TEXT:
        raise ExpressionError(f"{shorten(text, 40)!r} has {len(text)} characters; the limit is {MAX_TEXT}")
    try:
        for _ in checked(ENVIRONMENT.lexer.tokeniter(text, None, state="variable")):
            pass
        parser = ExpressionParser(ENVIRONMENT, text, state="variable")
        tree = parser.parse_expression()
        if not parser.stream.eos:
            parser.fail(f"unexpected {parser.stream.current.value!r}")
        check_depth(tree)
    except TemplateSyntaxError as error:
        reason = str(error.message).replace("end of template", "end of the expression")
        raise ExpressionError(f"{shorten(text, 200)!r} is no expression: {reason}") from None
    except RecursionError:
        raise ExpressionError(f"{shorten(text, 200)!r} is nested too deeply") from None
    return tree


def _refuse(reason: str, line: int = 1) -> NoReturn:
    raise TemplateSyntaxError(reason, line)


def checked(tokens: Iterable[RawToken]) -> Iterator[RawToken]:
    """The raw tokens of an expression or a statement, without blanks.

    Raises:
        TemplateSyntaxError: Jinja's lexer accepts what the manifest language does not know.
    """
    last, number_ended, brackets, line = "", False, 0, 1
    try:
        for line, token, value in tokens:
            if token == "whitespace":
                continue
            if token in ("integer", "float"):
                if not _PLAIN_NUMBER.fullmatch(value):
                    _refuse(f"{value!r} is no number here; write digits or digits.digits (0.00001)", line)
            elif token == "name":
                if not value.isascii():
                    _refuse(f"the name {value!r} has letters other than a-z, A-Z, 0-9 and _", line)
            elif token == "string":
                for escape in _ESCAPE.finditer(value):
                    if escape[1] not in "ntrbfv'\"\\":
                        _refuse(f"unknown escape {escape[0]!r} in a text", line)
            elif token != "operator":
                _refuse(f"unexpected {value!r}", line)
            if value == "." and number_ended:
                _refuse("a number is written as digits or digits.digits", line)
            if token == "operator":
                brackets += (value in "([{") - (value in ")]}")
                if brackets > MAX_BRACKETS:
                    _refuse(f"more than {MAX_BRACKETS} brackets inside each other", line)
            number_ended = token in ("integer", "float") and last != "."
            last = value
            yield line, token, value
    except TemplateSyntaxError as error:
        for sign, advice in FOREIGN.items():
            if str(error.message).startswith(f"unexpected char {sign!r}"):
                _refuse(f"unexpected {sign!r}; {advice}", error.lineno)
        raise


def check_depth(tree: nodes.Node) -> None:
    """Raises TemplateSyntaxError when a tree has more than ``MAX_DEPTH`` levels."""
    level: list[nodes.Node] = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in node.iter_child_nodes()]
        if not level:
            return
    _refuse(f"more than {MAX_DEPTH} levels of operators; split it into several values")


def roots(tree: nodes.Expr) -> tuple[set[str], set[str], set[tuple[str, str]], int]:
    """The free names of a tree.

    Returns:
        Names that must be known, names that are operands of ``is defined`` or ``is undefined``,
        the members read directly from a name, as (name, member), and the number of nodes.
    """
    count = 0
    strict: set[str] = set()
    asked: set[str] = set()
    members: set[tuple[str, str]] = set()
    pending: list[nodes.Node] = [tree]
    while pending:
        node = pending.pop()
        count += 1
        if isinstance(node, nodes.Name):
            strict.add(node.name)
        elif isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name):
            members.add((node.node.name, node.attr))
        elif isinstance(node, nodes.Getitem) and isinstance(node.node, nodes.Name):
            if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
                members.add((node.node.name, node.arg.value))
        elif (name := asked_name(node)) is not None:
            asked.add(name)
            continue
        pending.extend(node.iter_child_nodes())
    return strict, asked, members, count


def operands(node: nodes.Expr, kind: type[nodes.And | nodes.Or]) -> list[nodes.Expr]:
    """The operands of a chain such as ``a and b and c``, in order."""
    if isinstance(node, kind):
        return [*operands(node.left, kind), *operands(node.right, kind)]
    return [node]


def asked_name(node: nodes.Node) -> str | None:
    """The NAME, allowed to be unknown, of a node ``NAME is defined`` or ``NAME is undefined``."""
    if isinstance(node, nodes.Test) and node.name in ("defined", "undefined"):
        return node.node.name if isinstance(node.node, nodes.Name) else None
    return None


def unparse(node: nodes.Node) -> str:
    """The source text of a tree, with no more brackets than needed."""
    return _print(node)[0]


def _at(node: nodes.Node, level: int) -> str:
    text, own = _print(node)
    return text if own >= level else f"({text})"


def _print(node: nodes.Node) -> tuple[str, int]:
    """The text of a node and how tightly it binds: from 1, a conditional, to 13."""
    match node:
        case nodes.CondExpr():
            text = f"{_at(node.expr1, 2)} if {_at(node.test, 2)}"
            return (f"{text} else {_at(node.expr2, 1)}" if node.expr2 is not None else text), 1
        case nodes.Or() | nodes.And():
            word, level = ("or", 2) if isinstance(node, nodes.Or) else ("and", 3)
            return f"{_at(node.left, level)} {word} {_at(node.right, level + 1)}", level
        case nodes.Not(node=nodes.Test() as test):
            return f"{_at(test.node, 9)} is not {test.name}", 9
        case nodes.Not():
            return f"not {_at(node.node, 4)}", 4
        case nodes.Compare():
            operand = node.ops[0]
            return f"{_at(node.expr, 5)} {COMPARISONS[operand.op]} {_at(operand.expr, 6)}", 5
        case nodes.Concat():
            return f"{_at(node.nodes[0], 6)} ~ {_at(node.nodes[1], 7)}", 6
        case nodes.Neg() | nodes.Pos():
            return f"{'-' if isinstance(node, nodes.Neg) else '+'}{_at(node.node, 11)}", 11
        case nodes.BinExpr():
            symbol, level = BINARIES[type(node)]
            return f"{_at(node.left, level)} {symbol} {_at(node.right, level + 1)}", level
        case nodes.Test():
            return f"{_at(node.node, 9)} is {node.name}", 9
        case nodes.Filter():
            owner = _at(node.node, 10) if node.node is not None else ""
            arguments = _arguments(node)
            return f"{owner} | {node.name}{f'({arguments})' if arguments else ''}", 10
        case nodes.Call():
            return f"{_at(node.node, 12)}({_arguments(node)})", 12
        case nodes.Getattr():
            return f"{_at(node.node, 12)}.{node.attr}", 12
        case nodes.Getitem():
            return f"{_at(node.node, 12)}[{unparse(node.arg)}]", 12
        case nodes.Slice():
            bounds = [unparse(part) if part else "" for part in (node.start, node.stop, node.step)]
            return ":".join(bounds[:2] if node.step is None else bounds), 13
        case nodes.List():
            return f"[{', '.join(map(unparse, node.items))}]", 13
        case nodes.Tuple():
            inner = ", ".join(map(unparse, node.items))
            return f"({inner},)" if len(node.items) == 1 else f"({inner})", 13
        case nodes.Dict():
            pairs = (f"{unparse(pair.key)}: {unparse(pair.value)}" for pair in node.items)
            return f"{{{', '.join(pairs)}}}", 13
        case nodes.Const():
            return _literal(node.value)
        case nodes.Name():
            return node.name, 13
    return type(node).__name__, 13


def _arguments(node: nodes.Call | nodes.Filter) -> str:
    parts = [unparse(argument) for argument in node.args]
    parts += [f"{keyword.key}={unparse(keyword.value)}" for keyword in node.kwargs]
    parts += [f"*{unparse(node.dyn_args)}"] if node.dyn_args else []
    parts += [f"**{unparse(node.dyn_kwargs)}"] if node.dyn_kwargs else []
    return ", ".join(parts)


def _literal(value: object) -> tuple[str, int]:
    if value is None:
        return "none", 13
    if isinstance(value, bool):
        return ("true" if value else "false"), 13
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False), 13
    if isinstance(value, float):  # numbers bind one level less, for "5.length" is no expression
        text = format(Decimal(repr(value)), "f")
        return (text if "." in text else f"{text}.0"), 11
    return str(value), 11
