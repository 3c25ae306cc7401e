"""Published packages: a folder with a manifest and its templates, run under the same roof as our own ops."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import PackageError, shorten
from .language.includes import included
from .language.templates import TemplateError
from .loading.loader import parse_manifest
from .op import Op, Package

if TYPE_CHECKING:
    from .benchmark import Benchmark
    from .comparison import Report
    from .decide import Decision
    from .dispatch import Registry
    from .hookspecs import Finding, RenderedPass
    from .plan import Plan
    from .symbols import Shape
    from .tuning import Tuning

TEMPLATE_SUFFIXES = (".wgsl", ".wgsl.jinja")
MAX_FILE_BYTES = 4 * 1024 * 1024


class Handle:
    """A loaded package as a callable op. Its candidates are its own variants only.

    ``op`` is the op with its manifest, ``id`` its name. Calling the handle runs it; the other methods are
    those of the registry without the op's name.
    """

    def __init__(self, registry: Registry, op: Op):
        self._registry = registry
        self.op = op
        self.id = op.id

    def __call__(self, /, *tensors: Any, **named: Any) -> Any:
        """See ``Registry.run``."""
        return self._registry.run(self.op, *tensors, **named)

    run = __call__

    def prepare(self, /, *tensors: Any, **named: Any) -> Plan:
        """See ``Registry.prepare``."""
        return self._registry.prepare(self.op, *tensors, **named)

    def explain(self, /, *tensors: Any, **named: Any) -> Decision:
        """See ``Registry.explain``."""
        return self._registry.explain(self.op, *tensors, **named)

    def render(self, /, *tensors: Any, **named: Any) -> tuple[RenderedPass, ...]:
        """See ``Registry.render``."""
        return self._registry.render(self.op, *tensors, **named)

    def lint(self, /, *tensors: Any, **named: Any) -> dict[str, tuple[Finding, ...]]:
        """See ``Registry.lint``."""
        return self._registry.lint(self.op, *tensors, **named)

    def infer(self, /, *tensors: Any, **named: Any) -> dict[str, tuple[Shape, str]]:
        """See ``Registry.infer``."""
        return self._registry.infer(self.op, *tensors, **named)

    def peak_memory(self, /, *tensors: Any, **named: Any) -> dict[str, int | None]:
        """See ``Registry.peak_memory``."""
        return self._registry.peak_memory(self.op, *tensors, **named)

    def compare(self, /, *tensors: Any, **named: Any) -> Report:
        """See ``Registry.compare``."""
        return self._registry.compare(self.op, *tensors, **named)

    def bench(self, /, *tensors: Any, **named: Any) -> Benchmark:
        """See ``Registry.bench``."""
        return self._registry.bench(self.op, *tensors, **named)

    def tune(self, /, *tensors: Any, **named: Any) -> Tuning:
        """See ``Registry.tune``."""
        return self._registry.tune(self.op, *tensors, **named)

    def __repr__(self) -> str:
        return f"<package {self.id} from {self.op.file}>"


def load_package(folder: Path) -> Op:
    """Reads a package folder, flat or in ``build/webgpu``: ``manifest.json`` and the templates it names.

    Raises:
        PackageError: the folder, the manifest or a template is missing, lies outside the folder, is too
            large, or does not match the digest in ``metadata.json``.
        ManifestError: the manifest is wrong.
    """
    try:
        roots = [r for r in (folder, folder / "build" / "webgpu") if (r / "manifest.json").is_file()]
    except (OSError, ValueError) as error:
        raise PackageError(f"{shorten(str(folder), 60)!r} is no folder name ({error})") from error
    if not roots:
        raise PackageError(f"{folder}: no manifest.json there nor in build/webgpu; needed: a package folder")
    root = roots[0]
    digests = _digests(root)
    text = _read(root, "manifest.json", digests)
    manifest = parse_manifest(text, str(root / "manifest.json"), "json")
    names = {item.template for variant in manifest.variants for item in variant.passes}
    for name in sorted(names):
        if not name.endswith(TEMPLATE_SUFFIXES):
            raise PackageError(f"{root}: template {name!r}; needed: a name ending in .wgsl or .wgsl.jinja")
    templates: dict[str, str] = {}
    pending = sorted(names)
    while pending:
        name = pending.pop(0)
        templates[name] = _read(root, name, digests)
        try:
            pending += [
                each for each in included(name, templates[name]) if each not in (*templates, *pending)
            ]
        except TemplateError as error:
            raise PackageError(f"{root / name}, {error}") from error
    return Op(manifest, str(root / "manifest.json"), Package(root, templates))


def _digests(root: Path) -> Mapping[str, str] | None:
    """The digests by file name, or None when the package carries no metadata."""
    if not (root / "metadata.json").is_file():
        return None
    try:
        metadata = json.loads(_read(root, "metadata.json", None))
        digest = metadata["digest"]
        files = digest["files"]
        known = digest["algorithm"] == "sha256" and all(isinstance(v, str) for v in files.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PackageError(
            f"{root / 'metadata.json'}: {error!r}; needed: digest.algorithm and digest.files"
        ) from error
    if not known:
        raise PackageError(f"{root / 'metadata.json'}: needed: sha256 digests as text")
    return dict(files)


def _read(root: Path, name: str, digests: Mapping[str, str] | None) -> str:
    try:
        path = (root / name).resolve()
        path.exists()
    except (ValueError, OSError) as error:  # a zero byte, a name too long
        raise PackageError(f"{root}: {shorten(name, 60)!r} is no file name ({error})") from error
    if not path.is_relative_to(root.resolve()):
        raise PackageError(f"{root}: {name!r} lies outside the package")
    if not path.is_file():
        raise PackageError(f"{root}: {name} is missing; the manifest or a template names it")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise PackageError(f"{path}: over {MAX_FILE_BYTES} bytes")
    data = path.read_bytes()
    if digests is not None:
        found = base64.b64encode(hashlib.sha256(data).digest()).decode()
        if digests.get(name) != found:
            raise PackageError(f"{path}: sha256 is {found}; metadata.json says {digests.get(name)}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PackageError(f"{path}: not UTF-8 ({error})") from error
