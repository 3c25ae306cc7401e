"""Searches an op's requests for one that fails, and shrinks it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from ..opinfo import Op
from .cases import Case
from .checks import CaseOutcome, Check, Fault, Place, make_ready, try_candidate
from .drawing import search
from .refusals import REFUSAL, check_refused, with_spy
from .report import MAX_FAILURES, ConformanceReport, Failure, command_name
from .strategies import illegal_cases, legal_cases
from .tally import Tally

if TYPE_CHECKING:
    from ..api import Registry


class _Wrong(Exception):
    """Carries a failure out of hypothesis."""


def run_suite(
    registry: Registry,
    op: Op,
    cases: int,
    seed: int,
    backend: str | None,
    variant: str | None,
    progress: Callable[[int], None] | None,
    checks: Collection[Check],
) -> ConformanceReport:
    """See `registry.conformance.run`."""
    name = command_name(op)
    legal = cases if set(checks) - {REFUSAL} else 0
    illegal = cases if REFUSAL in checks else 0
    tally = Tally()
    failed: set[Place] = set()

    def try_legal(case: Case, only: Place | None) -> tuple[Place, Fault] | None:
        ready = make_ready(registry, op, case, backend, variant)
        outcomes: list[CaseOutcome] = []
        first: dict[str, Any] = {}
        for place in ready.candidates:
            if place in failed or only not in (None, place):
                continue
            outcome, values = try_candidate(ready, *place, first, checks)
            first = first or values
            outcomes.append(outcome)
            if not outcome.ok:
                break
        if only is None:
            tally.see((*ready.candidates, *ready.rejected))
            tally.add(outcomes)
        wrong = [outcome for outcome in outcomes if not outcome.ok]
        return ((wrong[0].backend, wrong[0].variant), wrong[0].faults[0]) if wrong else None

    spied, spy = with_spy(registry)

    def try_illegal(case: Case, only: Place | None) -> tuple[Place, Fault] | None:
        found = check_refused(spied, spy, op, case)
        return (("", ""), found) if found else None

    def tell(done: int) -> None:
        if progress is not None:
            progress(done)

    failures: list[Failure] = []
    for number in range(legal):
        done = [(backend, variant) for backend, ran in tally.ran.items() for variant in ran]
        strategy = legal_cases(registry, op, (*done, *failed))
        failure = _search(name, strategy, try_legal, seed, number)
        tell(number + 1)
        if failure is not None:
            failures.append(failure)
            failed.add((failure.backend, failure.variant))
            if len(failures) == MAX_FAILURES:
                return ConformanceReport(name, seed, number + 1, 0, tally.report(), tuple(failures))
    strategy = illegal_cases(spied, op)
    for number in range(illegal):
        failure = _search(name, strategy, try_illegal, seed, number)
        tell(legal + number + 1)
        if failure is not None:
            return ConformanceReport(name, seed, legal, number + 1, tally.report(), (*failures, failure))
    return ConformanceReport(name, seed, legal, illegal, tally.report(), tuple(failures))


def _search(
    op: str,
    strategy: SearchStrategy[Case],
    test: Callable[[Case, Place | None], tuple[Place, Fault] | None],
    seed: int,
    number: int,
) -> Failure | None:
    """Tries the simplest case (number 0) or one drawn case; a failure is shrunk."""
    calls = 0
    last: Failure | None = None

    def one(case: Case) -> None:
        nonlocal calls, last
        calls += 1
        if number and calls == 1:
            return  # hypothesis begins with the simplest case, which was number 0
        found = test(case, (last.backend, last.variant) if last else None)
        if found is not None:
            (backend, variant), fault = found
            last = Failure(op, backend, variant, fault.output, fault.reason, case)
            raise _Wrong

    with suppress(_Wrong, Flaky):
        search(op, strategy, one, seed, number)
    return last
