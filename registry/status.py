"""How every backend stands on this machine, and every plugin that did not load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import RegistryError

if TYPE_CHECKING:
    from .catalog import Catalog


@dataclass(frozen=True, kw_only=True)
class Status:
    """How one backend stands, or a plugin that did not load.

    ``because``, ``found`` and ``needed`` say why it cannot run. A plugin that did not load has no priority.

    ``automatic`` tells whether it may be chosen without being named; ``seconds`` is what its plugin took to
    load.
    """

    name: str
    priority: float | None
    distribution: str
    available: bool
    automatic: bool
    device: str
    because: str = ""
    found: str = ""
    needed: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


def statuses(catalog: Catalog) -> tuple[Status, ...]:
    """See ``Registry.backends``."""
    found = catalog.plugins
    order = catalog.order()
    rows = []
    for name in catalog.ranked():
        here = catalog.availability(name)
        automatic = (
            here.available
            and name in order
            and (here.hardware or catalog.environment.accepts_software(name) or catalog.listed() is not None)
        )
        rows.append(
            Status(
                name=name,
                priority=found.backends[name].priority,
                distribution=found.origins[name],
                available=here.available,
                automatic=automatic,
                device=here.name,
                because="" if here.available else here.condition,
                found=here.found,
                needed=here.needed,
                details=here.details,
                seconds=found.seconds[name],
            )
        )
    for failure in found.failures:
        rows.append(
            Status(
                name=failure.plugin,
                priority=None,
                distribution=failure.distribution,
                available=False,
                automatic=False,
                device="",
                because="plugin loads",
                found=failure.cause,
                needed="repair or uninstall the distribution",
                seconds=failure.seconds,
            )
        )
    return tuple(rows)


def faults(catalog: Catalog) -> dict[str, str]:
    """Of each backend whose claims for some op are broken the first such op and the cause, in one line."""
    from .deciding.selection import claims_fault

    found: dict[str, str] = {}
    for name in sorted(catalog.plugins.manifests):
        try:
            op = catalog.op(name)
        except RegistryError:  # a broken manifest is told where its op is used
            continue
        for backend in catalog.plugins.backends:
            if backend not in found and (cause := claims_fault(catalog, backend, op)):
                found[backend] = f"its claims for {name} are broken: {cause}"
    return found
