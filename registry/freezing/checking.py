"""Deciding anew: which requests of a lock come out otherwise on this machine, and why."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..api import Registry
from ..calling.call import Call, parse_call
from ..calling.request import Request
from ..deciding.decision import Candidate, Decision
from ..errors import NoPlanError, RegistryError
from ..planning.making import bind_call, settle
from ..text import counted, lay_out, leaves
from .decision_lock import DecisionLock, read_lock
from .records import Asked, Chosen, Decided, as_plain, chosen_of, parse_tensor, system_of

if TYPE_CHECKING:
    from ..opinfo import Op

HEADER = ("", "backend", "variant", "verdict", "because", "found", "needed")


@dataclass(frozen=True)
class Difference:
    """A request that comes out otherwise.

    ``what`` is ``choice``: another candidate; ``source``: the same one, by another text or grid; ``error``:
    it cannot be decided, for the reason in ``message``. ``rows`` say how the old choice stands now (``was``),
    why the new one was rejected when the lock was written (``then``), and the new one (``now``); ``diffs``
    are unified diffs of sources, where the old text was kept.
    """

    request: str
    what: Literal["choice", "source", "error"]
    was: Chosen
    now: Chosen | None = None
    rows: tuple[tuple[str, ...], ...] = ()
    message: str = ""
    diffs: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The difference as plain data."""
        rows = [dict(zip(("which", *HEADER[1:]), row, strict=True)) for row in self.rows]
        return {**as_plain(replace(self, rows=())), "rows": rows}

    def __str__(self) -> str:
        lines = [self.request]
        if self.rows:
            lines += lay_out(HEADER, self.rows)
        if self.message:
            lines.append(f"  {self.message}")
        return "\n".join([*lines, *self.diffs])


@dataclass(frozen=True)
class Change:
    """A fact of the system that differs from when the lock was written; empty on the side that lacks it."""

    name: str
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.name}: {self.was or 'none'} -> {self.now or 'none'}"


@dataclass(frozen=True)
class Check:
    """What became of a lock's decisions. ``changes`` are those of the systems they were made on."""

    path: str
    count: int
    differences: tuple[Difference, ...]
    changes: tuple[Change, ...]

    @property
    def ok(self) -> bool:
        """Whether every request comes out as it did."""
        return not self.differences

    def as_dict(self) -> dict[str, Any]:
        """The check as plain data, for JSON."""
        return {
            "path": self.path,
            "ok": self.ok,
            "decisions": self.count,
            "differences": [each.as_dict() for each in self.differences],
            "changes": [asdict(change) for change in self.changes],
        }

    def __str__(self) -> str:
        return "\n".join([self.headline, *map(str, self.differences), *self.notes()])

    @property
    def headline(self) -> str:
        """How many differ."""
        if self.ok:
            return f"{self.path}: {counted(self.count, 'decision')}, as before"
        differ = "differs" if len(self.differences) == 1 else "differ"
        return f"{self.path}: {len(self.differences)} of {counted(self.count, 'decision')} {differ}"

    def notes(self) -> list[str]:
        """The changes, a line each."""
        return [f"  changed: {change}" for change in self.changes]


def check(registry: Registry, path: Path) -> Check:
    """Decides every request of a lock anew; see ``Registry.check``."""
    lock = read_lock(path)
    made: dict[str, Registry] = {}
    found = [each for decided in lock.decisions for each in _differences(registry, lock, decided, made)]
    return Check(str(path), len(lock.decisions), tuple(found), tuple(_changes(registry, lock)))


def _differences(
    registry: Registry, lock: DecisionLock, decided: Decided, made: dict[str, Registry]
) -> Iterator[Difference]:
    asked, was = decided.asked, decided.chosen
    try:
        settled = _registry_with(asked.settings, registry, made)
        call, request = _bind(settled, asked, lock.path)
        decision, _, _ = settle(settled.catalog, call, request, exhaustive=True)
        now = chosen_of(settled.catalog, call, decision)
    except NoPlanError as error:
        rows = [_row_of("was", was, error.decision)] if error.decision else []
        yield Difference(str(asked), "choice", was, rows=tuple(rows), message="no candidate accepts it now")
    except (RegistryError, TypeError, ValueError) as error:  # the latter two: a lock that was edited
        yield Difference(str(asked), "error", was, message=f"it cannot be decided: {error}")
    else:
        if now.candidate != was.candidate:
            rows = [_row_of("was", was, decision), *_then(was, now), _row_of("now", now, decision)]
            yield Difference(str(asked), "choice", was, now, tuple(rows))
        elif now != was:
            message = f"{was.backend} {was.variant} as before, by another source: {_what_differs(was, now)}"
            diffs = tuple(_diffs(lock, was, now))
            yield Difference(str(asked), "source", was, now, message=message, diffs=diffs)


def _registry_with(settings: Mapping[str, Any], registry: Registry, made: dict[str, Registry]) -> Registry:
    """A registry with the plugins of this one and the settings of a request; ``made`` keeps them."""
    name = json.dumps(settings, sort_keys=True)
    if name not in made:
        found = Registry(registry.catalog.extra, entry_points=registry.catalog.entry_points)
        if settings:
            found.configure(**settings)
        made[name] = found
    return made[name]


