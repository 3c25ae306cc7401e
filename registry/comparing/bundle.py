"""A bundle: one case of a comparison in one file, with all that it takes to run it again elsewhere.

It is a zip archive whose members are stored, not compressed, so that it never unpacks to more than its own
size. ``bundle.json`` is a `Bundle`; the other members are arrays, as the bytes of their elements (C order,
little-endian), and sources, as UTF-8. docs/comparing.md describes the format.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from ..calling.arrays import NumpyArray
from ..errors import ContractError, first_line
from ..files import write_whole
from ..opinfo import Op
from .records import CaseReport, Evidence, plain
from .report import Report

FORMAT = "kernel-registry bundle"
INDEX = "bundle.json"


class BundleRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the objects of ``bundle.json``."""


class Array(BundleRecord, frozen=True):
    """An array: ``file`` is the member with its bytes."""

    shape: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0)], ...], msgspec.Meta(max_length=32)]
    dtype: str
    file: str


class Answer(BundleRecord, frozen=True):
    """The right answer of an output in float64, as `registry.judging.accuracy.Expected`."""

    value: Array
    magnitude: Array
    floor: Array


class Source(BundleRecord, frozen=True):
    """A pass as it was rendered; ``file`` is the member with its text."""

    id: str
    shader: str
    language: str
    dispatch: tuple[int, int, int]
    constants: dict[str, Any]
    uniforms: dict[str, Any]
    file: str


class Rendered(BundleRecord, frozen=True):
    """A backend's variant, what it was rendered to, or why it could not be."""

    backend: str
    variant: str
    passes: list[Source]
    error: str = ""


class Found(BundleRecord, frozen=True):
    """One output of one candidate: whether it was right, the worst of it, the digest of its bits, and they
    themselves, where there was room. ``error`` says why there is none."""

    backend: str
    variant: str
    output: str
    ok: bool
    finding: str
    error: str
    digest: str
    verdict: dict[str, Any] | None
    array: Array | None


class Bundle(BundleRecord, frozen=True, kw_only=True):
    """What ``bundle.json`` holds.

    Attributes:
        op: the op's id; ``package`` is where it comes from if it is a package's, else empty.
        manifest: SHA-256 of the op's manifest, or of all digests of its package.
        request: the request as text; ``attrs``, ``args``, ``tunables``, ``outputs`` and ``inputs`` make it.
        device: the device that the call named; null if none.
        against: by what results were judged.
        expected: the right answers by output; null where the op has no reference.
        fair: whether elements that nobody promises anything for were left out; ``touched`` marks them.
        tolerances: the tolerances, by dtype.
        found: the results, in the order in which candidates ran.
        decisions: why these candidates, as `registry explain --json` says it.
        candidates: their rendered sources.
        system: date, machine, versions, devices.
        files: SHA-256 of every other member.
    """

    format: Literal["kernel-registry bundle"] = "kernel-registry bundle"
    version: Literal[1] = 1
    op: str
    package: str
    manifest: str
    request: str
    device: str | None
    attrs: dict[str, Any]
    args: dict[str, Any]
    tunables: dict[str, Any]
    outputs: list[str]
    inputs: dict[str, Array]
    against: str
    expected: dict[str, Answer] | None
    fair: bool
    touched: dict[str, Array]
    tolerances: dict[str, dict[str, float]]
    found: list[Found]
    decisions: list[dict[str, Any]]
    candidates: list[Rendered]
    system: dict[str, Any]
    files: dict[str, str]


def write_bundle(report: Report, case: CaseReport, path: Path) -> None:
    """Writes a case of a report, which must have its evidence. A file that is there is replaced.

    Raises:
        ContractError: the file cannot be written.
    """
    evidence = case.evidence
    assert evidence is not None
    members = _Members()
    bundle = _bundle(report, case, evidence, members)
    stream = io.BytesIO()
    try:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
            text = json.dumps(msgspec.to_builtins(bundle), indent=1)
            for name, data in {INDEX: text.encode(), **members.data}.items():
                archive.writestr(zipfile.ZipInfo(name), data)
        write_whole(path, stream.getbuffer())
    except (OSError, zipfile.LargeZipFile) as error:
        raise ContractError(f"{path}: the bundle cannot be written ({error})") from error


