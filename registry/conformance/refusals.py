"""Runs an illegal case past a backend that must not hear of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..api import Registry
from ..calling.request import Request
from ..errors import ContractError
from ..hookspecs import Backend, Claim, Executable, hookimpl
from ..opinfo import Op
from .cases import Case
from .checks import Check, Fault

REFUSAL: Check = "refusal"


class Spy(Backend):
    """Claims every op, and remembers how far a request came. As a plugin it brings itself."""

    name = "spy"

    def __init__(self) -> None:
        self.reached: list[str] = []

    @hookimpl
    def registry_backends(self) -> list[Backend]:
        """Itself."""
        return [self]

    def claims(self, op: Op) -> Sequence[Claim]:
        """One claim, under the name of every variant of the manifest for a package runs only those."""
        self.reached.append("claims")
        return [Claim(variant) for variant in op.variants or ("any",)]

    def prepare(self, request: Request, claim: Claim, options: Mapping[str, Any]) -> Executable:
        """Something that leaves its outputs as they are."""
        self.reached.append("prepare")

        return _SpyRun(self.reached)


@dataclass(frozen=True)
class _SpyRun:
    reached: list[str]

    def __call__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        self.reached.append("run")


def with_spy(registry: Registry) -> tuple[Registry, Spy]:
    """A registry with the same plugins and a spy among its backends."""
    spy = Spy()
    catalog = registry.catalog
    return Registry([*catalog.extra, spy], entry_points=catalog.entry_points), spy


def check_refused(registry: Registry, spy: Spy, op: Op, case: Case) -> Fault | None:
    """What is wrong when an illegal case is not refused by a ContractError before any backend hears of it;
    None when all is well. ``registry`` and ``spy`` are those of `with_spy`.
    """
    spy.reached.clear()
    try:
        registry.run(op, **case.call(), backend=spy.name)
    except ContractError as error:
        if not spy.reached:
            return None
        return Fault("", f"a backend was reached ({spy.reached[-1]}) before it was refused: {error}", REFUSAL)
    except Exception as error:
        return Fault("", f"refused by {type(error).__name__}: {error}; needed: a ContractError", REFUSAL)
    return Fault("", f"it was not refused, although {case.broken}", REFUSAL)
