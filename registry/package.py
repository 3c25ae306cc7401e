"""Published packages: a folder with a manifest and its templates, run under the same roof as our own ops."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import PackageError, shorten
from .language.includes import included
from .language.templates import TemplateError
from .loading.loader import parse_package_manifest
from .manifest import Manifest
from .opinfo import Op, Origin, Package
from .packaging.files import Files
from .packaging.metadata import NAME as METADATA
from .packaging.metadata import TEMPLATE_SUFFIXES, check_metadata, parse_metadata
from .text import odd_character

if TYPE_CHECKING:
    from .api import Registry
    from .cards.card import Card
    from .comparing.report import Report
    from .decision import Decision
    from .hookspecs import Finding, RenderedPass
    from .measuring.benchmark import Benchmark
    from .measuring.tuning import Tuning
    from .plan import Plan
    from .symbols import Shape


class Handle:
    """A loaded package as a callable op. Its candidates are its own variants only.

    ``op`` is the op with its manifest, ``id`` its name, ``package`` where it comes from. Calling the handle
    runs it; the other methods are those of the registry without the op's name.
    """

    def __init__(self, registry: Registry, op: Op):
        self._registry = registry
        self.op = op
        self.id = op.id
        assert op.package is not None
        self.package: Package = op.package

    def __call__(self, /, *tensors: Any, **named: Any) -> Any:
        """See ``Registry.run``."""
        return self._registry.run(self.op, *tensors, **named)

    run = __call__

    def card(self, *, results: str | Path | None = None) -> Card:
        """See ``Registry.card``."""
        return self._registry.card(self.op, results=results)

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
        return f"<package {self.id} from {self.package.provenance}>"


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
