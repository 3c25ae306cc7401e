"""Measures the candidates for a call and keeps the choice among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..calling.call import parse_call, wrong
from ..calling.request import Request
from ..deciding.decide import Offer, Policy
from ..deciding.decision import Decision
from ..deciding.selection import choose, contenders, is_automatic
from ..deciding.tuned import Choice, Entry, TunedVariant, key_of, source_digest
from ..errors import NoPlanError, RegistryError, first_line
from ..judging.judge import Skip, skipped, skipped_lines
from ..opinfo import Op
from ..planning.making import bind_call
from ..system import system
from ..text import lay_out
from .timing import ROUNDS, Progress, Times, no_progress, time_cells
from .trials import Trial, Trials, timed

if TYPE_CHECKING:
    from ..api import Registry

HEADER = ("backend", "variant", "tunables", "verdict", "median", "quartiles", "because")


@dataclass(frozen=True)
class TriedVariant:
    """A candidate that was tried: its times, None where it has none, and why it is chosen or not.

    ``verdict`` is ``chosen``, ``not chosen``, ``wrong`` or ``failed``.
    """

    candidate: TunedVariant
    verdict: str
    because: str
    times: Times | None

    def as_dict(self) -> dict[str, Any]:
        """The row as plain data; times in microseconds."""
        found = {"verdict": self.verdict, "because": self.because}
        return {**asdict(self.candidate), **found, **(self.times.as_dict() if self.times else {})}


@dataclass(frozen=True)
class Tuning:
    """What was measured for a call, and what was chosen. ``str()`` prints the table.

    ``against`` says what results were judged by, ``skipped`` which candidates do not accept the call,
    ``kept`` whether the choice was written to the cache, ``system`` what the times hold for.
    """

    request: str
    against: str
    choice: Choice | None
    rows: tuple[TriedVariant, ...]
    skipped: tuple[Skip, ...]
    kept: bool
    system: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, for JSON."""
        return {
            "request": self.request,
            "against": self.against,
            "choice": self.choice and asdict(self.choice),
            "kept": self.kept,
            "rows": [row.as_dict() for row in self.rows],
            "skipped": [skip._asdict() for skip in self.skipped],
            "system": dict(self.system),
        }

    def table(self) -> list[tuple[str, ...]]:
        """The rows for printing, the fastest first, those without times last."""
        rows = sorted(self.rows, key=lambda row: row.times.median if row.times else float("inf"))
        return [
            (
                *(row.candidate.backend, row.candidate.variant, row.candidate.settings, row.verdict),
                *time_cells(row.times),
                row.because,
            )
            for row in rows
        ]

    def lines(self) -> list[str]:
        """What stands below the table: what was skipped, and the choice."""
        chosen = "nothing is chosen: no candidate gave a right result"
        if self.choice is not None:
            chosen = f"{self.choice}{'' if self.kept else ' (not kept)'}"
        return [*skipped_lines(self.skipped), chosen]

    def __str__(self) -> str:
        below = [f"  {line}" for line in self.lines()]
        return "\n".join([self.request, *lay_out(HEADER, self.table()), *below])


def tune(
    registry: Registry,
    op: Op,
    tensors: Sequence[Any],
    named: Mapping[str, Any],
    rounds: int = ROUNDS,
    progress: Progress = no_progress,
) -> Tuning:
    """See ``Registry.tune``."""
    call = parse_call(op, tensors, named)
    settled = {"out": call.out, "variant": call.variant, "tunables": call.tunables, "profile": call.profile}
    for name, value in settled.items():
        if value:
            raise wrong(op, f"tune tries variants and tunables on this machine; remove {name}=", name)
    catalog = registry.catalog
    request = bind_call(catalog, call)
    trials = Trials(registry, call, request)
    decision = choose(catalog, call, request, Policy(exhaustive=True, measured=False))
    decision.require()

    tried = [trials.prepare(TunedVariant(row.backend, row.variant)) for row in decision.eligible]
    tried = list(timed(tried, rounds, progress))
    static = _static(decision)
    leaders = [leader for name in static if (leader := _fastest(_of(tried, name))) is not None]
    refined, refused = _refine(registry, trials, leaders)
    again = [trial for trial in tried if trial in leaders or trial.candidate in static.values()]
    if any(trial.watch for trial in refined):
        tried = [trial for trial in tried if trial not in again]
        tried += timed([*again, *refined], rounds, progress)
    else:
        tried += refined

    best = {name: pick(_of(tried, name), candidate) for name, candidate in static.items()}
    facts = system(registry)
    choices = {
        name: _choice(tried, trial, static[name], facts["date"])
        for name, trial in best.items()
        if trial is not None
    }
    able = contenders(catalog, call, request)
    entries = [([offer], choices[offer.backend]) for offer in able if offer.backend in choices]
    choice = next(iter(choices.values()), None)
    if is_automatic(catalog, call) and choice is not None:
        first = static[next(iter(static))]
        standing = choices[first.backend].chosen if first.backend in choices else None
        winner = pick([trial for trial in best.values() if trial is not None], standing)
        assert winner is not None
        choice = _choice(tried, winner, first, facts["date"])
        if len(able) > 1:
            entries.append((able, choice))
    kept = [catalog.store.write(_entry(registry, request, tried, *entry)) for entry in entries]
    registry.forget_plans()
    return Tuning(
        request=str(request),
        against=trials.judge.against,
        choice=choice,
        rows=tuple(_row(trial, choice, rounds) for trial in tried),
        skipped=(*skipped(decision), *refused),
        kept=bool(kept) and all(kept),
        system=facts,
    )


