"""Times one call on backends and variants side by side, on host arrays and where the devices are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..calling.call import Call, parse_call, wrong
from ..calling.scope import bytes_moved
from ..deciding.decision import Decision
from ..deciding.tuned import TunedVariant
from ..errors import ContractError, RegistryError, first_line
from ..judging.judge import Skip, backends_of, decide_each, skipped, skipped_lines
from ..opinfo import Op
from ..planning.making import bind_call
from ..system import system
from ..text import lay_out
from .timing import (
    ROUNDS,
    Progress,
    Stopwatch,
    Times,
    measure,
    no_progress,
    stopwatch,
    time_cells,
)
from .trials import Trials

if TYPE_CHECKING:
    from ..api import Registry

HEADER = ("backend", "variant", "tensors", "verdict", "median", "quartiles", "GB/s", "of a copy", "because")
HOST = "host"


@dataclass(frozen=True)
class Timing:
    """One candidate with its tensors in one place: ``host``, or the name of a device.

    ``verdict`` is ``ok``, ``wrong`` or ``failed``. ``nbytes``: bytes that a perfect kernel moves, None where
    the manifest does not say. ``copy``: times of a copy of as many on the device, None where none was timed.
    """

    candidate: TunedVariant
    place: str
    verdict: str
    because: str = ""
    times: Times | None = None
    nbytes: int | None = None
    copy: Times | None = None

    @property
    def gbps(self) -> float | None:
        """GB/s: ``nbytes`` over the median time."""
        return self.nbytes / self.times.median / 1e9 if self.times and self.nbytes else None

    @property
    def fraction(self) -> float | None:
        """The speed as a part of the copy's."""
        return self.copy.median / self.times.median if self.times and self.copy else None

    def as_dict(self) -> dict[str, Any]:
        """The row as plain data; times in microseconds."""
        return {
            **asdict(self.candidate),
            **{"place": self.place, "verdict": self.verdict, "because": self.because},
            **(self.times.as_dict() if self.times else {}),
            **{"bytes": self.nbytes, "gbps": self.gbps, "fraction": self.fraction},
            "copy_us": 1e6 * self.copy.median if self.copy else None,
        }

    def cells(self) -> tuple[str, ...]:
        """The row for a table."""
        return (
            *(self.candidate.backend, self.candidate.variant, self.place, self.verdict),
            *time_cells(self.times),
            "" if self.gbps is None else f"{self.gbps:.3g}",
            "" if self.fraction is None else f"{self.fraction:.2f}",
            self.because,
        )


@dataclass(frozen=True)
class Benchmark:
    """The rows of one call, and what they hold for. ``str()`` prints the table."""

    op: str
    request: str
    against: str
    rows: tuple[Timing, ...]
    skipped: tuple[Skip, ...]
    system: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        """Whether something was timed and nothing that accepts the call is wrong or failed."""
        return bool(self.rows) and all(row.verdict == "ok" for row in self.rows)

    def as_dicts(self) -> list[dict[str, Any]]:
        """A row of plain data for each candidate, skipped ones too, each with what it holds for."""
        skips = [{**skip._asdict(), "verdict": "skipped"} for skip in self.skipped]
        facts = {name: value for name, value in self.system.items() if name != "devices"}
        devices = self.system["devices"]
        return [
            {"op": self.op, "request": self.request, **row, "device": devices.get(row["backend"]), **facts}
            for row in (*(row.as_dict() for row in self.rows), *skips)
        ]

    def table(self) -> list[tuple[str, ...]]:
        """The rows for printing."""
        return [row.cells() for row in self.rows]

    def lines(self) -> list[str]:
        """What stands below the table."""
        return skipped_lines(self.skipped)

    def __str__(self) -> str:
        below = [f"  {line}" for line in self.lines()]
        return "\n".join([self.request, *lay_out(HEADER, self.table()), *below])


