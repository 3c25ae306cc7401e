"""A manifest of dialect 2.1 as records: what is written, before it becomes a ``Manifest``.

The dialect says the same in other words: ports are maps by name, tensor arguments follow from them, constants
and inputs of templates are derived values of a pass, bindings have handles, passes may repeat.
"""
# ruff: noqa: RUF012  (msgspec copies an empty default for each record)

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..manifest import (
    Arg,
    AttributeConstraint,
    Dispatch,
    Record,
    Scratch,
    StructField,
    Value,
    ViewAlias,
)

FEATURES = Literal[
    "shader-f16",
    "subgroups",
    "subgroup-size-control",
    "chromium-experimental-subgroup-matrix",
    "timestamp-query",
    "texture-formats-tier1",
    "texture-formats-tier2",
]
COMPONENTS = Literal["f32", "f16", "u32", "i32", "u8", "i8"]


class NewPort(Record, frozen=True):
    """A tensor by its calling name; ``onnx`` is its name in the standard."""

    description: str = ""
    onnx: str | None = None
    dtype: str | None = None
    rank: int | str | None = None
    optional: bool = False
    layout: Literal["packed"] | None = None
    shape: str | list[int | str] | None = None
    storage: str | None = None
    narrowing: Literal["checked", "saturating"] | None = None


class NewArg(Record, frozen=True):
    """A scalar argument."""

    kind: Literal["u32", "i32", "f32", "bool", "string"]
    description: str = ""
    onnx: str | None = None
    required: bool = True
    one_of: list[str] | None = None

    def as_arg(self) -> Arg:
        """The same in the older words."""
        return Arg(self.kind, required=self.required, one_of=self.one_of, description=self.description)


class NewAttribute(Record, frozen=True):
    """An attribute, with a default or without."""

    default: Value | msgspec.UnsetType = msgspec.UNSET
    description: str = ""


class NewTunable(Record, frozen=True):
    """A number to tune by."""

    default: int | float | bool | str
    description: str = ""


class MatrixConfig(Record, frozen=True):
    """A pattern of a subgroup matrix."""

    component_type: COMPONENTS | None = None
    result_component_type: COMPONENTS | None = None
    m: int | None = msgspec.field(default=None, name="M")
    n: int | None = msgspec.field(default=None, name="N")
    k: int | None = msgspec.field(default=None, name="K")


class Requirements(Record, frozen=True):
    """What a device must have."""

    features: list[FEATURES] = []
    limits: dict[str, int | float] = {}
    subgroup_min_size: int | None = None
    subgroup_matrix_configs: list[MatrixConfig] | None = None


class NewBinding(Record, frozen=True):
    """A variable of the shader; what is left out follows from the port or the scratch buffer behind it."""

    buffer: Literal["read-only-storage", "storage", "uniform"] | None = None
    name: str | None = None
    arg: str | None = None
    scratch: str | None = None
    element_type: str | None = None
    length: int | str | None = None
    struct_name: str | None = None
    struct: list[StructField] | None = None


class Repetition(Record, frozen=True):
    """How often a group of passes runs, and the name of its counter."""

    index: str
    count: str | int


class NewPass(Record, frozen=True):
    """One dispatch; or, with ``repeat``, a group of passes that runs several times."""

    id: str | None = None
    name: str | None = None
    shader: str | None = None
    derive: dict[str, Value] = {}
    bindings: list[str | NewBinding] = []
    dispatch: Dispatch | None = None
    subgroup_collectives_width: str | int | None = None
    profile: dict[str, Value] = {}
    view_alias: list[ViewAlias] = []
    submit_after: bool = False
    description: str = ""
    repeat: Repetition | None = None
    passes: list[NewPass] = []


class NewVariant(Record, frozen=True):
    """One way to compute the op."""

    passes: list[NewPass]
    id: str
    priority: float = 0
    when: list[str] | None = None
    demote_when: list[str] | None = None
    superseded_by: list[str] | None = None
    requires: Requirements = Requirements()
    tunables: dict[str, int | float | bool | str] = {}
    derive: dict[str, Value] = {}
    intermediates: list[Scratch] = []
    description: str = ""


class NewManifest(Record, frozen=True):
    """One op."""

    name: str
    inputs: dict[str, NewPort]
    outputs: dict[str, NewPort]
    variants: list[NewVariant]
    domain: str = "ai.onnx"
    description: str = ""
    conformance: Literal["internal-lowering", "legacy-default-domain"] | None = None
    since_version: int | None = None
    args: dict[str, NewArg] = {}
    attributes: dict[str, NewAttribute] = {}
    attribute_constraints: dict[str, AttributeConstraint] = {}
    type_constraints: dict[str, list[str]] = {}
    tunables: dict[str, NewTunable] = {}
    derive: dict[str, Value] = {}
    when: list[str] | None = None
    requires: Requirements = Requirements()
    bindings: dict[str, NewBinding] = {}
    onnx: Any = None
