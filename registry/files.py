"""Files: where those that outlive a process are kept, how one is written whole or not at all, and digests."""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import ContractError


def cache_folder() -> Path:
    """``REGISTRY_CACHE_DIR``, else ``kernel-registry`` in the platform's folder for caches.

    That is ``XDG_CACHE_HOME`` where it is set, ``%LOCALAPPDATA%`` on Windows, ``~/Library/Caches`` on macOS,
    and ``~/.cache`` elsewhere.
    """
    given = os.environ.get("REGISTRY_CACHE_DIR")
    if given:
        return Path(given)
    default = {"win32": os.environ.get("LOCALAPPDATA", "~/AppData/Local"), "darwin": "~/Library/Caches"}
    root = os.environ.get("XDG_CACHE_HOME") or default.get(sys.platform, "~/.cache")
    return Path(os.path.expanduser(root)) / "kernel-registry"


def path_of(value: object, name: str) -> Path:
    """A path that a caller gives.

    Raises:
        ContractError: it is not a path; ``name`` says of which argument.
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text:
        raise ContractError(f"{name} is {value!r}; needed: a path", argument=name)
    return Path(text)


def sha256_base64(data: bytes) -> str:
    """The SHA-256 of a file as package manifests write it: base64 with padding."""
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def write_whole(file: Path, data: bytes | memoryview, private: bool = False) -> None:
    """Writes a file so that a reader, at any time, finds all of the old content or all of the new; so does
    whoever looks after the process was killed.

    Behind a symbolic link its target is written. A file that is there keeps its permissions; a new one has
    the process's usual ones, or where it is ``private`` those of its owner alone. What is no file, such as
    ``/dev/null`` or a pipe, is written to and stays what it is.

    Raises:
        OSError: the folder cannot be made or written to, or no file can have the name.
    """
    if "\0" in str(file):
        raise OSError(errno.EINVAL, "a name cannot hold a zero byte")
    there = file.exists()
    if there and not file.is_file() and not file.is_dir():  # before its link is followed: a pipe has no name
        with file.open("wb") as device:
            device.write(data)
        return
    file = Path(os.path.realpath(file))
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".draft-", delete=False) as draft:
        try:
            draft.write(data)
            draft.close()
            if not private:
                os.chmod(draft.name, file.stat().st_mode & 0o777 if there else 0o666 & ~_umask())
            os.replace(draft.name, file)
        except BaseException:
            draft.close()
            with suppress(OSError):
                os.unlink(draft.name)
            raise


def _umask() -> int:
    """The process's mask of permissions, where it can be read without setting it."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(status.partition("Umask:")[2].split(maxsplit=1)[0], 8)
    except (OSError, ValueError, IndexError):
        return 0o022


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Keeps other processes that ask for the same folder waiting, so that a file there can be read, changed
    and written back.

    The lock is the folder's own and ends with the process at the latest. Where folders cannot be locked
    (Windows) there is none, and the last process to write wins.

    Raises:
        OSError: the folder cannot be opened.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
