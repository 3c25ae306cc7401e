"""Adds up outcomes, request by request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from .checks import CaseOutcome, Place
from .report import BackendReport


@dataclass
class Tally:
    """What has been tried so far."""

    requests: Counter[str] = field(default_factory=Counter)
    ran: dict[str, Counter[str]] = field(default_factory=dict)
    seen: dict[str, dict[str, None]] = field(default_factory=dict)
    worst: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: dict[str, Counter[str]] = field(default_factory=dict)

    def see(self, places: tuple[Place, ...]) -> None:
        """Notes who could have run."""
        for backend, variant in places:
            self.seen.setdefault(backend, {})[variant] = None

    def add(self, outcomes: Sequence[CaseOutcome]) -> None:
        """Notes how those did that ran one request."""
        self.requests.update({outcome.backend for outcome in outcomes})
        for outcome in outcomes:
            self.ran.setdefault(outcome.backend, Counter())[outcome.variant] += 1
            self.notes.setdefault(outcome.backend, Counter()).update(outcome.notes)
            worst = self.worst.setdefault(outcome.backend, {})
            for dtype, ulp in outcome.worst.items():
                worst[dtype] = max(ulp, worst.get(dtype, 0.0))

    def report(self) -> tuple[BackendReport, ...]:
        """What was noted, by backend."""
        return tuple(
            BackendReport(
                backend,
                self.requests[backend],
                dict(ran := self.ran.get(backend, Counter())),
                tuple(variant for variant in seen if variant not in ran),
                self.worst.get(backend, {}),
                dict(self.notes.get(backend, Counter())),
            )
            for backend, seen in self.seen.items()
        )
