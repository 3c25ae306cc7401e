"""What there is, and what would happen to a call: nothing here runs a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .calling.call import Call, parse_call
from .catalog import Catalog
from .errors import BackendError, blaming
from .status import Status, statuses

if TYPE_CHECKING:
    from .calling.request import Request
    from .calling.symbols import Shape
    from .cards.card import Card
    from .deciding.decision import Decision
    from .hookspecs import Backend, Finding, RenderedPass
    from .opinfo import Op


class Inspection:
    """Looks at ops, backends and calls."""

    catalog: Catalog

    def ops(self) -> tuple[str, ...]:
        """The ids of all ops, ``domain::Name``, sorted: those of plugins and of loaded packages."""
        loaded = {op.id for op in self.catalog.loaded.all()}
        return tuple(sorted(loaded.union(self.catalog.plugins.manifests)))

    def op(self, name: str | Op) -> Op:
        """The op of that name: ``Name``, ``domain::Name`` or ``domain.Name``.

        Raises:
            ContractError: no such op (with a suggestion), or several of that bare name.
            ManifestError: its manifest is wrong.
        """
        return self.catalog.op(name)

    def backends(self) -> tuple[Status, ...]:
        """Every backend in order of preference, and every plugin that did not load, with the reasons."""
        return statuses(self.catalog)

    def card(self, op: str | Op, /, *, results: str | Path | None = None) -> Card:
        """What an op is and who runs it: contract, variants by backend with conditions in words, dtypes.

        ``str()`` of it is Markdown. Takes no device: backends that cannot run here are in it.

        Args:
            op: ``Name``, ``domain::Name`` or ``domain.Name``.
            results: a folder with what was measured, such as ``docs/`` of this project's checkout; accuracy
                and speed are shown from it (default: None, neither).

        Raises:
            ContractError: no such op, or no results in that folder.
            ManifestError: its manifest is wrong.
        """
        from .cards.card import make_card

        return make_card(self.catalog, self.op(op), results)

    def explain(self, op: str | Op, /, *tensors: Any, **named: Any) -> Decision:
        """Every candidate for this call with its verdict; nothing runs.

        Takes what ``run`` takes, ``(shape, dtype)`` pairs in place of arrays, and ``profile``: devices as
        plain data by backend, in place of this machine's. Where no candidate accepts the call, ``chosen`` is
        None.

        Raises:
            ContractError: the call breaks the contract; no such backend, variant or device; a profile that
                its backend does not understand.
        """
        from .deciding.decide import Policy
        from .deciding.selection import choose

        call = parse_call(self.op(op), tensors, named)
        return choose(self.catalog, call, self._bind(call), Policy(exhaustive=True))

    def render(self, op: str | Op, /, *tensors: Any, **named: Any) -> tuple[RenderedPass, ...]:
        """The source text of every pass that would run. Arguments as ``explain``.

        Raises:
            ContractError: as ``explain``.
            NoPlanError: no candidate accepts the request.
            BackendError: the source cannot be rendered.
        """
        return self._render(op, tensors, named)[1]

    def lint(self, op: str | Op, /, *tensors: Any, **named: Any) -> dict[str, tuple[Finding, ...]]:
        """What compilers or devices are known to disagree on in each pass that would run, by the pass's id.

        Arguments as ``explain``; errors as ``render``. Empty for a backend without source text.
        """
        backend, passes = self._render(op, tensors, named)
        with blaming(backend.name, "lint"):
            return {item.id: tuple(backend.lint(item)) for item in passes}

    def infer(self, op: str | Op, /, *tensors: Any, **named: Any) -> dict[str, tuple[Shape, str]]:
        """The shape and dtype of each output asked for, without data and without a device.

        Dimensions may have names: ``X=(("batch", "seq", 768), "float32")``. A name is a size of at least 2
        that differs from every other name and number of the call; it comes back in the outputs' shapes.
        ``backend``, ``device`` and ``profile`` change nothing here, but must name backends that there are.

        Raises:
            ContractError: the call breaks the contract, or an output's dimension is computed from names.
        """
        from .calling.symbols import infer
        from .deciding.selection import considered

        call = parse_call(self.op(op), tensors, named)
        considered(self.catalog, call)
        return infer(self._bind, call)

    def peak_memory(self, op: str | Op, /, *tensors: Any, **named: Any) -> dict[str, int | None]:
        """The most bytes of scratch a run holds, by backend: inputs and outputs are not counted, nor their
        copies on a device.

        Each backend that accepts the call is there, with the variant it would run; None where a backend
        cannot say. Arguments as ``explain``.

        Raises:
            ContractError: as ``explain``.
            NoPlanError: no candidate accepts the request.
        """
        from .deciding.decide import Policy
        from .deciding.selection import availability, choose

        call = parse_call(self.op(op), tensors, named)
        request = self._bind(call)
        decision = choose(self.catalog, call, request, Policy(exhaustive=True))
        decision.require()
        found: dict[str, int | None] = {}
        for candidate in decision.eligible:
            if candidate.backend not in found and candidate.claim is not None:
                backend, here = (
                    self.catalog.backend(candidate.backend),
                    availability(self.catalog, candidate.backend, call, request),
                )
                exact = decision.request_of(candidate)
                with blaming(candidate.backend, "scratch_bytes"):
                    found[candidate.backend] = (
                        0 if request.empty else backend.scratch_bytes(exact, candidate.claim, here)
                    )
        return found

    def _render(
        self, op: str | Op, tensors: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Backend, tuple[RenderedPass, ...]]:
        from .deciding.decide import Policy
        from .deciding.selection import availability, choose
        from .hookspecs import RenderedPass

        call = parse_call(self.op(op), tensors, named)
        request = self._bind(call)
        decision = choose(self.catalog, call, request, Policy())
        candidate = decision.require()
        assert candidate.claim is not None
        here = availability(self.catalog, candidate.backend, call, request)
        backend = self.catalog.backend(candidate.backend)
        with blaming(candidate.backend, "render"):
            passes = tuple(backend.render(decision.request_of(candidate), candidate.claim, here))
        odd = [item for item in passes if not isinstance(item, RenderedPass)]
        if odd:
            raise BackendError(
                f"render gave {odd[0]!r}; needed: passes of RenderedPass", backend=candidate.backend
            )
        return backend, passes

    def _bind(self, call: Call) -> Request:
        from .planning.making import bind_call

        return bind_call(self.catalog, call)
