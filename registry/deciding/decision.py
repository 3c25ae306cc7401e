"""A decision: every candidate for a request, with its verdict and the reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from ..calling.request import Request
from ..errors import NoPlanError
from ..hookspecs import Claim
from ..text import lay_out

if TYPE_CHECKING:
    from .tuned import Choice

HEADER = ("#", "backend", "variant", "verdict", "because", "found", "needed")

Standing = Literal["chosen", "eligible", "rejected", "not tried"]


@dataclass(frozen=True)
class Reason:
    """Why not. ``condition`` is the clause as its author wrote it, ``because`` the part of it that failed.

    ``broken`` tells that the condition has no value at all, neither true nor false.
    """

    condition: str
    because: str
    found: str = ""
    needed: str = ""
    broken: bool = False


@dataclass(frozen=True)
class Candidate:
    """One candidate: a backend's variant, its verdict and the reason; where that is a measurement, which."""

    backend: str
    variant: str
    verdict: Standing
    because: str = ""
    found: str = ""
    needed: str = ""
    condition: str = ""
    demoted: bool = False
    claim: Claim | None = field(default=None, repr=False, compare=False)
    measured: Choice | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """The candidate as plain data."""
        names = (
            "backend",
            "variant",
            "verdict",
            "condition",
            "because",
            "found",
            "needed",
            "demoted",
        )
        tunables = dict(self.measured.chosen.tunables) if self.measured else {}
        return {**{name: getattr(self, name) for name in names}, "tunables": tunables}


@dataclass(frozen=True, repr=False)
class Decision:
    """Every candidate in order with its verdict. At most one is chosen. ``str()`` prints the table."""

    request: Request
    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<decision {self.request}: {self.backend} {self.variant}, {len(self.candidates)} candidates>"

    @property
    def chosen(self) -> Candidate | None:
        """The candidate that runs, or None."""
        return next((candidate for candidate in self.candidates if candidate.verdict == "chosen"), None)

    @property
    def backend(self) -> str | None:
        """The chosen backend."""
        return self.chosen.backend if self.chosen else None

    @property
    def variant(self) -> str | None:
        """The chosen variant."""
        return self.chosen.variant if self.chosen else None

    @property
    def rejected(self) -> tuple[Candidate, ...]:
        """The candidates that do not accept the request."""
        return tuple(candidate for candidate in self.candidates if candidate.verdict == "rejected")

    @property
    def eligible(self) -> tuple[Candidate, ...]:
        """The candidates that accept the request, the chosen one first."""
        return tuple(
            candidate for candidate in self.candidates if candidate.verdict in ("chosen", "eligible")
        )

    def request_of(self, candidate: Candidate) -> Request:
        """The request as a candidate takes it: with the tunables that were measured for it."""
        return (
            replace(self.request, tunables=candidate.measured.chosen.tunables)
            if candidate.measured
            else self.request
        )

    def as_dict(self) -> dict[str, Any]:
        """The decision as plain data, for JSON."""
        return {
            "op": self.request.op.id,
            "request": str(self.request),
            "backend": self.backend,
            "variant": self.variant,
            "candidates": [candidate.as_dict() for candidate in self.candidates],
            "notes": list(self.notes),
        }

    def table(self) -> list[tuple[str, ...]]:
        """The rows for printing: rank, backend, variant, verdict, because, found, needed; runs folded."""
        return list(_fold(self.candidates))

    def __str__(self) -> str:
        lines = lay_out(HEADER, self.table())
        return "\n".join([str(self.request), *lines, *(f"  note: {note}" for note in self.notes)])

    def require(self) -> Candidate:
        """The chosen candidate.

        Raises:
            NoPlanError: there is none; the message is the table.
        """
        if self.chosen is None:
            raise NoPlanError(f"no candidate accepts the request\n{self}", decision=self)
        return self.chosen


def _fold(candidates: Sequence[Candidate]) -> Iterable[tuple[str, ...]]:
    """Runs of one backend with one reason become two lines: the first, and how many more say the same."""
    rank = 0
    key = attrgetter("backend", "verdict", "because", "found", "needed")
    for _, run in groupby(candidates, key=key):
        same = list(run)
        first = same[0]
        yield (
            str(rank + 1),
            first.backend,
            first.variant,
            first.verdict,
            first.because,
            first.found,
            first.needed,
        )
        if len(same) == 2:
            yield (str(rank + 2), first.backend, same[1].variant, first.verdict, "the same", "", "")
        elif len(same) > 2:
            yield ("", first.backend, f"{len(same) - 1} more", first.verdict, "the same", "", "")
        rank += len(same)
