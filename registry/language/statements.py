"""Turning a template into nested Python functions that print. Imports jinja2: import it late.

Statements: ``set`` (names, tuples, entries of a ``namespace()``, blocks), ``if``, ``for``, ``break``,
``continue``, ``macro``, ``call``, ``filter``; ``generation`` tags mean nothing. All else that Jinja has is
refused.

- ``if`` opens no scope. A ``for`` opens one for the whole loop: a name set in one iteration is there in the
  next and gone after the loop. ``else`` runs unless some iteration came to its end.
- ``break`` and ``continue`` drop the text of the current iteration.
- Macros, and the block of a ``call``, see every name that is visible where they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError

from .frame import Frame, Interrupt
from .meter import spend
from .pieces import Step, Value, data, filtered, printed, target_of, text_of, value_of
from .syntax import unparse
from .templates import TemplateError
from .tokens import parse_statements
from .values import LIST, OBJECT, UNDEFINED, EvaluationError, describe, truthy


def build_template(source: str) -> Step:
    """The function that prints a template's text into a list.

    Raises:
        TemplateSyntaxError: the text is no template.
    """
    return _block(parse_statements(source))


def _block(body: Sequence[nodes.Node]) -> Step:
    steps = [step for node in body for step in _steps(node)]
    if len(steps) == 1:
        return steps[0]

    def run(frame: Frame, out: list[str]) -> None:
        for step in steps:
            step(frame, out)

    return run


def _steps(node: nodes.Node) -> list[Step]:
    if isinstance(node, nodes.Output):
        return [data(part) if isinstance(part, nodes.TemplateData) else printed(part) for part in node.nodes]
    builder = _BUILDERS.get(type(node))
    if builder is None:
        raise TemplateSyntaxError(f"a {type(node).__name__} cannot stand here", node.lineno or 1)
    return [builder(node)]


def _captured(body: Step, frame: Frame) -> str:
    out: list[str] = []
    body(frame, out)
    return "".join(out)


def _if(node: nodes.If) -> Step:
    branches = [(value_of(branch.test), _block(branch.body)) for branch in (node, *node.elif_)]
    otherwise = _block(node.else_)

    def run(frame: Frame, out: list[str]) -> None:
        for test, body in branches:
            if truthy(test(frame)):
                return body(frame, out)
        otherwise(frame, out)

    return run


def _for(node: nodes.For) -> Step:
    if node.recursive:
        raise TemplateSyntaxError("a loop cannot be recursive", node.lineno)
    values, assign = value_of(node.iter), target_of(node.target)
    test = value_of(node.test) if node.test is not None else None
    body, otherwise = _block(node.body), _block(node.else_)

    def kept(item: Any, frame: Frame) -> bool:
        if test is None:
            return True
        assign(frame, item)
        return truthy(test(frame))

    def run(frame: Frame, out: list[str]) -> None:
        found = values(frame)
        if not isinstance(found, (*LIST, *OBJECT)):
            raise EvaluationError(f"a loop needs a list or an object, found {describe(found)}")
        with frame.inner():
            items = [item for item in found if kept(item, frame)]
        completed = False
        with frame.inner():
            for index, item in enumerate(items):
                spend(1)
                frame.assign("loop", _loop(items, index))
                assign(frame, item)
                start = len(out)
                try:
                    body(frame, out)
                    completed = True
                except _Continue:
                    del out[start:]
                except _Break:
                    del out[start:]
                    break
            if not completed:
                otherwise(frame, out)

    return run


def _loop(items: list[Any], index: int) -> dict[str, Any]:
    count = len(items)
    return {
        "index": index + 1,
        "index0": index,
        "revindex": count - index,
        "revindex0": count - index - 1,
        "first": index == 0,
        "last": index == count - 1,
        "length": count,
        "previtem": items[index - 1] if index else UNDEFINED,
        "nextitem": items[index + 1] if index + 1 < count else UNDEFINED,
    }


class _Break(Interrupt):
    pass


class _Continue(Interrupt):
    pass


def _interrupt(node: nodes.Break | nodes.Continue) -> Step:
    line, kind = node.lineno, _Break if isinstance(node, nodes.Break) else _Continue

    def run(frame: Frame, out: list[str]) -> None:
        frame.line = line
        raise kind(kind.__name__.strip("_").lower())

    return run


def _set(node: nodes.Assign) -> Step:
    value, assign = value_of(node.node), target_of(node.target)
    return lambda frame, out: assign(frame, value(frame))


def _set_block(node: nodes.AssignBlock) -> Step:
    body, assign, change = _block(node.body), target_of(node.target), filtered(node.filter)
    return lambda frame, out: assign(frame, change(frame, _captured(body, frame)))


def _filter_block(node: nodes.FilterBlock) -> Step:
    body, change = _block(node.body), filtered(node.filter)
    return lambda frame, out: frame.emit(text_of(change(frame, _captured(body, frame))), out)


def _signature(node: nodes.Macro | nodes.CallBlock, title: str) -> Callable[[Frame], Callable[..., str]]:
    """The function behind a macro or a call block, once the frame it runs in is known."""
    names = [parameter.name for parameter in node.args]
    values: list[Value | None] = [None] * (len(names) - len(node.defaults))
    values += [value_of(default) for default in node.defaults]
    body = _block(node.body)
    read = {part.name for statement in node.body for part in statement.find_all(nodes.Name)}

    def bind(frame: Frame, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        if len(given) > len(names) and "varargs" not in read:
            raise EvaluationError(f"{title} takes {len(names)} arguments, found {len(given)}")
        twice = sorted(set(names[: len(given)]) & set(named))
        unknown = sorted(set(named) - set(names))
        if twice or (unknown and "kwargs" not in read):
            raise EvaluationError(f"{title} cannot take {', '.join(twice or unknown)} by name")
        for index, (name, default) in enumerate(zip(names, values, strict=True)):
            if index < len(given):
                value = given[index]
            else:
                value = named.get(name, default(frame) if default and name not in named else UNDEFINED)
            frame.assign(name, value)
        frame.assign("varargs", list(given[len(names) :]))
        frame.assign("kwargs", {name: named[name] for name in unknown})

    def function_in(frame: Frame) -> Callable[..., str]:
        def call(*given: Any, **named: Any) -> str:
            line = frame.line
            try:
                with frame.inner():
                    bind(frame, given, named)
                    text = _captured(body, frame)
            except EvaluationError as error:  # told with the line inside the macro
                raise TemplateError(str(error), line=frame.line) from error
            frame.line = line
            return text

        return call

    return function_in


def _macro(node: nodes.Macro) -> Step:
    function_in = _signature(node, f"macro {node.name}")
    return lambda frame, out: frame.assign(node.name, function_in(frame))


def _call(node: nodes.CallBlock) -> Step:
    caller_in = _signature(node, "caller")
    called = f"call {unparse(node.call.node)}"  # a name that no template can spell
    callee = value_of(node.call.node)
    node.call.node = nodes.Name(called, "load", lineno=node.lineno)
    result = value_of(node.call)

    def run(frame: Frame, out: list[str]) -> None:
        function, caller = callee(frame), caller_in(frame)
        if not callable(function):
            raise EvaluationError(f"{called}: {describe(function)} is no function")

        def with_caller(*given: Any, **named: Any) -> Any:
            with frame.inner():
                frame.assign("caller", caller)
                return function(*given, **named)

        with frame.inner():
            frame.assign(called, with_caller)
            frame.emit(text_of(result(frame)), out)

    return run


_BUILDERS: Final[dict[type[nodes.Node], Callable[[Any], Step]]] = {
    nodes.If: _if,
    nodes.For: _for,
    nodes.Break: _interrupt,
    nodes.Continue: _interrupt,
    nodes.Assign: _set,
    nodes.AssignBlock: _set_block,
    nodes.Macro: _macro,
    nodes.CallBlock: _call,
    nodes.FilterBlock: _filter_block,
}
