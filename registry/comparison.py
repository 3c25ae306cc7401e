"""Runs every eligible backend and variant on the same inputs and judges each against the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .accuracy import Expected, Verdict, judge, judge_pair
from .call import parse_call, wrong
from .errors import RegistryError
from .manifest import Op

if TYPE_CHECKING:
    from .dispatch import Registry


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
    skipped: tuple[tuple[str, str, str], ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything that is eligible ran and agrees. False when nothing ran."""
        return bool(self.rows) and all(row.ok for row in self.rows)

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
                    **(asdict(row.verdict) if row.verdict else {}),
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

    def __str__(self) -> str:
        table = [HEADER, *self.table()]
        widths = [max(len(line[column]) for line in table) for column in range(len(HEADER))]
        lines = [
            "  " + "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
            for line in table
        ]
        skipped = [f"  skipped: {backend} {variant}: {reason}" for backend, variant, reason in self.skipped]
        return "\n".join([f"{self.request}\n  against {self.against}", *lines, *skipped])


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
    if call.out:
        raise wrong(op, "compare allocates its own outputs; leave out= away", "out")
    options = {name: value for name, value in named.items() if name not in ("backend", "variant")}
    names = named.get("backend")
    considered: dict[str, Any] = (
        {} if names is None else {"backend": [names] if isinstance(names, str) else list(names)}
    )
    if names is None:
        considered = {"backend": [status.name for status in registry.backends() if status.available]}
    if call.variant is not None:
        considered["variant"] = call.variant
    decision = registry.explain(op, *tensors, **options, **considered)
    request = decision.request
    expected, against = _expected(registry, op, call.tensors, request.attrs)
    rows: list[Comparison] = []
    first: dict[str, np.ndarray[Any, Any]] | None = None
    for candidate in decision.eligible:
        pinned = {
            **options,
            "backend": candidate.backend,
            "variant": candidate.variant,
            "outputs": request.asked,
        }
        try:
            result = registry.prepare(op, *tensors, **pinned)(**_again(call.tensors))
        except RegistryError as error:
            text = str(error).splitlines()[0]
            rows += [
                Comparison(candidate.backend, candidate.variant, role, None, text) for role in request.asked
            ]
            continue
        values = (result,) if isinstance(result, np.ndarray) or not isinstance(result, tuple) else result
        hosts = {role: registry.host(value) for role, value in zip(request.asked, values, strict=True)}
        first = first or hosts
        for role, actual in hosts.items():
            dtype = request.outputs[role].dtype
            verdict = (
                judge(actual, expected[role], dtype)
                if expected is not None
                else judge_pair(actual, first[role])
            )
            rows.append(Comparison(candidate.backend, candidate.variant, role, verdict))
    skipped = tuple((row.backend, row.variant, f"{row.because}: {row.found}") for row in decision.rejected)
    return Report(str(request), against, tuple(rows), skipped)


def _again(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {"inputs": dict(tensors)}


def _expected(
    registry: Registry, op: Op, tensors: Mapping[str, Any], attrs: Mapping[str, Any]
) -> tuple[Mapping[str, Expected] | None, str]:
    reference = registry.catalog.plugins.references.get(op.id)
    if reference is None:
        return None, f"the first result: no reference is known for {op.id}"
    hosts = {role: registry.host(value) for role, value in tensors.items()}
    return reference(hosts, attrs), "the float64 reference"


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
