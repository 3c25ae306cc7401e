"""From a call to a decision: which backends are asked, what each offers, and what stands in the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ..calling.call import Call, wrong
from ..calling.request import Request
from ..catalog import Catalog
from ..errors import BackendError, ContractError, blaming, suggestion
from ..hookspecs import Availability, Claim, Predicate, Refusal
from ..language.expressions import parse
from ..opinfo import Op
from .decide import Offer, Policy, against_backend, decide
from .decision import Decision, Reason
from .tuned import find

MAX_LISTED = 12
"""So many variants an error lists by name: an op may have a hundred."""


def choose(catalog: Catalog, call: Call, request: Request, policy: Policy) -> Decision:
    """Asks the backends in order and decides.

    Raises:
        ContractError: an unknown backend, variant or device, or a device of another backend.
    """
    names = considered(catalog, call)
    if call.variant is not None:
        _check_variant(catalog, call, names)
    offers = _offers(catalog, call, request, names)
    policy = _completed(policy, catalog, call, request)
    if policy.measured and _may_be_measured(catalog, call):
        decision = _decide_measured(catalog, request, tuple(offers), policy, is_automatic(catalog, call))
    else:
        decision = decide(request, offers, policy)
    candidate = decision.chosen
    if candidate is None:
        return decision
    notes = [] if candidate.measured is None else [str(candidate.measured)]
    device = next(iter(request.devices.values()), None)
    if device and candidate.backend != device.partition(":")[0]:
        notes.append(f"moves {', '.join(request.devices)} from {device} through the host and the result back")
    elif device and call.profile is None:
        own = {role: call.tensors[role] for role in request.devices}
        try:
            notes.extend(catalog.backend(candidate.backend).remarks(own))
        except Exception as error:  # what a stranger cannot say must not stop a run
            notes.append(f"{candidate.backend} says nothing of its tensors: {error}")
    notes.append(availability(catalog, candidate.backend, call, request).note)
    return replace(decision, notes=(*filter(None, notes), *decision.notes))


def is_automatic(catalog: Catalog, call: Call) -> bool:
    """Whether the backend is the registry's choice: neither the call nor the user's list names any."""
    return not _names_one(call) and call.backend is None and catalog.listed() is None


def contenders(catalog: Catalog, call: Call, request: Request) -> list[Offer]:
    """What the backends offer that can run a call here, whichever of their claims accept it."""
    policy = _completed(Policy(), catalog, call, request)
    offers = _offers(catalog, call, request, considered(catalog, call))
    return [offer for offer in offers if against_backend(offer, policy) is None]


def _names_one(call: Call) -> bool:
    return isinstance(call.backend, str) or call.device is not None or call.variant is not None


def _completed(policy: Policy, catalog: Catalog, call: Call, request: Request) -> Policy:
    # Who names a backend, a device or a variant, or has put tensors on a device, takes a software adapter.
    named = not is_automatic(catalog, call)
    software = named or call.op.package is not None or bool(request.devices)
    return replace(policy, accept_software=software, batch_invariant=catalog.batch_invariant)


def _offers(catalog: Catalog, call: Call, request: Request, names: Iterable[str]) -> Iterator[Offer]:
    # Only who names exactly one backend has tensors moved to it.
    return (_offer(catalog, name, call, request, moves=_names_one(call)) for name in names)


def _may_be_measured(catalog: Catalog, call: Call) -> bool:
    """Whether to look for a measured choice: what the call settles itself stands as it is."""
    settled = call.variant is not None or call.profile is not None or call.tunables
    return not settled and catalog.tuned and catalog.store.knows(call.op.id)


def _decide_measured(
    catalog: Catalog, request: Request, offers: tuple[Offer, ...], policy: Policy, automatic: bool
) -> Decision:
    """Decides with measured choices: within each backend, and of the backend where the choice is automatic.

    A measured choice that does not accept the request, or cannot be prepared, leaves the static order.
    """
    able = [offer for offer in offers if against_backend(offer, policy) is None]
    own = {offer.backend: find(catalog, request, [offer]) for offer in able}
    offers = tuple(replace(offer, measured=own.get(offer.backend)) for offer in offers)
    overall = find(catalog, request, able) if automatic and len(able) > 1 else None
    if overall is not None:
        first = [replace(o, measured=overall) for o in offers if o.backend == overall.chosen.backend]
        others = [offer for offer in offers if offer.backend != overall.chosen.backend]
        decision = decide(request, [*first, *others], policy)
        if decision.chosen is not None and decision.chosen.measured == overall:
            return decision
    return decide(request, offers, policy)


def considered(catalog: Catalog, call: Call) -> tuple[str, ...]:
    """The backends to try, in order: those of the call, else those the user listed, else all by priority."""
    asked = (call.backend,) if isinstance(call.backend, str) else call.backend
    names = None if asked is None else tuple(catalog.known(name) for name in asked)
    if call.profile is not None:
        if not isinstance(call.profile, Mapping):
            text = f"profile= is {call.profile!r}; needed: a mapping of backends to devices"
            raise wrong(call.op, text, "profile")
        given = tuple(catalog.known(name) for name in call.profile)
        if not given:
            text = "profile={} describes no device; needed: a mapping of backends to devices"
            raise wrong(call.op, text, "profile")
        missing = [name for name in names or () if name not in given]
        if missing:
            text = f"profile= describes {', '.join(given)}, but backend= names {', '.join(missing)}"
            raise wrong(call.op, f"{text}; describe it too, or leave it out", "profile")
        return names or given
    if call.device is not None:
        owner = catalog.split_device(call.device)[0]
        if names is not None and owner not in names:
            text = (
                f"device={call.device!r} belongs to backend {owner!r}, but backend= names {', '.join(names)}"
            )
            raise wrong(call.op, f"{text}; leave one of them out", "device")
        return (owner,)
    return names or catalog.order()


def availability(catalog: Catalog, name: str, call: Call, request: Request) -> Availability:
    """How a backend stands for a call: on this machine, or on the device that the call describes."""
    if call.profile is not None:
        with blaming(name, "imagine"):
            found = catalog.backend(name).imagine(call.profile[name])
        if not isinstance(found, Availability):
            raise BackendError(f"imagine gave {found!r}; needed: an Availability", backend=name)
        return found
    here = catalog.availability(name, place_of(catalog, name, call, request))
    return replace(here, hardware=True) if catalog.environment.accepts_software(name) else here


def place_of(catalog: Catalog, name: str, call: Call, request: Request) -> str | None:
    """The device a backend would run a call on: the one asked for, or where the tensors are."""
    if call.device is not None:
        return call.device
    return next((device for device in request.devices.values() if catalog.at(device).name == name), None)


def _offer(catalog: Catalog, name: str, call: Call, request: Request, moves: bool) -> Offer:
    device = next(iter(request.devices.values()), None)
    obstacle = None
    if device is not None and device.partition(":")[0] != name and not moves:
        stay = "tensors stay on their device"
        where = f"{next(iter(request.devices))} on {device}"
        obstacle = Reason(stay, stay, where, f'backend="{name}" to move them through the host')
    here = availability(catalog, name, call, request)
    return Offer(name, here, _claims(catalog, name, call), obstacle)


def claims_of(catalog: Catalog, name: str, op: Op) -> tuple[Claim | Refusal, ...]:
    """What a backend offers for an op, of a package its own variants only; where that is nothing, why."""
    try:
        claims = _listed(catalog, name, op)
    except (Exception, SystemExit) as error:  # a stranger's plugin must not stop the others
        from ..plugins import one_line

        return (Refusal("claims can be listed", one_line(error), "a working plugin"),)
    if not claims:
        claims = (Refusal("it claims the op", "no claim", "a backend that has this op"),)
    if op.package is not None:  # a package runs its own kernels only
        own = tuple(c for c in claims if isinstance(c, Refusal) or c.variant in op.variants)
        refused = Refusal("it runs variants of the package", "none", "a backend for the package's shaders")
        claims = own or (refused,)
    return claims


def claims_fault(catalog: Catalog, name: str, op: Op) -> str | None:
    """What is wrong with a backend's claims for an op, conditions that cannot be read too."""
    from ..plugins import one_line

    try:
        for claim in _listed(catalog, name, op):
            for condition in (*claim.when, *claim.demote_when) if isinstance(claim, Claim) else ():
                if isinstance(condition, str):
                    parse(condition)
    except (Exception, SystemExit) as error:
        return one_line(error)
    return None


