"""From a call to a plan: bind it, decide, and let the chosen backend prepare; the next one when it cannot."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..calling import arrays
from ..calling.call import Call, wrong
from ..calling.request import Request, bind
from ..catalog import Catalog
from ..deciding.decide import Policy
from ..deciding.selection import choose, place_of
from ..errors import BackendError, NoPlanError, RegistryWarning, as_backend_error, shorten
from ..language.meter import metered
from .plan import Plan
from .readers import Readers

if TYPE_CHECKING:
    from ..deciding.decision import Decision
    from ..hookspecs import Executable


def bind_call(catalog: Catalog, call: Call) -> Request:
    """The request of a call.

    Raises:
        ContractError: the call breaks the contract, or its tensors are on several devices.
    """
    ours = None
    if call.op.package is not None and call.op.id in catalog.plugins.manifests:
        ours = catalog.op(call.op.id)
    with metered():
        request = bind(call, catalog.location, ours)
    places = sorted(set(request.devices.values()))
    if len(places) > 1:
        move = "move them to one with registry.to_device"
        raise wrong(call.op, f"tensors on several devices: {', '.join(places)}; {move}")
    return request


def make_plan(
    catalog: Catalog, call: Call, readers: Readers, finished: Callable[[Plan], None]
) -> tuple[Plan, bool]:
    """A plan for a call, and whether it may be remembered: not when a lost device stood in the way.

    Raises:
        ContractError: the call breaks the contract, or has no data.
        NoPlanError: no candidate accepts the request, or all that do failed to prepare.
        BackendError: the variant that was named failed to prepare.
    """
    if call.profile is not None:
        text = "profile= describes a device that is not here; use explain, render, lint or peak_memory"
        raise wrong(call.op, text, "profile")
    request = bind_call(catalog, call)
    types = {role: arrays.describe(value, role, catalog.location) for role, value in call.tensors.items()}
    _need_data(types, call)
    decision, executable, cause = settle(catalog, call, request)
    pairs = {role: (kind.shape, kind.dtype) for role, kind in types.items()}
    out = {role: (request.outputs[role].shape, request.outputs[role].dtype) for role in call.out}
    candidate = decision.require()
    plan = Plan(
        request=decision.request_of(candidate),
        decision=decision,
        call=replace(call, tensors=pairs, out=out),
        types=types,
        target=catalog.backend(candidate.backend),
        executable=executable,
        catalog=catalog,
        readers=readers,
        finished=finished,
    )
    return plan, cause is None or not cause.lost


def settle(
    catalog: Catalog, call: Call, request: Request, *, exhaustive: bool = False
) -> tuple[Decision, Executable | None, BackendError | None]:
    """Decides, and prepares what is chosen; where that fails, decides again without it, and warns.

    ``exhaustive`` decides on every candidate, and leaves what failed to the rows of the decision.

    Returns:
        The decision, what is ready to run (None where there is nothing to compute), and the last failure.

    Raises:
        NoPlanError, BackendError: as ``make_plan``.
    """
    failures: dict[tuple[str, str | None], str] = {}
    cause: BackendError | None = None
    while True:
        decision = choose(catalog, call, request, Policy(failures=failures, exhaustive=exhaustive))
        if decision.chosen is None and cause is not None:
            if call.variant is not None:
                raise cause
            raise NoPlanError(f"no candidate could be prepared\n{decision}", decision=decision) from cause
        if cause is not None and call.variant is None and not exhaustive:
            warnings.warn(f"{cause}; trying the next candidate", RegistryWarning, stacklevel=5)
        candidate = decision.require()
        assert candidate.claim is not None
        name, variant = candidate.backend, candidate.variant
        backend, options = (
            catalog.backend(name),
            catalog.options(name, place_of(catalog, name, call, request)),
        )
        try:
            exact = decision.request_of(candidate)
            executable = None if request.empty else backend.prepare(exact, candidate.claim, options)
            if not request.empty and not callable(executable):
                raise TypeError(f"prepare gave {executable!r}; needed: something to call")
        except Exception as error:  # whatever a backend raises becomes the reason against its claim
            cause = as_backend_error(error, op=call.op.id, backend=name, variant=variant)
            failures[name, None if cause.lost else variant] = shorten(" ".join(cause.message.split()), 200)
            continue
        return decision, executable, cause


def _need_data(types: Mapping[str, arrays.ArrayType], call: Call) -> None:
    pairs = [role for role, kind in types.items() if kind.kind == "pair"]
    pairs += [role for role, value in call.out.items() if arrays.is_pair(value)]
    if pairs:
        raise wrong(call.op, f"{pairs[0]} is a (shape, dtype) pair; a run needs an array", pairs[0])
