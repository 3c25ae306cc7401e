"""A manifest as records: one struct per kind of object in the file, immutable, checked by type.

The field names of the file are camelCase; here they are snake_case. Expressions stay text here;
`registry.language.expressions` parses them once.
"""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_float
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec

Value = str | int | float | bool | None | list[Any] | dict[str, Any]
"""An expression (any string), or a literal, or a list or object of those."""


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Base of all objects of a manifest."""


class Port(Record, frozen=True):
    """A tensor of the op under its ONNX name (``role``)."""

    role: str
    dtype: str | None = None
    rank: int | str | None = None
    """Prose: conditions check ranks."""
    optional: bool = False
    shape: str | list[int | str] | None = None
    """Outputs only: the shape as an expression of the inputs."""
    description: str = ""


class Arg(Record, frozen=True):
    """A calling name: of a tensor (``semantic`` names its role) or of a scalar."""

    kind: Literal["tensor", "u32", "i32", "f32", "bool", "string"]
    semantic: str | None = None
    role: Literal["input", "output", "inout", "weights"] | None = None
    required: bool = True
    one_of: list[str] | None = None
    dtype: str | None = None
    description: str = ""


class AttributeConstraint(Record, frozen=True):
    """What an attribute may be. Numbers compare after rounding to float32."""

    required: bool = False
    values: list[str | int | float | bool | None] | None = None

    def allows(self, value: object) -> bool:
        """Whether the attribute may have this value."""
        return self.values is None or any(same_value(value, other) for other in self.values)


def same_value(a: object, b: object) -> bool:
    """Whether two attribute values are the same; numbers are, when their float32 roundings are."""
    if isinstance(a, int | float) and isinstance(b, int | float) and bool not in (type(a), type(b)):
        return c_float(a).value == c_float(b).value
    return type(a) is type(b) and a == b


class BufferType(Record, frozen=True):
    """How a shader sees a buffer."""

    type: Literal["read-only-storage", "storage", "uniform"]


class StructField(Record, frozen=True):
    """A scalar of a uniform struct; four bytes."""

    name: str
    type: Literal["u32", "i32", "f32"]
    value: str | int | float | None = None
    default: str | int | float | None = None
    required: bool | None = None
    internal: bool = False
    semantic: str | None = None
    description: str = ""


class StructType(Record, frozen=True):
    """A uniform struct of a shader."""

    name: str
    fields: list[StructField]


class Binding(Record, frozen=True):
    """A variable of the shader and the tensor, scratch buffer or uniform struct behind it."""

    buffer: BufferType
    name: str | None = None
    arg: str | None = None
    semantic: str | None = None
    role: str | None = None
    element_type: str | None = None
    length: int | str | None = None
    struct: StructType | None = None
    description: str = ""

    @property
    def variable(self) -> str:
        """The name in the shader."""
        return self.name or self.role or self.semantic or ""


class Source(Record, frozen=True):
    """The template of a pass and what it gets beside the constants."""

    shader: str | None = None
    kind: Literal["template"] = "template"
    version: int | None = None
    inputs: dict[str, Value] = {}


class Dispatch(Record, frozen=True):
    """The grid: ``x, y, z``; or folded, ``workgroups``, or ``threads`` by ``workgroupSize``."""

    x: str | int | None = None
    y: str | int | None = None
    z: str | int | None = None
    workgroups: str | int | None = None
    threads: str | int | None = None
    workgroup_size: str | int | None = None


class Scratch(Record, frozen=True):
    """A buffer between passes."""

    id: str
    dtype: str
    shape: str | list[int | str]
    zero_init: bool = False


class ViewAlias(Record, frozen=True):
    """Two bindings which, when they are one buffer, make the pass a no-op."""

    input: str
    output: str


class Pass(Record, frozen=True):
    """One dispatch of one shader."""

    dispatch: Dispatch
    bindings: str | list[Binding]
    """A list, or the name of one of the manifest's ``bindingSets``."""
    id: str = ""
    """Filled in when it is left out: ``pass_<position>``."""
    name: str | None = None
    shader: str | None = None
    source: Source = Source()
    constants: dict[str, Value] = {}
    subgroup_collectives_width: str | int | None = None
    """A promise to checkers, without effect on a run."""
    profile: dict[str, Value] = {}
    view_alias: list[ViewAlias] = []
    description: str = ""

    @property
    def template(self) -> str:
        """The file name of the template."""
        return self.shader or self.source.shader or ""


class Variant(Record, frozen=True):
    """One way to compute the op: its conditions and its passes."""

    passes: list[Pass]
    id: str = ""
    """Filled in when it is left out: ``variant_<position>``."""
    priority: float = 0
    when: list[str] | None = None
    demote_when: list[str] | None = None
    tunables: dict[str, int | float | bool | str] = {}
    derive: dict[str, Value] = {}
    constants: dict[str, Value] = {}
    intermediates: list[Scratch] = []
    description: str = ""


class Rule(Record, frozen=True):
    """A rule of the op's contract: an expression that must be true before any backend is asked."""

    rule: str
    argument: str
    needed: str


class Extensions(Record, frozen=True):
    """What our manifests say beyond the published dialect."""

    contract: list[Rule] = []
    even_fold: bool = False
    """Fold a grid of more than 65,535 workgroups into even rows, launching few groups in excess."""
    bytes_moved: str | None = None
    """The bytes a perfect kernel reads and writes, as an expression; benchmarks divide by it."""


class Manifest(Record, frozen=True):
    """One op: its contract, and its variants for shader backends."""

    name: str
    inputs: list[Port]
    outputs: list[Port]
    args: dict[str, Arg]
    variants: list[Variant]
    domain: str = "ai.onnx"
    schema_version: Literal[1] = 1
    since_version: int | None = None
    description: str = ""
    attributes: dict[str, Value] = {}
    attribute_descriptions: dict[str, str] = {}
    attribute_names: list[str] = []
    attribute_constraints: dict[str, AttributeConstraint] = {}
    type_constraints: dict[str, list[str]] = {}
    tunables: dict[str, int | float | bool | str] = {}
    tunable_descriptions: dict[str, str] = {}
    derive: dict[str, Value] = {}
    constants: dict[str, Value] = {}
    binding_sets: dict[str, list[Binding]] = {}
    registry: Extensions = Extensions()


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
class Package:
    """Where a loaded package lies, and its templates by file name."""

    folder: Path
    templates: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Op:
    """An operator the registry knows: a manifest, where it came from, and quick ways into it."""

    manifest: Manifest
    file: str
    package: Package | None = None

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
