"""Reads a package folder: its manifest and its templates, held against what ``metadata.json`` says."""

from __future__ import annotations

from pathlib import Path

from ..errors import PackageError, shorten
from ..language.includes import included
from ..language.templates import TemplateError
from ..loading.loader import parse_package_manifest
from ..manifest import Manifest
from ..opinfo import Op, Origin, Package
from ..text import odd_character
from .files import Files
from .metadata import NAME as METADATA
from .metadata import TEMPLATE_SUFFIXES, check_metadata, parse_metadata


def load_package(folder: Path, within: Path | None = None, origin: Origin | None = None) -> Op:
    """Reads a package folder, flat or in ``build/webgpu``: the manifest and the templates it names.

    ``metadata.json`` tells the dialect and the digests; without it the manifest's form tells the dialect.
    ``within`` is where links may lead, the folder by default; ``origin`` is where the folder came from.

    Raises:
        PackageError: the folder, the manifest or a template is missing, lies outside the folder, is too
            large, or does not match the digest in ``metadata.json``; metadata and manifest contradict.
        ManifestError: the manifest is wrong.
    """
    try:
        roots = [r for r in (folder, folder / "build" / "webgpu") if (r / "manifest.json").is_file()]
    except (OSError, ValueError) as error:
        raise PackageError(f"{shorten(str(folder), 60)!r} is no folder name ({error})") from error
    if not roots:
        raise PackageError(f"{folder}: no manifest.json there nor in build/webgpu; needed: a package folder")
    root = roots[0]
    files = Files(root, within)
    metadata = None
    if files.has(METADATA):
        metadata = parse_metadata(files.text(METADATA), str(root / METADATA))
        files.expected = metadata.digests
    file = str(root / "manifest.json")
    text = files.text("manifest.json")
    manifest, dialect = parse_package_manifest(text, file, metadata.dialect if metadata else None)
    if metadata is not None:
        check_metadata(metadata, manifest, str(root / METADATA))
    templates = _templates(files, manifest)
    package = Package(root, templates, dict(files.found), files.expected, dialect, files.within, origin)
    return Op(manifest, file, package)


def _templates(files: Files, manifest: Manifest) -> dict[str, str]:
    """Every template that the manifest names, and what they include, by path."""
    names = {item.template for variant in manifest.variants for item in variant.passes}
    for name in sorted(names):
        if not name.endswith(TEMPLATE_SUFFIXES):
            needed = "a name ending in .wgsl or .wgsl.jinja"
            raise PackageError(f"{files.root}: template {name!r}; needed: {needed}")
    templates: dict[str, str] = {}
    pending = dict.fromkeys(sorted(names))
    while pending:
        name = next(iter(pending))
        del pending[name]
        templates[name] = files.text(name)
        odd = odd_character(templates[name])
        if odd is not None:
            raise PackageError(f"{files.root / name}: holds the character {odd}; needed: text without it")
        try:
            pending |= {each: None for each in included(name, templates[name]) if each not in templates}
        except TemplateError as error:
            raise PackageError(f"{files.root / name}, {error}") from error
    return templates