def bench(
    registry: Registry,
    op: Op,
    tensors: Sequence[Any],
    named: Mapping[str, Any],
    variants: bool = False,
    rounds: int = ROUNDS,
    progress: Progress = no_progress,
) -> Benchmark:
    """Times a call on every available backend, or on those named: what each would run, or all ``variants``.

    ``named`` is what ``run`` takes, except ``out`` and ``profile``. Each prepared plan is timed with host
    arrays, their way to a device and back included, and with tensors on its device. Results are judged before
    anything is timed.

    Raises:
        ContractError: the call breaks the contract, or has no data.
    """
    call = parse_call(op, tensors, named)
    for name, value in {"out": call.out or None, "profile": call.profile}.items():
        if value is not None:
            raise wrong(op, f"bench allocates its own outputs, on this machine; remove {name}=", name)
    call = _with_tensors(call, registry.host)
    names = backends_of(registry, call)
    request = bind_call(registry.catalog, call)
    on_host = Trials(registry, call, request)
    options = {**on_host.pinned(TunedVariant("", "")), "variant": call.variant, "tunables": call.tunables}
    del options["backend"]
    decisions = decide_each(registry, op, (), options, names)
    ready = [
        found
        for decision in decisions
        if decision.eligible
        for found in _prepare(registry, on_host, decision, variants)
    ]
    nbytes = bytes_moved(request)
    homes = {row.candidate.backend: row.place for row, _ in ready}  # the last place of each is its own memory
    copies = _copies(registry, call, homes, nbytes) if nbytes is not None else {}
    watches = [(f"{row.candidate.backend} {row.place}", watch) for row, watch in ready if watch is not None]
    watches += [(f"copy {name}", watch) for name, watch in copies.items()]
    timed = measure([watch for _, watch in watches], rounds, progress, [group for group, _ in watches])
    speeds = dict(zip(copies, timed[len(timed) - len(copies) :], strict=True))
    times = iter(timed)
    rows = []
    for row, watch in ready:
        found = next(times) if watch is not None else None
        speed = speeds.get(row.candidate.backend) if homes[row.candidate.backend] == row.place else None
        rows.append(_with_times(row, found, nbytes, speed, rounds))
    missed = [skip for each in decisions if variants or not each.eligible for skip in skipped(each)]
    against = on_host.judge.against
    return Benchmark(op.id, str(request), against, tuple(rows), tuple(missed), system(registry))


def _prepare(
    registry: Registry, on_host: Trials, decision: Decision, variants: bool
) -> Iterator[tuple[Timing, Stopwatch | None]]:
    """What a backend would run, or all variants that accept, in every place: judged, and what times it."""
    chosen = decision.eligible if variants else decision.eligible[:1]
    for place, trials in _places(registry, on_host, chosen[0].backend):
        for row in chosen:
            candidate = TunedVariant(row.backend, row.variant, decision.request_of(row).tunables)
            if isinstance(trials, RegistryError):
                yield Timing(candidate, place, "failed", first_line(trials)), None
            else:
                trial = trials.prepare(candidate)
                yield Timing(candidate, place, trial.verdict or "ok", trial.reason), trial.watch


def _with_times(
    row: Timing,
    found: Times | Exception | None,
    nbytes: int | None,
    speed: Times | Exception | None,
    rounds: int,
) -> Timing:
    if isinstance(found, Exception):
        return replace(row, verdict="failed", because=first_line(found))
    if found is None:
        return row
    because = "slower by far: timed less often" if len(found.seconds) < rounds else ""
    copy = speed if isinstance(speed, Times) else None
    return replace(row, because=because, times=found, nbytes=nbytes, copy=copy)


def _with_tensors(call: Call, put: Callable[[Any], Any]) -> Call:
    return replace(call, tensors={role: put(value) for role, value in call.tensors.items()})


def _places(
    registry: Registry, on_host: Trials, backend: str
) -> Iterator[tuple[str, Trials | RegistryError]]:
    """The call with its tensors on the host, then on the backend's device if it has one."""
    yield HOST, on_host
    device = on_host.call.device or backend
    try:
        call = _with_tensors(on_host.call, lambda value: registry.to_device(value, device))
    except ContractError:  # a backend of host arrays
        return
    except RegistryError as error:
        yield device, error
        return
    request = bind_call(registry.catalog, call)
    place = next(iter(request.devices.values()))
    yield place, Trials(registry, call, request, on_host.judge)


def _copies(registry: Registry, call: Call, names: Iterable[str], nbytes: int) -> dict[str, Stopwatch]:
    """By backend, what times a copy on its device that moves as many bytes, where the backend can say."""
    found = {}
    for name in names:
        backend, options = registry.catalog.backend(name), registry.catalog.options(name, call.device)
        with suppress(RegistryError):
            copy = backend.copier(nbytes, options)
            if copy is not None:
                found[name] = stopwatch(copy, partial(backend.wait, options))
    return found
