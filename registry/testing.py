"""For test suites of users: do the backends agree on a call?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _shared
from .api import Registry
from .comparing.text import failure_lines, verdict_lines
from .errors import ContractError
from .files import path_of
from .handle import Handle

if TYPE_CHECKING:
    from .comparing.report import Report
    from .conformance.cases import Case
    from .opinfo import Op


def assert_backends_agree(
    op: str | Op | Handle,
    /,
    *tensors: Any,
    backends: str | Sequence[str] | None = None,
    cases: int | Sequence[Mapping[str, Any] | Case] | None = None,
    seed: int = 0,
    bundles: str | Path | None = None,
    registry: Registry | None = None,
    **named: Any,
) -> Report:
    """Asserts that every backend and variant that accepts a call is within the op's tolerance.

    Results are judged by the op's float64 reference, or where it has none, by the first of them.

    Args:
        op: a name, an op, or a loaded package.
        tensors, named: the call, as ``registry.run`` takes it.
        backends: a name or several; each of them must run (default: whatever is available).
        cases, seed: several calls, as ``registry.compare`` takes them.
        bundles: a folder for a bundle of each failing case (default: that of ``REGISTRY_BUNDLES``, if any).
        registry: whose plugins and settings count (default: the shared one, that of ``registry.run``).

    Returns:
        The report, when all agree.

    Raises:
        AssertionError: they do not; has the failing rows, the worst elements, the inputs around them, and how
            to run it again. Nothing that ran proves nothing, and fails too.
        ContractError: the call breaks the contract; no such backend.
    """
    __tracebackhide__ = True  # pytest then shows the caller's line
    reg = _shared if registry is None else registry
    if not isinstance(reg, Registry):
        raise ContractError(f"registry= is {reg!r}; needed: a Registry")
    folder = None if bundles is None else path_of(bundles, "bundles")
    if "backend" in named:
        raise ContractError("assert_backends_agree takes backends=, one or several, in place of backend=")
    if backends is not None:
        if not isinstance(backends, Collection) or isinstance(backends, bytes):
            raise ContractError(f"backends= is {backends!r}; needed: a name or a sequence of names")
        named["backend"] = [backends] if isinstance(backends, str) else list(backends)
    compare = op.compare if isinstance(op, Handle) else partial(reg.compare, op)
    report = compare(*tensors, cases=cases, seed=seed, **named)
    absent = [name for name in named.get("backend", ()) if name not in {row.backend for row in report.rows}]
    if report.ok and not absent:
        return report
    raise AssertionError(_message(report, absent, _save(reg, report, folder)))


def _save(reg: Registry, report: Report, given: Path | None) -> list[Path]:
    folder = given or reg.catalog.environment.bundles
    return [] if folder is None else report.save_failures(folder)


def _message(report: Report, absent: Sequence[str], saved: Sequence[Path]) -> str:
    reasons = {name: _reasons(report, name) for name in absent}
    lines = [
        f"backends do not agree on {report.request}, against {report.against}",
        *failure_lines(report),
        *(f"{name} ran nothing: {reason}" for name, reason in reasons.items()),
        *verdict_lines(report),
        *(f"saved: {path}; run it again: registry replay {path}" for path in saved),
    ]
    if report.failures and not saved:
        lines.append(
            "to run it again elsewhere: set REGISTRY_BUNDLES=FOLDER or pass bundles=FOLDER, "
            "then registry replay FOLDER/FILE"
        )
    return "\n  ".join(lines)


def _reasons(report: Report, backend: str) -> str:
    found = [skip.because for skip in report.skipped if skip.backend == backend]
    return "; ".join(dict.fromkeys(found)) or "it offers nothing for this op"
