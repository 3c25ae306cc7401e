"""Walking down an expression to the part that decided its value. Imports jinja2: import it late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jinja2 import nodes

from ..errors import shorten
from .evaluation import build
from .expressions import parse
from .reasons import Leaf
from .syntax import COMPARISONS, OPPOSITE, operands, unparse
from .values import LIST, EvaluationError, short_text, truthy

WIDTH: Final = 120  # characters of a condition or a value before it is cut

_MIRRORED: Final = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}

Names = Mapping[str, Any]


def explain(node: nodes.Expr, scope: Names, definitions: Names, want: bool = True) -> Leaf:
    """The leaf that kept a tree from coming out as ``want``."""
    match node:
        case nodes.Not():
            return explain(node.node, scope, definitions, not want)
        case nodes.And() | nodes.Or():
            return _explain_chain(node, scope, definitions, want)
        case nodes.CondExpr():
            return _explain_conditional(node, scope, definitions, want)
        case nodes.Name(name=name) if isinstance(definitions.get(name), str):
            tree = parse(definitions[name]).tree
            if not _holds(tree, scope, want):
                # A derived value may refer to an outer one of its own name, but not twice.
                rest = {key: text for key, text in definitions.items() if key != name}
                return explain(tree, scope, rest, want)
    try:
        value = build(node)(scope)
        return _leaf(node, value, scope, want)
    except EvaluationError as error:
        return Leaf(_short(node), str(error), _yes(want))


def _explain_chain(node: nodes.And | nodes.Or, scope: Names, definitions: Names, want: bool) -> Leaf:
    """One operand is to blame if all are needed; otherwise each of them is a way out."""
    chain = operands(node, type(node))
    if isinstance(node, nodes.And) is want:
        failed = (operand for operand in chain if not _holds(operand, scope, want))
        return explain(next(failed, chain[-1]), scope, definitions, want)
    if not want:
        return Leaf(_short(node), "true", "false")
    ways = [_leaf(operand, False, scope, want) for operand in chain if isinstance(operand, nodes.Compare)]
    if len(ways) == len(chain) and len({way.condition for way in ways}) == 1:
        return Leaf(ways[0].condition, ways[0].found, " or ".join(way.needed for way in ways))
    needed = "one of: " + ", ".join(map(_short, chain))
    return Leaf(_short(node), "false", shorten(needed, 2 * WIDTH))


def _explain_conditional(node: nodes.CondExpr, scope: Names, definitions: Names, want: bool) -> Leaf:
    try:
        taken = truthy(build(node.test)(scope))
    except EvaluationError:
        return explain(node.test, scope, definitions)
    branch = node.expr1 if taken else node.expr2
    if branch is None or (isinstance(branch, nodes.Const) and branch.value is (not want)):
        # This branch never comes out as wanted: the test should have led to the other one.
        return explain(node.test, scope, definitions, not taken)
    return explain(branch, scope, definitions, want)


def _leaf(node: nodes.Expr, value: Any, scope: Names, want: bool) -> Leaf:
    match node:
        case nodes.Compare():
            return _compare_leaf(node, scope, want)
        case nodes.Test():
            found = _show(build(node.node)(scope))
            return Leaf(_short(node.node), found, f"is {'' if want else 'not '}{node.name}")
        case nodes.Call() if isinstance(value, bool):
            arguments = [build(argument)(scope) for argument in node.args if not _is_constant(argument)]
            if arguments and all(isinstance(argument, LIST) for argument in arguments):
                return Leaf(_short(node), " and ".join(map(_show, arguments)), _yes(want))
            if arguments and all(isinstance(argument, str) for argument in arguments):
                found = f"{_show(value)} for {' and '.join(map(_show, arguments))}"
                return Leaf(_short(node), found, _yes(want))
    return Leaf(_short(node), _show(value), _yes(want))


def _compare_leaf(node: nodes.Compare, scope: Names, want: bool) -> Leaf:
    left, right = node.expr, node.ops[0].expr
    symbol = COMPARISONS[node.ops[0].op]
    if _is_constant(left) and not _is_constant(right) and symbol in _MIRRORED:
        left, right, symbol = right, left, _MIRRORED[symbol]
    bound = _show(build(right)(scope))
    origin = "" if _is_constant(right) else f" ({_short(right)})"
    needed = f"{symbol if want else OPPOSITE[symbol]} {bound}{origin}"
    return Leaf(_short(left), _show(build(left)(scope)), needed)


def _holds(node: nodes.Expr, scope: Names, want: bool) -> bool:
    try:
        return truthy(build(node)(scope)) is want
    except EvaluationError:
        return False


def _is_constant(node: nodes.Node) -> bool:
    return not isinstance(node, nodes.Name) and node.find(nodes.Name) is None


def _short(node: nodes.Node) -> str:
    return shorten(unparse(node), WIDTH)


def _show(value: Any) -> str:
    return shorten(value, WIDTH) if isinstance(value, str) and value else short_text(value, WIDTH)


def _yes(want: bool) -> str:
    return "true" if want else "false"
