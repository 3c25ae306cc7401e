"""Binds a call to the op's contract: which tensors, shapes, dtypes and attributes, and which outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..dtypes import DTYPES, SCALAR_RANGES, SHORT_NAMES
from ..errors import suggestion
from ..language.expressions import evaluate
from .arrays import ArrayType, Owner, describe, no_owner
from .call import Call, parse_call, wrong
from .scope import contract_scope, infer_shape

if TYPE_CHECKING:
    from ..manifest import Rule
    from ..opinfo import Op, TensorSpec


@dataclass(frozen=True)
class TensorType:
    """A tensor's shape and dtype; stands for its data where none is needed."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Request:
    """A call as data, checked against the contract: what a backend is asked to compute.

    ``inputs`` and ``outputs`` hold the tensors that take part, by role; ``asked`` are the outputs the caller
    wants, in that order (a required output may be bound without being asked for). ``dtypes`` maps type
    variables and the concrete dtypes of ports to dtypes. ``devices`` maps the role of each input that lives
    on a device to that device. ``tunables`` stand in place of the manifest's and the variant's.
    """

    op: Op
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    asked: tuple[str, ...]
    attrs: Mapping[str, Any]
    args: Mapping[str, Any]
    dtypes: Mapping[str, str]
    devices: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    tunables: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def tensors(self) -> Mapping[str, TensorType]:
        """Inputs and outputs together."""
        return {**self.inputs, **self.outputs}

    @property
    def empty(self) -> bool:
        """Whether every output has zero elements, so that there is nothing to compute."""
        return all(tensor.size == 0 for tensor in self.outputs.values())

    def __str__(self) -> str:
        parts = [
            f"{role} {SHORT_NAMES.get(t.dtype, t.dtype)}{list(t.shape)}" for role, t in self.inputs.items()
        ]
        changed = [
            f"{name}={value!r}" for name, value in self.attrs.items() if value != self.op.attributes.get(name)
        ]
        changed += [f"tunables.{name}={value!r}" for name, value in self.tunables.items()]
        return f"{self.op.id}  {'  '.join([*parts, *changed])}  ->  {', '.join(self.asked)}"


def bind(call: Call, owner: Owner = no_owner, fallback: Op | None = None) -> Request:
    """Checks a call against the contract and infers its outputs.

    ``fallback`` is our own op of that name, asked for an output's shape when a package's manifest has none.

    Raises:
        ContractError: presence, dtypes, attributes, shapes; names what was found and what is needed.
    """
    op = call.op
    for spec in op.inputs:
        if spec.required and spec.role not in call.tensors:
            raise wrong(op, f"required input {spec.role} is missing", spec.role)
    types = {
        spec.role: describe(call.tensors[spec.role], f"{op.id}: {spec.role}", owner)
        for spec in op.inputs
        if spec.role in call.tensors
    }
    given = {role: describe(value, f"{op.id}: out {role}", owner) for role, value in call.out.items()}
    dtypes = _bind_dtypes(op, types, given)
    attrs = _check_attrs(op, call.attrs)
    args = _check_args(op, call.args)
    tunables = {name: _check_tunable(op, name, value) for name, value in call.tunables.items()}
    inputs = {role: TensorType(t.shape, t.dtype) for role, t in types.items()}
    devices = {role: t.device for role, t in types.items() if t.device is not None}
    scope = contract_scope(op, inputs, dtypes, attrs, args)
    for rule in op.manifest.registry.contract:
        _check_rule(op, rule, scope, inputs, attrs)
    outputs = {}
    for spec in op.outputs:
        if spec.required or spec.role in call.asked:
            outputs[spec.role] = _output(op, spec, types, given, dtypes, scope, fallback, call)
            if spec.dtype is not None:
                dtypes.setdefault(spec.dtype, outputs[spec.role].dtype)
    return Request(op, inputs, outputs, call.asked, attrs, args, dtypes, devices, tunables)


def _bind_dtypes(op: Op, types: Mapping[str, ArrayType], given: Mapping[str, ArrayType]) -> dict[str, str]:
    bound: dict[str, str] = {}
    first: dict[str, str] = {}
    for spec in (*op.inputs, *op.outputs):
        actual = types.get(spec.role) or given.get(spec.role)
        if actual is None or spec.dtype is None:
            continue
        allowed = op.allowed_dtypes(spec.dtype)
        if spec.dtype in DTYPES and actual.dtype != spec.dtype:
            raise wrong(op, f"{spec.role} is {actual.dtype}; needed: {spec.dtype}", spec.role)
        if spec.dtype in bound and actual.dtype != bound[spec.dtype]:
            needed = f"{bound[spec.dtype]}, the dtype of {first[spec.dtype]} ({spec.dtype})"
            raise wrong(op, f"{spec.role} is {actual.dtype}; needed: {needed}", spec.role)
        if actual.dtype not in allowed and spec.dtype in op.manifest.type_constraints:
            raise wrong(op, f"{spec.role} is {actual.dtype}; needed: one of {', '.join(allowed)}", spec.role)
        bound.setdefault(spec.dtype, actual.dtype)
        first.setdefault(spec.dtype, spec.role)
    return bound


