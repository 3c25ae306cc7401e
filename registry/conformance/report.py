"""What a conformance run found, as plain records that print themselves."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..dtypes import SHORT_NAMES
from ..opinfo import Op
from ..text import lay_out
from .cases import Case

MAX_FAILURES = 5
"""So many failures end a run."""

HEADER = ("backend", "requests", "variants", "not exercised", "worst ULP", "failures", "notes")


@dataclass(frozen=True)
class Failure:
    """One thing that is wrong, with a small case that shows it.

    ``backend`` and ``variant`` are empty when an illegal request was not refused; ``output`` is empty when
    the whole call is meant. ``op`` is an op's name or a package's folder, as the command line takes it.
    """

    op: str
    backend: str
    variant: str
    output: str
    reason: str
    case: Case

    @property
    def replay(self) -> str:
        """The command that shows it again."""
        words = ["registry", "test", self.op, "--case", str(self.case)]
        words += ["--backend", self.backend] if self.backend else []
        words += ["--variant", self.variant] if self.variant else []
        return shlex.join(words)

    def __str__(self) -> str:
        where = " ".join(part for part in (self.backend, self.variant, self.output) if part)
        return f"{where or 'illegal request'}: {self.reason}\n  {self.replay}"


@dataclass(frozen=True)
class BackendReport:
    """How one backend did.

    ``variants`` counts the requests each variant ran; ``unexercised`` are its variants that none reached.
    ``worst`` is the largest error by dtype, as in `CaseOutcome`; ``notes`` count what was not judged.
    """

    backend: str
    requests: int
    variants: Mapping[str, int]
    unexercised: tuple[str, ...]
    worst: Mapping[str, float]
    notes: Mapping[str, int]


@dataclass(frozen=True)
class ConformanceReport:
    """The outcome of a run. ``str()`` prints the table, the failures with their replays, and the notes.

    ``legal`` and ``illegal`` count the requests that were tried. ``seed`` is None for a replayed case.
    """

    op: str
    seed: int | None
    legal: int
    illegal: int
    backends: tuple[BackendReport, ...]
    failures: tuple[Failure, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong and, where a request was legal, something ran."""
        return not self.failures and (not self.legal or any(backend.requests for backend in self.backends))

    @property
    def title(self) -> str:
        """What was tried."""
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{self.op}  {self.legal} legal and {self.illegal} illegal requests{seed}"

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, for JSON."""
        return {
            **{name: getattr(self, name) for name in ("op", "seed", "ok", "legal", "illegal")},
            "backends": [asdict(backend) for backend in self.backends],
            "failures": [
                {**vars(failure), "case": failure.case.as_dict(), "replay": failure.replay}
                for failure in self.failures
            ],
        }

    def table(self) -> list[tuple[str, ...]]:
        """The rows for printing."""
        return [
            (
                backend.backend,
                str(backend.requests),
                str(len(backend.variants)),
                str(len(backend.unexercised)),
                ", ".join(f"{SHORT_NAMES[dtype]} {ulp:.3g}" for dtype, ulp in backend.worst.items()),
                str(sum(failure.backend == backend.backend for failure in self.failures)),
                str(sum(backend.notes.values())),
            )
            for backend in self.backends
        ]

    def lines(self) -> list[str]:
        """What belongs below the table: refusals, variants not exercised, notes."""
        found = []
        if self.illegal and all(failure.backend for failure in self.failures):
            found.append("every illegal request was refused")
        if self.legal and not self.backends:
            found.append("nothing ran: no backend accepts the request; `registry explain` says why")
        if len(self.failures) >= MAX_FAILURES:
            found.append(f"stopped after {len(self.failures)} failures")
        for backend in self.backends:
            if backend.unexercised:
                found.append(f"not exercised: {backend.backend} {', '.join(backend.unexercised)}")
            found += [f"note: {backend.backend}, {n} requests: {text}" for text, n in backend.notes.items()]
        return found

    def __str__(self) -> str:
        below = [f"  {line}" for line in self.lines()]
        failures = [f"FAILS {failure}" for failure in self.failures]
        return "\n".join([self.title, *lay_out(HEADER, self.table()), *below, *failures])


def command_name(op: Op) -> str:
    """What the command line calls an op: its name, or its package's folder."""
    return op.id if op.package is None else str(op.package.folder)
