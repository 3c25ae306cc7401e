"""A manifest as records: one struct per kind of object in the file, immutable, checked by type.

The field names of the file are camelCase; here they are snake_case. Expressions stay text here;
`registry.language.expressions` parses them once.
"""

from __future__ import annotations

from ctypes import c_float
from typing import Annotated, Any, Literal

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
    return value_key(a) == value_key(b)


def value_key(value: object) -> tuple[object, object]:
    """What two attribute values that are the same have in common."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float, c_float(value).value
    return type(value), value


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
    scratch: str | None = None
    """The id of the buffer between passes, where it differs from the name in the shader."""
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


class Loop(Record, frozen=True):
    """A repetition around passes: how often, and the name of its counter in ``repeat``."""

    id: str
    index: str
    count: str | int


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
    derive: dict[str, Value] = {}
    """Derived after the constants, in order; each sees those before it, and bare type variables."""
    loops: list[Loop] = []
    """The repetitions around the pass, the outermost first; neighbours in one loop repeat together."""
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
    batch_invariant: bool = True
    """Whether a row's bits are the same whatever the number of rows; false where a row is split."""
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


class ToleranceRule(Record, frozen=True):
    """How far off a result of one dtype may be; what is left out is as by default."""

    relative: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """The share of the answer's magnitude."""
    steps: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """Units in the last place that are near enough whatever the magnitude."""


class Extensions(Record, frozen=True):
    """What our manifests say beyond the published dialect."""

    contract: list[Rule] = []
    even_fold: bool = False
    """Fold a grid of more than 65,535 workgroups into even rows, launching few groups in excess."""
    independent_axes: str | int = 0
    """Along how many leading dimensions of the first input results do not depend on each other, as an
    expression: there a call may be cut into parts. Tensors of lower rank broadcast."""
    bytes_moved: str | None = None
    """The bytes a perfect kernel reads and writes, as an expression; benchmarks divide by it."""
    tune: dict[str, list[int | float | bool | str]] = {}
    """Values of tunables that tuning tries beside their defaults."""
    tolerance: dict[str, ToleranceRule] = {}
    """How far off results may be, by dtype of the output."""


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
