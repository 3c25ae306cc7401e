"""Draws legal cases one by one: what `registry test` runs, for others to run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy

from ..errors import RegistryError
from ..judging.judge import available, decide_each
from ..opinfo import Op
from .cases import Case
from .checks import Place
from .strategies import legal_cases

if TYPE_CHECKING:
    from ..api import Registry


def drawn(
    registry: Registry,
    op: Op,
    count: int,
    seed: int,
    backend: str | Sequence[str] | None,
    variant: str | None,
) -> Iterator[Case]:
    """See `registry.conformance.draw`."""
    names = available(registry) if backend is None else [backend] if isinstance(backend, str) else backend
    done: set[Place] = set()
    for number in range(count):
        case = _draw(registry, op, seed, number, done)
        yield case
        decisions = decide_each(registry, op, (), {**case.pairs(), "variant": variant}, names)
        done.update((row.backend, row.variant) for each in decisions for row in each.eligible)


def _draw(registry: Registry, op: Op, seed: int, number: int, done: Collection[Place]) -> Case:
    tried: list[Case] = []

    def keep(case: Case) -> None:
        tried.append(case)

    search(op.id, legal_cases(registry, op, done), keep, seed, number)
    return tried[-1]


def search(
    op: str, strategy: SearchStrategy[Case], test: Callable[[Case], None], seed: int, number: int
) -> None:
    """Tries the simplest case (number 0), or first that and then one drawn case; shrinks what raises.

    Each is a search of its own, for hypothesis follows a case with near copies of it, and here a case is
    costly: it compiles kernels.

    Raises:
        RegistryError: no legal request was found.
    """
    quiet = settings(
        max_examples=2 if number else 1,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        print_blob=False,
    )
    try:
        hypothesis.seed(f"{seed} {number}")(quiet(hypothesis.given(strategy)(test)))()
    except Unsatisfiable as error:
        raise RegistryError(f"{op}: no request was found that its contract takes") from error
