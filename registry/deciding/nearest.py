"""Which of many claims come nearest to a request that none of them accepts, and what they lack."""

from __future__ import annotations

from collections.abc import Sequence

from ..calling.request import Request
from ..errors import shorten
from ..hookspecs import Availability
from ..language.meter import metered
from .conditions import Conditions
from .decision import Candidate, Reason

MANY = 5
"""So many rejections are read one by one; of more, the nearest are told."""

MAX_WORK = 100_000
"""Steps that looking for them may take."""


def nearest(request: Request, here: Availability, candidates: Sequence[Candidate]) -> str | None:
    """A line on those of a backend's candidates, all rejected, that fewest conditions speak against.

    None where there are few, or where one reason stands against all: the list says it then.
    """
    rejected = [each for each in candidates if each.claim is not None and each.verdict == "rejected"]
    if len(rejected) <= MANY or len({(each.because, each.found, each.needed) for each in rejected}) == 1:
        return None
    lacking: dict[frozenset[Reason], list[str]] = {}
    with metered(MAX_WORK):
        conditions = Conditions(request, here.device)
        for each in rejected:
            assert each.claim is not None
            reasons = frozenset(filter(None, map(conditions.fails, each.claim.when)))
            if reasons and not any(reason.broken for reason in reasons):
                lacking.setdefault(reasons, []).append(each.variant)
    if not lacking:
        return None
    fewest = min(map(len, lacking))
    by_need: dict[str, list[str]] = {}
    for reasons, variants in lacking.items():
        if len(reasons) == fewest:
            by_need.setdefault(" and ".join(sorted(map(_told, reasons))), []).extend(variants)
    need, variants = next(iter(by_need.items()))  # of those that would come first
    more = f" and {len(variants) - 1} more" if len(variants) > 1 else ""
    return f"nearest on {rejected[0].backend}: {variants[0]}{more}, but {need}"


def _told(reason: Reason) -> str:
    return f"{reason.because} is {shorten(reason.found, 60)}, needed: {reason.needed}"
