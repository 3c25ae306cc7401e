"""Turning a syntax tree into nested Python functions of the scope. Imports jinja2: import it late.

Only the node types of the table at the end can occur; every other construct of Jinja is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import ge, gt, le, lt
from typing import Any, Final

from jinja2 import nodes

from ..errors import shorten, suggestion
from .expressions import ExpressionError
from .filters import FILTERS, TESTS
from .members import Namespace, element, entry, item, member, part
from .meter import MANY, spend
from .operators import (
    add,
    boolean_power,
    concatenate,
    contains,
    divide,
    equal,
    floor_divide,
    join,
    multiply,
    power,
    refuse,
    remainder,
    signed,
    subtract,
)
from .syntax import BINARIES, COMPARISONS, KEYWORDS, asked_name, unparse
from .values import (
    CONTAINER,
    LIST,
    OBJECT,
    UNDEFINED,
    EvaluationError,
    bounded,
    describe,
    is_number,
    retag,
    squash,
    tag,
    truthy,
)

Scope = Mapping[str, Any]
Run = Callable[[Scope], Any]
Arguments = tuple[list[Any], dict[str, Any]]

# The context of names and members whose values a template keeps: their tags are read as they stand.
KEPT: Final = "kept"


def build(node: nodes.Node) -> Run:
    """The function that computes a tree's value from a scope.

    Raises:
        ExpressionError: the tree holds a construct, a filter or a test that the language lacks.
    """
    builder = _BUILDERS.get(type(node))
    if builder is None:
        raise ExpressionError(f"{unparse(node)!r} cannot be used in an expression")
    return builder(node)


def _failure(node: nodes.Node, reason: object) -> EvaluationError:
    return EvaluationError(f"{shorten(unparse(node), 160)}: {reason}")


def _const(node: nodes.Const) -> Run:
    value = squash(node.value) if type(node.value) is int else node.value
    return lambda scope: value


def _name(node: nodes.Name) -> Run:
    name, kept = node.name, node.ctx == KEPT
    if name in KEYWORDS:
        raise ExpressionError(f"unexpected {name!r} where a value is needed")

    def run(scope: Scope) -> Any:
        try:
            return scope[name] if kept else tag(scope[name])
        except KeyError:
            raise EvaluationError(f"unknown name {name!r}{suggestion(name, list(scope))}") from None

    return run


def _list(node: nodes.List) -> Run:
    elements = [build(element) for element in node.items]
    return lambda scope: bounded([element(scope) for element in elements])


def _tuple(node: nodes.Tuple) -> Run:
    elements = [build(element) for element in node.items]
    return lambda scope: bounded(tuple([element(scope) for element in elements]))


def _dict(node: nodes.Dict) -> Run:
    entries: dict[str, Run] = {}
    for pair in node.items:
        if not isinstance(pair.key, nodes.Const) or not isinstance(pair.key.value, str):
            raise ExpressionError(f"the key {unparse(pair.key)} must be a quoted text")
        entries[pair.key.value] = build(pair.value)
    return lambda scope: bounded({key: value(scope) for key, value in entries.items()})


def _conditional(node: nodes.CondExpr) -> Run:
    test, then = build(node.test), build(node.expr1)
    other = build(node.expr2) if node.expr2 is not None else lambda scope: UNDEFINED
    return lambda scope: then(scope) if truthy(test(scope)) else other(scope)


def _and(node: nodes.And) -> Run:
    left, right = build(node.left), build(node.right)
    return lambda scope: right(scope) if truthy(value := left(scope)) else value


def _or(node: nodes.Or) -> Run:
    left, right = build(node.left), build(node.right)
    return lambda scope: value if truthy(value := left(scope)) else right(scope)


def _not(node: nodes.Not) -> Run:
    operand = build(node.node)
    return lambda scope: not truthy(operand(scope))


def _compare(node: nodes.Compare) -> Run:
    symbol = COMPARISONS[node.ops[0].op]
    if symbol in _ORDERS:
        return _numeric(node, symbol, node.expr, node.ops[0].expr, _ORDERS[symbol])
    left, right, decide = build(node.expr), build(node.ops[0].expr), _EQUALITIES[symbol]

    def run(scope: Scope) -> Any:
        a, b = left(scope), right(scope)
        try:
            return decide(a, b)
        except EvaluationError as error:
            raise _failure(node, error) from None

    return run


def _guarded(node: nodes.Node, function: Callable[..., Any], *operands: Run) -> Run:
    """Applies a function to operands; its errors, not theirs, get the node's text in front."""

    def run(scope: Scope) -> Any:
        return _apply(node, function, *[operand(scope) for operand in operands])

    return run


def _numeric(
    node: nodes.Node,
    symbol: str,
    first: nodes.Node,
    second: nodes.Node,
    function: Callable[[Any, Any], Any],
) -> Run:
    """A binary operator on two numbers; ``+`` and ``**`` take other kinds too."""
    left, right = build(first), build(second)
    otherwise = _OTHERWISE.get(symbol) or partial(refuse, symbol)

    def run(scope: Scope) -> Any:
        a, b = left(scope), right(scope)
        try:
            return function(a, b) if is_number(a) and is_number(b) else otherwise(a, b)
        except EvaluationError as error:
            raise _failure(node, error) from None

    return run


def _arithmetic(node: nodes.BinExpr) -> Run:
    symbol = BINARIES[type(node)][0]
    return _numeric(node, symbol, node.left, node.right, _ARITHMETIC[symbol])