def _bind(registry: Registry, asked: Asked, path: Path) -> tuple[Call, Request]:
    op = _op(registry, asked, path)
    tensors = {role: parse_tensor(text) for role, text in asked.tensors.items()}
    named = {
        **asked.args,
        "inputs": {role: (shape, dtype) for role, (shape, dtype, _) in tensors.items()},
        "attrs": dict(asked.attrs),
        "outputs": asked.outputs,
        "backend": asked.backend,
        "variant": asked.variant,
        "device": asked.device,
        "tunables": dict(asked.tunables),
    }
    if asked.out:
        named["out"] = {role: parse_tensor(text)[:2] for role, text in asked.out.items()}
    call = parse_call(op, (), named)
    request = bind_call(registry.catalog, call)
    devices = {role: device for role, (_, _, device) in tensors.items() if device is not None}
    for device in devices.values():
        registry.catalog.split_device(device)  # says which backend is missing
    return call, replace(request, devices=devices)


def _op(registry: Registry, asked: Asked, path: Path) -> Op:
    if not asked.package:
        return registry.op(asked.op)
    repo, sign, revision = asked.package.rpartition("@")
    if sign and len(revision) == 40:  # the lock says which commit, so that is trusted
        return registry.load(repo, revision=revision, trust=True).op
    return registry.load(path.parent / asked.package).op


def _row_of(which: str, chosen: Chosen, decision: Decision) -> tuple[str, ...]:
    """How a candidate stands in a decision."""
    candidate = _find(chosen, decision)
    settings = " ".join(f"{name}={value}" for name, value in chosen.tunables.items())
    variant = " ".join(filter(None, (chosen.variant, settings)))
    if candidate is None:
        asked = list(dict.fromkeys(each.backend for each in decision.candidates))
        if chosen.backend in asked:
            reason = ("it is claimed", "no such variant", f"a {chosen.backend} that claims it")
        else:
            reason = ("the backend is asked", ", ".join(asked) or "none", chosen.backend)
        return (which, chosen.backend, variant, "gone", *reason)
    verdict, because = str(candidate.verdict), candidate.because
    if which == "was" and verdict == "chosen":  # with other tunables
        verdict, because = "not chosen", f"measured: {settings or 'defaults'}"
    return (which, chosen.backend, variant, verdict, because, candidate.found, candidate.needed)


def _then(was: Chosen, now: Chosen) -> Iterator[tuple[str, ...]]:
    """Why what is chosen now was rejected when the lock was written."""
    reason = was.rejection(now.backend, now.variant)
    if reason is not None:
        found = (reason.because, reason.found, reason.needed)
        yield ("then", now.backend, now.variant, "rejected", *found)


def _find(chosen: Chosen, decision: Decision) -> Candidate | None:
    own = [candidate for candidate in decision.candidates if candidate.backend == chosen.backend]
    exact = [candidate for candidate in own if candidate.variant == chosen.variant]
    return next(iter(exact or (candidate for candidate in own if candidate.variant == "all")), None)


def _what_differs(was: Chosen, now: Chosen) -> str:
    if [each.id for each in was.passes] != [each.id for each in now.passes]:
        return f"{len(was.passes)} passes, now {len(now.passes)}"
    told = []
    for old, new in zip(was.passes, now.passes, strict=True):
        if old.sha256 != new.sha256:
            told.append(f"pass {new.id} ({new.shader}), sha256 {old.sha256[:12]}, now {new.sha256[:12]}")
        elif old != new:
            told.append(f"pass {new.id}: {old.dispatch} workgroups of {old.shader}, "
                        f"now {new.dispatch} of {new.shader}")  # fmt: skip
    return "; ".join(told)


def _diffs(lock: DecisionLock, was: Chosen, now: Chosen) -> Iterator[str]:
    """Unified diffs of the passes whose old text was kept."""
    new = {each.id: each for each in now.passes}
    for old in was.passes:
        text = lock.text_of(old)
        if text is not None and old.id in new and new[old.id].sha256 != old.sha256:
            lines = text.splitlines(), new[old.id].text.splitlines()
            names = f"{old.shader} (locked)", f"{new[old.id].shader} (now)"
            yield "\n".join(difflib.unified_diff(*lines, *names, lineterm=""))


def _changes(registry: Registry, lock: DecisionLock) -> Iterator[Change]:
    """What is otherwise than on the systems that decisions of the lock name."""
    seen: set[tuple[str, str]] = set()
    for before in lock.systems.values():
        known = [name for name in before.get("devices", {}) if name in registry.catalog.plugins.backends]
        now = json.loads(json.dumps(system_of(registry, known), default=str))
        gone = before.get("devices", {}).keys() - now["devices"].keys()
        devices = {name: each for name, each in before.get("devices", {}).items() if name not in gone}
        old, new = _flat({**before, "devices": devices}), _flat(now)
        old |= {f"devices.{name}": str(before["devices"][name].get("name", "")) for name in gone}
        new |= {f"devices.{name}": "not here" for name in gone}
        for name in sorted(old.keys() | new.keys()):
            change = Change(name, old.get(name, ""), new.get(name, ""))
            if name == "date" or change.was == change.now or (name, change.was) in seen:
                continue
            seen.add((name, change.was))
            yield change


def _flat(value: Mapping[str, Any]) -> dict[str, str]:
    """The leaves of a mapping, as texts by dotted names."""
    return {
        ".".join(path): leaf if isinstance(leaf, str) else json.dumps(leaf) for path, leaf in leaves(value)
    }
