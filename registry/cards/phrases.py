"""Numbers and texts of the manifest language in words. Imports jinja2: import it late."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from jinja2 import nodes

from ..language.expressions import parse
from ..language.syntax import unparse
from ..opinfo import Op

MAX_DEFINITION: Final = 240  # characters of a definition that is said in place of its name


@dataclass(frozen=True)
class Names:
    """What the names in a manifest's expressions stand for.

    ``tensors`` has the ONNX name of each name a tensor goes by, ``outputs`` those that are outputs,
    ``derived`` the definitions of derived values, ``tunables`` their defaults. ``levels`` is how often a
    definition inside a definition is still followed.
    """

    tensors: Mapping[str, str]
    outputs: frozenset[str] = frozenset()
    derived: Mapping[str, Any] = field(default_factory=dict)
    tunables: Mapping[str, Any] = field(default_factory=dict)
    levels: int = 2

    def definition(self, name: str) -> str | None:
        """The expression of a derived value, where it is short enough to be said in its place."""
        text = self.derived.get(name)
        return text if isinstance(text, str) and self.levels > 0 and len(text) <= MAX_DEFINITION else None

    def within(self, name: str) -> Names:
        """The names inside the definition of one: it may refer to an outer one of its own name, once."""
        rest = {key: value for key, value in self.derived.items() if key != name}
        return replace(self, derived=rest, levels=self.levels - 1)


def names_of(op: Op, variant: str | None = None) -> Names:
    """The names of an op's expressions, and of one of its manifest's variants if it has that one."""
    own = op.variants.get(variant) if variant is not None else None
    return Names(
        tensors={**op.input_names, **op.output_names},
        outputs=frozenset(op.output_names),
        derived={**op.manifest.derive, **(own.derive if own else {})},
        tunables={**op.tunables, **(own.tunables if own else {})},
    )


def listed(items: Iterable[str], word: str = "or") -> str:
    """``a, b or c``."""
    *head, last = items
    return f"{', '.join(head)} {word} {last}" if head else last


def owner_of(node: nodes.Node, names: Names) -> str | None:
    """The tensor whose shape a node is."""
    match node:
        case nodes.Getattr(node=nodes.Name(name="shapes"), attr=name):
            return names.tensors.get(name, name)
    return None


def shape_phrase(node: nodes.Expr, names: Names) -> str:
    """The phrase for a shape."""
    owner = owner_of(node, names)
    if owner is not None:
        return f"the shape of {owner}"
    if isinstance(node, nodes.List):
        return f"shape ({', '.join(value_phrase(item, names) or as_written(item) for item in node.items)})"
    return f"the shape {as_written(node)}"


def value_phrase(node: nodes.Node, names: Names) -> str | None:
    """The phrase for a number or a text; None where there is none."""
    match node:
        case nodes.Const():
            return unparse(node)
        case nodes.List():
            items = [value_phrase(item, names) for item in node.items]
            return None if None in items or not items else listed(map(str, items))
        case nodes.Neg(node=inner):
            said = value_phrase(inner, names)
            return None if said is None else f"-{said}" if isinstance(inner, nodes.Const) else f"minus {said}"
        case nodes.Name(name=name) if isinstance(names.derived.get(name), str):
            text = names.definition(name)
            return (value_phrase(parse(text).tree, names.within(name)) if text else None) or f"`{name}`"
        case nodes.Name(name=name) if name in names.derived:
            return str(names.derived[name])
        case nodes.Getattr(node=nodes.Name(name=root), attr=name):
            return _member(root, name, names)
        case nodes.Getattr(node=nodes.Getattr(node=nodes.Name(name="device"), attr="limits"), attr=name):
            return f"the device's `{name}`"
        case nodes.Getattr(node=nodes.Getattr(node=nodes.Name(name="device"), attr="adapterInfo"), attr=name):
            return f"the adapter's `{name}`"
        case nodes.Call(node=nodes.Name(name=function)):
            return _count(function, node.args, names)
        case nodes.Pow(left=base, right=nodes.Const(value=2)):
            said = value_phrase(base, names)
            return None if said is None else f"the square of {said}"
        case nodes.Mul() | nodes.Div() | nodes.Add() | nodes.Sub():
            return _arithmetic(node, names)
    return None


def _arithmetic(node: nodes.BinExpr, names: Names) -> str | None:
    word = {nodes.Mul: "times", nodes.Div: "divided by", nodes.Add: "plus", nodes.Sub: "less"}[type(node)]
    if any(isinstance(side, nodes.BinExpr | nodes.CondExpr) for side in (node.left, node.right)):
        return None
    left, right = value_phrase(node.left, names), value_phrase(node.right, names)
    return None if left is None or right is None else f"{left} {word} {right}"


def _member(root: str, name: str, names: Names) -> str | None:
    role = names.tensors.get(name, name)
    match root:
        case "attrs" | "args":
            return name
        case "ranks":
            return f"the rank of {role}"
        case "shapes":
            return f"the shape of {role}"
        case "tunables" if name in names.tunables:
            return f"`{name}` ({unparse(nodes.Const(names.tunables[name]))})"
    return None


def _count(function: str, arguments: list[nodes.Expr], names: Names) -> str | None:
    """The phrase for a function that counts something of a tensor's shape."""
    owner = owner_of(arguments[0], names) if arguments else None
    if owner is None:
        return None
    match function, arguments[1:]:
        case "numel", []:
            return f"the number of elements of {owner}"
        case "rank", []:
            return f"the rank of {owner}"
        case "dim" | "cols", [axis]:
            return f"{_dimension(axis, names)} of {owner}"
        case "rows", [nodes.Neg(node=nodes.Const(value=1))]:
            return f"the number of rows of {owner}"
    return None


def _dimension(axis: nodes.Expr, names: Names) -> str:
    match axis:
        case nodes.Neg(node=nodes.Const(value=1)):
            return "the last dimension"
        case nodes.Neg(node=nodes.Const(value=2)):
            return "the last dimension but one"
    return f"dimension {value_phrase(axis, names) or as_written(axis)}"


def as_written(node: nodes.Node, want: bool = True) -> str:
    """A node's own text between backticks, with ``not`` before it where it must be false."""
    return f"`{unparse(node)}`" if want else f"not `{unparse(node)}`"
