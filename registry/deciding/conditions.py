"""Whether the conditions of claims hold for a request on a device, and if not, why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..calling.request import Request
from ..calling.scope import NO_DEVICE, request_scope
from ..hookspecs import Claim, Predicate
from ..language.expressions import EvaluationError, parse
from ..language.reasons import why_false
from .decision import Reason


class Conditions:
    """Evaluates conditions in the scope of one request on one device, which is built when first needed."""

    def __init__(self, request: Request, device: Mapping[str, Any]):
        self.request = request
        self.device = device or NO_DEVICE
        self.scope: dict[str, Any] | None = None
        self.broken: Reason | None = None

    def first_failure(self, claim: Claim) -> Reason | None:
        """The first condition that does not hold."""
        return next((reason for c in claim.when if (reason := self.fails(c)) is not None), None)

    def first_demotion(self, claim: Claim) -> str | Reason | None:
        """The first demotion that applies, or the reason that one cannot be evaluated."""
        for condition in claim.demote_when:
            reason = self.fails(condition)
            if reason is None:
                return condition.condition if isinstance(condition, Predicate) else condition
            if reason.broken:
                return reason
        return None

    def fails(self, condition: str | Predicate) -> Reason | None:
        """Why a condition does not hold, or None when it does."""
        text = condition.condition if isinstance(condition, Predicate) else str(condition)
        try:
            if isinstance(condition, Predicate):
                found = condition.test(self.request, self.device)
                if not isinstance(found, str | None):
                    raise TypeError(f"its test gave {found!r}; needed: None or a text")
                return None if found is None else Reason(text, text, found, condition.needed)
            return self._expression(condition)
        except Exception as error:  # a stranger's predicate or expression must not stop the others
            needed = "a condition that can be evaluated"
            return Reason(text, text, f"{type(error).__name__}: {error}", needed, broken=True)

    def _expression(self, condition: str) -> Reason | None:
        # A backend that describes no device is not asked for what a manifest derives from one.
        if self.device is NO_DEVICE:
            self.scope = self.broken = None
        if self.scope is None and self.broken is None:
            try:
                alone = condition if self.device is NO_DEVICE else None
                self.scope = request_scope(self.request, self.device, alone)
            except EvaluationError as error:
                derived = "derived values can be computed"
                needed = "a request the manifest can derive from"
                self.broken = Reason("the manifest's derived values", derived, str(error), needed)
        if self.scope is None:
            return self.broken
        expression = parse(condition)
        try:
            if expression.evaluate(self.scope) is True:
                return None
        except EvaluationError as error:
            needed = "an expression that can be evaluated"
            return Reason(condition, condition, str(error), needed, broken=True)
        leaf = why_false(expression, self.scope, self.request.op.manifest.derive)
        return Reason(condition, leaf.condition, leaf.found, leaf.needed)


def conditions_met(request: Request, claim: Claim, device: Mapping[str, Any]) -> int:
    """How many of a claim's conditions hold before the first that does not; all of them: it accepts."""
    conditions = Conditions(request, device)
    return next((n for n, c in enumerate(claim.when) if conditions.fails(c) is not None), len(claim.when))
