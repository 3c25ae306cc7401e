"""The calls that make our manifests render different sources: every variant, over what changes its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from forms import FORMS, Form

import registry_manifests
import registry_webgpu
from registry import Claim, Registry
from registry.calling.call import parse_call
from registry.calling.request import Request
from registry.deciding.decide import Offer, Policy, decide
from registry.hookspecs import Availability
from registry.planning.making import bind_call

# One, odd, a multiple of 4; in registers and read again, each with whole and with ragged last columns.
HIDDEN = (1, 7, 8, 33, 257, 768, 1000, 4096, 4097)
DTYPES = ("float32", "float16", "bfloat16")
ROWS = 3
# The first shows which forms of call a variant accepts, the others meet the variants that it does not.
_PROBES = ((8, "float32"), (7, "float32"), (1, "float32"), (8, "float16"), (1, "float16"), (8, "bfloat16"))

# Without a device: it only renders.
_REGISTRY = Registry([registry_manifests, registry_webgpu], entry_points=False)
_BACKEND = _REGISTRY.catalog.backend("webgpu")
VARIANTS = [(op, variant) for op in FORMS for variant in _REGISTRY.op(op).variants]


@dataclass(frozen=True)
class Case:
    """One rendered pass and the call that it comes from."""

    call: str
    source: str


def device(implementation: str, subgroups: bool, software: bool) -> Availability:
    """A device that is not here: it has float16, and subgroups or not."""
    sizes = {"subgroupMinSize": 8, "subgroupMaxSize": 8} if subgroups else {}
    return _BACKEND.imagine(
        {
            "implementation": implementation,
            "features": ["shader-f16", *["subgroups"] * subgroups],
            "wgslLanguageFeatures": ["subgroup_id"] * subgroups,
            "adapterInfo": {"isFallbackAdapter": software, **sizes},
        }
    )


@cache
def forms_of(op: str) -> Mapping[str, tuple[Form, ...]]:
    """Every variant of an op with the forms of call it accepts."""
    here = device("wgpu", subgroups=True, software=True)
    found: dict[str, list[Form]] = {claim.variant: [] for claim in _claims(op)}
    for hidden, dtype in _PROBES:
        missing = [claim for claim in _claims(op) if not found[claim.variant]]
        met = [
            (claim.variant, form)
            for form in FORMS[op]
            if (request := _request(op, form, hidden, dtype)) is not None
            for claim in _accepting(request, here, missing)
        ]
        for variant, form in met:
            found[variant].append(form)
    assert all(found.values()), f"no call for {[variant for variant in found if not found[variant]]}"
    return {variant: tuple(forms) for variant, forms in found.items()}


def cases(op: str, sizes: Sequence[tuple[int, Availability]]) -> Iterator[Case]:
    """The distinct sources of an op: every form of call that a variant accepts once, its first at all sizes
    and dtypes.

    ``sizes`` are hidden sizes, each on a device.
    """
    seen: set[str] = set()
    probes = [(hidden, dtype, sizes[0][1]) for hidden, dtype in _PROBES]
    grid = [(hidden, dtype, here) for hidden, here in sizes for dtype in DTYPES]
    for claim in _claims(op):
        for place, form in enumerate(forms_of(op)[claim.variant]):
            once = next(filter(None, (_cases(op, claim, form, *probe) for probe in probes)))
            every = [case for point in grid for case in _cases(op, claim, form, *point)] if place == 0 else []
            for case in (*once, *every):
                if case.source not in seen:
                    seen.add(case.source)
                    yield case


def _cases(
    op: str, claim: Claim, form: Form, hidden: int, dtype: str, here: Availability
) -> tuple[Case, ...]:
    """The passes of a variant for a form of call, none where it does not accept it."""
    request = _request(op, form, hidden, dtype)
    if request is None or not _accepting(request, here, [claim]):
        return ()
    call = f"{claim.variant} {form.name} {hidden} {dtype}"
    return tuple(Case(f"{call} {item.id}", item.source) for item in _BACKEND.render(request, claim, here))


@cache
def _claims(op: str) -> list[Claim]:
    return [claim for claim in _BACKEND.claims(_REGISTRY.op(op)) if isinstance(claim, Claim)]


def _request(op: str, form: Form, hidden: int, dtype: str) -> Request | None:
    """The request of a form of call, or None when there is none at that size and dtype."""
    target = _REGISTRY.op(op)
    pairs = form.pairs(ROWS, hidden, dtype)
    if pairs is None or dtype not in target.manifest.type_constraints["T"]:
        return None
    return bind_call(_REGISTRY.catalog, parse_call(target, (), pairs))


def _accepting(request: Request, here: Availability, claims: Sequence[Claim]) -> list[Claim]:
    policy = Policy(accept_software=True, exhaustive=True)
    rows = decide(request, [Offer("webgpu", here, claims)], policy).eligible
    return [row.claim for row in rows if row.claim is not None]
