"""Searches an op's requests for one that fails, and shrinks it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.errors import Flaky, Unsatisfiable
from hypothesis.strategies import SearchStrategy

from ..dispatch import Registry
from ..errors import RegistryError
from ..op import Op
from .cases import Case
from .checks import Finding, Outcome, check_refused, make_trial, try_candidate, with_spy
from .report import BackendReport, Failure, Report
from .strategies import illegal_cases, legal_cases

MAX_FAILURES = 5

Place = tuple[str, str]
"""A backend and a variant; two empty texts for the contract itself."""


class _Wrong(Exception):
    """Carries a failure out of hypothesis."""


@dataclass
class _Tally:
    """What has been tried so far."""

    done: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    ran: dict[str, Counter[str]] = field(default_factory=dict)
    seen: dict[str, dict[str, None]] = field(default_factory=dict)
    worst: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: dict[str, Counter[str]] = field(default_factory=dict)

    def see(self, places: tuple[Place, ...]) -> None:
        for backend, variant in places:
            self.seen.setdefault(backend, {})[variant] = None

    def add(self, outcomes: list[Outcome]) -> None:
        self.requests.update({outcome.backend for outcome in outcomes})
        for outcome in outcomes:
            self.ran.setdefault(outcome.backend, Counter())[outcome.variant] += 1
            self.notes.setdefault(outcome.backend, Counter()).update(outcome.notes)
            worst = self.worst.setdefault(outcome.backend, {})
            for dtype, ulp in outcome.worst.items():
                worst[dtype] = max(ulp, worst.get(dtype, 0.0))

    def report(self) -> tuple[BackendReport, ...]:
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


def run_suite(
    registry: Registry,
    op: Op,
    cases: int,
    seed: int,
    backend: str | None,
    variant: str | None,
    progress: Callable[[int], None] | None,
) -> Report:
    """See `registry.conformance.run`."""
    name = op.id if op.package is None else str(op.package.folder)
    tally = _Tally()
    failed: set[Place] = set()

    def try_legal(case: Case, only: Place | None) -> tuple[Place, Finding] | None:
        trial = make_trial(registry, op, case, backend, variant)
        outcomes: list[Outcome] = []
        first: dict[str, Any] = {}
        for place in trial.candidates:
            if place in failed or only not in (None, place):
                continue
            outcome, values = try_candidate(trial, *place, first)
            first = first or values
            outcomes.append(outcome)
            if not outcome.ok:
                break
        if only is None:
            tally.see((*trial.candidates, *trial.rejected))
            tally.add(outcomes)
        wrong = [outcome for outcome in outcomes if not outcome.ok]
        return ((wrong[0].backend, wrong[0].variant), wrong[0].findings[0]) if wrong else None

    spied, spy = with_spy(registry)

    def try_illegal(case: Case, only: Place | None) -> tuple[Place, Finding] | None:
        found = check_refused(spied, spy, op, case)
        return (("", ""), found) if found else None

    failures: list[Failure] = []
    legal = _Search(name, try_legal, cases, seed, progress)
    while legal.done < cases and len(failures) < MAX_FAILURES:
        failure = legal.find(legal_cases(registry, op))
        if failure is None:
            break
        failures.append(failure)
        failed.add((failure.backend, failure.variant))
    illegal = _Search(name, try_illegal, cases, seed, progress and (lambda done: progress(cases + done)))
    refused = illegal.find(illegal_cases(spied, op))
    failures += [refused] if refused else []
    return Report(name, seed, legal.done, illegal.done, tally.report(), tuple(failures))


@dataclass
class _Search:
    """A search that goes on where it found something; the same one for one seed."""

    op: str
    test: Callable[[Case, Place | None], tuple[Place, Finding] | None]
    cases: int
    seed: int
    progress: Callable[[int], None] | None
    done: int = 0

    def find(self, strategy: SearchStrategy[Case]) -> Failure | None:
        """The next failure, shrunk, or None when the rest of the cases pass."""
        last: list[Failure] = []

        def one(case: Case) -> None:
            only = (last[0].backend, last[0].variant) if last else None
            found = self.test(case, only)
            if not last:
                self.done += 1
                if self.progress is not None:
                    self.progress(self.done)
            if found is not None:
                (backend, variant), finding = found
                last[:] = [Failure(self.op, backend, variant, finding.output, finding.reason, case)]
                raise _Wrong

        quiet = settings(
            max_examples=self.cases - self.done,
            database=None,
            deadline=None,
            derandomize=False,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
            report_multiple_bugs=False,
            print_blob=False,
        )
        # Another part of the space each time, for the first cases passed already.
        seeded = hypothesis.seed(self.seed * 1_000_003 + self.done)
        try:
            seeded(quiet(hypothesis.given(strategy)(one)))()
        except (_Wrong, Flaky):
            return last[0]
        except Unsatisfiable as error:
            raise RegistryError(f"{self.op}: no request was found that its contract takes") from error
        return None
