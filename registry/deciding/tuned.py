"""Measured choices: what they hold for, where they are kept, and when they are out of date.

One file holds one choice. Its name is a digest of what the choice holds for: the op, the class of requests,
the machine, and the devices and drivers of the backends that were measured. In it is a digest of the sources
that were measured, of the manifest and of versions; where that has changed, the choice is ignored.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..calling.parts import split_rows
from ..errors import RegistryWarning
from ..files import write_whole
from ..hookspecs import Claim
from ..system import machine

if TYPE_CHECKING:
    from ..calling.request import Request
    from ..catalog import Catalog
    from .decide import Offer

FORMAT = 1


@dataclass(frozen=True)
class TunedVariant:
    """A backend's variant with tunables that differ from their defaults."""

    backend: str
    variant: str
    tunables: Mapping[str, int | float | bool | str] = field(default_factory=dict)

    @property
    def settings(self) -> str:
        """The tunables as text."""
        return " ".join(f"{name}={value}" for name, value in self.tunables.items())

    def __str__(self) -> str:
        return " ".join(filter(None, (self.backend, self.variant, self.settings)))


@dataclass(frozen=True)
class Choice:
    """What was chosen by measurement, and what the static rules choose.

    ``us`` and ``static_us`` are the median times of a call with each, in microseconds; ``static_us`` is None
    where that could not be measured. ``date`` is the time of the measurement, in UTC, as ISO 8601 has it.
    """

    chosen: TunedVariant
    us: float
    static: TunedVariant
    static_us: float | None
    date: str

    @property
    def day(self) -> str:
        """The date without the time of day."""
        return self.date[:10]

    @property
    def settings(self) -> str:
        """The tunables as text."""
        return self.chosen.settings

    def __str__(self) -> str:
        if self.chosen == self.static:
            return f"chosen by measurement of {self.day}, as by the static rules ({self.us:.1f} us)"
        other = "which failed" if self.static_us is None else f"{self.static_us:.1f} us"
        return f"chosen by measurement of {self.day}: {self.us:.1f} us; static rules: {self.static}, {other}"


@dataclass(frozen=True)
class Entry:
    """A choice as it is kept: with what it holds for, and the digest of what was measured."""

    key: dict[str, Any]
    digest: str
    candidates: tuple[TunedVariant, ...]
    choice: Choice
    format: int = FORMAT


class Store:
    """The measured choices of a folder, one file each. Any number of processes may use it at once."""

    def __init__(self, folder: Path):
        self.folder = folder / "tuned"
        self._digests: dict[str, str] = {}

    def knows(self, op: str) -> bool:
        """Whether there may be a choice for an op."""
        return self._of(op).is_dir()

    def read(self, key: Mapping[str, Any]) -> Entry | None:
        """The entry for a key. One that cannot be read is ignored, with a warning."""
        file = self._file(key)
        entry = _read(file)
        return entry if entry is not None and entry.key == key else None

    def write(self, entry: Entry) -> bool:
        """Keeps an entry in place of the one for its key. False, with a warning, where that cannot be."""
        file = self._file(entry.key)
        try:
            write_whole(file, msgspec.json.format(msgspec.json.encode(entry)), private=True)
        except OSError as error:
            where = "set REGISTRY_CACHE_DIR to a folder that can be written"
            warnings.warn(f"a measured choice is not kept: {error}; {where}", RegistryWarning, stacklevel=2)
            return False
        return True

    def entries(self) -> Iterator[Entry]:
        """Every entry that can be read, in the order of their ops."""
        for file in sorted(self.folder.glob("*/*.json")):
            entry = _read(file)
            if entry is not None:
                yield entry

    def clear(self, op: str | None = None) -> int:
        """Removes the entries of an op, or all; says how many.

        Raises:
            OSError: a file cannot be removed.
        """
        folders = [self._of(op)] if op else list(self.folder.glob("*"))
        count = 0
        for folder in folders:
            for file in folder.glob("*"):
                count += file.suffix == ".json"
                file.unlink(missing_ok=True)
            with suppress(OSError):  # gone, or another process has just written into it
                folder.rmdir()
        return count

    def digest(self, catalog: Catalog, request: Request, entry: Entry, offers: Sequence[Offer]) -> str:
        """The digest of an entry's candidates as they are now; computed once for each entry."""
        name = f"{self._file(entry.key)} {entry.digest}"
        if name not in self._digests:
            self._digests[name] = source_digest(catalog, request, entry.candidates, offers)
        return self._digests[name]

    def _of(self, op: str) -> Path:
        return self.folder / op.replace("::", ".")

    def _file(self, key: Mapping[str, Any]) -> Path:
        text = msgspec.json.encode(key, order="sorted")
        return self._of(key["op"]) / f"{hashlib.sha256(text).hexdigest()[:32]}.json"


