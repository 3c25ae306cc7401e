"""A loaded package, run under the same roof as our own ops."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .opinfo import Op, Package

if TYPE_CHECKING:
    from .api import Registry
    from .calling.symbols import Shape
    from .cards.card import Card
    from .comparing.report import Report
    from .deciding.decision import Decision
    from .hookspecs import Finding, RenderedPass
    from .measuring.benchmark import Benchmark
    from .measuring.tuning import Tuning
    from .planning.plan import Plan


class Handle:
    """A loaded package as a callable op. Its candidates are its own variants only.

    ``op`` is the op with its manifest, ``id`` its name, ``package`` where it comes from. Calling the handle
    runs it; the other methods are those of the registry without the op's name.
    """

    def __init__(self, registry: Registry, op: Op):
        self._registry = registry
        self.op = op
        self.id = op.id
        assert op.package is not None
        self.package: Package = op.package

    def __call__(self, /, *tensors: Any, **named: Any) -> Any:
        """See ``Registry.run``."""
        return self._registry.run(self.op, *tensors, **named)

    run = __call__

    def card(self, *, results: str | Path | None = None) -> Card:
        """See ``Registry.card``."""
        return self._registry.card(self.op, results=results)

    def prepare(self, /, *tensors: Any, **named: Any) -> Plan:
        """See ``Registry.prepare``."""
        return self._registry.prepare(self.op, *tensors, **named)

    def explain(self, /, *tensors: Any, **named: Any) -> Decision:
        """See ``Registry.explain``."""
        return self._registry.explain(self.op, *tensors, **named)

    def render(self, /, *tensors: Any, **named: Any) -> tuple[RenderedPass, ...]:
        """See ``Registry.render``."""
        return self._registry.render(self.op, *tensors, **named)

    def lint(self, /, *tensors: Any, **named: Any) -> dict[str, tuple[Finding, ...]]:
        """See ``Registry.lint``."""
        return self._registry.lint(self.op, *tensors, **named)

    def infer(self, /, *tensors: Any, **named: Any) -> dict[str, tuple[Shape, str]]:
        """See ``Registry.infer``."""
        return self._registry.infer(self.op, *tensors, **named)

    def peak_memory(self, /, *tensors: Any, **named: Any) -> dict[str, int | None]:
        """See ``Registry.peak_memory``."""
        return self._registry.peak_memory(self.op, *tensors, **named)

    def compare(self, /, *tensors: Any, **named: Any) -> Report:
        """See ``Registry.compare``."""
        return self._registry.compare(self.op, *tensors, **named)

    def bench(self, /, *tensors: Any, **named: Any) -> Benchmark:
        """See ``Registry.bench``."""
        return self._registry.bench(self.op, *tensors, **named)

    def tune(self, /, *tensors: Any, **named: Any) -> Tuning:
        """See ``Registry.tune``."""
        return self._registry.tune(self.op, *tensors, **named)

    def __repr__(self) -> str:
        return f"<package {self.id} from {self.package.provenance}>"
