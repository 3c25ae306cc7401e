"""Conditions of the manifest language in words. Imports jinja2: import it late."""

from __future__ import annotations

from typing import Final

from jinja2 import nodes

from ..dtypes import STORAGE
from ..language.expressions import parse
from ..language.syntax import COMPARISONS, OPPOSITE, operands
from .phrases import Names, as_written, listed, owner_of, shape_phrase, value_phrase

_DTYPES: Final = {scalar: name for name, (_, scalar) in STORAGE.items() if scalar[0] in "fb"}
MAX_TEXT: Final = 400  # characters of a condition that is put into words
MAX_SAID: Final = 140  # characters that stand in place of a derived value's name
_VERBS: Final = {
    "==": "is", "!=": "is not", "<": "is less than", "<=": "is at most", ">": "is more than",
    ">=": "is at least", "in": "is one of", "not in": "is none of",
}  # fmt: skip


def in_words(text: str, names: Names) -> str | None:
    """What a condition asks for, as a phrase; None where there are no words for it.

    Derived values are followed to their definitions as far as there are words for those; what is left
    stands as it is written, between backticks.

    Raises:
        ManifestError: the text is no expression.
    """
    return _condition(parse(text).tree, names, True) if len(text) <= MAX_TEXT else None


def value_in_words(text: str, names: Names) -> str | None:
    """What a derived value is, a number or a condition, as a phrase; None where there is none.

    Raises:
        ManifestError: the text is no expression.
    """
    tree = parse(text).tree
    if len(text) > MAX_TEXT or isinstance(tree, nodes.Const):
        return None
    return _condition(tree, names, True) or value_phrase(tree, names)


def _condition(node: nodes.Node, names: Names, want: bool) -> str | None:
    """The phrase for a node being true, or false; None where there is none."""
    match node:
        case nodes.Not():
            return _condition(node.node, names, not want)
        case nodes.And() | nodes.Or():
            return _chain(node, names, want)
        case nodes.CondExpr(expr2=nodes.Expr() as other):
            parts = [_condition(each, names, want) for each in (node.expr1, other)]
            test = _condition(node.test, names, True)
            return None if None in (*parts, test) else f"if {test}, {parts[0]}; otherwise {parts[1]}"
        case nodes.Name(name=name):
            return _derived_condition(name, names, want)
        case nodes.Compare():
            return _comparison(node, names, want)
        case nodes.Test():
            subject, verb = value_phrase(node.node, names), "is" if want else "is not"
            article = "an " if node.name == "integer" else "a " if node.name in ("number", "string") else ""
            return None if subject is None else f"{subject} {verb} {article}{node.name}"
        case nodes.Call():
            return _call(node, names, want)
        case nodes.Getattr(node=nodes.Name(name="present"), attr=name):
            role = names.tensors.get(name, name)
            if role in names.outputs:
                return f"{role} is {'asked for' if want else 'not asked for'}"
            return f"{role} is {'given' if want else 'left out'}"
        case nodes.Getattr(node=nodes.Name(name="attrs" | "args"), attr=name):
            return f"{name} is {'true' if want else 'false'}"
        case nodes.Getattr(attr="isFallbackAdapter"):
            return f"the adapter is {'a' if want else 'no'} software one"
    return None


def _chain(node: nodes.And | nodes.Or, names: Names, want: bool) -> str | None:
    """The operands of ``and`` and ``or`` as one phrase; those without words stand as they are written."""
    chain = operands(node, type(node))
    phrases = [_condition(operand, names, want) for operand in chain]
    if all(phrase is None for phrase in phrases):
        return None
    every = isinstance(node, nodes.And) is want
    given = [_presence(operand, names, want) for operand in chain]
    if every and None not in given:
        return _with_and_without([pair for pair in given if pair is not None])
    said = [phrase or as_written(operand, want) for phrase, operand in zip(phrases, chain, strict=True)]
    said = list(dict.fromkeys(said))
    if every:
        return " and ".join(f"({phrase})" if " or " in phrase else phrase for phrase in said)
    return (", or " if any(" and " in phrase for phrase in said) else " or ").join(said)


def _presence(node: nodes.Node, names: Names, want: bool) -> tuple[str, bool] | None:
    """A tensor and whether it must be there, of a condition that asks for no more."""
    match node:
        case nodes.Not():
            return _presence(node.node, names, not want)
        case nodes.Compare(ops=[nodes.Operand(op="eq", expr=nodes.Const(value=bool() as value))]):
            return _presence(node.expr, names, value is want)
        case nodes.Getattr(node=nodes.Name(name="present"), attr=name):
            return names.tensors.get(name, name), want
    return None


def _with_and_without(given: list[tuple[str, bool]]) -> str:
    parts = []
    for word, there in (("with", True), ("without", False)):
        roles = [role for role, is_there in given if is_there is there]
        parts += [f"{word} {listed(roles, 'and')}"] if roles else []
    return ", ".join(parts)


