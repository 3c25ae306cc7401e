"""``metadata.json``: which op and dialect a package holds, and the digest of each of its files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import PackageError
from ..loading.loader import Dialect
from ..manifest import Manifest

NAME = "metadata.json"
DIALECTS: tuple[Dialect, ...] = ("1.0", "2.1")
TEMPLATE_SUFFIXES = (".wgsl", ".wgsl.jinja")

_PATH = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")


@dataclass(frozen=True)
class Metadata:
    """What ``metadata.json`` says. ``variants`` has the templates of each variant; dialect 1.0 has none."""

    name: str
    dialect: Dialect
    digests: Mapping[str, str]
    variants: Mapping[str, tuple[str, ...]] | None


def parse_metadata(text: str, file: str) -> Metadata:
    """The metadata in a text; ``file`` names it in errors.

    Raises:
        PackageError: no JSON, no package for WebGPU, an unknown dialect, no digests by sha256.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PackageError(f"{file}: not JSON ({error})") from error
    name = _need(document, ("name",), str, file)
    kind = _need(document, ("backend", "type"), str, file)
    if kind != "webgpu":
        raise PackageError(f"{file}: backend.type is {kind!r}; needed: 'webgpu'")
    wanted = _need(document, ("webgpu", "manifestSpec"), str, file)
    dialect = next((known for known in DIALECTS if known == wanted), None)
    if dialect is None:
        known = ", ".join(DIALECTS)
        raise PackageError(f"{file}: webgpu.manifestSpec is {wanted!r}; this version reads {known}")
    algorithm = _need(document, ("digest", "algorithm"), str, file)
    if algorithm != "sha256":
        raise PackageError(f"{file}: digest.algorithm is {algorithm!r}; needed: 'sha256'")
    digests = _need(document, ("digest", "files"), dict, file)
    for path, value in digests.items():
        if not _PATH.fullmatch(path) or ".." in path or not isinstance(value, str):
            raise PackageError(f"{file}: digest.files has {path!r}: {value!r}; needed: path and digest")
    if "manifest.json" not in digests:
        raise PackageError(f"{file}: digest.files lacks manifest.json")
    variants = _variants(document, digests, file) if dialect == "2.1" else None
    return Metadata(name, dialect, digests, variants)


def _variants(document: Any, digests: Mapping[str, str], file: str) -> dict[str, tuple[str, ...]]:
    found = _need(document, ("webgpu", "variants"), dict, file)
    if not found:
        raise PackageError(f"{file}: webgpu.variants is empty; needed: templates by variant")
    for variant, paths in found.items():
        if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
            raise PackageError(f"{file}: webgpu.variants.{variant} is {paths!r}; needed: a list of templates")
        for path in paths:
            if path not in digests or not path.endswith(TEMPLATE_SUFFIXES):
                needed = "templates that digest.files lists"
                raise PackageError(f"{file}: webgpu.variants.{variant} names {path!r}; needed: {needed}")
    return {variant: tuple(paths) for variant, paths in found.items()}


def check_metadata(metadata: Metadata, manifest: Manifest, file: str) -> None:
    """Checks that metadata and manifest speak of one op and of the same variants.

    Raises:
        PackageError: they do not.
    """
    identity = f"{manifest.domain}.{manifest.name}"
    if metadata.name != identity:
        raise PackageError(f"{file}: name is {metadata.name!r}; the manifest's op is {identity!r}")
    if metadata.variants is None:
        return
    needed = {variant.id: {item.template for item in variant.passes} for variant in manifest.variants}
    for variant in sorted(needed.keys() ^ metadata.variants.keys()):
        where = "the manifest" if variant in metadata.variants else "webgpu.variants"
        raise PackageError(f"{file}: variant {variant!r} is not in {where}")
    for variant, templates in needed.items():
        if missing := sorted(templates - set(metadata.variants[variant])):
            raise PackageError(f"{file}: webgpu.variants.{variant} lacks {missing[0]!r}")


def _need(document: Any, path: tuple[str, ...], kind: type, file: str) -> Any:
    value = document
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, kind):
        what = "a text" if kind is str else "an object"
        raise PackageError(f"{file}: {'.'.join(path)} is {value!r:.60}; needed: {what}")
    return value
