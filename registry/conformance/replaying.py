"""Runs one case again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..opinfo import Op
from .cases import Case
from .checks import check
from .refusals import check_refused, with_spy
from .report import ConformanceReport, Failure, command_name
from .tally import Tally

if TYPE_CHECKING:
    from ..api import Registry


def replay(
    registry: Registry, op: str | Op, case: Case, backend: str | None = None, variant: str | None = None
) -> ConformanceReport:
    """The report of one case: a legal one runs as by `check`, an illegal one must be refused.

    Raises:
        ContractError: the case breaks the contract but does not say so; no such op, backend or variant.
    """
    target = registry.op(op)
    name = command_name(target)
    if case.broken:
        fault = check_refused(*with_spy(registry), target, case)
        failures = [Failure(name, "", "", fault.output, fault.reason, case)] if fault else []
        return ConformanceReport(name, None, 0, 1, (), tuple(failures))
    outcomes = check(registry, target, case, backend, variant)
    tally = Tally()
    tally.see(tuple((outcome.backend, outcome.variant) for outcome in outcomes))
    tally.add(outcomes)
    failures = [
        Failure(name, outcome.backend, outcome.variant, fault.output, fault.reason, case)
        for outcome in outcomes
        for fault in outcome.faults
    ]
    return ConformanceReport(name, None, 1, 0, tally.report(), tuple(failures))
