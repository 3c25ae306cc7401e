"""A case in the making: what it is made of, and the same with one thing changed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from ..opinfo import Op
from .arguments import EXTENTS, Shape, attribute_values, dtypes_of, ranks_of, shapes_beside
from .cases import Case, Tensor

MAX_ELEMENTS = 300_000
MAX_OPTIONAL = 7


@dataclass(frozen=True)
class Draft:
    """A case without elements.

    Attributes:
        shape: of the primary input, the first of the manifest.
        picks: for each input that takes part, which of `shapes_beside` the primary one it has, by number,
            so that it follows when the primary shape changes.
        dtypes: by type variable.
        attrs, args: None stands for leaving one out.
    """

    shape: Shape
    picks: dict[str, int]
    dtypes: dict[str, str]
    outputs: tuple[str, ...]
    attrs: dict[str, Any]
    args: dict[str, Any]

    def case(self, op: Op) -> Case:
        """The case, its elements still plain."""
        beside = shapes_beside(self.shape)
        inputs = {
            spec.role: Tensor(
                beside[self.picks[spec.role] % len(beside)], self.dtypes.get(spec.dtype or "", "float32")
            )
            for spec in op.inputs
            if spec.role in self.picks
        }
        return Case(inputs, self.outputs, _given(self.attrs), _given(self.args))

    def settled(self) -> Draft:
        """The same with the lowest numbers, which mean the same for most ranks."""
        beside = shapes_beside(self.shape)
        picks = {role: beside.index(beside[pick % len(beside)]) for role, pick in self.picks.items()}
        return replace(self, picks=picks)

    def alternatives(self, op: Op, argument: str) -> Iterator[Draft]:
        """The same with another value of one input or attribute."""
        if argument in self.picks and argument == op.inputs[0].role:
            yield from (replace(self, shape=shape) for shape in ranks_of(self.shape))
        elif argument in self.picks:
            for pick in range(len(shapes_beside(self.shape))):
                yield replace(self, picks={**self.picks, argument: pick})
        elif argument in op.attribute_names:
            for value in attribute_values(op, argument):
                yield replace(self, attrs={**self.attrs, argument: value})

    def neighbours(self, op: Op) -> Iterator[Draft]:
        """The same with one thing changed: which tensors take part, dtypes, shapes or attributes."""
        yield from self._forms(op)
        for variable in self.dtypes:
            for dtype in dtypes_of(op, variable):
                yield replace(self, dtypes={**self.dtypes, variable: dtype})
        lengths = [(*self.shape[:-1], extent) for extent in EXTENTS] if self.shape else []
        yield from (replace(self, shape=shape) for shape in lengths if math.prod(shape) <= MAX_ELEMENTS)
        for argument in (*self.picks, *op.attribute_names):
            yield from self.alternatives(op, argument)

    def _forms(self, op: Op) -> Iterator[Draft]:
        """The same with other optional inputs and outputs: one changed, or as long as they are few, any."""
        required = {spec.role: self.picks[spec.role] for spec in op.inputs if spec.required}
        always = tuple(spec.role for spec in op.outputs if spec.required)
        inputs = [spec.role for spec in op.inputs if not spec.required]
        outputs = [spec.role for spec in op.outputs if not spec.required]
        here = frozenset((*self.picks, *self.outputs))
        optional = frozenset((*inputs, *outputs))
        subsets = _subsets(optional) if len(optional) <= MAX_OPTIONAL else [here ^ {r} for r in optional]
        for chosen in sorted(subsets, key=sorted):
            picks = {role: self.picks.get(role, 1) for role in inputs if role in chosen}
            asked = always + tuple(role for role in outputs if role in chosen)
            if asked:
                yield replace(self, picks={**required, **picks}, outputs=asked)


def _subsets(names: frozenset[str]) -> list[frozenset[str]]:
    ordered = sorted(names)
    counts = range(len(ordered) + 1)
    return [frozenset(chosen) for count in counts for chosen in combinations(ordered, count)]


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
