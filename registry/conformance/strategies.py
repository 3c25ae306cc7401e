"""Draws cases from a manifest: legal ones, and illegal ones that break a legal one in one way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from hypothesis import reject
from hypothesis import strategies as st

from ..calling.call import parse_call
from ..deciding.conditions import conditions_met
from ..deciding.decision import Candidate
from ..dtypes import FLOATS
from ..hookspecs import Claim
from ..judging.judge import available
from ..opinfo import Op
from ..planning.making import bind_call
from .arguments import (
    EXTENTS,
    MAX_RANK,
    Shape,
    attribute_values,
    complaint,
    dtypes_of,
    inferred,
    scalar_values,
)
from .breaks import breaks
from .cases import Case, Layout, Special, Tensor
from .checks import Place
from .drafts import Draft

if TYPE_CHECKING:
    from ..api import Registry

MANY_ROWS = (65536, 65537, 3 * 21846)
"""More rows than one dimension of a grid has workgroups."""

BUDGETS = (64, 1024, 8192, 65536)
"""How many elements the largest tensor may have."""

MAX_STEPS = 8

SPECIALS: tuple[Special, ...] = (*("",) * 5, "constant", "subnormal", "nan", "inf", "-inf")
LAYOUTS: tuple[Layout, ...] = (*("plain",) * 4, "strided", "reversed", "transposed", "swapped", "read-only")
OUT_LAYOUTS: tuple[Layout, ...] = ("plain", "strided", "reversed", "transposed")
CENTRES = (0.0, 0.0, 1.0, -100.0, 10000.0)
SPREADS = (1.0, 1.0, 1e-3)
# A row's spread is promised up to 1e18; three tensors may be added, and a row has a few deviations.
EXTREME_SPREADS = {"float16": (1e-6, 1e4)}
WIDE_SPREADS = (1e-12, 1e16)

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[Any]], Any]


class _Search:
    """Changes drafts of an op's calls until the contract takes them, and a variant that was drawn.

    ``done`` are the candidates that need not be led to as long as there are others.
    """

    def __init__(self, registry: Registry, op: Op, done: Collection[Place]):
        self.registry = registry
        self.op = op
        # The contract of an op of ours that the package is a version of; a package has none.
        self.own = registry.op(op.id) if op.package is not None and registry.catalog.has(op.id) else None
        self._done = done
        self._here = available(registry)
        self._claims: list[tuple[Mapping[str, Any], Claim]] = []

    @property
    def lawless(self) -> bool:
        """Whether only the kernels can tell what the op takes: a package without rules, of no op of ours."""
        return self.op.package is not None and self.own is None and not self.op.manifest.registry.contract

    def blamed(self, case: Case) -> str | None:
        """The argument that the contract refuses."""
        found = complaint(self.registry, self.op, case)
        if found is None and self.own is not None:
            return complaint(self.registry, self.own, case)
        return found

    def candidates(self, case: Case) -> tuple[Candidate, ...]:
        """Who would run a call, and who would not."""
        return self.registry.explain(self.op, **case.pairs(), backend=self._here).candidates

    def repaired(self, draw: Draw, draft: Draft) -> Draft:
        """The draft changed until the contract takes it; the whole draw is rejected where it never does."""
        for _ in range(MAX_STEPS):
            argument = self.blamed(draft.case(self.op))
            if argument is None:
                return draft
            better = self._without(draw, draft, argument)
            if better is None:
                reject()
            draft = better
        reject()

    def led(self, draw: Draw, draft: Draft) -> Draft:
        """The draft changed step by step until a claim that is drawn accepts it, or no step leads on."""
        choice = self._conditional(draft.case(self.op))
        device, claim = draw(st.sampled_from(choice)) if choice else ({}, None)
        for _ in range(MAX_STEPS if claim else 0):
            reached = self._met(draft, device, claim)
            if reached == len(claim.when):
                break
            draft = draft.settled()
            better = self._further(draw, draft, device, claim, reached)
            if better is None:
                break
            draft = better
        return draft

    def _without(self, draw: Draw, draft: Draft, argument: str) -> Draft | None:
        others = draft.alternatives(self.op, argument)
        return _any(draw, others, lambda other: self.blamed(other.case(self.op)) != argument)

    def _further(
        self, draw: Draw, draft: Draft, device: Mapping[str, Any], claim: Claim, reached: int
    ) -> Draft | None:
        others = draft.neighbours(self.op)
        return _any(draw, others, lambda other: self._met(other, device, claim) > reached)

    def _conditional(self, case: Case) -> list[tuple[Mapping[str, Any], Claim]]:
        """The claims that have conditions, and the devices they are about."""
        if not self._claims:
            catalog = self.registry.catalog
            devices = {name: catalog.availability(name).device for name in self._here}
            found = [(each, each.claim) for each in self.candidates(case) if each.claim and each.claim.when]
            wanted = [item for item in found if (item[0].backend, item[0].variant) not in self._done]
            self._claims.extend((devices[each.backend], claim) for each, claim in wanted or found)
        return self._claims

    def _met(self, draft: Draft, device: Mapping[str, Any], claim: Claim) -> int:
        """How many of a claim's conditions hold; -1 where the contract refuses the call."""
        case = draft.case(self.op)
        if self.blamed(case) is not None:
            return -1
        request = bind_call(self.registry.catalog, parse_call(self.op, (), case.pairs()))
        return conditions_met(request, claim, device)


