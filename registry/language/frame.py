"""What a running template knows and has used: its scopes, the line it is at, and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from .members import Namespace
from .values import UNDEFINED, EvaluationError, check_size, describe, retag, tag

MAX_STEPS: Final = 50_000  # operators, names, constants, printed pieces, iterations, large values
MAX_TEXT: Final = 2**20  # characters printed, whether they are kept or not
MAX_SCOPES: Final = 32  # loops and macros at work inside one another


class Interrupt(Exception):
    """A ``break`` or ``continue`` on its way to the loop."""


class Frame(Mapping[str, Any]):
    """The names a template sees, innermost scope first, and how many characters it has printed.

    Scopes are dynamic: a macro sees whatever its caller sees. With a list ``lost``, a name that is not known
    is undefined, and what prints as nothing because it is undefined is added to the list.
    """

    __slots__ = ("_scopes", "_text", "line", "lost")

    def __init__(self, names: Mapping[str, Any], lost: list[str] | None = None):
        self.lost = lost
        given = {name: retag(value) for name, value in names.items()}
        self._scopes: list[dict[str, Any]] = [{**FUNCTIONS, **given}, {}]
        self._text = 0
        self.line = 1

    def __getitem__(self, name: str) -> Any:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        if self.lost is None:
            raise KeyError(name)
        return UNDEFINED

    def __iter__(self) -> Iterator[str]:
        return iter({name for scope in self._scopes for name in scope})

    def __len__(self) -> int:
        return len(set(self))

    def assign(self, name: str, value: Any) -> None:
        """Sets a name in the innermost scope."""
        self._scopes[-1][name] = value

    @contextmanager
    def inner(self) -> Iterator[None]:
        """One more scope, whose names vanish at its end."""
        if len(self._scopes) >= MAX_SCOPES:
            raise EvaluationError(f"more than {MAX_SCOPES} loops and macros inside one another")
        self._scopes.append({})
        try:
            yield
        finally:
            self._scopes.pop()

    def emit(self, text: str, out: list[str]) -> None:
        """Prints a piece of text.

        Raises:
            EvaluationError: it is more than a template may print.
        """
        self._text += len(text)
        if self._text > MAX_TEXT:
            raise EvaluationError(f"the template prints more than {MAX_TEXT} characters")
        out.append(text)


def _range(*bounds: Any) -> list[int]:
    numbers = [tag(bound) for bound in bounds]
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool):
            raise EvaluationError(f"range needs integers, found {describe(number)}")
    counted = range(*numbers)
    first, last, step = counted.start, counted.stop, counted.step
    check_size(max(0, (last - first) // step), "numbers of a range")
    return list(counted)


def _namespace(start: Mapping[str, Any] | None = None, /, **entries: Any) -> Namespace:
    return Namespace({**(start or {}), **entries})


def _raise_exception(message: str = "", /) -> None:
    raise EvaluationError(str(message))


FUNCTIONS: Final = {"range": _range, "namespace": _namespace, "raise_exception": _raise_exception}
"""What templates can call besides the functions of expressions."""
