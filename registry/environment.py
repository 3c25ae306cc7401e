"""The environment variables that begin with ``REGISTRY_``, and what they say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import ContractError

BESIDE = (
    "REGISTRY_BUNDLES",
    "REGISTRY_CACHE_DIR",
    "REGISTRY_FREEZE",
    "REGISTRY_FROZEN",
    "REGISTRY_LOCK",
    "REGISTRY_SEEDS",
    "REGISTRY_STRICT",
    "REGISTRY_TEST_LARGE",
)
"""Variables that settle no decision: where files are, what is an error. Any other may: backends have their
own."""

_MEANINGS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def switched(environment: Mapping[str, str], name: str, default: bool = False) -> bool:
    """What a variable says; the default where it is unset or empty.

    Raises:
        ContractError: it says neither 1 (``true``, ``yes``, ``on``) nor 0 (``false``, ``no``, ``off``).
    """
    said = environment.get(name, "").strip().lower()
    if not said:
        return default
    if said not in _MEANINGS:
        raise ContractError(f"{name} is {environment[name]!r}; needed: 1 or 0", argument=name)
    return _MEANINGS[said]


@dataclass(frozen=True)
class Environment:
    """The variables as they were when they were read. A switch that says neither yes nor no raises a
    ContractError when it is asked for.
    """

    variables: Mapping[str, str]

    @property
    def deciding(self) -> dict[str, str]:
        """The variables that settle how calls are decided."""
        return {name: value for name, value in self.variables.items() if name not in BESIDE}

    @property
    def backends(self) -> tuple[str, ...]:
        """The names in ``REGISTRY_BACKENDS``, a comma list; none without it."""
        return self._list("REGISTRY_BACKENDS")

    @property
    def plugins(self) -> tuple[str, ...]:
        """The entry points in ``REGISTRY_PLUGINS``, a comma list; none without it."""
        return self._list("REGISTRY_PLUGINS")

    @property
    def strict(self) -> bool:
        """Whether a plugin that does not load is an error: ``REGISTRY_STRICT``."""
        return switched(self.variables, "REGISTRY_STRICT")

    @property
    def freeze(self) -> Path | None:
        """The lock of decisions that the process adds to: ``REGISTRY_FREEZE``; None without it."""
        given = self.variables.get("REGISTRY_FREEZE")
        return Path(given) if given else None

    @property
    def lock_path(self) -> Path:
        """Where the lock of packages lies: ``REGISTRY_LOCK``, or ``registry.lock`` in the current folder."""
        return Path(self.variables.get("REGISTRY_LOCK") or "registry.lock")

    @property
    def bundles(self) -> Path | None:
        """Where failing comparisons are saved: the folder in ``REGISTRY_BUNDLES``; None without it."""
        given = self.variables.get("REGISTRY_BUNDLES")
        return Path(given) if given else None

    @property
    def frozen(self) -> bool:
        """Whether packages by name come from the lock alone: ``REGISTRY_FROZEN``."""
        return switched(self.variables, "REGISTRY_FROZEN")

    @property
    def tuned(self) -> bool:
        """Whether measured choices count: unless ``REGISTRY_TUNED`` is off."""
        return switched(self.variables, "REGISTRY_TUNED", default=True)

    def accepts_software(self, backend: str) -> bool:
        """Whether a backend's software adapter may win an automatic choice."""
        return switched(self.variables, f"REGISTRY_{backend.upper()}_SOFTWARE")

    def _list(self, name: str) -> tuple[str, ...]:
        names = self.variables.get(name, "").split(",")
        return tuple(name for each in names if (name := each.strip()))


def read_environment() -> Environment:
    """The variables of this process, now."""
    return Environment({name: value for name, value in os.environ.items() if name.startswith("REGISTRY_")})