def _derived_condition(name: str, names: Names, want: bool) -> str | None:
    if not isinstance(names.derived.get(name), str):
        return None
    text = names.definition(name)
    said = _condition(parse(text).tree, names.within(name), want) if text else None
    if said is not None and len(said) <= MAX_SAID:
        return said
    return f"`{name}` {'holds' if want else 'does not hold'}"


def _comparison(node: nodes.Compare, names: Names, want: bool) -> str | None:
    left, right = node.expr, node.ops[0].expr
    symbol = COMPARISONS[node.ops[0].op]
    if isinstance(right, nodes.Const) and isinstance(right.value, bool) and symbol in ("==", "!="):
        return _condition(left, names, (symbol == "==") is right.value is want)
    symbol = symbol if want else OPPOSITE[symbol]
    match left, right:
        case nodes.Getattr(node=nodes.Name(name="dtypes" | "tensorDtypes")), _:
            return _dtype(left, symbol, right, names)
        case nodes.Mod(left=number, right=divisor), nodes.Const(value=int() as rest) if symbol in "==!=":
            return _remainder(number, divisor, rest, symbol == "==", names)
        case (nodes.Getattr(node=nodes.Name(name="ranks"), attr=name), nodes.Const(value=int() as rank)):
            role = names.tensors.get(name, name)
            if symbol in ("==", ">="):
                return f"{role} has rank {'at least ' if symbol == '>=' else ''}{rank}"
        case nodes.Call(node=nodes.Name(name="numel"), args=[shape]), nodes.Const(value=0):
            owner = owner_of(shape, names)
            if owner is not None and symbol in (">", "!=", "=="):
                return f"{owner} has {'no ' if symbol == '==' else ''}elements"
    one, other = value_phrase(left, names), value_phrase(right, names)
    if one is None and (other is None or isinstance(right, nodes.Const)):
        return None
    return f"{one or as_written(left)} {_VERBS[symbol]} {other or as_written(right)}"


def _dtype(left: nodes.Getattr, symbol: str, right: nodes.Node, names: Names) -> str | None:
    """A condition on a type variable, or on a tensor's dtype."""
    of_tensor = isinstance(left.node, nodes.Name) and left.node.name == "tensorDtypes"
    subject = f"the dtype of {names.tensors.get(left.attr, left.attr)}" if of_tensor else left.attr
    found = right.items if isinstance(right, nodes.List) else [right]
    values = [item.value for item in found if isinstance(item, nodes.Const)]
    if symbol not in ("==", "!=", "in", "not in") or len(values) != len(found) or not values:
        return None
    dtypes = [_DTYPES.get(str(value), str(value)) for value in values]
    if symbol in ("==", "in"):
        return f"{subject} is {listed(dtypes)}"
    return f"{subject} is {'not ' if len(dtypes) == 1 else 'neither '}{listed(dtypes, 'nor')}"


def _remainder(number: nodes.Expr, divisor: nodes.Expr, rest: int, same: bool, names: Names) -> str | None:
    subject, by = value_phrase(number, names), value_phrase(divisor, names) or as_written(divisor)
    if subject is None:
        return None
    verb = "is" if same else "is not"
    if by == "2" and rest in (0, 1):
        return f"{subject} {verb} {'odd' if rest else 'even'}"
    if rest == 0:
        return f"{subject} {verb} a multiple of {by}"
    return f"{subject} modulo {by} {verb} {rest}"


def _call(node: nodes.Call, names: Names, want: bool) -> str | None:
    match node.node, node.args:
        case nodes.Name(name="f16Ok"), [nodes.Getattr(attr=name)]:
            if want:
                return f"the device has `shader-f16` where {name} is float16"
            return f"{name} is float16 and the device has no `shader-f16`"
        case nodes.Name(name="sameShape"), [one, other]:
            owner, shape = owner_of(one, names), shape_phrase(other, names)
            return None if owner is None else f"{owner} {'has' if want else 'has not'} {shape}"
        case nodes.Name(name="broadcastable"), [one, other]:
            owner, target = owner_of(one, names), owner_of(other, names) or as_written(other)
            verb = "broadcasts" if want else "does not broadcast"
            return None if owner is None else f"{owner} {verb} to {target}"
        case nodes.Name(name="has"), [nodes.Getattr(attr="adapterInfo"), nodes.Const(value=key)]:
            return f"the adapter {'tells' if want else 'does not tell'} its `{key}`"
        case nodes.Getattr(node=nodes.Getattr(attr=kind), attr="has"), [nodes.Const(value=key)]:
            owner = {"features": "the device", "wgslLanguageFeatures": "the device's WGSL"}.get(kind)
            return None if owner is None else f"{owner} {'has' if want else 'has not'} `{key}`"
    return None
