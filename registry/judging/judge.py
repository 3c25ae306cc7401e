"""Runs candidates on one call and judges what comes out: what compare, test, tune and bench share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..calling.arrays import NumpyArray
from ..calling.call import Call
from ..calling.request import Request, TensorType
from ..dtypes import numpy_dtype
from ..errors import ContractError, PluginError
from ..manifest import ToleranceRule
from ..opinfo import Op
from .accuracy import RELATIVE, Expected, Tolerance, Verdict, default_tolerance, judge, judge_pair, round_to

if TYPE_CHECKING:
    from ..api import Registry
    from ..catalog import Catalog
    from ..deciding.decision import Decision
    from ..hookspecs import Backend


NOT_JUDGED = "elements without a finite right answer were not judged"
NOT_PROMISED = (
    "elements reached by NaN, infinity or subnormal inputs are wrong; the backend does not promise them"
)
NO_ANSWER = "the reference does not give this output: held against the first result"


class Skip(NamedTuple):
    """A candidate that does not accept the call, and why."""

    backend: str
    variant: str
    because: str

    @property
    def candidate(self) -> tuple[str, str]:
        """Backend and variant."""
        return self.backend, self.variant


def skipped(decision: Decision) -> tuple[Skip, ...]:
    """The candidates of a decision that do not accept the call."""
    return tuple(Skip(row.backend, row.variant, f"{row.because}: {row.found}") for row in decision.rejected)


def skipped_lines(rows: Sequence[Skip]) -> list[str]:
    """A line for each backend and reason: the first variant, and how many more were skipped for it."""
    runs: dict[tuple[str, str], list[str]] = {}
    for backend, variant, because in rows:
        runs.setdefault((backend, because), []).append(variant)
    return [
        f"skipped: {backend} {first}{f' and {len(others)} more' if others else ''}: {because}"
        for (backend, because), (first, *others) in runs.items()
    ]


def available(registry: Registry) -> tuple[str, ...]:
    """The backends that can run here, software adapters too, in order of preference."""
    return tuple(status.name for status in registry.backends() if status.available)


def backends_of(registry: Registry, call: Call) -> tuple[str, ...]:
    """The backends a call names; all that are available where it names none."""
    if call.backend is not None:
        return (call.backend,) if isinstance(call.backend, str) else call.backend
    if call.device is not None:
        return (registry.catalog.split_device(call.device)[0],)
    return available(registry)


def decide_each(
    registry: Registry, op: Op, tensors: Sequence[Any], options: Mapping[str, Any], names: Sequence[str]
) -> list[Decision]:
    """One exhaustive decision for each backend, for only a backend that is named has tensors moved to it."""
    found: list[Decision] = []
    for name in names:
        try:
            found.append(registry.explain(op, *tensors, **options, backend=name))
        except ContractError as error:
            if error.argument != "variant":  # another backend may have the variant
                raise
    if names and not found:
        registry.explain(op, *tensors, **options, backend=list(names))  # raises, and names them all
    return found


def run_poisoned(
    registry: Registry, op: Op, tensors: Sequence[Any], pinned: Mapping[str, Any], request: Request
) -> dict[str, NumpyArray]:
    """Runs one candidate into poisoned outputs: what a kernel does not write must not look right."""
    backend = registry.catalog.backend(pinned["backend"])
    device = next(iter(request.devices.values()), pinned.get("device"))
    options = registry.catalog.options(pinned["backend"], device)
    out: dict[str, Any] = {}
    for role in request.asked:
        poison = poisoned(request.outputs[role])
        try:
            out[role] = backend.place(poison, options)
        except ContractError:  # a backend of host arrays
            out[role] = poison
    registry.run(op, *tensors, **pinned, out=out)
    return {role: registry.host(value) for role, value in out.items()}


def poisoned(tensor: TensorType) -> NumpyArray:
    """An array whose every bit is set: NaN in every floating dtype, so that what is not written shows."""
    dtype = numpy_dtype(tensor.dtype)
    bits = np.full((*tensor.shape, dtype.itemsize), 0xFF, np.uint8)
    return bits.view(dtype).reshape(tensor.shape)


def other_bits(left: NumpyArray, right: NumpyArray) -> NumpyArray:
    """Which elements of two arrays of one shape and dtype have other bits: a mask of that shape."""
    bits = f"u{left.dtype.itemsize}"
    one, other = (np.ascontiguousarray(array).reshape(-1).view(bits) for array in (left, right))
    differ: NumpyArray = (one != other).reshape(left.shape)
    return differ


@dataclass(frozen=True)
class Judge:
    """What the results of one request are held against.

    Attributes:
        expected: the right answers by output; None where the op has no reference: the first result judges.
        against: by what results are judged, as text.
        tolerances: how far off results may be, by floating-point dtype.
        touched: by output, which elements NaN, infinity or subnormal inputs reach.
        fair: whether what nobody promises is left out.
    """

    expected: Mapping[str, Expected] | None
    against: str
    tolerances: Mapping[str, Tolerance]
    touched: Mapping[str, NumpyArray] = field(default_factory=dict)
    fair: bool = False

    def verdict(self, role: str, value: NumpyArray, dtype: str, first: NumpyArray) -> Verdict:
        """Whether an output is near enough; ``first`` is what judges it without a reference."""
        allowed = self.tolerances.get(dtype)
        if self.expected is None:
            return judge_pair(value, first, tolerance=allowed)
        if role not in self.expected:
            return replace(judge_pair(value, first, tolerance=allowed), note=NO_ANSWER)
        return judge(value, self.expected[role], dtype, tolerance=allowed)

    def fair_verdict(
        self, backend: Backend, role: str, value: NumpyArray, dtype: str, first: NumpyArray
    ) -> Verdict:
        """The same, without what nobody promises: elements that have no finite answer and, where the backend
        does not promise them, those that extreme inputs reach. A note says so when that made the difference.
        """
        verdict = self.verdict(role, value, dtype, first)
        expected = (self.expected or {}).get(role)
        if verdict.ok or expected is None or value.shape != expected.value.shape:
            return verdict
        touched = self.touched.get(role, np.zeros((), bool))
        excused = {NOT_JUDGED: ~np.isfinite(expected.value) & ~touched}
        if not backend.extremes_promised:
            excused[NOT_PROMISED] = touched & np.ones(value.shape, bool)
        right = round_to(expected.value, dtype)
        for note, mask in excused.items():
            value = np.where(mask, right, value)
            verdict = self.verdict(role, value, dtype, first)
            if verdict.ok:
                return replace(verdict, note=note)
        return verdict


def make_judge(
    registry: Registry,
    op: Op,
    tensors: Mapping[str, NumpyArray],
    attrs: Mapping[str, Any],
    extremes: Mapping[str, NumpyArray] | None = None,
) -> Judge:
    """The judge of a request, by the op's float64 reference where there is one. ``extremes`` marks the
    elements of the inputs that nothing need be promised for (default: none).

    Raises:
        PluginError: the reference fails.
    """
    allowed = tolerances(registry.catalog, op)
    expected = _answers(registry, op, tensors, attrs)
    if expected is None:
        return Judge(None, f"the first result: no reference is known for {op.id}", allowed)
    touched = {}
    if extremes is not None and any(mask.any() for mask in extremes.values()):
        unknown = {
            role: np.where(extremes[role], array.dtype.type(np.nan), array) for role, array in tensors.items()
        }
        spread = _answers(registry, op, unknown, attrs) or {}
        touched = {role: np.isnan(value.value) for role, value in spread.items()}
    return Judge(expected, "the float64 reference", allowed, touched, extremes is not None)


def _answers(
    registry: Registry, op: Op, tensors: Mapping[str, NumpyArray], attrs: Mapping[str, Any]
) -> dict[str, Expected] | None:
    reference = registry.catalog.plugins.references.get(op.id)
    if reference is None:
        return None
    try:
        with np.errstate(all="ignore"):  # NaN and infinity are values here
            found = reference(tensors, attrs)
        if not isinstance(found, Mapping):
            raise TypeError(f"it gave a {type(found).__name__}; needed: a mapping of outputs by role")
        return {
            role: value if isinstance(value, Expected) else Expected(value, np.abs(value), np.ones(()))
            for role, value in found.items()
        }
    except Exception as error:  # a stranger's reference
        raise PluginError(f"the reference of {op.id} failed: {type(error).__name__}: {error}") from error


def tolerances(catalog: Catalog, op: Op) -> dict[str, Tolerance]:
    """How far off results of an op may be, by floating-point dtype: as its manifest says, for a package else
    as the manifest of our op of its name says, else the default."""
    said = [op.manifest.registry.tolerance]
    if op.package is not None and catalog.has(op.id):
        said.append(catalog.op(op.id).manifest.registry.tolerance)
    found = {}
    for dtype in RELATIVE:
        allowed = default_tolerance(dtype)
        own = next((each[dtype] for each in said if dtype in each), ToleranceRule())
        found[dtype] = Tolerance(
            allowed.relative if own.relative is None else own.relative,
            allowed.steps if own.steps is None else own.steps,
        )
    return found
