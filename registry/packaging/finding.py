"""From what a user names to a package: a folder, or a repository by version, commit or lock."""

from __future__ import annotations

from pathlib import Path

from ..errors import ContractError, PackageError
from ..opinfo import Op, Origin
from .hub import PUBLISHER, Reference, download, make_reference
from .lock import Entry, Lock, check_lock, read_lock
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
    reference = make_reference(source, version, revision)
    lock = read_lock(lock_path)
    entry = lock.find(reference)
    if entry is not None:
        return locked(entry, lock)
    if frozen:
        raise PackageError(f"{reference} is not in {lock.path}; `registry lock {reference}` adds it")
    return fetch_new(reference, trust=trust)


def fetch_new(reference: Reference, *, trust: bool) -> Op:
    """The package of a reference that no lock pins.

    Raises:
        PackageError: it has neither version nor commit, is of a stranger and not trusted; as ``fetch``.
    """
    if reference.branch is None:
        pins = f"{reference.repo}@v1 or {reference.repo}@<commit>"
        needed = f"version=1 or revision=, or {pins}"
        raise PackageError(f"{reference}: no such folder, and a package by name needs {needed}")
    if not trust and not reference.trusted:
        raise PackageError(
            f"{reference} is not of {PUBLISHER}; trust=True, or `registry lock {reference} --trust`, if you "
            "trust its authors to run shaders here"
        )
    return fetch(reference, reference.branch, reference.version)


def fetch(reference: Reference, revision: str, version: int | None, *, cached: bool = False) -> Op:
    """The package of a repository at a branch or commit; with ``cached`` without asking the hub.

    Raises:
        PackageError, ManifestError: it cannot be fetched, or is wrong, or another op than its name says.
    """
    folder, commit = download(reference.repo, revision, cached=cached)
    origin = Origin(reference.repo, version, commit)
    # In the client's cache the files of a snapshot are links to the repository's folder of contents.
    op = load_package(folder, within=folder.parent.parent, origin=origin)
    named = reference.repo.partition("/")[2]
    if named != op.id.replace("::", "."):
        raise PackageError(f"{reference} holds {op.id}; needed: the op that the repository is named after")
    return op


def locked(entry: Entry, lock: Lock, *, cached: bool = False) -> Op:
    """The package that an entry of a lock pins; with ``cached`` without asking the hub.

    Raises:
        PackageError: a file differs from the lock; as ``fetch``.
    """
    op = fetch(Reference(entry.repo, revision=entry.revision), entry.revision, entry.version, cached=cached)
    assert op.package is not None
    check_lock(op.package, entry, lock)
    return op


def entry_of(op: Op) -> Entry:
    """The entry of a lock that pins a package from the hub."""
    assert op.package is not None and op.package.origin is not None
    origin = op.package.origin
    return Entry(origin.repo, origin.version, origin.revision, dict(sorted(op.package.digests.items())))


def _is_folder(source: str) -> bool:
    try:
        return Path(source).is_dir()
    except (OSError, ValueError):
        return False


def _may_be_name(source: str) -> bool:
    try:
        make_reference(source, None, None)
    except ContractError:
        return False
    return not source.startswith(".")