def _check_attrs(op: Op, given: Mapping[str, Any]) -> dict[str, Any]:
    attrs = {**op.attributes, **{name: plain_value(op, name, value) for name, value in given.items()}}
    for name, default in op.attributes.items():
        value = attrs[name]
        numeric = isinstance(default, int | float) and not isinstance(default, bool)
        if numeric and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise wrong(op, f"attribute {name} is {value!r}; needed: a number", name)
        if isinstance(default, bool | str) and type(value) is not type(default):
            raise wrong(op, f"attribute {name} is {value!r}; needed: a {type(default).__name__}", name)
        if isinstance(default, int) and isinstance(value, float) and value.is_integer():
            attrs[name] = int(value)
    for name, constraint in op.manifest.attribute_constraints.items():
        if name not in attrs:
            if constraint.required:
                raise wrong(op, f"required attribute {name} is missing", name)
            continue
        if not constraint.allows(attrs[name]):
            allowed = ", ".join(repr(value) for value in constraint.values or ())
            raise wrong(op, f"attribute {name} is {attrs[name]!r}; needed: one of {allowed}", name)
    return attrs


def plain_value(op: Op, name: str, value: Any) -> Any:
    """An attribute or argument as plain data: NumPy scalars become Python's, tuples become lists."""
    item = getattr(value, "item", None)  # NumPy scalars become Python's
    if item is not None and getattr(value, "ndim", 1) == 0:
        value = item()
    if not isinstance(value, str | int | float | bool | list | tuple):
        raise wrong(
            op,
            f"attribute {name} is of type {type(value).__name__}; needed: a number, string or list",
            name,
        )
    if isinstance(value, int) and abs(value) >= 2**63:
        raise wrong(
            op, f"attribute {name} is an integer of {value.bit_length()} bits; needed: at most 63", name
        )
    return list(value) if isinstance(value, tuple) else value


def _check_args(op: Op, given: Mapping[str, Any]) -> dict[str, Any]:
    args = {}
    for name, arg in op.scalars.items():
        if name not in given:
            if arg.required:
                raise wrong(op, f"required argument {name} ({arg.kind}) is missing", name)
            continue
        value = plain_value(op, name, given[name])
        if arg.kind in ("string", "bool"):
            kind = str if arg.kind == "string" else bool
            ok = isinstance(value, kind) and (arg.one_of is None or value in arg.one_of)
        else:
            low, high = SCALAR_RANGES[arg.kind]
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            ok = number and low <= value <= high and (arg.kind == "f32" or float(value).is_integer())
        if not ok:
            needed = f"one of {arg.one_of}" if arg.one_of else arg.kind
            raise wrong(op, f"argument {name} is {value!r}; needed: {needed}", name)
        args[name] = value
    return args


def _check_tunable(op: Op, name: str, value: Any) -> Any:
    """A tunable of the manifest or of a variant, and a value of its default's kind."""
    defaults = op.tunables
    if name not in defaults:
        known = ", ".join(defaults) or "none"
        raise wrong(op, f"no tunable {name!r}{suggestion(str(name), list(defaults))}; tunables: {known}")
    default = defaults[name]
    kinds = (
        (int, float) if isinstance(default, int | float) and not isinstance(default, bool) else type(default)
    )
    if not isinstance(value, kinds) or isinstance(value, bool) != isinstance(default, bool):
        kind = "number" if isinstance(kinds, tuple) else kinds.__name__
        raise wrong(op, f"tunable {name} is {value!r}; needed: a {kind}, as its default {default!r}")
    return value


def _check_rule(
    op: Op,
    rule: Rule,
    scope: Mapping[str, Any],
    inputs: Mapping[str, TensorType],
    attrs: Mapping[str, Any],
) -> None:
    argument = rule.argument
    if evaluate(rule.rule, scope) is True:
        return
    if argument in inputs:
        primary = op.inputs[0].role
        found = f"{argument} has shape {list(inputs[argument].shape)}"
        if argument != primary and primary in inputs:
            found += f" ({primary} has {list(inputs[primary].shape)})"
    else:
        found = f"{argument} is {attrs.get(argument, 'absent')!r}"
    raise wrong(op, f"{found}; needed: {rule.needed}", argument)


def _output(
    op: Op,
    spec: TensorSpec,
    types: Mapping[str, ArrayType],
    given: Mapping[str, ArrayType],
    dtypes: Mapping[str, str],
    scope: Mapping[str, Any],
    fallback: Op | None,
    call: Call,
) -> TensorType:
    actual = given.get(spec.role)
    dtype = _output_dtype(op, spec, types, dtypes)
    if spec.shape is not None:
        shape = infer_shape(op, spec, scope)
        if actual is not None and actual.shape != shape:
            raise wrong(
                op,
                f"out {spec.role} has shape {list(actual.shape)}; needed: {list(shape)}",
                spec.role,
            )
    elif actual is not None:
        shape = actual.shape
    elif fallback is not None:
        pairs = {role: (array.shape, array.dtype) for role, array in types.items()}
        ours = parse_call(fallback, (), {"inputs": pairs, "attrs": call.attrs, "outputs": spec.role})
        shape = bind(ours).outputs[spec.role].shape
    else:
        raise wrong(op, f"the manifest gives no shape for output {spec.role}; pass out=", spec.role)
    if actual is not None and actual.dtype != dtype:
        raise wrong(op, f"out {spec.role} is {actual.dtype}; needed: {dtype}", spec.role)
    return TensorType(shape, dtype)


def _output_dtype(op: Op, spec: TensorSpec, types: Mapping[str, ArrayType], dtypes: Mapping[str, str]) -> str:
    if spec.dtype is None:
        return "float32"
    if spec.dtype in dtypes:
        return dtypes[spec.dtype]
    allowed = op.allowed_dtypes(spec.dtype)
    if len(allowed) == 1:
        return allowed[0]
    for array in types.values():
        if array.dtype in allowed:
            return array.dtype
    raise wrong(op, f"the dtype of output {spec.role} ({spec.dtype}) follows from no input; pass out=")
