"""Conformance by the manifest: legal requests of an op run everywhere, illegal ones are refused everywhere.

A case is drawn from the op's manifest alone, so a new op is tested without a test of its own::

    from registry import Registry, conformance

    report = conformance.run(Registry(), "LayerNormalization", cases=200, seed=1)
    assert report.ok, report

`run` draws with hypothesis (``pip install 'kernel-registry[conformance]'``) and shrinks what fails to a
small case; `check` and `replay` run one case, which needs no hypothesis. `legal` and `illegal` are
strategies for tests of your own.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ..calling.call import parse_call, wrong
from ..errors import ContractError, RegistryError
from .cases import Case, Tensor, read_case
from .checks import CHECKS, CaseOutcome, Check, Fault, check
from .replaying import replay
from .report import BackendReport, ConformanceReport, Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hypothesis.strategies import SearchStrategy

    from ..api import Registry
    from ..opinfo import Op

__all__ = [
    "CHECKS",
    "BackendReport",
    "Case",
    "CaseOutcome",
    "Check",
    "ConformanceReport",
    "Failure",
    "Fault",
    "Tensor",
    "check",
    "draw",
    "illegal",
    "legal",
    "read_case",
    "replay",
    "run",
]


def legal(registry: Registry, op: str | Op) -> SearchStrategy[Case]:
    """Requests that the op's contract takes: ranks 1 to 4, awkward lengths, many rows, every dtype, optional
    tensor and output, attribute values around their limits, extreme numbers, memory layouts.

    A package without rules of its own is held to those of the registry's op of its name, and where there is
    none, to what its variants accept.

    Raises:
        RegistryError: hypothesis is not installed.
    """
    _need_hypothesis()
    from .strategies import legal_cases

    return legal_cases(registry, registry.op(op))


def illegal(registry: Registry, op: str | Op) -> SearchStrategy[Case]:
    """Requests that break the contract in one way; each says which in ``broken``. Raises as `legal`."""
    _need_hypothesis()
    from .strategies import illegal_cases

    return illegal_cases(registry, registry.op(op))


def draw(
    registry: Registry,
    op: str | Op,
    *,
    cases: int = 100,
    seed: int = 0,
    backend: str | Sequence[str] | None = None,
    variant: str | None = None,
) -> Iterator[Case]:
    """The legal requests that `run` tries, one by one: the same for one seed, as long as none fails.

    ``backend`` (one or several; default: all that are available) and ``variant`` are who will run them: they
    are drawn so that in time every variant gets one.

    Raises:
        RegistryError: hypothesis is not installed, or no legal request was found.
        ContractError: no such op, backend or variant, or no case at all.
    """
    target = registry.op(op)
    _check(target, cases, seed, backend, variant)
    _need_hypothesis()
    from .drawing import drawn

    return drawn(registry, target, cases, seed, backend, variant)


def run(
    registry: Registry,
    op: str | Op,
    *,
    cases: int = 100,
    seed: int = 0,
    backend: str | None = None,
    variant: str | None = None,
    progress: Callable[[int], None] | None = None,
    checks: Collection[Check] = CHECKS,
) -> ConformanceReport:
    """Checks an op with legal and as many illegal requests; the same ones for one seed.

    Each legal request runs on every available backend, software adapters too, or on the one that is named,
    by every variant that accepts it, or by the one that is named. A variant that fails is not run again; its
    case is shrunk. After five failures the run ends.

    Args:
        progress: called with the number of requests done, of ``2 * cases``.
        checks: what is checked, of `CHECKS`; that a call fails counts always.

    Raises:
        RegistryError: hypothesis is not installed, or no legal request was found.
        ContractError: no such op, backend, variant or check, or no case at all.
    """
    target = registry.op(op)
    _check(target, cases, seed, backend, variant)
    named = isinstance(checks, Collection) and not isinstance(checks, str)
    if not named or not checks or any(name not in CHECKS for name in checks):
        raise ContractError(f"checks={checks!r}; needed: some of {', '.join(CHECKS)}")
    _need_hypothesis()
    from .suite import run_suite

    return run_suite(registry, target, cases, seed, backend, variant, progress, checks)


def _check(op: Op, cases: int, seed: int, backend: str | Sequence[str] | None, variant: str | None) -> None:
    for name, value, least in (("cases", cases, 1), ("seed", seed, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise wrong(op, f"{name}={value!r}; needed: an integer of at least {least}", name)
    parse_call(op, (), {"backend": backend, "variant": variant})  # says what is wrong of these


def _need_hypothesis() -> None:
    try:
        import hypothesis  # noqa: F401
    except ImportError as error:
        raise RegistryError(
            "conformance draws its requests with hypothesis, which is not installed; "
            "pip install 'kernel-registry[conformance]', or ask for a package's own tests alone (--cases 0)"
        ) from error
