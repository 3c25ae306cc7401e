"""Runs every eligible backend and variant on the same inputs and judges each against the reference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .accuracy import Expected, Verdict, judge, judge_pair
from .arrays import NumpyArray, is_pair
from .call import Call, parse_call, wrong
from .dtypes import numpy_dtype
from .errors import ContractError, PluginError, first_line
from .opinfo import Op
from .request import Request, TensorType
from .text import lay_out

if TYPE_CHECKING:
    from .decision import Decision
    from .dispatch import Registry


Skip = tuple[str, str, str]
"""A candidate that does not accept the call: backend, variant, reason."""


@dataclass(frozen=True)
class Comparison:
    """One output of one backend and variant against the reference; ``error`` when it did not run."""

    backend: str
    variant: str
    output: str
    verdict: Verdict | None
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether the output is within the op's tolerance."""
        return self.verdict is not None and self.verdict.ok


@dataclass(frozen=True)
class Report:
    """All comparisons of one call. ``against`` says what they were judged by. ``str()`` prints the table."""

    request: str
    against: str
    rows: tuple[Comparison, ...]
    skipped: tuple[Skip, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything that is eligible ran and agrees.

        False when nothing ran, and when one result without a reference was held against itself.
        """
        alone = self.against.endswith("itself")
        return bool(self.rows) and not alone and all(row.ok for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, for JSON."""
        return {
            "request": self.request,
            "against": self.against,
            "ok": self.ok,
            "rows": [
                {
                    "backend": row.backend,
                    "variant": row.variant,
                    "output": row.output,
                    "ok": row.ok,
                    "error": row.error,
                    **(_finite(asdict(row.verdict)) if row.verdict else {}),
                }
                for row in self.rows
            ],
            "skipped": [
                dict(zip(("backend", "variant", "reason"), skip, strict=True)) for skip in self.skipped
            ],
        }

    def table(self) -> list[tuple[str, ...]]:
        """The rows for printing."""
        return [_cells(row) for row in self.rows]

    def skipped_lines(self) -> list[str]:
        """A line for each backend and reason: the first variant, and how many more were skipped for it."""
        return skipped_lines(self.skipped)

    def __str__(self) -> str:
        lines = lay_out(HEADER, self.table())
        skipped = [f"  {line}" for line in self.skipped_lines()]
        return "\n".join([f"{self.request}\n  against {self.against}", *lines, *skipped])


def skipped(decision: Decision) -> tuple[Skip, ...]:
    """The candidates of a decision that do not accept the call."""
    return tuple((row.backend, row.variant, f"{row.because}: {row.found}") for row in decision.rejected)


def skipped_lines(rows: Sequence[Skip]) -> list[str]:
    """A line for each backend and reason: the first variant, and how many more were skipped for it."""
    runs: dict[tuple[str, str], list[str]] = {}
    for backend, variant, reason in rows:
        runs.setdefault((backend, reason), []).append(variant)
    return [
        f"skipped: {backend} {first}{f' and {len(others)} more' if others else ''}: {reason}"
        for (backend, reason), (first, *others) in runs.items()
    ]


HEADER = (
    "backend",
    "variant",
    "output",
    "verdict",
    "max abs",
    "max rel",
    "max ULP",
    "worst at",
    "found",
    "expected",
    "compared",
    "NaN",
)


def compare(registry: Registry, op: Op, tensors: Sequence[Any], named: Mapping[str, Any]) -> Report:
    """See ``Registry.compare``."""
    call = parse_call(op, tensors, named)
    for name in ("out", "profile"):
        if named.get(name) is not None:
            allocates = "compare allocates its own outputs, on this machine"
            raise wrong(op, f"{allocates}; leave {name}= away", name)
    for role, value in call.tensors.items():
        if is_pair(value):
            raise wrong(op, f"{role} is a (shape, dtype) pair; a comparison needs an array", role)
    options = {name: value for name, value in named.items() if name != "backend"}
    decisions = decide_each(registry, op, tensors, options, backends_of(registry, call))
    if not decisions:
        return Report(op.id, "nothing: no backend is available", ())
    request = decisions[0].request
    hosts = {role: registry.host(value) for role, value in call.tensors.items()}
    expected, against = expected_outputs(registry, op, hosts, request.attrs)
    rows: list[Comparison] = []
    first: Mapping[str, NumpyArray] = {}
    for candidate in (row for decision in decisions for row in decision.eligible):
        pinned = {**options, "backend": candidate.backend, "variant": candidate.variant}
        try:
            actual = run_poisoned(registry, op, tensors, {**pinned, "outputs": request.asked}, request)
        except Exception as error:  # whatever a backend raises is its result here
            text = first_line(error)
            rows += [Comparison(candidate.backend, candidate.variant, r, None, text) for r in request.asked]
            continue
        first = first or actual
        for role, value in actual.items():
            dtype = request.outputs[role].dtype
            verdict = judge(value, expected[role], dtype) if expected else judge_pair(value, first[role])
            rows.append(Comparison(candidate.backend, candidate.variant, role, verdict))
    if expected is None and len(rows) == len(request.asked):
        against += ", held against itself"
    missed = tuple(skip for decision in decisions for skip in skipped(decision))
    return Report(str(request), against, tuple(rows), missed)


def backends_of(registry: Registry, call: Call) -> tuple[str, ...]:
    """The backends a call names; all that are available where it names none."""
    if call.backend is not None:
        return (call.backend,) if isinstance(call.backend, str) else call.backend
    if call.device is not None:
        return (registry.catalog.split_device(call.device)[0],)
    return tuple(status.name for status in registry.backends() if status.available)


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
    options = registry.catalog.options(pinned["backend"], next(iter(request.devices.values()), None))
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


def expected_outputs(
    registry: Registry, op: Op, tensors: Mapping[str, NumpyArray], attrs: Mapping[str, Any]
) -> tuple[Mapping[str, Expected] | None, str]:
    """Every output by the op's float64 reference, None without one; and by what results are judged.

    Raises:
        PluginError: the reference fails.
    """
    reference = registry.catalog.plugins.references.get(op.id)
    if reference is None:
        return None, f"the first result: no reference is known for {op.id}"
    try:
        with np.errstate(all="ignore"):  # NaN and infinity are values here
            found = reference(tensors, attrs)
        expected = {
            role: value if isinstance(value, Expected) else Expected(value, np.abs(value), np.ones(()))
            for role, value in found.items()
        }
    except Exception as error:  # a stranger's reference
        raise PluginError(f"the reference of {op.id} failed: {type(error).__name__}: {error}") from error
    return expected, "the float64 reference"


def _finite(verdict: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinities and no NaN: they become texts."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in verdict.items()
    }


def _cells(row: Comparison) -> tuple[str, ...]:
    names = (row.backend, row.variant, row.output)
    v = row.verdict
    if v is None:
        return (*names, "failed", "", "", "", "", row.error, "", "", "")
    verdict = "ok" if v.ok else f"FAILS: {v.reason}"
    worst = str(list(v.worst)) if v.worst is not None else ""
    return (
        *names,
        verdict,
        f"{v.max_abs:.3g}",
        f"{v.max_rel:.3g}",
        f"{v.max_ulp:.3g}",
        worst,
        "" if v.worst_actual is None else f"{v.worst_actual:.7g}",
        "" if v.worst_expected is None else f"{v.worst_expected:.7g}",
        str(v.compared),
        f"{v.nan_matching} of {v.nan_expected} match" if v.nan_expected or v.nan_actual else "0",
    )
