"""Reads a bundle, which may come from anywhere: within bounds, and never trusting what it says of itself."""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from ..calling.arrays import NumpyArray
from ..dtypes import DTYPES, numpy_dtype
from ..errors import ContractError, PackageError, shorten
from ..judging.accuracy import Expected
from ..text import json_depth
from .bundle import FORMAT, INDEX, Array, Bundle, array_of

MAX_BYTES = 2**31 - 1
"""More than a bundle can have without the format's extension for large archives."""

MAX_INDEX_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 32
MAX_MEMBERS = 4096
MAX_DIRECTORY_BYTES = 1024 * 1024

_NAME = re.compile(r"(?:expected|found|inputs|sources|touched)/[0-9]{1,4}")
_END = struct.Struct("<4s4H2LH")  # the end record of a zip archive without a comment
_LARGE = b"PK\x06\x07"  # what stands before it in archives with the extension for large ones


@dataclass(frozen=True)
class Opened:
    """A bundle that was read: its index, and its members by name, each as long as the index says."""

    path: Path
    index: Bundle
    members: dict[str, bytes]

    def array(self, stored: Array) -> NumpyArray:
        """An array of the bundle, read-only.

        Raises:
            PackageError: its bytes are not those of such an array.
        """
        if stored.dtype not in DTYPES:
            raise _no(self.path, f"an array of dtype {shorten(stored.dtype, 40)!r}")
        dtype, data = numpy_dtype(stored.dtype), self.members.get(stored.file)
        if data is None:
            raise _no(self.path, f"an array in {shorten(stored.file, 40)!r}, which is not there")
        if math.prod(stored.shape) * dtype.itemsize != len(data):
            what = f"{stored.dtype}{shorten(str(list(stored.shape)), 80)}"
            raise _no(self.path, f"{len(data)} bytes for {what} in {stored.file}")
        try:
            return array_of(data, stored.shape, dtype)
        except ValueError as error:
            raise _no(self.path, f"an impossible array ({error})") from error

    def expected(self) -> dict[str, Expected] | None:
        """The right answers by output; None where the op has no reference.

        Raises:
            PackageError: an answer is not float64, or its parts do not fit together.
        """
        if self.index.expected is None:
            return None
        found = {}
        for role, answer in self.index.expected.items():
            value, magnitude, floor = map(self.array, (answer.value, answer.magnitude, answer.floor))
            for each in (value, magnitude, floor):
                fits = len(each.shape) <= len(value.shape) and all(
                    size in (1, whole)
                    for size, whole in zip(each.shape[::-1], value.shape[::-1], strict=False)
                )
                if each.dtype != "float64" or not fits:
                    raise _no(self.path, f"an answer for {shorten(role, 40)!r} of another form")
            found[role] = Expected(value, magnitude, floor)
        return found


def read_bundle(path: Path) -> Opened:
    """Opens a bundle and checks every member against its digest.

    Raises:
        ContractError: there is no such file, or it cannot be read.
        PackageError: it is no bundle, or it is damaged, truncated or made to deceive.
    """
    try:
        if not path.is_file():
            raise ContractError(f"{path}: no such file; needed: a bundle of `registry compare --save`")
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            _check_end(path, stream, size)
            with zipfile.ZipFile(stream) as archive:
                _check_members(path, archive, size)
                index = _index(path, archive.read(INDEX))
                names = {info.filename for info in archive.infolist()} - {INDEX}
                if names != set(index.files):
                    odd = ", ".join(sorted(names ^ set(index.files))[:3])
                    raise _no(path, f"other files than its index has: {shorten(odd, 120)}")
                members = {name: archive.read(name) for name in sorted(names)}
    except (zipfile.BadZipFile, NotImplementedError, EOFError, struct.error) as error:
        raise _no(path, f"a damaged archive ({error})") from error
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, ContractError):
            raise
        raise ContractError(f"{path}: cannot be read ({error})") from error
    for name, data in members.items():
        found = hashlib.sha256(data).hexdigest()
        if found != index.files[name]:
            raise _no(path, f"{name} with sha256 {found}; its index says {shorten(index.files[name], 64)}")
    return Opened(path, index, members)


def _check_end(path: Path, stream: BinaryIO, size: int) -> None:
    """Bounds the list of members before anything makes objects of it."""
    if size > MAX_BYTES:
        raise _no(path, f"{size} bytes; at most {MAX_BYTES} are read")
    tail = min(size, _END.size + 20)
    stream.seek(size - tail)
    data = stream.read(tail)
    if len(data) < _END.size:
        raise _no(path, f"{size} bytes")
    mark, *_, count, listed, _, comment = _END.unpack(data[-_END.size :])
    if mark != b"PK\x05\x06" or comment:
        raise _no(path, "no end of a zip archive: truncated, or something else")
    if count > MAX_MEMBERS or listed > MAX_DIRECTORY_BYTES or data[:4] == _LARGE:
        raise _no(path, f"a list of {count} files in {listed} bytes; at most {MAX_MEMBERS} are read")


def _check_members(path: Path, archive: zipfile.ZipFile, size: int) -> None:
    seen: set[str] = set()
    total = 0
    for info in archive.infolist():
        shown = shorten(info.filename, 60)
        if info.filename != INDEX and not _NAME.fullmatch(info.filename):
            raise _no(path, f"a file called {shown!r}")
        if info.filename in seen:
            raise _no(path, f"{shown} twice")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise _no(path, f"{shown}, which is compressed; a bundle's files are stored as they are")
        if info.flag_bits & 1:
            raise _no(path, f"{shown}, which is encrypted")
        seen.add(info.filename)
        total += info.file_size
        if info.filename == INDEX and info.file_size > MAX_INDEX_BYTES:
            raise _no(path, f"an index of {info.file_size} bytes; at most {MAX_INDEX_BYTES} are read")
    if total > size:
        raise _no(path, f"files of {total} bytes in an archive of {size}")
    if INDEX not in seen:
        raise _no(path, f"no {INDEX}")


def _index(path: Path, data: bytes) -> Bundle:
    try:
        text = data.decode("utf-8")
        if json_depth(text) > MAX_DEPTH:
            raise _no(path, f"an index of more than {MAX_DEPTH} levels")
        document = json.loads(text)
        if isinstance(document, dict) and (document.get("format"), document.get("version")) != (FORMAT, 1):
            said = shorten(f"{document.get('format')!r}, version {document.get('version')!r}", 80)
            raise _no(path, f"{said}; needed: {FORMAT!r}, version 1")
        return msgspec.convert(document, Bundle)
    except (ValueError, RecursionError) as error:  # msgspec's ValidationError is a ValueError
        raise _no(path, f"an invalid index ({shorten(str(error), 200)})") from error


def told(text: str, width: int) -> str:
    """A text of a bundle as it may be printed: short, and without anything that a terminal would obey."""
    return "".join(each if each.isprintable() else "?" for each in shorten(text, width))


def _no(path: Path, found: str) -> PackageError:
    return PackageError(f"{path} is no bundle that can be used: it has {told(found, 300)}")
