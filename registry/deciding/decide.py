"""Choosing with reasons: a pure function from a request and what backends offer to a decision.

Everything about the machine comes in as data, so that a choice can be tested for devices nobody owns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..calling.request import Request
from ..hookspecs import Availability, Claim, Refusal
from ..language.meter import metered
from .conditions import Conditions
from .decision import Candidate, Decision, Reason
from .nearest import nearest

if TYPE_CHECKING:
    from .tuned import Choice


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
    candidates: list[Candidate] = []
    refusing: list[tuple[Offer, Sequence[Candidate]]] = []
    for offer in offers:
        winner = next((each for each in candidates if each.verdict == "chosen"), None)
        with metered():  # each backend by itself: a manifest that asks too much stops none of the others
            own = _weigh(request, offer, policy, winner)
        candidates += own
        if all(each.verdict == "rejected" for each in own):
            refusing.append((offer, own))
        if not policy.exhaustive and any(each.verdict == "chosen" for each in own):
            return Decision(request, tuple(candidates))
    notes = (nearest(request, offer.availability, own) for offer, own in refusing)
    return Decision(request, tuple(candidates), tuple(filter(None, notes)))


def _weigh(request: Request, offer: Offer, policy: Policy, winner: Candidate | None) -> list[Candidate]:
    candidates = [
        Candidate(offer.backend, r.variant, "rejected", r.condition, r.found, r.needed, r.condition)
        for r in offer.claims
        if isinstance(r, Refusal)
    ]
    claims = sorted((c for c in offer.claims if isinstance(c, Claim)), key=lambda c: -c.priority)
    against = against_backend(offer, policy)
    if against is not None:
        names = [claim.variant for claim in claims] or ([] if candidates else ["all"])
        return candidates + [_rejected(offer.backend, name, against) for name in names]
    conditions = Conditions(request, offer.availability.device)
    lead = _measured_claim(request, offer, policy, claims)
    behind = "behind the measured choice" if winner is not None and winner.measured else "lower priority"
    accepted: list[Candidate] = []
    demoted: list[Candidate] = []
    if lead is not None:
        claims.remove(lead)
        candidate = Candidate(
            offer.backend, lead.variant, "eligible", behind, claim=lead, measured=offer.measured
        )
        accepted.append(candidate)
        candidates.append(candidate)
    if winner is None and lead is not None:
        behind = "behind the measured choice"
    for claim in claims:
        if accepted and not policy.exhaustive:
            candidates.append(Candidate(offer.backend, claim.variant, "not tried", behind, claim=claim))
            continue
        reason = _against_claim(claim, offer, policy, conditions)
        demotion = conditions.first_demotion(claim) if reason is None else None
        if isinstance(demotion, Reason):
            reason = demotion
        if reason is not None:
            candidates.append(_rejected(offer.backend, claim.variant, reason, claim))
        elif demotion is not None:
            because = f"demoted: {demotion}"
            demoted.append(
                Candidate(offer.backend, claim.variant, "eligible", because, demoted=True, claim=claim)
            )
            candidates.append(demoted[-1])
        else:
            accepted.append(Candidate(offer.backend, claim.variant, "eligible", behind, claim=claim))
            candidates.append(accepted[-1])
    if winner is not None or not (accepted or demoted):
        return candidates
    first = (accepted or demoted)[0]
    because = first.because if first.demoted else "every condition holds"
    if first.measured is not None:
        because = ", ".join(
            filter(None, (f"by measurement of {first.measured.day}", first.measured.settings))
        )
    won = replace(first, verdict="chosen", because=because)
    # Accepted before demoted, otherwise as tried: the printed order is the order of preference.
    candidates = [won if candidate is first else candidate for candidate in candidates]
    return [candidate for candidate in candidates if not candidate.demoted] + [
        candidate for candidate in candidates if candidate.demoted
    ]


def _measured_claim(request: Request, offer: Offer, policy: Policy, claims: Sequence[Claim]) -> Claim | None:
    """The claim that was chosen by measurement, if it accepts the request: else the static rules stand."""
    if offer.measured is None:
        return None
    chosen = offer.measured.chosen
    conditions = Conditions(replace(request, tunables=chosen.tunables), offer.availability.device)
    claim = next((claim for claim in claims if claim.variant == chosen.variant), None)
    return claim if claim is not None and _against_claim(claim, offer, policy, conditions) is None else None


def _against_claim(claim: Claim, offer: Offer, policy: Policy, conditions: Conditions) -> Reason | None:
    reason = _variance(claim) if policy.batch_invariant else None
    reason = reason or conditions.first_failure(claim)
    failure = policy.failures.get((offer.backend, claim.variant))
    if reason is None and failure is not None:
        reason = Reason(
            "prepares on this device", "it could not be prepared", failure, "another variant or backend"
        )
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
    needed = "registry.refresh(), or another device"
    return Reason("device works", "device works", lost, needed) if lost else None


def _rejected(backend: str, variant: str, reason: Reason, claim: Claim | None = None) -> Candidate:
    return Candidate(
        backend,
        variant,
        "rejected",
        reason.because,
        reason.found,
        reason.needed,
        reason.condition,
        claim=claim,
    )
