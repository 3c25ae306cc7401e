"""``registry.lock``: commit and digests of every package a project uses, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..cache import exclusive, write_whole
from ..errors import PackageError
from ..opinfo import Package
from .hub import Reference

NAME = "registry.lock"
FORMAT = 1


@dataclass(frozen=True)
class Entry:
    """A pinned package: its repository, the version it was asked for by, its commit, its digests by file."""

    repo: str
    version: int | None
    revision: str
    digests: Mapping[str, str]

    @property
    def reference(self) -> Reference:
        """What it was asked for by."""
        return Reference(self.repo, self.version, self.revision if self.version is None else None)

    def answers(self, reference: Reference) -> bool:
        """Whether it pins what a reference asks for."""
        if self.repo != reference.repo:
            return False
        if reference.revision is not None:
            return self.revision == reference.revision
        return reference.version is None or self.version == reference.version


@dataclass(frozen=True)
class Lock:
    """The entries of a lock file, sorted; an empty one where there is no file."""

    path: Path
    entries: tuple[Entry, ...] = ()

    def find(self, reference: Reference) -> Entry | None:
        """The entry for a reference.

        Raises:
            PackageError: the reference has neither version nor commit, and several entries are of its name.
        """
        found = [entry for entry in self.entries if entry.answers(reference)]
        if len(found) > 1 and reference.branch is None:
            pins = ", ".join(f"v{e.version}" if e.version is not None else e.revision for e in found)
            raise PackageError(f"{self.path} has {reference} several times: {pins}; say which")
        return found[0] if found else None

    def plus(self, entry: Entry) -> Lock:
        """This lock with an entry, which takes the place of the one of the same name and version."""
        key = (entry.repo, entry.version, entry.version is None and entry.revision)
        rest = [e for e in self.entries if (e.repo, e.version, e.version is None and e.revision) != key]
        order = sorted(
            [*rest, entry], key=lambda e: (e.repo, -1 if e.version is None else e.version, e.revision)
        )
        return replace(self, entries=tuple(order))

    def write(self) -> None:
        """Writes the file; a reader sees the old one or the new one.

        Raises:
            PackageError: it cannot be written.
        """
        text = json.dumps({"lockFormat": FORMAT, "packages": [asdict(e) for e in self.entries]}, indent=2)
        try:
            write_whole(self.path, f"{text}\n".encode())
        except OSError as error:
            raise PackageError(f"{self.path}: cannot be written ({error})") from error


def read_lock(path: Path) -> Lock:
    """The lock in a file; an empty one if there is none.

    Raises:
        PackageError: the file is no lock.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["lockFormat"] != FORMAT:
            raise PackageError(f"{path}: lockFormat is {document['lockFormat']!r}; needed: {FORMAT}")
        entries = tuple(_entry(item) for item in document["packages"])
    except FileNotFoundError:
        return Lock(path)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise PackageError(f"{path}: no lock file ({error!r}); `registry lock` writes one") from error
    return Lock(path, entries)


def add_entries(path: Path, entries: Iterable[Entry]) -> Lock:
    """Adds entries to the lock in a file, whatever other processes add meanwhile.

    Raises:
        PackageError: the file is no lock, or cannot be written.
    """
    try:
        with exclusive(path.parent):
            lock = read_lock(path)
            for entry in entries:
                lock = lock.plus(entry)
            lock.write()
            return lock
    except OSError as error:
        raise PackageError(f"{path}: cannot be written ({error})") from error


def _entry(item: Mapping[str, object]) -> Entry:
    repo, version, revision, digests = (item[k] for k in ("repo", "version", "revision", "digests"))
    if not (
        isinstance(repo, str)
        and isinstance(revision, str)
        and (version is None or isinstance(version, int))
        and isinstance(digests, dict)
        and all(isinstance(value, str) for value in digests.values())
    ):
        raise TypeError(f"the entry {item}")
    return Entry(repo, version, revision, digests)


def check_lock(package: Package, entry: Entry, lock: Lock) -> None:
    """Holds what was loaded against its entry.

    Raises:
        PackageError: a file differs, or only one of the two has it; names it.
    """
    for name in sorted(package.digests.keys() | entry.digests.keys()):
        found, locked = package.digests.get(name, "no such file"), entry.digests.get(name, "no such file")
        if found != locked:
            raise PackageError(f"{package.folder / name}: sha256 is {found}; {lock.path} says {locked}")
