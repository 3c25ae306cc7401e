"""Candidates made ready to be timed on one call, each checked first: what is wrong is never measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..calling.arrays import NumpyArray, is_pair
from ..calling.call import Call, wrong
from ..calling.request import Request
from ..deciding.tuned import TunedVariant
from ..errors import first_line
from ..judging.judge import Judge, make_judge, run_poisoned
from .timing import ROUNDS, Progress, Stopwatch, Times, measure, no_progress, stopwatch

if TYPE_CHECKING:
    from ..api import Registry


@dataclass(frozen=True)
class Trial:
    """A candidate, and what times it or why it is not timed: ``verdict`` is then ``wrong`` or ``failed``."""

    candidate: TunedVariant
    verdict: str = ""
    reason: str = ""
    watch: Stopwatch | None = None
    times: Times | None = None


class Trials:
    """Makes candidates for one call ready.

    Args:
        call: what is to be computed; its tensors hold data.
        request: the call bound to its op.
        judge: what results are held against (default: the call's own).

    Raises:
        ContractError: a tensor is a pair, or there is nothing to compute.
    """

    def __init__(
        self,
        registry: Registry,
        call: Call,
        request: Request,
        judge: Judge | None = None,
    ):
        for role, value in call.tensors.items():
            if is_pair(value):
                raise wrong(call.op, f"{role} is a (shape, dtype) pair; a measurement needs an array", role)
        if request.empty:
            raise wrong(call.op, "every output has zero elements; there is nothing to measure")
        self.call = call
        self.request = request
        self._registry = registry
        self._first: Mapping[str, NumpyArray] = {}
        if judge is None:
            hosts = {role: registry.host(value) for role, value in call.tensors.items()}
            judge = make_judge(registry, call.op, hosts, request.attrs)
        self.judge = judge

    def pinned(self, candidate: TunedVariant) -> dict[str, Any]:
        """The call's arguments with a candidate named."""
        return {
            **self.call.args,
            "inputs": self.call.tensors,
            "attrs": self.call.attrs,
            "outputs": self.call.asked,
            "device": self.call.device,
            "backend": candidate.backend,
            "variant": candidate.variant,
            "tunables": candidate.tunables,
        }

    def prepare(self, candidate: TunedVariant) -> Trial:
        """Runs a candidate once and judges its results; ready to be timed when they are right."""
        op, pinned = self.call.op, self.pinned(candidate)
        try:
            reason = self._wrong(run_poisoned(self._registry, op, (), pinned, self.request))
            if reason:
                return Trial(candidate, "wrong", reason)
            plan = self._registry.prepare(op, **pinned)
        except Exception as error:  # whatever a backend raises is its result here
            return Trial(candidate, "failed", first_line(error))
        return Trial(candidate, watch=stopwatch(partial(plan, inputs=self.call.tensors), self.wait))

    def wait(self) -> None:
        """Returns when the devices of the call's tensors are done; results on the host are there already."""
        catalog = self._registry.catalog
        for device in sorted(set(self.request.devices.values())):
            backend = catalog.at(device)
            backend.wait(catalog.options(backend.name, device))

    def _wrong(self, actual: Mapping[str, NumpyArray]) -> str:
        self._first = self._first or actual
        for role, value in actual.items():
            dtype = self.request.outputs[role].dtype
            verdict = self.judge.verdict(role, value, dtype, self._first[role])
            if not verdict.ok:
                return f"{role}: {verdict.reason}"
        return ""


def timed(
    trials: Sequence[Trial], rounds: int = ROUNDS, progress: Progress = no_progress
) -> tuple[Trial, ...]:
    """The trials with their times, taken in turns; what cannot be timed stays as it is.

    Candidates of one backend are a group of `measure`: each backend's fastest is known well.
    """
    ready = [(place, trial.watch) for place, trial in enumerate(trials) if trial.watch is not None]
    groups = [trials[place].candidate.backend for place, _ in ready]
    measured = measure([watch for _, watch in ready], rounds, progress, groups)
    found = list(trials)
    for (place, _), times in zip(ready, measured, strict=True):
        if isinstance(times, Times):
            found[place] = replace(found[place], times=times)
        else:
            found[place] = Trial(found[place].candidate, "failed", first_line(times))
    return tuple(found)
