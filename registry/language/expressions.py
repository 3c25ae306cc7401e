"""The manifest language: parse an expression once, evaluate it as often as needed.

A pure language of numbers, texts, lists and objects in the syntax of Jinja's expressions, without
assignment, loops or access to Python objects. Texts, lists and nesting are bounded, so that neither
parsing nor evaluating a stranger's expression can take unbounded time or memory.

jinja2 is imported by the first ``parse``, not by importing this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..errors import ManifestError, shorten, suggestion
from .meter import spend
from .values import CONTAINER, UNDEFINED, EvaluationError, Features, bounded, retag, tag

if TYPE_CHECKING:
    from jinja2 import nodes

__all__ = [
    "UNDEFINED",
    "EvaluationError",
    "Expression",
    "ExpressionError",
    "Features",
    "evaluate",
    "parse",
    "retag",
]


class ExpressionError(ManifestError):
    """A text is no expression of the manifest language: its syntax, a filter or a test is wrong."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression.

    Attributes:
        text: the source.
        names: all free root names; members, filters, tests and keyword arguments do not count.
        lenient: the names that occur only as operand of ``is defined`` or ``is undefined``.
        members: members read directly from a root name, such as ``("shapes", "inputT")``.
        tree: the syntax tree, for those who explain results.
        weight: the steps that evaluating it counts, beside those of large values.
    """

    text: str
    names: frozenset[str]
    lenient: frozenset[str]
    members: frozenset[tuple[str, str]]
    tree: nodes.Expr = field(repr=False, compare=False)
    weight: int = field(compare=False)
    _required: tuple[str, ...] = field(repr=False, compare=False)
    _run: Callable[[Mapping[str, Any]], Any] = field(repr=False, compare=False)

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        """The expression's value; integral numbers are ints, a missing value is ``UNDEFINED``.

        Args:
            scope: the values and functions that names stand for. Objects are mappings.

        Raises:
            EvaluationError: a name is unknown, be it in a branch that is not taken; operands of a
                wrong kind; a size limit.
        """
        spend(self.weight)
        for name in self._required:
            if name not in scope:
                raise EvaluationError(self._unknown(scope))
        try:
            value = self._run(scope)
            return retag(bounded(value)) if isinstance(value, CONTAINER) else tag(value)
        except RecursionError:
            raise EvaluationError(f"{shorten(self.text, 160)}: nested too deeply") from None

    def _unknown(self, scope: Mapping[str, Any]) -> str:
        known = sorted(scope)
        unknown = [name for name in self._required if name not in scope]
        listed = ", ".join(f"{name!r}{suggestion(name, known)}" for name in unknown)
        said = f"{shorten(self.text, 160)}: unknown name{'s' if len(unknown) > 1 else ''} {listed}"
        if all(suggestion(name, known) for name in unknown):
            return said
        values = ", ".join(name for name in known if not callable(scope[name])) or "none"
        functions = ", ".join(name for name in known if callable(scope[name])) or "none"
        return (
            f"{said}; text must be quoted ('{unknown[0]}'); known names: {values}; "
            f"known functions: {functions}"
        )


@lru_cache(maxsize=8192)
def parse(text: str) -> Expression:
    """The expression that ``text`` spells.

    Raises:
        ExpressionError: the text is no expression, exceeds 4096 characters or is nested too deeply.
    """
    from .evaluation import build
    from .syntax import parse_tree, roots

    tree = parse_tree(text)
    strict, asked, members, weight = roots(tree)
    try:
        run = build(tree)
    except ExpressionError as error:
        raise ExpressionError(f"{shorten(text, 200)!r}: {error.message}") from None
    except RecursionError:
        raise ExpressionError(f"{shorten(text, 200)!r} is nested too deeply") from None
    return Expression(
        text=text,
        names=frozenset(strict | asked),
        lenient=frozenset(asked - strict),
        members=frozenset(members),
        tree=tree,
        weight=weight,
        _required=tuple(sorted(strict)),
        _run=run,
    )


def evaluate(value: Any, scope: Mapping[str, Any]) -> Any:
    """The value of anything that stands where a manifest takes an expression.

    A text is an expression; lists and mappings go element by element; the rest stands for itself.

    Raises:
        ExpressionError: a text is no expression.
        EvaluationError: an expression has no value in this scope.
    """
    if isinstance(value, str):
        return parse(value).evaluate(scope)
    if isinstance(value, list | tuple):
        return [evaluate(element, scope) for element in value]
    if isinstance(value, Mapping):
        return {key: evaluate(element, scope) for key, element in value.items()}
    return retag(value)
