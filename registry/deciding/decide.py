"""Choosing with reasons: a pure function from a request and what backends offer to a decision.

Everything about the machine comes in as data, so that a choice can be tested for devices nobody owns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..calling.request import Request
from ..calling.scope import NO_DEVICE, request_scope
from ..hookspecs import Availability, Claim, Predicate, Refusal
from ..language.expressions import EvaluationError, parse
from ..language.meter import metered
from ..language.reasons import why_false
from .decision import Decision, Reason, Row

if TYPE_CHECKING:
    from ..measuring.tuned import Choice


@dataclass(frozen=True)
class Offer:
    """What one backend brings to a decision: where it stands and what it claims.

    ``obstacle`` is a reason against the whole backend beside those: a tensor on another device.
    ``measured`` is the choice among its claims that a measurement has made; it comes first if it accepts.
    """

    backend: str
    availability: Availability
    claims: Sequence[Claim | Refusal]
    obstacle: Reason | None = None
    measured: Choice | None = None


@dataclass(frozen=True)
class Policy:
    """How to choose. ``failures`` are claims that failed to prepare: (backend, variant) to the error; a
    variant of None stands for the whole backend. ``batch_invariant`` refuses claims that are not. Unless
    ``measured``, measured choices are not looked for."""

    accept_software: bool = False
    batch_invariant: bool = False
    exhaustive: bool = False
    measured: bool = True
    failures: Mapping[tuple[str, str | None], str] = field(default_factory=lambda: MappingProxyType({}))


def decide(request: Request, offers: Iterable[Offer], policy: Policy = Policy()) -> Decision:
    """Tries every claim in order; the first whose conditions all hold is chosen.

    Order: as the offers come; within one, claims that are not demoted before demoted ones, then by priority
    (high first), then as claimed. Unless the policy is exhaustive, nothing is tried after the choice, and
    later offers are not even drawn from the iterable.
    """
    rows: list[Row] = []
    for offer in offers:
        winner = next((r for r in rows if r.verdict == "chosen"), None)
        with metered():  # each backend by itself: a manifest that asks too much stops none of the others
            rows += _judge_offer(request, offer, policy, winner)
        if not policy.exhaustive and any(row.verdict == "chosen" for row in rows):
            break
    return Decision(request, tuple(rows))


def conditions_met(request: Request, claim: Claim, device: Mapping[str, Any]) -> int:
    """How many of a claim's conditions hold before the first that does not; all of them: it accepts."""
    judge = _Judge(request, device)
    return next((n for n, c in enumerate(claim.when) if judge.fails(c) is not None), len(claim.when))


def _judge_offer(request: Request, offer: Offer, policy: Policy, winner: Row | None) -> list[Row]:
    rows = [
        Row(offer.backend, r.variant, "rejected", r.condition, r.found, r.needed, r.condition)
        for r in offer.claims
        if isinstance(r, Refusal)
    ]
    claims = sorted((c for c in offer.claims if isinstance(c, Claim)), key=lambda c: -c.priority)
    against = against_backend(offer, policy)
    if against is not None:
        names = [claim.variant for claim in claims] or ([] if rows else ["all"])
        return rows + [_rejected(offer.backend, name, against) for name in names]
    judge = _Judge(request, offer.availability.device)
    lead = _measured_claim(request, offer, policy, claims)
    behind = "behind the measured choice" if winner is not None and winner.measured else "lower priority"
    accepted: list[Row] = []
    demoted: list[Row] = []
    if lead is not None:
        claims.remove(lead)
        row = Row(offer.backend, lead.variant, "eligible", behind, claim=lead, measured=offer.measured)
        accepted.append(row)
        rows.append(row)
    if winner is None and lead is not None:
        behind = "behind the measured choice"
    for claim in claims:
        if accepted and not policy.exhaustive:
            rows.append(Row(offer.backend, claim.variant, "not tried", behind, claim=claim))
            continue
        reason = _against_claim(claim, offer, policy, judge)
        demotion = judge.first_demotion(claim) if reason is None else None
        if isinstance(demotion, Reason):
            reason = demotion
        if reason is not None:
            rows.append(_rejected(offer.backend, claim.variant, reason, claim))
        elif demotion is not None:
            because = f"demoted: {demotion}"
            demoted.append(Row(offer.backend, claim.variant, "eligible", because, demoted=True, claim=claim))
            rows.append(demoted[-1])
        else:
            accepted.append(Row(offer.backend, claim.variant, "eligible", behind, claim=claim))
            rows.append(accepted[-1])
    if winner is not None or not (accepted or demoted):
        return rows
    first = (accepted or demoted)[0]
    because = first.because if first.demoted else "every condition holds"
    if first.measured is not None:
        because = ", ".join(
            filter(None, (f"by measurement of {first.measured.day}", first.measured.settings))
        )
    won = replace(first, verdict="chosen", because=because)
    # Accepted before demoted, otherwise as tried: the printed order is the order of preference.
    rows = [won if row is first else row for row in rows]
    return [row for row in rows if not row.demoted] + [row for row in rows if row.demoted]


def _measured_claim(request: Request, offer: Offer, policy: Policy, claims: Sequence[Claim]) -> Claim | None:
    """The claim that was chosen by measurement, if it accepts the request: else the static rules stand."""
    if offer.measured is None:
        return None
    chosen = offer.measured.chosen
    judge = _Judge(replace(request, tunables=chosen.tunables), offer.availability.device)
    claim = next((claim for claim in claims if claim.variant == chosen.variant), None)
    return claim if claim is not None and _against_claim(claim, offer, policy, judge) is None else None


def _against_claim(claim: Claim, offer: Offer, policy: Policy, judge: _Judge) -> Reason | None:
    reason = _variance(claim) if policy.batch_invariant else None
    reason = reason or judge.first_failure(claim)
    failure = policy.failures.get((offer.backend, claim.variant))
    if reason is None and failure is not None:
        reason = Reason("prepares on this device", "it could not be prepared", failure)
    return reason


def _variance(claim: Claim) -> Reason | None:
    """The reason against a claim where batch invariance is asked for."""
    if claim.batch_invariant:
        return None
    condition = "a row's bits do not depend on the other rows"
    return Reason(condition, condition, "it splits rows", "configure(batch_invariant=False)")


def against_backend(offer: Offer, policy: Policy) -> Reason | None:
    """The reason against all claims of a backend, or None."""
    here = offer.availability
    if not here.available:
        return Reason(here.condition, here.condition, here.found, here.needed)
    if offer.obstacle is not None:
        return offer.obstacle
    if not here.hardware and not policy.accept_software:
        return Reason(
            "adapter is hardware",
            "adapter is hardware",
            f"{here.name} (software)",
            f'a GPU, or backend="{offer.backend}"',
        )
    lost = policy.failures.get((offer.backend, None))
    return Reason("device works", "device works", lost) if lost else None


class _Judge:
    """Evaluates conditions in the scope of one request on one device, built when first needed."""

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


def _rejected(backend: str, variant: str, reason: Reason, claim: Claim | None = None) -> Row:
    return Row(
        backend,
        variant,
        "rejected",
        reason.because,
        reason.found,
        reason.needed,
        reason.condition,
        claim=claim,
    )
