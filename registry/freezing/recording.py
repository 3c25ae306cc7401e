"""Recording: every plan that is made or run while a log is open, each kind of request once."""

from __future__ import annotations

import atexit
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RegistryError, RegistryWarning
from .decision_lock import add
from .records import Decided, asked_of, chosen_of, system_of

if TYPE_CHECKING:
    from ..api import Registry
    from ..calling.call import Call
    from ..deciding.decision import Decision
    from ..planning.plan import Plan


class Log:
    """The decisions of a registry while it is recorded, in the order of their requests. Thread-safe."""

    def __init__(self, registry: Registry):
        self._registry = registry
        self._lock = threading.Lock()
        self._seen: set[Plan] = set()
        self._found: dict[str, Decided] = {}
        self._backends: set[str] = set()

    @property
    def decisions(self) -> tuple[Decided, ...]:
        """What was decided so far."""
        with self._lock:
            return tuple(self._found[key] for key in sorted(self._found))

    @property
    def system(self) -> dict[str, Any]:
        """What it was decided on: versions, the devices of the backends that were asked, the environment."""
        return system_of(self._registry, self._backends)

    def note(self, plan: Plan) -> None:
        """Keeps a plan's decision, unless it has been kept."""
        if plan in self._seen:
            return
        self._seen.add(plan)
        try:
            self.add(plan.call, plan.decision)
        except Exception as error:  # a record must not stop the program it is of
            warnings.warn(f"{plan} is not recorded: {error}", RegistryWarning, stacklevel=2)

    def add(self, call: Call, decision: Decision) -> Decided:
        """Keeps the decision of a call."""
        catalog = self._registry.catalog
        made = Decided(asked_of(catalog, call, decision.request), chosen_of(catalog, call, decision))
        with self._lock:
            self._found[made.asked.key] = made
            self._backends.update(candidate.backend for candidate in decision.candidates)
        return made

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"<log of {len(self)} decisions>"


def record_until_exit(registry: Registry, path: Path) -> Log:
    """Records a registry from now on, and adds what it has decided to a lock when the process ends."""
    log = Log(registry)

    def finish() -> None:
        try:
            if len(log):
                add(path, log.decisions, log.system)
        except RegistryError as error:  # a traceback at a program's end would seem to be the program's
            print(f"REGISTRY_FREEZE: nothing is kept: {error}", file=sys.stderr)

    atexit.register(finish)
    return log