def _listed(catalog: Catalog, name: str, op: Op) -> tuple[Claim | Refusal, ...]:
    """The claims as the backend gives them; raises what it raises, and TypeError for anything else."""
    return tuple(_well_formed(claim) for claim in catalog.backend(name).claims(op))


def _claims(catalog: Catalog, name: str, call: Call) -> tuple[Claim | Refusal, ...]:
    claims = claims_of(catalog, name, call.op)
    return claims if call.variant is None else tuple(c for c in claims if c.variant == call.variant)


def _well_formed(claim: object) -> Claim | Refusal:
    if isinstance(claim, Refusal):
        return claim
    if not isinstance(claim, Claim):
        raise TypeError(f"claims gave {claim!r}; needed: Claim or Refusal")
    if not isinstance(claim.variant, str) or not isinstance(claim.priority, int | float):
        raise TypeError(f"{claim!r}; needed: a text as variant, a number as priority")
    for conditions in (claim.when, claim.demote_when):
        if not isinstance(conditions, tuple | list):
            raise TypeError(f"{claim!r}; needed: tuples of conditions")
        for each in conditions:
            if isinstance(each, Predicate) and not (
                isinstance(each.condition, str) and isinstance(each.needed, str)
            ):
                raise TypeError(f"{each!r}; needed: texts as condition and needed")
    return claim


def _check_variant(catalog: Catalog, call: Call, names: tuple[str, ...]) -> None:
    everything = replace(call, variant=None)
    known = [c.variant for name in names for c in _claims(catalog, name, everything)]
    if call.variant not in known:
        shown = (
            known if len(known) <= MAX_LISTED else [*known[:MAX_LISTED], f"{len(known) - MAX_LISTED} more"]
        )
        raise ContractError(
            f"{call.op.id}: no variant {call.variant!r}{suggestion(str(call.variant), known)}; "
            f"variants on {', '.join(names)}: {', '.join(shown) or 'none'}",
            op=call.op.id,
            argument="variant",
        )