def _concat(node: nodes.Concat) -> Run:
    return _guarded(node, concatenate, *map(build, node.nodes))


def _sign(node: nodes.Neg | nodes.Pos) -> Run:
    sign = -1 if isinstance(node, nodes.Neg) else 1
    return _guarded(node, partial(signed, sign), build(node.node))


def _getattr(node: nodes.Getattr) -> Run:
    owner, name = build(node.node), node.attr
    read = entry if node.ctx == KEPT else member
    return lambda scope: read(owner(scope), name)


def _getitem(node: nodes.Getitem) -> Run:
    owner = build(node.node)
    if not isinstance(node.arg, nodes.Slice):
        return _guarded(node, element if node.ctx == KEPT else item, owner, build(node.arg))
    bounds = (node.arg.start, node.arg.stop, node.arg.step)
    absent: Run = lambda scope: None  # noqa: E731
    return _guarded(node, part, owner, *[build(bound) if bound is not None else absent for bound in bounds])


def _test(node: nodes.Test) -> Run:
    test = TESTS.get(node.name)
    if test is None:
        raise ExpressionError(
            f"there is no test {node.name!r}{suggestion(node.name, list(TESTS))}; "
            f"known tests: {', '.join(TESTS)}"
        )
    if (name := asked_name(node)) is not None:
        return lambda scope: test(scope.get(name, UNDEFINED))
    return _guarded(node, test, build(node.node))


def _filter(node: nodes.Filter) -> Run:
    function = FILTERS.get(node.name)
    if function is None or node.node is None:
        raise ExpressionError(
            f"there is no filter {node.name!r}{suggestion(node.name, list(FILTERS))}; "
            f"known filters: {', '.join(FILTERS)}"
        )
    value, arguments = build(node.node), _arguments(node)
    if node.name == "default" and isinstance(node.node, nodes.Name):
        name = node.node.name  # may be unknown; an expression has been checked for unknown names before
        value = lambda scope: scope.get(name, UNDEFINED)  # noqa: E731

    def run(scope: Scope) -> Any:
        operand = value(scope)
        if isinstance(operand, CONTAINER) and len(operand) >= MANY:
            spend(len(operand) // (MANY if isinstance(operand, str) else 1))
        positional, named = arguments(scope)
        return _apply(node, function, operand, *positional, **named)

    return run


def _call(node: nodes.Call) -> Run:
    callee, arguments = build(node.node), _arguments(node)

    def run(scope: Scope) -> Any:
        function = callee(scope)
        if not callable(function):
            raise _failure(node, f"{describe(function)} is no function")
        positional, named = arguments(scope)
        result = _apply(node, function, *positional, **named)
        if isinstance(result, str):
            if len(result) >= MANY:
                spend(len(result) // MANY)
            return result
        if isinstance(result, Namespace):
            return result
        return None if result is UNDEFINED else retag(bounded(result))

    return run


def _apply(node: nodes.Node, function: Callable[..., Any], /, *positional: Any, **named: Any) -> Any:
    try:
        return function(*positional, **named)
    except EvaluationError as error:
        raise _failure(node, error) from None
    except (TypeError, ValueError, ArithmeticError) as error:  # arguments of a wrong kind or number
        raise _failure(node, error) from error


def _arguments(node: nodes.Call | nodes.Filter) -> Callable[[Scope], Arguments]:
    plain = [build(argument) for argument in node.args]
    named = {str(keyword.key): build(keyword.value) for keyword in node.kwargs}
    spread = build(node.dyn_args) if node.dyn_args is not None else None
    spread_named = build(node.dyn_kwargs) if node.dyn_kwargs is not None else None
    if not named and spread is None and spread_named is None:  # nearly always
        return lambda scope: ([argument(scope) for argument in plain], {})

    def run(scope: Scope) -> Arguments:
        positional = [argument(scope) for argument in plain]
        keywords = {name: value(scope) for name, value in named.items()}
        if spread is not None:
            more = spread(scope)
            if not isinstance(more, LIST):
                raise _failure(node, f"'*' needs a list, found {describe(more)}")
            positional += more
        if spread_named is not None:
            entries = spread_named(scope)
            if not isinstance(entries, OBJECT):
                raise _failure(node, f"'**' needs an object, found {describe(entries)}")
            keywords.update(entries)
        return positional, keywords

    return run


_ORDERS: Final = {"<": lt, ">": gt, "<=": le, ">=": ge}
_EQUALITIES: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
    "in": contains,
    "not in": lambda left, right: not contains(left, right),
}
_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "//": floor_divide,
    "%": remainder,
    "**": power,
}
_OTHERWISE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {"+": join, "**": boolean_power}
_BUILDERS: Final[Mapping[type[nodes.Node], Callable[[Any], Run]]] = {
    nodes.Const: _const,
    nodes.Name: _name,
    nodes.List: _list,
    nodes.Tuple: _tuple,
    nodes.Dict: _dict,
    nodes.CondExpr: _conditional,
    nodes.And: _and,
    nodes.Or: _or,
    nodes.Not: _not,
    nodes.Compare: _compare,
    nodes.Concat: _concat,
    nodes.Neg: _sign,
    nodes.Pos: _sign,
    nodes.Getattr: _getattr,
    nodes.Getitem: _getitem,
    nodes.Test: _test,
    nodes.Filter: _filter,
    nodes.Call: _call,
    **dict.fromkeys(BINARIES, _arithmetic),
}