def find(catalog: Catalog, request: Request, offers: Sequence[Offer]) -> Choice | None:
    """The measured choice among backends, for requests of this class; None where there is none in date."""
    entry = catalog.store.read(key_of(request, offers))
    if entry is None or entry.digest != catalog.store.digest(catalog, request, entry, offers):
        return None
    return entry.choice


def key_of(request: Request, offers: Sequence[Offer]) -> dict[str, Any]:
    """What a choice among backends holds for, as plain data."""
    devices = {
        offer.backend: [
            offer.availability.name,
            *(f"{k}: {v}" for k, v in offer.availability.details.items()),
        ]
        for offer in offers
    }
    op = request.op
    return {
        "op": op.id,
        **({"package": op.file} if op.package is not None else {}),
        "class": class_of(request),
        "machine": machine(),
        "devices": devices,
    }


def class_of(request: Request) -> dict[str, Any]:
    """The class of a request: what one measurement stands for.

    Each tensor by role with its dtype, the number of its rows rounded up to a power of two, the dimensions of
    a row as they are, and the device it lives on, where it is not the host's; attributes and scalar
    arguments; and the outputs asked for.
    """
    dtypes = {role: tensor.dtype for role, tensor in request.tensors.items()}
    tensors = {}
    for role, (rows, row) in split_rows(request).items():
        rounded = 1 << max(0, rows - 1).bit_length()
        shape = "x".join(map(str, (rounded, *row)))
        where = f" on {request.devices[role].partition(':')[0]}" if role in request.devices else ""
        tensors[role] = f"{dtypes[role]} {shape}{where}"
    return {"tensors": tensors, "settings": {**request.attrs, **request.args}, "outputs": list(request.asked)}


def source_digest(
    catalog: Catalog, request: Request, candidates: Sequence[TunedVariant], offers: Sequence[Offer]
) -> str:
    """A digest of the manifest, of the versions of registry and backends, and of every candidate's source.

    A candidate that is no longer claimed, or cannot be rendered, has none.
    """
    state = hashlib.sha256(msgspec.json.encode(request.op.manifest))
    by_name = {offer.backend: offer for offer in offers}
    for name in sorted(by_name):
        state.update(f"{name} {catalog.version(name)}\n".encode())
    for candidate in candidates:
        offer = by_name[candidate.backend]
        claims = [c for c in offer.claims if isinstance(c, Claim) and c.variant == candidate.variant]
        try:
            tuned = replace(request, tunables=candidate.tunables)
            backend = catalog.backend(candidate.backend)
            passes = [backend.render(tuned, claim, offer.availability) for claim in claims]
            text = repr([item.source for each in passes for item in each])
        except Exception as error:  # a stranger's render
            text = f"{type(error).__name__}: {error}"
        state.update(f"{candidate} {len(claims)} {text}\n".encode())
    return state.hexdigest()


def _read(file: Path) -> Entry | None:
    try:
        entry = msgspec.json.decode(file.read_bytes(), type=Entry)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        advice = "it is ignored; registry tune writes it anew"
        warnings.warn(f"{file} is no measured choice ({error}); {advice}", RegistryWarning, stacklevel=4)
        return None
    return entry if entry.format == FORMAT else None
