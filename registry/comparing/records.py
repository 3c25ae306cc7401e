"""What a comparison found in each case, as plain records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..calling.arrays import NumpyArray
from ..judging.accuracy import Verdict
from ..judging.judge import Judge, Skip

if TYPE_CHECKING:
    from ..api import Registry
    from ..calling.request import Request
    from ..deciding.decision import Decision
    from ..opinfo import Op


@dataclass(frozen=True)
class Excerpt:
    """The elements of an input around the place of an output's element, and what its row is like.

    Attributes:
        name: the input's role.
        place: which elements are shown, as an index: ``[13, 354:370]``.
        values: they themselves.
        size, low, high, mean: number, smallest, largest and mean of all elements that the row sees.
    """

    name: str
    place: str
    values: tuple[float, ...]
    size: int
    low: float
    high: float
    mean: float

    def __str__(self) -> str:
        shown = " ".join(f"{value:.9g}" for value in self.values)
        among = f"  (of {self.size}: {self.low:.7g} to {self.high:.7g}, mean {self.mean:.7g})"
        return f"{self.name}{self.place} = {shown}{among if self.size > len(self.values) else ''}"


@dataclass(frozen=True)
class Comparison:
    """One output of one backend and variant in one case; ``error`` says why there is no verdict.

    ``inputs`` are the inputs around the verdict's worst element; ``digest`` is the SHA-256 of the output's
    bits.
    """

    backend: str
    variant: str
    output: str
    verdict: Verdict | None
    error: str = ""
    case: int = 0
    dtype: str = ""
    inputs: tuple[Excerpt, ...] = ()
    digest: str = ""

    @property
    def ok(self) -> bool:
        """Whether the output is within the op's tolerance."""
        return self.verdict is not None and self.verdict.ok

    @property
    def candidate(self) -> tuple[str, str]:
        """Backend and variant."""
        return self.backend, self.variant

    @property
    def severity(self) -> float:
        """The part of the tolerance that the worst element takes; infinite where there is no result."""
        return math.inf if self.verdict is None or not self.ok else self.verdict.share

    @property
    def finding(self) -> str:
        """What is worst, in a line."""
        if self.verdict is None:
            return f"failed: {self.error}"
        v = self.verdict
        if not v.ok:
            return str(v.reason)
        if v.worst is None or v.worst_actual is None or v.worst_expected is None:
            return v.note or "correctly rounded"
        numbers = f"{v.worst_actual:.9g}, expected {v.worst_expected:.9g}"
        return f"{v.share:.3g} of the tolerance: {numbers} at {list(v.worst)}"

    def as_dict(self) -> dict[str, Any]:
        """The row as plain data, for JSON."""
        names = ("case", "backend", "variant", "output", "dtype", "ok", "error", "digest")
        return {
            **{name: getattr(self, name) for name in names},
            **(plain(asdict(self.verdict)) if self.verdict else {}),
            "inputs": [plain(asdict(each)) for each in self.inputs],
        }


@dataclass(frozen=True)
class Evidence:
    """What a case was computed with and what came out: what a bundle keeps.

    ``found`` has outputs by their digests; those that would not fit are left out. ``device`` is the one that
    the call named, if any.
    """

    registry: Registry
    op: Op
    request: Request
    inputs: Mapping[str, NumpyArray]
    judge: Judge
    found: Mapping[str, NumpyArray]
    device: str | None = None


@dataclass(frozen=True)
class CaseReport:
    """One request, on every candidate that accepts it.

    ``against`` says what results were judged by. ``drawn`` is the case as `registry test --case` takes it,
    and ``command`` compares it again; both are empty where tensors were given. Among many cases ``evidence``
    is not kept of all, and is then None.
    """

    number: int
    request: str
    against: str
    rows: tuple[Comparison, ...]
    skipped: tuple[Skip, ...] = ()
    decisions: tuple[Decision, ...] = ()
    drawn: str = ""
    command: str = ""
    evidence: Evidence | None = field(default=None, repr=False, compare=False)

    @property
    def failures(self) -> tuple[Comparison, ...]:
        """The rows that are wrong, or failed to run."""
        return tuple(row for row in self.rows if not row.ok)

    @property
    def proves(self) -> bool:
        """Whether something was held against something else than itself."""
        return bool(self.rows) and not self.against.endswith("itself")


def plain(value: Any) -> Any:
    """Data for JSON: infinities, NaN and whatever else it does not have become texts."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)
