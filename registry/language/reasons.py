"""Why an expression did not come out true, in the words of the condition that stopped it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .expressions import Expression


@dataclass(frozen=True, slots=True)
class Leaf:
    """The smallest part of an expression that explains its value.

    Attributes:
        condition: its source text; of a comparison the left side.
        found: what that has come to, or the message of the error it raised.
        needed: what would have been needed: ``true``, ``== 4``, ``<= 65535 (device.limits.x)``.
    """

    condition: str
    found: str
    needed: str


def why_false(expression: Expression, scope: Mapping[str, Any], definitions: Mapping[str, Any]) -> Leaf:
    """The leaf that kept ``expression`` from being true in ``scope``.

    Descends through ``and``, ``or``, ``not``, conditionals and, by their names, derived values.

    Args:
        definitions: derived values by name, as the manifest defines them; only texts are followed.

    Never raises: an error inside the expression is what was found.
    """
    from .leaves import explain

    try:
        return explain(expression.tree, scope, definitions)
    except Exception as error:  # an explanation must not hide what it explains
        return Leaf(expression.text, str(error), "true")
