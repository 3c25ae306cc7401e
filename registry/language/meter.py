"""How much work a stranger's expressions may make: counted in steps, so that the same text always comes to
the same end, on a slow machine too.

A step is an operator, a name or a constant of an expression, or an element of a list or an object that is
walked over. Expressions are bounded each by itself, but a manifest has many of them, and loops repeat them:
``metered`` goes around what they are evaluated for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ..errors import RegistryError

MAX_WORK: Final = 1_000_000
"""Steps of one purpose; a microsecond each at most, and rarely that."""

MANY: Final = 64
"""Elements from which on walking over them counts."""


class EvaluationError(RegistryError):
    """A well-formed expression has no value: an unknown name, a wrong kind of operand, a limit."""


class _Here(threading.local):
    left: int | None = None
    limit: str = ""


_here = _Here()


@contextmanager
def metered(
    work: int = MAX_WORK, what: str = "its expressions and templates together take"
) -> Iterator[None]:
    """Within it, all expressions and templates that this thread evaluates take so many steps together.

    One within another counts for both; ``what`` begins the message of the error.
    """
    before = _here.left, _here.limit
    outer = _here.left
    start = work if outer is None else min(work, outer)
    _here.left = start
    if start == work:
        _here.limit = f"{what} more than {work} steps"
    try:
        yield
    finally:
        used = start - (_here.left or 0)
        _here.left, _here.limit = before
        if outer is not None:
            _here.left = outer - used


def spend(steps: int) -> None:
    """Counts steps, where somebody does.

    Raises:
        EvaluationError: there were too many.
    """
    left = _here.left
    if left is not None:
        _here.left = left = left - steps
        if left < 0:
            raise EvaluationError(_here.limit)
