"""``decisions.lock``: the decisions of a program, as JSON, and beside it the sources that they would run.

The sources lie in a folder of the file's name with ``.sources`` in place of ``.lock``, each named by its
digest: they serve to show what has changed, and may be missing. Several processes may write at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ContractError
from ..files import exclusive, write_whole
from ..text import json_depth
from .records import Asked, Chosen, Decided, Rejected, Source, as_plain

NAME = "decisions.lock"
FORMAT = 1
MAX_DEPTH = 64

System = Mapping[str, Any]
"""What decisions were made on: date, machine, versions, devices, environment."""


@dataclass(frozen=True)
class DecisionLock:
    """The decisions of a file, in the order of their requests, and the systems they name."""

    path: Path
    decisions: tuple[Decided, ...] = ()
    systems: Mapping[str, System] = field(default_factory=dict)

    def plus(self, decisions: Iterable[Decided], system: System) -> DecisionLock:
        """This lock with decisions made on a system, in place of those of equal requests."""
        name = _name(system)
        kept = {each.asked.key: each for each in self.decisions}
        kept |= {each.asked.key: replace(each, on=name) for each in decisions}
        used = {each.on for each in kept.values()}
        known = {key: value for key, value in {**self.systems, name: system}.items() if key in used}
        return DecisionLock(self.path, tuple(kept[key] for key in sorted(kept)), known)

    def with_texts(self) -> tuple[Decided, ...]:
        """The decisions with the sources that were kept."""

        def filled(decided: Decided) -> Decided:
            passes = tuple(replace(each, text=self.text_of(each) or "") for each in decided.chosen.passes)
            return replace(decided, chosen=replace(decided.chosen, passes=passes))

        return tuple(map(filled, self.decisions))

    @property
    def sources(self) -> Path:
        """The folder of rendered sources."""
        return self.path.with_suffix(".sources")

    def text_of(self, source: Source) -> str | None:
        """The text of a source, where it was kept and still is what it was."""
        with suppress(OSError, UnicodeDecodeError):
            text = (self.sources / _file(source)).read_text(encoding="utf-8")
            if hashlib.sha256(text.encode()).hexdigest() == source.sha256:
                return text
        return None


def read_lock(path: Path) -> DecisionLock:
    """The lock in a file.

    Raises:
        ContractError: there is none, or it cannot be read; says which command writes one.
    """
    try:
        if path.exists() and not path.is_file():  # reading a pipe would wait without end
            raise ContractError(f"{path}: no lock of decisions, for it is no file")
        text = path.read_text(encoding="utf-8")
        if json_depth(text) > MAX_DEPTH:
            raise ContractError(f"{path}: more than {MAX_DEPTH} levels; it is no lock of decisions")
        document = json.loads(text)
        if document["lockFormat"] != FORMAT:
            raise ContractError(f"{path}: lockFormat is {document['lockFormat']!r}; needed: {FORMAT}")
        systems = {str(name): dict(value) for name, value in document["systems"].items()}
        return DecisionLock(path, tuple(map(_decided, document["decisions"])), systems)
    except FileNotFoundError as error:
        raise ContractError(f"{path}: no such file; `registry freeze` writes one") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, ContractError):
            raise
        found = str(error) if isinstance(error, OSError | ValueError) else repr(error)
        raise ContractError(
            f"{path}: no lock of decisions ({found}); `registry freeze` writes one"
        ) from error


def add(path: Path, decisions: Iterable[Decided], system: System, *, sources: bool = True) -> DecisionLock:
    """Adds decisions to a lock, which is made where there is none; ``sources`` keeps what they would run.

    A reader, and a process that is killed meanwhile, leaves the old file or the new one.

    Raises:
        ContractError: the file cannot be written, or is no lock.
    """
    decisions = tuple(decisions)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(path.parent):
            lock = read_lock(path) if path.exists() else DecisionLock(path)
            lock = lock.plus([_placed(each, path) for each in decisions], system)
            if sources:
                for source in (source for each in decisions for source in each.chosen.passes if source.text):
                    write_whole(lock.sources / _file(source), source.text.encode())
            write_whole(path, _text(lock).encode())
            _tidy(lock)
            return lock
    except OSError as error:
        raise ContractError(f"{path}: cannot be written ({error})") from error


def _placed(decided: Decided, path: Path) -> Decided:
    """A decision whose package, if it lies in the lock's folder, goes by its place from there."""
    place, package = path.parent.resolve(), Path(decided.asked.package)
    if not package.is_absolute() or not package.is_relative_to(place):
        return decided
    return replace(decided, asked=replace(decided.asked, package=package.relative_to(place).as_posix()))


def _tidy(lock: DecisionLock) -> None:
    """Removes sources that no decision names any more."""
    named = {_file(source) for each in lock.decisions for source in each.chosen.passes}
    for file in lock.sources.glob("*") if lock.sources.is_dir() else ():
        if file.name not in named:
            file.unlink(missing_ok=True)


def _text(lock: DecisionLock) -> str:
    document = {
        "lockFormat": FORMAT,
        "systems": lock.systems,
        "decisions": [as_plain(each) for each in lock.decisions],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n"


def _name(system: System) -> str:
    """A short name of a system, the same at another time."""
    lasting = {key: value for key, value in system.items() if key != "date"}
    return hashlib.sha256(json.dumps(lasting, sort_keys=True, default=str).encode()).hexdigest()[:8]


def _file(source: Source) -> str:
    return f"{source.sha256[:16]}.{source.language}"


def _decided(item: Mapping[str, Any]) -> Decided:
    made = msgspec.convert({"on": item["on"], "asked": item["asked"], "chosen": item["chosen"]}, Decided)
    chosen = item["chosen"]
    parts = [(item["asked"], Asked), (chosen, Chosen)]
    parts += [(each, Source) for each in chosen.get("passes", ())]
    parts += [(each, Rejected) for each in chosen.get("rejected", ())]
    for part, record in parts:
        if unknown := part.keys() - {field.name for field in fields(record)}:
            raise ValueError(f"unknown key {min(unknown)!r}")
    if not all(source.language.isalnum() and source.sha256.isalnum() for source in made.chosen.passes):
        raise ValueError("a pass with an invalid language or digest")
    return made
