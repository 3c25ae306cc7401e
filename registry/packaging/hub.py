"""Packages by name from the Hugging Face Hub, through its client, with its cache, token and offline mode."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import ContractError, PackageError

PUBLISHER = "webgpu-kernels"
"""Whose packages load without being asked to trust them."""
FILES = "build/webgpu/*"

_REPO = re.compile(r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]+")
_REFERENCE = re.compile(rf"(?P<repo>{_REPO.pattern})(?:@(?:v(?P<version>\d+)|(?P<revision>[0-9a-f]{{40}})))?")


@dataclass(frozen=True)
class PackageName:
    """A package by name: ``owner/name`` with a version or a commit; without either a lock must tell."""

    repo: str
    version: int | None = None
    revision: str | None = None

    def __str__(self) -> str:
        pin = f"v{self.version}" if self.version is not None else self.revision
        return f"{self.repo}@{pin}" if pin else self.repo

    @property
    def branch(self) -> str | None:
        """What to ask the hub for: the commit, or the branch of the version."""
        if self.revision is not None:
            return self.revision
        return None if self.version is None else f"v{self.version}"

    @property
    def trusted(self) -> bool:
        """Whether it comes from the publisher of the format."""
        return self.repo.partition("/")[0] == PUBLISHER


def parse_name(text: str) -> PackageName | None:
    """The name that a text spells: ``owner/name``, ``owner/name@v1`` or ``owner/name@<commit>``."""
    match = _REFERENCE.fullmatch(text)
    if match is None:
        return None
    version = match["version"]
    return PackageName(match["repo"], None if version is None else int(version), match["revision"])


def make_name(name: str, version: int | None, revision: str | None) -> PackageName:
    """The name with what goes with it.

    Raises:
        ContractError: no name of a repository, or version and revision wrong or both given.
    """
    found = parse_name(name)
    if found is None:
        raise ContractError(
            f"{name!r} is no folder and no package name; needed: owner/name, with version= or revision="
        )
    if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 0):
        raise ContractError(f"version is {version!r}; needed: an integer of at least 0")
    if revision is not None and not (isinstance(revision, str) and re.fullmatch("[0-9a-f]{40}", revision)):
        raise ContractError(f"revision is {revision!r}; needed: a commit, 40 hexadecimal digits")
    pins = [pin for pin in (found.version, found.revision, version, revision) if pin is not None]
    if len(pins) > 1:
        raise ContractError(f"{name!r} with {pins}; needed: one of version and revision")
    if found.branch is not None:
        return found
    return PackageName(found.repo, version, revision)


def download(repo: str, revision: str, *, cached: bool = False) -> tuple[Path, str]:
    """The snapshot of a repository at a branch or commit, and its commit; ``cached``: from the cache alone.

    Raises:
        PackageError: the client is not installed, the hub cannot be reached, there is no such repository or
            revision, or no access to it; says what to do.
    """
    try:
        import huggingface_hub
    except ModuleNotFoundError as error:
        advice = "pip install 'kernel-registry[hub]', or load a folder"
        raise PackageError(f"{repo}: huggingface_hub is not installed; {advice}") from error
    with _explained(repo, revision, cached):
        folder = Path(
            huggingface_hub.snapshot_download(
                repo,
                repo_type="kernel",
                revision=revision,
                allow_patterns=[FILES],
                local_files_only=cached,
            )
        )
    return folder, folder.name


@contextmanager
def _explained(repo: str, revision: str, cached: bool) -> Iterator[None]:
    """Turns what the client raises into our error, with what helps."""
    from huggingface_hub import errors

    def error(what: str, advice: str) -> PackageError:
        return PackageError(f"{repo} at {revision}: {what}; {advice}")

    login = "`hf auth login` or the variable HF_TOKEN names you to the hub"
    try:
        yield
    except errors.GatedRepoError as cause:
        raise error("access is restricted", f"ask for it on the repository's page; {login}") from cause
    except errors.RepositoryNotFoundError as cause:
        raise error("no such repository, or a private one", f"check the name; {login}") from cause
    except errors.RevisionNotFoundError as cause:
        raise error(
            "no such revision", "versions are branches v1, v2, ...; a commit has 40 digits"
        ) from cause
    except errors.LocalEntryNotFoundError as cause:
        if cached:
            raise error("not in the cache", "`registry lock --check` fetches it") from cause
        if isinstance(cause.__cause__, errors.OfflineModeIsEnabled):
            what, advice = "HF_HUB_OFFLINE is set", "unset it"
        else:
            what, advice = "the hub cannot be reached", "connect once to fetch it"
        raise error(f"not in the cache, and {what}", f"{advice}, or load a folder") from cause
    except (OSError, ValueError, errors.EntryNotFoundError) as cause:
        reason = " ".join(str(cause).split())[:200] or type(cause).__name__
        raise error(f"the hub's client failed ({reason})", "try again, or load a folder") from cause