def pick(trials: Sequence[Trial], static: TunedVariant | None) -> Trial | None:
    """The fastest, where it is faster than the static choice by more than the spread; else the static choice.

    None where none has times; the fastest where the static choice has none.
    """
    fastest = _fastest(trials)
    standing = next((t for t in trials if t.candidate == static and t.times is not None), None)
    if fastest is None or standing is None:
        return fastest
    assert fastest.times is not None and standing.times is not None
    return fastest if fastest.times.faster_than(standing.times) else standing


def _fastest(trials: Sequence[Trial]) -> Trial | None:
    measured = [(trial.times.median, place) for place, trial in enumerate(trials) if trial.times is not None]
    return trials[min(measured)[1]] if measured else None


def _of(trials: Sequence[Trial], backend: str) -> list[Trial]:
    return [trial for trial in trials if trial.candidate.backend == backend]


def _static(decision: Decision) -> dict[str, TunedVariant]:
    """What the static rules choose within each backend, that of the automatic choice first."""
    found: dict[str, TunedVariant] = {}
    for row in decision.eligible:
        found.setdefault(row.backend, TunedVariant(row.backend, row.variant))
    return found


def _refine(registry: Registry, trials: Trials, leaders: Sequence[Trial]) -> tuple[list[Trial], list[Skip]]:
    """The values of tunables that the manifest names, one at a time, for each variant that is fastest in its
    backend; those that change nothing of its source are left out. And what does not accept the call."""
    found: list[Trial] = []
    refused: list[Skip] = []
    tune = trials.call.op.manifest.registry.tune
    for leader in leaders:
        backend, variant = leader.candidate.backend, leader.candidate.variant
        seen = [_sources(registry, trials, leader.candidate)]
        if seen == [()]:  # nothing there could read a tunable
            continue
        for name, value in ((name, value) for name, values in tune.items() for value in values):
            candidate = TunedVariant(backend, variant, {name: value})
            try:
                sources = _sources(registry, trials, candidate)
            except NoPlanError as error:
                row = error.decision.candidates[0] if error.decision else None
                refused.append(Skip(backend, f"{variant} {candidate.settings}", row.because if row else ""))
            except RegistryError as error:
                found.append(Trial(candidate, "failed", first_line(error)))
            else:
                if sources not in seen:
                    seen.append(sources)
                    found.append(trials.prepare(candidate))
    return found, refused


def _sources(registry: Registry, trials: Trials, candidate: TunedVariant) -> tuple[Any, ...]:
    passes = registry.render(trials.call.op, **trials.pinned(candidate))
    return tuple((item.source, item.dispatch, dict(item.uniforms)) for item in passes)


def _choice(trials: Sequence[Trial], chosen: Trial, static: TunedVariant, date: str) -> Choice:
    standing = next(trial for trial in trials if trial.candidate == static)
    assert chosen.times is not None
    return Choice(
        chosen=chosen.candidate,
        us=1e6 * chosen.times.median,
        static=static,
        static_us=1e6 * standing.times.median if standing.times else None,
        date=date,
    )


def _entry(
    registry: Registry, request: Request, trials: Sequence[Trial], offers: Sequence[Offer], choice: Choice
) -> Entry:
    names = [offer.backend for offer in offers]
    candidates = tuple(trial.candidate for trial in trials if trial.candidate.backend in names)
    digest = source_digest(registry.catalog, request, candidates, offers)
    return Entry(key_of(request, offers), digest, candidates, choice)


def _row(trial: Trial, choice: Choice | None, rounds: int) -> TriedVariant:
    if trial.times is None:
        return TriedVariant(trial.candidate, trial.verdict, trial.reason, None)
    assert choice is not None
    chosen, static = choice.chosen, choice.static
    if trial.candidate == chosen:
        because = "faster than the static choice by more than the spread"
        if chosen == static:
            because = "the static choice, and none is faster by more than the spread"
        elif choice.static_us is None:
            because = "the static choice has failed"
        return TriedVariant(trial.candidate, "chosen", because, trial.times)
    if trial.candidate == static:
        because = "the static choice"
    elif len(trial.times.seconds) < rounds:
        because = "slower by far"
    elif 1e6 * trial.times.median < choice.us:
        because = "not faster by more than the spread"
    else:
        because = "slower"
    return TriedVariant(trial.candidate, "not chosen", because, trial.times)