def _bundle(report: Report, case: CaseReport, evidence: Evidence, members: _Members) -> Bundle:
    request, judge = evidence.request, evidence.judge
    expected = None
    if judge.expected is not None:
        expected = {
            role: Answer(*(members.add("expected", part) for part in (e.value, e.magnitude, e.floor)))
            for role, e in judge.expected.items()
            if role in request.asked
        }
    inputs = {role: members.add("inputs", array) for role, array in evidence.inputs.items()}
    arrays = {digest: members.add("found", value) for digest, value in evidence.found.items()}
    touched = {role: members.add("touched", mask) for role, mask in judge.touched.items()}
    found = [
        Found(
            row.backend,
            row.variant,
            row.output,
            row.ok,
            row.finding,
            row.error,
            row.digest,
            plain(asdict(row.verdict)) if row.verdict else None,
            arrays.get(row.digest),
        )
        for row in case.rows
    ]
    places = dict.fromkeys(row.candidate for row in case.rows)
    candidates = [_candidate(evidence, *place, members) for place in places]
    return Bundle(
        op=evidence.op.id,
        package=evidence.op.package.provenance if evidence.op.package else "",
        manifest=manifest_digest(evidence.op),
        request=case.request,
        device=evidence.device,
        attrs=dict(request.attrs),
        args=dict(request.args),
        tunables=dict(request.tunables),
        outputs=list(request.asked),
        inputs=inputs,
        against=case.against,
        expected=expected,
        fair=judge.fair,
        touched=touched,
        tolerances={dtype: asdict(allowed) for dtype, allowed in judge.tolerances.items()},
        found=found,
        decisions=[plain(decision.as_dict()) for decision in case.decisions],
        candidates=candidates,
        system=plain(report.system),
        files=members.digests,
    )


def _candidate(evidence: Evidence, backend: str, variant: str, members: _Members) -> Rendered:
    try:
        passes = rendered(evidence, backend, variant)
    except Exception as error:  # a stranger's render
        return Rendered(backend, variant, [], first_line(error))
    return Rendered(
        backend,
        variant,
        [
            Source(
                item.id,
                item.shader,
                item.language,
                (item.dispatch[0], item.dispatch[1], item.dispatch[2]),
                plain(item.constants),
                plain(item.uniforms),
                members.put("sources", item.source.encode()),
            )
            for item in passes
        ],
    )


def rendered(evidence: Evidence, backend: str, variant: str) -> Any:
    """Every pass that a candidate runs for a case, as `registry.render` gives it."""
    return evidence.registry.render(
        evidence.op,
        **evidence.request.args,
        inputs=evidence.inputs,
        attrs=evidence.request.attrs,
        outputs=evidence.request.asked,
        tunables=evidence.request.tunables,
        backend=backend,
        variant=variant,
        device=evidence.device,
    )


def manifest_digest(op: Op) -> str:
    """The SHA-256 of an op's manifest, or of the digests of all files of its package; empty if it is gone."""
    if op.package is not None:
        text = json.dumps(sorted(op.package.digests.items()))
        return hashlib.sha256(text.encode()).hexdigest()
    with suppress(OSError):
        return hashlib.sha256(Path(op.file).read_bytes()).hexdigest()
    return ""


def array_bytes(array: NumpyArray) -> bytes:
    """The elements' bytes, in C order and little-endian."""
    kept = np.ascontiguousarray(array).reshape(array.shape)
    return kept.view(f"u{array.dtype.itemsize}").astype(f"<u{array.dtype.itemsize}", copy=False).tobytes()


def array_of(data: bytes, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NumpyArray:
    """The array of such bytes, read-only. A ValueError where they do not fit."""
    kept = np.frombuffer(data, f"<u{dtype.itemsize}").astype(f"=u{dtype.itemsize}", copy=False)
    array = (kept != 0) if dtype.kind == "b" else kept.view(dtype)
    return array.reshape(shape)


class _Members:
    """The members of an archive beside its index, one for each content."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self._names: dict[tuple[str, str], str] = {}

    def put(self, folder: str, data: bytes) -> str:
        """The name of the member with these bytes."""
        key = (folder, hashlib.sha256(data).hexdigest())
        if key not in self._names:
            self._names[key] = f"{folder}/{sum(name[0] == folder for name in self._names)}"
            self.data[self._names[key]] = data
        return self._names[key]

    def add(self, folder: str, array: NumpyArray) -> Array:
        """An array, its bytes put into a member."""
        array = np.asarray(array)
        return Array(array.shape, array.dtype.name, self.put(folder, array_bytes(array)))

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 by member."""
        return {name: digest for (_, digest), name in self._names.items()}
