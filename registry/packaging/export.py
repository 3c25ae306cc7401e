"""Writes an op as a published package: manifest, templates, cases, metadata with digests, and a card."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import ContractError, PackageError
from ..files import sha256_base64
from ..language.includes import included
from ..loading.loader import Dialect
from ..manifest import Manifest
from ..opinfo import Op
from .card import readme
from .metadata import DIALECTS, TEMPLATE_SUFFIXES
from .metadata import NAME as METADATA
from .reading import load_package
from .test_json_writing import write_cases
from .writing import Writer, published, write_1_0

if TYPE_CHECKING:
    from ..api import Registry

PLACE = "build/webgpu"


def export_op(registry: Registry, op: Op, folder: Path, dialect: str) -> Op:
    """Writes an op of ours into a folder, which must be empty or not be there, and loads it from there.

    The package has the dtypes and variants that the dialects know; rules of the contract become conditions.

    Raises:
        ContractError: an unknown dialect.
        PackageError: the folder is not empty or cannot be written; the op has no templates for WebGPU, or
            something that the dialect cannot say.
    """
    known: Dialect | None = next((each for each in DIALECTS if each == dialect), None)
    if known is None:
        raise ContractError(f"dialect is {dialect!r}; needed: {' or '.join(DIALECTS)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PackageError(f"{folder}: not empty; needed: a folder that is empty or not there yet")
    manifest = published(op)
    templates = _templates(registry, op, manifest)
    names = {spec.role: spec.role if known == "1.0" else spec.arg for spec in (*op.inputs, *op.outputs)}
    if known == "1.0":
        document = write_1_0(manifest)
    else:
        writer = Writer(op, manifest, templates)
        templates = {name: writer.template(text) for name, text in templates.items()}
        document = writer.document()
    files = {
        "manifest.json": _json(document),
        "test.json": _json(write_cases(registry, op, names)),
        **templates,
    }
    metadata = _metadata(op, manifest, known, files, templates)
    everything = {f"{PLACE}/{name}": text for name, text in {**files, METADATA: _json(metadata, 2)}.items()}
    everything["README.md"] = readme(op, manifest, sorted(everything))
    try:
        for name, text in everything.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)  # half a package, where nothing was
        raise PackageError(f"{folder}: cannot be written ({error})") from error
    return load_package(folder)


def _templates(registry: Registry, op: Op, manifest: Manifest) -> dict[str, str]:
    """Every template the variants name, and what they include, by path."""
    found: dict[str, str] = {}
    pending = sorted({item.template for variant in manifest.variants for item in variant.passes})
    backends = registry.catalog.plugins.backends.values()
    while pending:
        name = pending.pop(0)
        text = next((t for t in (b.template(op, name) for b in backends) if t is not None), None)
        if text is None or not name.endswith(TEMPLATE_SUFFIXES):
            raise PackageError(f"{op.id}: no backend has the WGSL template {name!r}")
        found[name] = text
        pending += [each for each in included(name, text) if each not in (*found, *pending)]
    return found


def _metadata(
    op: Op, manifest: Manifest, dialect: Dialect, files: dict[str, str], templates: dict[str, str]
) -> dict[str, Any]:
    identity = op.id.replace("::", ".")
    digests = {name: sha256_base64(text.encode()) for name, text in sorted(files.items())}
    stamp = "".join(c for c in digests["manifest.json"].lower() if c in "0123456789abcdef")[:7]
    webgpu: dict[str, Any] = {"manifestSpec": dialect, "specialized": True}
    if dialect == "2.1":
        webgpu["variants"] = {
            variant.id: _reached([item.template for item in variant.passes], templates)
            for variant in manifest.variants
        }
    return {
        "name": identity,
        "id": f"_{identity.lower().replace('.', '_')}_webgpu_{stamp}",
        "version": 1,
        "license": "Apache-2.0",
        "backend": {"type": "webgpu"},
        "digest": {"algorithm": "sha256", "files": digests},
        "provenance": {"generator": f"kernel-registry {__version__}"},
        "webgpu": webgpu,
    }


def _reached(names: list[str], templates: dict[str, str]) -> list[str]:
    """The templates of a variant with all that they include."""
    found = list(dict.fromkeys(names))
    for name in found:  # grows while it is read
        found += [each for each in included(name, templates[name]) if each not in found]
    return sorted(found)


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False) + "\n"
