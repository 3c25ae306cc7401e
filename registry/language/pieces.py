"""What statements are made of: expressions, printed values, targets of assignments. Imports jinja2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError

from .evaluation import KEPT, build
from .expressions import ExpressionError
from .frame import Frame
from .members import Namespace
from .meter import spend
from .syntax import check_depth, unparse
from .values import (
    LIST,
    UNDEFINED,
    EvaluationError,
    Features,
    bounded,
    describe,
    is_number,
    json_text,
    number_text,
)

Step = Callable[[Frame, list[str]], None]
Value = Callable[[Frame], Any]
Assign = Callable[[Frame, Any], None]


def value_of(node: nodes.Node) -> Value:
    """The function of an expression, which counts its steps and notes its line."""
    check_depth(node)
    parts = [node.set_ctx(KEPT), *node.find_all(nodes.Node)]
    weight, line = len(parts), next((part.lineno for part in parts if part.lineno), 1)
    try:
        run = build(node)
    except ExpressionError as error:
        raise TemplateSyntaxError(error.message, line) from None

    def value(frame: Frame) -> Any:
        frame.line = line
        spend(weight)
        return run(frame)

    return value


def data(node: nodes.TemplateData) -> Step:
    """Prints the text between tags."""
    text = node.data

    def run(frame: Frame, out: list[str]) -> None:
        spend(1)
        frame.emit(text, out)

    return run


def printed(node: nodes.Node) -> Step:
    """Prints the value of ``{{ }}``; an undefined one is refused, or prints nothing."""
    value = value_of(node)

    def run(frame: Frame, out: list[str]) -> None:
        found = value(frame)
        if found is not UNDEFINED:
            frame.emit(text_of(found), out)
        elif frame.lost is None:
            raise EvaluationError(f"the template prints {unparse(node)}, which is undefined")
        else:
            spend(1)
            frame.lost.append(unparse(node))

    return run


def text_of(value: Any) -> str:
    """A value as it prints: ``true``, ``2``, ``2.0`` for a Float, ``1e-7``, ``[2, 3]``; null is empty.

    Raises:
        EvaluationError: the value is a function, or a list or an object that is too large.
    """
    if isinstance(value, str):
        return value
    if is_number(value):
        return number_text(value, point=True)
    if value is None:
        return ""
    if value is UNDEFINED or isinstance(value, Features) or callable(value):
        raise EvaluationError(f"{describe(value)} has no text form")
    return json_text(value)


def filtered(node: nodes.Filter | None) -> Callable[[Frame, Any], Any]:
    """What a chain of filters makes of a value; it reads it from a name that no template can spell."""
    if node is None:
        return lambda frame, value: value
    innermost = node
    while isinstance(innermost.node, nodes.Filter):
        innermost = innermost.node
    innermost.node = nodes.Name("the block", "load", lineno=node.lineno)
    value = value_of(node)

    def run(frame: Frame, text: Any) -> Any:
        with frame.inner():
            frame.assign("the block", text)
            return value(frame)

    return run


def target_of(node: nodes.Node) -> Assign:
    """Sets what stands on the left of an assignment: a name, several, or an entry of a namespace."""
    match node:
        case nodes.Name(name=name):
            return lambda frame, value: frame.assign(name, _limited(value))
        case nodes.Tuple(items=items):
            targets = [target_of(item) for item in items]
            return lambda frame, value: _unpack(frame, targets, value)
        case nodes.NSRef(name=name, attr=attribute):
            return lambda frame, value: _set_entry(frame, name, attribute, value)
    raise TemplateSyntaxError(f"cannot set {unparse(node)}", node.lineno or 1)


def _unpack(frame: Frame, targets: list[Assign], value: Any) -> None:
    if not isinstance(value, LIST) or len(value) != len(targets):
        raise EvaluationError(
            f"needs a list of {len(targets)} values for as many names, found {describe(value)}"
        )
    for target, item in zip(targets, value, strict=True):
        target(frame, item)


def _set_entry(frame: Frame, name: str, attribute: str, value: Any) -> None:
    owner = frame.get(name, UNDEFINED)
    if not isinstance(owner, Namespace):
        raise EvaluationError(
            f"cannot set {name}.{attribute}: {name} is no namespace() but {describe(owner)}"
        )
    owner[attribute] = _limited(value)


def _limited(value: Any) -> Any:
    """The value, a list or an object within bounds; a text already counts among what is printed."""
    return value if isinstance(value, str) else bounded(value)
