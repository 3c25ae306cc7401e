"""``registry.lock``: commit and digests of every package a project uses, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..errors import PackageError
from ..files import exclusive, write_whole
from ..opinfo import Package
from .hub import PackageName

NAME = "registry.lock"
FORMAT = 1


@dataclass(frozen=True)
class Pin:
    """A pinned package: its repository, the version it was asked for by, its commit, its digests by file."""

    repo: str
    version: int | None
    revision: str
    digests: Mapping[str, str]

    @property
    def asked(self) -> PackageName:
        """What it was asked for by."""
        return PackageName(self.repo, self.version, self.revision if self.version is None else None)

    def answers(self, asked: PackageName) -> bool:
        """Whether it is a pin of what is asked for."""
        if self.repo != asked.repo:
            return False
        if asked.revision is not None:
            return self.revision == asked.revision
        return asked.version is None or self.version == asked.version


@dataclass(frozen=True)
class PackageLock:
    """The pins of a lock file, sorted; an empty one where there is no file."""

    path: Path
    pins: tuple[Pin, ...] = ()

    def find(self, asked: PackageName) -> Pin | None:
        """The pin for a name.

        Raises:
            PackageError: the name has neither version nor commit, and several pins are of its name.
        """
        found = [pin for pin in self.pins if pin.answers(asked)]
        if len(found) > 1 and asked.branch is None:
            several = ", ".join(f"v{e.version}" if e.version is not None else e.revision for e in found)
            raise PackageError(f"{self.path} has {asked} several times: {several}; say which")
        return found[0] if found else None

    def plus(self, pin: Pin) -> PackageLock:
        """This lock with a pin, which takes the place of the one of the same name and version."""
        key = (pin.repo, pin.version, pin.version is None and pin.revision)
        rest = [e for e in self.pins if (e.repo, e.version, e.version is None and e.revision) != key]
        order = sorted(
            [*rest, pin], key=lambda e: (e.repo, -1 if e.version is None else e.version, e.revision)
        )
        return replace(self, pins=tuple(order))

    def write(self) -> None:
        """Writes the file; a reader sees the old one or the new one.

        Raises:
            PackageError: it cannot be written.
        """
        text = json.dumps({"lockFormat": FORMAT, "packages": [asdict(e) for e in self.pins]}, indent=2)
        try:
            write_whole(self.path, f"{text}\n".encode())
        except OSError as error:
            raise PackageError(f"{self.path}: cannot be written ({error})") from error


def read_lock(path: Path) -> PackageLock:
    """The lock in a file; an empty one if there is none.

    Raises:
        PackageError: the file is no lock.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["lockFormat"] != FORMAT:
            raise PackageError(f"{path}: lockFormat is {document['lockFormat']!r}; needed: {FORMAT}")
        pins = tuple(_pin(item) for item in document["packages"])
    except FileNotFoundError:
        return PackageLock(path)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise PackageError(f"{path}: no lock file ({error!r}); `registry lock` writes one") from error
    return PackageLock(path, pins)


def add_pins(path: Path, pins: Iterable[Pin]) -> PackageLock:
    """Adds pins to the lock in a file, whatever other processes add meanwhile.

    Raises:
        PackageError: the file is no lock, or cannot be written.
    """
    try:
        with exclusive(path.parent):
            lock = read_lock(path)
            for pin in pins:
                lock = lock.plus(pin)
            lock.write()
            return lock
    except OSError as error:
        raise PackageError(f"{path}: cannot be written ({error})") from error


def _pin(item: Mapping[str, object]) -> Pin:
    repo, version, revision, digests = (item[k] for k in ("repo", "version", "revision", "digests"))
    if not (
        isinstance(repo, str)
        and isinstance(revision, str)
        and (version is None or isinstance(version, int))
        and isinstance(digests, dict)
        and all(isinstance(value, str) for value in digests.values())
    ):
        raise TypeError(f"the pin {item}")
    return Pin(repo, version, revision, digests)


def check_lock(package: Package, pin: Pin, lock: PackageLock) -> None:
    """Holds what was loaded against its pin.

    Raises:
        PackageError: a file differs, or only one of the two has it; names it.
    """
    for name in sorted(package.digests.keys() | pin.digests.keys()):
        found, locked = package.digests.get(name, "no such file"), pin.digests.get(name, "no such file")
        if found != locked:
            raise PackageError(f"{package.folder / name}: sha256 is {found}; {lock.path} says {locked}")
