"""An operator: its manifest, where it came from, and quick ways into both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from .manifest import Arg, Manifest, Port, Variant


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of an op: ONNX name (``role``), calling name (``arg``) and what it may be."""

    role: str
    arg: str
    dtype: str | None
    required: bool
    shape: str | list[int | str] | None
    description: str


@dataclass(frozen=True)
class Origin:
    """Where a package was fetched from: the repository, its version if one was asked for, and the commit."""

    repo: str
    version: int | None
    revision: str

    def __str__(self) -> str:
        version = f"v{self.version}, " if self.version is not None else ""
        return f"{self.repo} ({version}{self.revision})"

    @property
    def short(self) -> str:
        """The same with twelve digits of the commit."""
        return str(replace(self, revision=self.revision[:12]))


@dataclass(frozen=True)
class Package:
    """Where a loaded package lies, and its templates by file name.

    ``digests`` has the SHA-256 (base64) of every file that was read, ``listed`` what ``metadata.json`` says
    of all files, None without it; ``dialect`` is how the manifest is written; ``within`` is where links may
    lead. ``origin`` is None for a folder of the caller's.
    """

    folder: Path
    templates: Mapping[str, str]
    digests: Mapping[str, str]
    listed: Mapping[str, str] | None
    dialect: str
    within: Path
    origin: Origin | None = None

    @property
    def provenance(self) -> str:
        """Where it comes from, and whether its digests were checked."""
        return f"{self.origin or self.folder}{', no digests' if self.listed is None else ''}"


@dataclass(frozen=True, eq=False, repr=False)
class Op:
    """An operator the registry knows: a manifest, where it came from, and quick ways into it."""

    manifest: Manifest
    file: str
    package: Package | None = None

    def __repr__(self) -> str:
        return f"<op {self.id} from {self.file}>"

    @cached_property
    def id(self) -> str:
        """``domain::Name``."""
        return f"{self.manifest.domain}::{self.manifest.name}"

    @cached_property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Input tensors in manifest order."""
        return _tensors(self.manifest, self.manifest.inputs)

    @cached_property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Output tensors in manifest order."""
        return _tensors(self.manifest, self.manifest.outputs)

    @cached_property
    def input_names(self) -> Mapping[str, str]:
        """Every name an input goes by, calling name and role, to its role."""
        return _roles(self.inputs)

    @cached_property
    def output_names(self) -> Mapping[str, str]:
        """Every name an output goes by, to its role."""
        return _roles(self.outputs)

    @cached_property
    def scalars(self) -> Mapping[str, Arg]:
        """Scalar arguments by name."""
        return {name: arg for name, arg in self.manifest.args.items() if arg.kind != "tensor"}

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        """Defaults of attributes; ``attribute_names`` has those without one, too."""
        return self.manifest.attributes

    @cached_property
    def attribute_names(self) -> tuple[str, ...]:
        """Every attribute, with a default or without."""
        return (*self.manifest.attributes, *self.manifest.attribute_names)

    @cached_property
    def tunables(self) -> Mapping[str, int | float | bool | str]:
        """Defaults of the manifest's tunables and of those that only variants have."""
        own = [variant.tunables for variant in self.manifest.variants]
        return {
            name: value for tunables in (*own, self.manifest.tunables) for name, value in tunables.items()
        }

    @cached_property
    def variants(self) -> Mapping[str, Variant]:
        """Manifest variants by id, in manifest order."""
        return {variant.id: variant for variant in self.manifest.variants}

    def allowed_dtypes(self, dtype: str | None) -> tuple[str, ...]:
        """The dtypes a port's ``dtype`` (a type variable or a dtype) admits; () is any."""
        if dtype is None:
            return ()
        constraints = self.manifest.type_constraints
        return tuple(constraints[dtype]) if dtype in constraints else (dtype,)


def _roles(specs: tuple[TensorSpec, ...]) -> dict[str, str]:
    return {**{spec.arg: spec.role for spec in specs}, **{spec.role: spec.role for spec in specs}}


def _tensors(manifest: Manifest, ports: list[Port]) -> tuple[TensorSpec, ...]:
    calling = {arg.semantic: (name, arg) for name, arg in manifest.args.items() if arg.kind == "tensor"}
    specs = []
    for port in ports:
        name, arg = calling.get(port.role, (port.role, None))
        required = arg.required if arg is not None else not port.optional
        specs.append(TensorSpec(port.role, name, port.dtype, required, port.shape, port.description))
    return tuple(specs)