def legal_cases(registry: Registry, op: Op, done: Collection[Place] = ()) -> st.SearchStrategy[Case]:
    """Requests that the contract takes. Half of them are led to a variant that was drawn, too, for some
    accept little; to one that is not ``done`` as long as there is any."""
    search = _Search(registry, op, done)

    @st.composite
    def cases(draw: Draw) -> Case:
        draft = search.repaired(draw, _draft(draw, op))
        if draw(st.booleans()):
            draft = search.led(draw, draft)
        case = draft.case(op)
        if search.lawless and all(each.verdict == "rejected" for each in search.candidates(case)):
            reject()
        return _filled(draw, registry, op, case)

    return cases()


def illegal_cases(registry: Registry, op: Op) -> st.SearchStrategy[Case]:
    """Requests that break the contract in one way; ``broken`` says which."""

    legal = legal_cases(registry, op)

    @st.composite
    def cases(draw: Draw) -> Case:
        kinds = breaks(registry, op, draw(legal))
        start = draw(st.integers(0, len(kinds) - 1))
        for kind, made in (*kinds[start:], *kinds[:start]):
            if broken := list(made):
                chosen: Case = draw(st.sampled_from(broken))
                return msgspec.structs.replace(chosen, broken=kind)
        reject()

    return cases()


def _any(draw: Draw, options: Iterable[T], fits: Callable[[T], bool]) -> T | None:
    """One of the options that fit; they are tried in turn from one that is drawn, for trying is costly."""
    every = list(options)
    start = draw(st.integers(0, len(every) - 1)) if every else 0
    return next((option for option in (*every[start:], *every[:start]) if fits(option)), None)


def _draft(draw: Draw, op: Op) -> Draft:
    variables = {spec.dtype: dtypes_of(op, spec.dtype) for spec in op.inputs if spec.dtype is not None}
    dtypes = {variable: draw(st.sampled_from(names)) for variable, names in variables.items()}
    present = [spec for spec in op.inputs if spec.required or draw(st.booleans())]
    roles = [spec.role for spec in op.outputs]
    return Draft(
        shape=_shape(draw),
        picks={
            spec.role: 0 if spec is op.inputs[0] else draw(st.integers(0, 4 * MAX_RANK)) for spec in present
        },
        dtypes=dtypes,
        outputs=tuple(draw(st.lists(st.sampled_from(roles), min_size=1, unique=True))),
        attrs={name: draw(st.sampled_from(attribute_values(op, name))) for name in op.attribute_names},
        args={name: draw(st.sampled_from(scalar_values(arg))) for name, arg in op.scalars.items()},
    )


def _shape(draw: Draw) -> Shape:
    kind = draw(st.integers(0, 19))
    if kind == 19:
        return (draw(st.sampled_from(MANY_ROWS)), draw(st.integers(1, 4)))
    budget = draw(st.sampled_from(BUDGETS))
    dims: list[int] = []
    for _ in range(draw(st.integers(1, MAX_RANK))):
        dims.append(draw(st.sampled_from([extent for extent in EXTENTS if extent <= budget])))
        budget //= dims[-1]
    if kind == 18:
        dims[draw(st.integers(0, len(dims) - 1))] = 0
    # The dimension drawn first has most room: the last one as a rule.
    return tuple(dims) if kind >= 15 else tuple(reversed(dims))


def _filled(draw: Draw, registry: Registry, op: Op, case: Case) -> Case:
    """The case with elements, layouts and, at times, arrays to write."""
    # Without the term that keeps a division away from zero only well-spread rows are promised.
    defaults = op.attributes
    edge = any(isinstance(defaults.get(n), float) and value == 0.0 for n, value in case.attrs.items())
    # One kind of extreme numbers at a time: NaN and such make the answer moot, or an underflow show.
    special = draw(st.sampled_from(SPECIALS))
    inputs = {role: _tensor(draw, tensor, edge, special) for role, tensor in case.inputs.items()}
    out = {}
    if draw(st.booleans()):
        for role, tensor in inferred(registry, op, case).items():
            out[role] = msgspec.structs.replace(tensor, layout=draw(st.sampled_from(OUT_LAYOUTS)))
    seed = draw(st.integers(0, 2**16))
    return Case(inputs, case.outputs, case.attrs, case.args, out, seed)


def _tensor(draw: Draw, tensor: Tensor, edge: bool, special: Special) -> Tensor:
    layout = draw(st.sampled_from(LAYOUTS))
    if tensor.dtype not in FLOATS or edge:
        return Tensor(tensor.shape, tensor.dtype, layout=layout)
    spreads = (*SPREADS, *EXTREME_SPREADS.get(tensor.dtype, WIDE_SPREADS))
    return Tensor(
        tensor.shape,
        tensor.dtype,
        draw(st.sampled_from(CENTRES)),
        draw(st.sampled_from(spreads)),
        special if draw(st.booleans()) else "",
        layout,
    )
