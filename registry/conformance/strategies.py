"""Draws cases from a manifest: legal ones, and illegal ones that break a legal one in one way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from ..accuracy import RELATIVE
from ..dispatch import Registry
from ..op import Op
from .candidates import (
    EXTENTS,
    MAX_RANK,
    Shape,
    attribute_values,
    complaint,
    dtypes_of,
    ranks_of,
    scalar_values,
    shapes_beside,
)
from .cases import Case, Layout, Special, Tensor
from .illegal import breaks

MANY_ROWS = (65536, 65537, 3 * 21846)
"""More rows than one dimension of a grid has workgroups."""

BUDGETS = (64, 1024, 8192, 65536)
"""How many elements the largest tensor may have."""

MAX_REPAIRS = 8

SPECIALS: tuple[Special, ...] = (*("",) * 8, "constant", "constant", "subnormal", "nan", "inf", "-inf")
LAYOUTS: tuple[Layout, ...] = (*("plain",) * 4, "strided", "reversed", "transposed", "swapped", "read-only")
OUT_LAYOUTS: tuple[Layout, ...] = ("plain", "strided", "reversed", "transposed")
CENTRES = (0.0, 0.0, 1.0, -100.0, 10000.0)
SPREADS = (1.0, 1.0, 1e-3)
# A row's spread is promised up to 1e18; three tensors may be added, and a row has a few deviations.
EXTREME_SPREADS = {"float16": (1e-6, 1e4)}
WIDE_SPREADS = (1e-12, 1e16)

Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True)
class _Draft:
    """A case in the making. ``picks`` number the shapes beside the primary one, so that they follow it."""

    shape: Shape
    picks: dict[str, int]
    dtypes: dict[str, str]
    outputs: tuple[str, ...]
    attrs: dict[str, Any]
    args: dict[str, Any]

    def case(self, op: Op) -> Case:
        inputs = {}
        beside = shapes_beside(self.shape)
        for spec in op.inputs:
            if spec.role in self.picks:
                shape = beside[self.picks[spec.role] % len(beside)]
                inputs[spec.role] = Tensor(shape, self.dtypes[spec.role])
        return Case(inputs, self.outputs, _given(self.attrs), _given(self.args))

    def alternatives(self, op: Op, argument: str) -> list[_Draft]:
        """The same with another value of one argument."""
        if argument in self.picks and argument == op.inputs[0].role:
            return [self._with(shape=shape) for shape in ranks_of(self.shape)]
        if argument in self.picks:
            every = range(len(shapes_beside(self.shape)))
            return [self._with(picks={**self.picks, argument: pick}) for pick in every]
        if argument in op.attribute_names:
            values = attribute_values(op, argument)
            return [self._with(attrs={**self.attrs, argument: value}) for value in values]
        return []

    def _with(self, **changed: Any) -> _Draft:
        return _Draft(**{**{name: getattr(self, name) for name in self.__dataclass_fields__}, **changed})


def legal_cases(registry: Registry, op: Op) -> st.SearchStrategy[Case]:
    """Requests that the contract takes, of every form the manifest admits."""
    own = registry.op(op.id) if op.package is not None and op.id in registry.ops() else None
    available = [status.name for status in registry.backends() if status.available]

    def blamed(case: Case) -> str | None:
        found = complaint(registry, op, case)
        if found is None and own is not None:
            return complaint(registry, own, case)
        return found

    def accepted(case: Case) -> bool:
        """Whether a package without rules, and of an op of its own, has a kernel for this."""
        if op.package is None or own is not None or op.manifest.registry.contract:
            return True
        return bool(registry.explain(op, **case.pairs(), backend=available).eligible)

    @st.composite
    def cases(draw: Draw) -> Case:
        draft = _draft(draw, op)
        for _ in range(MAX_REPAIRS):
            argument = blamed(draft.case(op))
            if argument is None:
                break
            others = draft.alternatives(op, argument)
            better = [other for other in others if blamed(other.case(op)) != argument]
            if not better:
                reject()
            draft = draw(st.sampled_from(better))
        else:
            reject()
        case = draft.case(op)
        if not accepted(case):
            reject()
        return _filled(draw, registry, op, case)

    return cases()


def illegal_cases(registry: Registry, op: Op) -> st.SearchStrategy[Case]:
    """Requests that break the contract in one way; ``broken`` says which."""

    @st.composite
    def cases(draw: Draw) -> Case:
        by_kind = breaks(registry, op, draw(legal_cases(registry, op)))
        if not by_kind:
            reject()
        broken: Case = draw(st.sampled_from(draw(st.sampled_from(list(by_kind.values())))))
        return broken

    return cases()


def _draft(draw: Draw, op: Op) -> _Draft:
    variables = {spec.dtype: dtypes_of(op, spec.dtype) for spec in op.inputs if spec.dtype is not None}
    dtypes = {variable: draw(st.sampled_from(names)) for variable, names in variables.items()}
    present = [spec for spec in op.inputs if spec.required or draw(st.booleans())]
    roles = [spec.role for spec in op.outputs]
    return _Draft(
        shape=_shape(draw),
        picks={
            spec.role: 0 if spec is op.inputs[0] else draw(st.integers(0, 4 * MAX_RANK)) for spec in present
        },
        dtypes={spec.role: dtypes.get(spec.dtype or "", "float32") for spec in present},
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


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _filled(draw: Draw, registry: Registry, op: Op, case: Case) -> Case:
    """The case with elements, layouts and, at times, arrays to write."""
    # Without the term that keeps a division away from zero only well-spread rows are promised.
    defaults = op.attributes
    edge = any(isinstance(defaults.get(n), float) and value == 0.0 for n, value in case.attrs.items())
    inputs = {role: _tensor(draw, tensor, edge) for role, tensor in case.inputs.items()}
    out = {}
    if draw(st.booleans()):
        for role, (shape, dtype) in registry.infer(op, **case.pairs()).items():
            out[role] = Tensor(shape, dtype, layout=draw(st.sampled_from(OUT_LAYOUTS)))
    seed = draw(st.integers(0, 2**16))
    return Case(inputs, case.outputs, case.attrs, case.args, out, seed)


def _tensor(draw: Draw, tensor: Tensor, edge: bool) -> Tensor:
    layout = draw(st.sampled_from(LAYOUTS))
    if tensor.dtype not in RELATIVE or edge:
        return Tensor(tensor.shape, tensor.dtype, layout=layout)
    spreads = (*SPREADS, *EXTREME_SPREADS.get(tensor.dtype, WIDE_SPREADS))
    return Tensor(
        tensor.shape,
        tensor.dtype,
        draw(st.sampled_from(CENTRES)),
        draw(st.sampled_from(spreads)),
        draw(st.sampled_from(SPECIALS)),
        layout,
    )
