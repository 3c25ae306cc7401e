"""From what a user names to a package: a folder, or a repository by version, commit or lock."""

from __future__ import annotations

from pathlib import Path

from ..errors import ContractError, PackageError
from ..opinfo import Op, Origin
from .hub import PUBLISHER, PackageName, download, make_name
from .package_lock import PackageLock, Pin, check_lock, read_lock
from .reading import load_package


def find_package(
    source: str | Path,
    version: int | None,
    revision: str | None,
    lock_path: Path,
    *,
    trust: bool,
    frozen: bool,
) -> Op:
    """The package in a folder, or of that name: at the commit of the lock, if that has it.

    ``frozen`` takes packages by name from the lock alone. A package of a stranger needs ``trust`` or a lock.

    Raises:
        ContractError: neither a folder nor a name; version and revision wrong, or given with a folder.
        PackageError: it cannot be fetched, is not locked, or not what the lock says.
        ManifestError: its manifest is wrong.
    """
    pinned = version is not None or revision is not None
    if isinstance(source, Path) or (not pinned and _is_folder(source)):
        if pinned:
            raise ContractError(f"{source} is a folder; version and revision are for packages by name")
        return load_package(Path(source))
    if not pinned and not _may_be_name(source):
        return load_package(Path(source))  # says what is missing there
    asked = make_name(source, version, revision)
    lock = read_lock(lock_path)
    pin = lock.find(asked)
    if pin is not None:
        return locked(pin, lock)
    if frozen:
        raise PackageError(f"{asked} is not in {lock.path}; `registry lock {asked}` adds it")
    return fetch_new(asked, trust=trust)


def fetch_new(asked: PackageName, *, trust: bool) -> Op:
    """The package of a name that no lock pins.

    Raises:
        PackageError: it has neither version nor commit, is of a stranger and not trusted; as ``fetch``.
    """
    if asked.branch is None:
        pins = f"{asked.repo}@v1 or {asked.repo}@<commit>"
        needed = f"version=1 or revision=, or {pins}"
        raise PackageError(f"{asked}: no such folder, and a package by name needs {needed}")
    if not trust and not asked.trusted:
        raise PackageError(
            f"{asked} is not of {PUBLISHER}; trust=True, or `registry lock {asked} --trust`, if you "
            "trust its authors to run shaders here"
        )
    return fetch(asked, asked.branch, asked.version)


def fetch(asked: PackageName, revision: str, version: int | None, *, cached: bool = False) -> Op:
    """The package of a repository at a branch or commit; with ``cached`` without asking the hub.

    Raises:
        PackageError, ManifestError: it cannot be fetched, or is wrong, or another op than its name says.
    """
    folder, commit = download(asked.repo, revision, cached=cached)
    origin = Origin(asked.repo, version, commit)
    # In the client's cache the files of a snapshot are links to the repository's folder of contents.
    op = load_package(folder, within=folder.parent.parent, origin=origin)
    named = asked.repo.partition("/")[2]
    if named != op.id.replace("::", "."):
        raise PackageError(f"{asked} holds {op.id}; needed: the op that the repository is named after")
    return op


def locked(pin: Pin, lock: PackageLock, *, cached: bool = False) -> Op:
    """The package of a lock's pin; with ``cached`` without asking the hub.

    Raises:
        PackageError: a file differs from the lock; as ``fetch``.
    """
    op = fetch(PackageName(pin.repo, revision=pin.revision), pin.revision, pin.version, cached=cached)
    assert op.package is not None
    check_lock(op.package, pin, lock)
    return op


def pin_of(op: Op) -> Pin:
    """What pins a package from the hub in a lock."""
    assert op.package is not None and op.package.origin is not None
    origin = op.package.origin
    return Pin(origin.repo, origin.version, origin.revision, dict(sorted(op.package.digests.items())))


def _is_folder(source: str) -> bool:
    try:
        return Path(source).is_dir()
    except (OSError, ValueError):
        return False


def _may_be_name(source: str) -> bool:
    try:
        make_name(source, None, None)
    except ContractError:
        return False
    return not source.startswith(".")
