"""The files of a package folder: read within bounds, never outside it, each held against its digest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..errors import PackageError, shorten
from ..files import sha256_base64

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_FILES = 512
MAX_BYTES = 32 * 1024 * 1024  # of all files together


class Files:
    """Reads the files of a package.

    ``root`` is the folder with the manifest; ``within`` is where links may lead, by default the same folder.
    ``expected`` are the digests that files must have, None until they are known; ``found`` those of every
    file that was read.
    """

    def __init__(self, root: Path, within: Path | None = None):
        self.root = root
        self.within = (within or root).resolve()
        self.expected: Mapping[str, str] | None = None
        self.found: dict[str, str] = {}
        self._bytes_read = 0

    def has(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return (self.root / name).is_file()

    def text(self, name: str) -> str:
        """The text of a file.

        Raises:
            PackageError: it is missing, lies outside, is too large, differs from its digest or is no UTF-8;
                names it.
        """
        data = self._bytes(name)
        path = self.root / name
        found = self.found[name] = sha256_base64(data)
        if self.expected is not None and self.expected.get(name) != found:
            said = self.expected.get(name, "nothing of it")
            raise PackageError(f"{path}: sha256 is {found}; metadata.json says {said}")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise PackageError(f"{path}: not UTF-8 ({error})") from error

    def _bytes(self, name: str) -> bytes:
        root = self.root
        try:
            path = (root / name).resolve()
            path.exists()
        except (
            ValueError,
            OSError,
            RuntimeError,
        ) as error:  # a zero byte, a long name, links in a circle
            raise PackageError(f"{root}: {shorten(name, 60)!r} is no file name ({error})") from error
        # The name itself must not climb, whatever links may do.
        if ".." in Path(name).parts or Path(name).is_absolute() or not path.is_relative_to(self.within):
            raise PackageError(f"{root}: {name!r} lies outside the package")
        if not path.is_file():
            raise PackageError(
                f"{root}: {name} is missing; metadata.json, the manifest or a template names it"
            )
        if len(self.found) >= MAX_FILES:
            raise PackageError(f"{root}: more than {MAX_FILES} files")
        try:
            with path.open("rb") as stream:
                data = stream.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise PackageError(f"{root / name}: cannot be read ({error})") from error
        if len(data) > MAX_FILE_BYTES:
            raise PackageError(f"{root / name}: over {MAX_FILE_BYTES} bytes")
        self._bytes_read += len(data)
        if self._bytes_read > MAX_BYTES:
            raise PackageError(f"{root}: its files have over {MAX_BYTES} bytes together")
        return data
