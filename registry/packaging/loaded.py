"""The packages a registry has loaded, and the names they go by."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..errors import ContractError

if TYPE_CHECKING:
    from ..opinfo import Op


class Loaded:
    """Loaded packages in order; one loaded again from the same place takes the place of its elder."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ops: dict[str, Op] = {}

    def add(self, op: Op) -> bool:
        """Adds a package; tells whether a name it goes by meant another one before."""
        assert op.package is not None
        with self._lock:
            changes = any(set(_names(op)) & set(_names(other)) for other in self._ops.values())
            self._ops[str(op.package.origin or op.package.folder)] = op
            return changes

    def all(self) -> tuple[Op, ...]:
        """Every package, in the order of loading."""
        with self._lock:
            return tuple(self._ops.values())

    def find(self, name: str) -> Op | None:
        """The package of that name: its op's, with or without the domain, or that of its repository.

        Raises:
            ContractError: there are several.
        """
        found = [op for op in self.all() if name in _names(op)]
        if len(found) > 1:
            every = "; ".join(op.package.provenance for op in found if op.package)
            raise ContractError(
                f"several loaded packages are called {name!r}: {every}; call by their handles"
            )
        return found[0] if found else None


def _names(op: Op) -> tuple[str, ...]:
    assert op.package is not None
    origin = op.package.origin
    names = (op.id, op.id.replace("::", "."), op.manifest.name)
    return names if origin is None else (*names, origin.repo)
