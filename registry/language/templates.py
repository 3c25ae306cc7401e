"""Templates of the published format: text with ``{{ expressions }}`` and ``{% statements %}``.

The format looks like Jinja and is not: numbers print as in JavaScript (``0.00001``, ``2.0``), a loop has one
scope for all its iterations, macros see the names of their caller, ``break`` drops what its iteration has
printed. ``statements`` has the list; whitespace is the matter of ``tokens``. In one point a template may be
held to more than the format asks: a name that is not known, or an undefined value that is printed, is an
error and not an empty text, since what is left is often a valid shader that computes something else.

A stranger's template takes bounded time and memory, and reaches nothing but the values it is given.

jinja2 is imported by the first ``parse_template``, not by importing this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from ..errors import RegistryError
from .frame import MAX_STEPS, Frame, Interrupt
from .meter import EvaluationError, metered

MAX_SOURCE: Final = 3 * 2**15  # characters of a template


class TemplateError(RegistryError):
    """A template is wrong or has no text. ``message`` says why, ``line`` where in the template."""

    def __init__(self, message: str, *, line: int):
        super().__init__(f"line {line}: {message}")
        self.message = message
        self.line = line


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template. Rendering changes nothing in it: threads may share it."""

    source: str = field(repr=False)
    _run: Callable[[Frame, list[str]], None] = field(repr=False, compare=False)

    def render(self, scope: Mapping[str, Any], lost: list[str] | None = None) -> str:
        """The text for these names: values and functions, objects as mappings.

        With a list ``lost``, undefined names and values are no error: they print nothing, as the format says,
        and the list gets every expression that did so.

        Raises:
            TemplateError: a name is unknown, an undefined value is printed, operands are of a wrong
                kind, or the template takes more time, text or nesting than it may.
        """
        frame = Frame(scope, lost)
        text: list[str] = []
        try:
            with metered(MAX_STEPS, "the template takes"):
                self._run(frame, text)
        except EvaluationError as error:
            raise TemplateError(str(error), line=frame.line) from error
        except RecursionError:
            raise TemplateError("nested too deeply", line=frame.line) from None
        except Interrupt as interrupt:
            raise TemplateError(f"{interrupt} outside of a loop", line=frame.line) from None
        return "".join(text)


@lru_cache(maxsize=256)
def parse_template(source: str) -> Template:
    """The template that a text spells.

    Raises:
        TemplateError: a statement, an expression, a filter or a test is wrong or unknown; the text has
            more than 98,304 characters or is nested too deeply.
    """
    from jinja2.exceptions import TemplateSyntaxError

    from .statements import build_template

    if len(source) > MAX_SOURCE:
        raise TemplateError(f"{len(source)} characters are too many; the limit is {MAX_SOURCE}", line=1)
    try:
        return Template(source, build_template(source))
    except TemplateSyntaxError as error:
        raise TemplateError(str(error.message), line=error.lineno) from None
    except RecursionError:
        raise TemplateError("nested too deeply", line=1) from None
