"""The checks as items of pytest; what they do is `registry.conformance`'s."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from registry import Registry, RegistryError, conformance
from registry.deciding.selection import claims_fault
from registry.hookspecs import Refusal


@dataclass(frozen=True)
class Settings:
    """What the options ask for."""

    registry: Registry
    backend: str
    cases: int
    seed: int


class Nonconforming(Exception):
    """What a check found; its text is the whole report."""


class CheckItem(pytest.Item):
    """One check of one op."""

    def __init__(self, *, settings: Settings, op: str, check: conformance.Check, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings, self.op, self.check = settings, op, check
        self.add_marker("registry")

    def runtest(self) -> None:
        """Draws requests and checks them."""
        settings = self.settings
        report = conformance.run(
            settings.registry,
            self.op,
            cases=settings.cases,
            seed=settings.seed,
            backend=settings.backend,
            checks=(self.check,),
        )
        if not report.ok:
            raise Nonconforming(str(report))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The report with its lines to repeat failures, or our own error; a traceback is for bugs."""
        if isinstance(excinfo.value, Nonconforming | RegistryError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """How pytest calls it where it shows a failure."""
        return self.path, None, f"{self.settings.backend}: {self.op}: {self.check}"


class BackendCollector(pytest.Collector):
    """All checks of a backend."""

    def __init__(self, *, settings: Settings, ops: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings, self.ops = settings, ops

    def collect(self) -> list[pytest.Item]:
        """An item for each op and check."""
        return [
            CheckItem.from_parent(
                self,
                name=f"{op}-{check}",
                nodeid=f"{self.nodeid}::{op}::{check}",
                settings=self.settings,
                op=op,
                check=check,
            )
            for op in self.ops
            for check in conformance.CHECKS
        ]


def collect(session: pytest.Session) -> list[pytest.Item]:
    """The items that the options ask for.

    Raises:
        pytest.UsageError: there is no such backend or op, it cannot run here, or it claims nothing.
    """
    option = session.config.getoption
    if option("registry_cases") < 1 or option("registry_seed") < 0:
        raise pytest.UsageError("--registry-cases is at least 1, --registry-seed at least 0")
    settings = Settings(
        Registry(), option("registry_backend"), option("registry_cases"), option("registry_seed")
    )
    try:
        ops = _ops(settings.registry, settings.backend, option("registry_op"))
    except RegistryError as error:
        raise pytest.UsageError(str(error)) from error
    collector = BackendCollector.from_parent(
        session, name=settings.backend, nodeid=settings.backend, settings=settings, ops=ops
    )
    return list(session.genitems(collector))


def _ops(registry: Registry, backend: str, wanted: Sequence[str]) -> list[str]:
    """The ids of the ops that are wanted, else of those that the backend claims."""
    plugin = registry.catalog.backend(backend)
    here = registry.catalog.availability(backend)
    if not here.available:
        needed = f"; needed: {here.needed}" if here.needed else ""
        raise pytest.UsageError(f"backend {backend!r} cannot run: {here.condition}: {here.found}{needed}")
    if wanted:
        return list(dict.fromkeys(registry.op(op).id for op in wanted))
    for op in registry.ops():
        if cause := claims_fault(registry.catalog, backend, registry.op(op)):
            raise pytest.UsageError(f"backend {backend!r}: its claims for {op} are broken: {cause}")
    every = [op for op in registry.ops() if _claims_some(plugin.claims(registry.op(op)))]
    if not every:
        raise pytest.UsageError(f"backend {backend!r} claims none of {', '.join(registry.ops())}")
    return every


def _claims_some(offers: Sequence[object]) -> bool:
    return any(not isinstance(offer, Refusal) for offer in offers)
