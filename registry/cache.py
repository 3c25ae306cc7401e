"""Where results that outlive a process are kept, and how a file gets there: whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

VARIABLE = "REGISTRY_CACHE_DIR"


def cache_folder() -> Path:
    """``REGISTRY_CACHE_DIR``, else ``kernel-registry`` in the platform's folder for caches.

    That is ``XDG_CACHE_HOME`` where it is set, ``%LOCALAPPDATA%`` on Windows, ``~/Library/Caches`` on macOS,
    and ``~/.cache`` elsewhere.
    """
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given)
    default = {"win32": os.environ.get("LOCALAPPDATA", "~/AppData/Local"), "darwin": "~/Library/Caches"}
    root = os.environ.get("XDG_CACHE_HOME") or default.get(sys.platform, "~/.cache")
    return Path(os.path.expanduser(root)) / "kernel-registry"


def write_whole(file: Path, data: bytes | memoryview, mode: int = 0o600) -> None:
    """Writes a file so that a reader, at any time, finds all of the old content or all of the new; so does
    whoever looks after the process was killed.

    Raises:
        OSError: the folder cannot be made or written to.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".draft-", delete=False) as draft:
        try:
            draft.write(data)
            draft.close()
            os.chmod(draft.name, mode)
            os.replace(draft.name, file)
        except BaseException:
            draft.close()
            with suppress(OSError):
                os.unlink(draft.name)
            raise


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
