"""What one pass of a variant comes to for a request on a device: constants, bindings, uniforms and grid.

Plain data, from the manifest alone: no template is rendered and no device touched. A shader backend turns
the result into source text and a dispatch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ..dtypes import SCALAR_RANGES, STORAGE
from ..language.expressions import EvaluationError, evaluate
from ..language.meter import spend
from ..manifest import Binding, Dispatch, Manifest, Pass, StructField, Variant
from .request import Request, TensorType
from .scope import FOLD_WIDTH, derive, request_scope

MAX_ITERATIONS = 65_535
STEPS_PER_ROUND = 8
"""What one round of a loop counts, and one pass, binding or field of it, beside its expressions."""

MAX_PASSES = 4_096
"""Passes of a variant, its loops written out; each is rendered by itself."""


@dataclass(frozen=True)
class Buffer:
    """A storage binding: the shader's variable, its element type and fixed length, and what is behind it.

    ``tensor`` is the role of a tensor of the op, or the id of a scratch buffer (then ``scratch`` is True).
    """

    variable: str
    writable: bool
    element: str
    length: int | None
    tensor: str
    scratch: bool


@dataclass(frozen=True)
class Uniform:
    """A uniform binding: a struct of scalars (name, type, value), padded to a multiple of 16 bytes."""

    variable: str
    struct: str
    fields: tuple[tuple[str, str, int | float], ...]


@dataclass(frozen=True)
class EvaluatedPass:
    """One pass, evaluated. ``scope`` is what its template sees, without the declarations."""

    id: str
    label: str
    template: str
    constants: Mapping[str, Any]
    inputs: Mapping[str, Any]
    bindings: tuple[Buffer | Uniform, ...]
    grid: tuple[int, int, int]
    scope: Mapping[str, Any]

    @property
    def uniforms(self) -> dict[str, int | float]:
        """Every uniform field and its value, padding left out."""
        return {
            name: value
            for binding in self.bindings
            if isinstance(binding, Uniform)
            for name, _, value in binding.fields
            if not name.startswith("_pad")
        }


@dataclass(frozen=True)
class EvaluatedVariant:
    """All passes of a variant in order, and the scratch buffers between them by id."""

    passes: tuple[EvaluatedPass, ...]
    scratch: Mapping[str, TensorType]


def evaluate_variant(request: Request, variant: Variant, device: Mapping[str, Any]) -> EvaluatedVariant:
    """Evaluates a variant's passes for a request on a device.

    Raises:
        EvaluationError: an expression fails, or gives what its position does not admit.
    """
    manifest = request.op.manifest
    scope = request_scope(request, device)
    scope["tunables"] = {**manifest.tunables, **variant.tunables, **request.tunables}
    scope = derive(variant.derive, scope)
    scratch = {s.id: TensorType(_shape(s.shape, scope), s.dtype) for s in variant.intermediates}
    passes: list[EvaluatedPass] = []
    for item, identity, inner in _unrolled(variant.passes, scope):
        if len(passes) == MAX_PASSES:
            raise EvaluationError(f"its loops make more than {MAX_PASSES} passes")
        passes.append(_evaluate_pass(request, variant, item, identity, inner, scratch))
    if not passes:
        raise EvaluationError("its loops leave no pass; needed: at least one")
    return EvaluatedVariant(tuple(passes), scratch)


def storage_buffers(manifest: Manifest, variant: Variant) -> int:
    """The most storage buffers any pass of the variant binds."""
    return max(sum(b.buffer.type != "uniform" for b in _bindings(manifest, item)) for item in variant.passes)


def _unrolled(
    passes: Sequence[Pass], scope: Mapping[str, Any], depth: int = 0, prefix: str = ""
) -> Iterator[tuple[Pass, str, Mapping[str, Any]]]:
    """Every pass with its id and scope, as often as the loops around it say, from ``depth`` inwards."""
    for _, group in groupby(passes, lambda item: item.loops[depth].id if len(item.loops) > depth else None):
        members = list(group)
        if len(members[0].loops) <= depth:
            for item in members:
                yield item, prefix + item.id, scope
            continue
        loop = members[0].loops[depth]
        count = evaluate(loop.count, scope)
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MAX_ITERATIONS:
            needed = f"an integer from 0 to {MAX_ITERATIONS}"
            raise EvaluationError(f"loop {loop.id}: count ({loop.count}) is {count!r}; needed: {needed}")
        for at in range(count):
            spend(STEPS_PER_ROUND + len(scope) // 8)  # what copying the names takes
            counters = {"index": at, "count": count, loop.index: at, f"{loop.index}_count": count}
            inner = {**scope, "repeat": {**scope["repeat"], **counters}}
            yield from _unrolled(members, inner, depth + 1, f"{prefix}{loop.id}[{at}].")


def _evaluate_pass(
    request: Request,
    variant: Variant,
    item: Pass,
    identity: str,
    scope: Mapping[str, Any],
    scratch: Mapping[str, TensorType],
) -> EvaluatedPass:
    manifest = request.op.manifest
    bindings = _bindings(manifest, item)
    fields = sum(len(binding.struct.fields) for binding in bindings if binding.struct is not None)
    spend(STEPS_PER_ROUND * (1 + len(bindings) + fields) + len(scope) // 4)
    # Constants of one level see the derived values but never one another, so that a constant may be named
    # like the derived value it holds.
    constants: dict[str, Any] = dict(scope["dtypes"])
    for level in (manifest.constants, variant.constants, item.constants):
        constants.update({name: evaluate(value, scope) for name, value in level.items()})
    full = derive(item.derive, {**scope, **constants, "constants": constants})
    inputs = {name: evaluate(value, full) for name, value in item.source.inputs.items()}
    full["source"] = inputs
    return EvaluatedPass(
        identity,
        item.name or f"{request.op.id}.{variant.id}.{identity}",
        item.template,
        constants,
        inputs,
        tuple(_bind(request, binding, constants, full, scratch) for binding in bindings),
        _grid(item.dispatch, full, manifest.registry.even_fold),
        full,
    )


def _bindings(manifest: Manifest, item: Pass) -> list[Binding]:
    return manifest.binding_sets[item.bindings] if isinstance(item.bindings, str) else item.bindings


def _bind(
    request: Request,
    binding: Binding,
    constants: Mapping[str, Any],
    scope: Mapping[str, Any],
    scratch: Mapping[str, TensorType],
) -> Buffer | Uniform:
    variable = binding.variable
    if binding.struct is not None:
        fields = [(f.name, f.type, _field(f, scope, variable)) for f in binding.struct.fields]
        taken = {f.name for f in binding.struct.fields}
        number = 0
        while len(fields) % 4:
            name = f"_pad{number}"
            number += 1
            if name not in taken:
                fields.append((name, "u32", 0))
        return Uniform(variable, binding.struct.name, tuple(fields))
    element = str(_reference(binding.element_type, constants, scope, variable))
    length = _reference(binding.length, constants, scope, variable)
    if length is not None and (not isinstance(length, int) or isinstance(length, bool) or length < 1):
        raise EvaluationError(
            f"binding {variable}: length {binding.length} is {length!r}; needed: an integer of at least 1"
        )
    names = [name for name in (binding.scratch, binding.name, binding.role, binding.semantic) if name]
    tensor = next((name for name in names if name in scratch), None)
    in_scratch = tensor is not None
    if tensor is None:
        tensor = _tensor(request, [name for name in (binding.arg, *names) if name])
    if tensor is None:
        raise EvaluationError(f"binding {variable}: no tensor {' or '.join(names)} in this request")
    return Buffer(variable, binding.buffer.type == "storage", element, length, tensor, in_scratch)


def _tensor(request: Request, names: list[str]) -> str | None:
    by_arg = {spec.arg: spec.role for spec in (*request.op.inputs, *request.op.outputs)}
    for name in names:
        for role in (by_arg.get(name), name):
            if role in request.inputs or role in request.outputs:
                return role
    return None


def _reference(
    value: str | int | None, constants: Mapping[str, Any], scope: Mapping[str, Any], variable: str
) -> Any:
    if not isinstance(value, str) or not value.startswith("$"):
        return value
    name = value[1:]
    found = constants.get(name, scope.get(name))
    if found is None:
        raise EvaluationError(f"binding {variable}: {value} names no constant")
    return found


def _field(item: StructField, scope: Mapping[str, Any], variable: str) -> int | float:
    if item.value is not None:
        value = evaluate(item.value, scope)
    elif item.name in scope["args"]:
        value = scope["args"][item.name]
    elif item.default is not None:
        value = evaluate(item.default, scope)
    elif item.required if item.required is not None else not item.internal:
        raise EvaluationError(f"uniform {variable}.{item.name} has no value, argument or default")
    else:
        return 0
    low, high = SCALAR_RANGES[item.type]
    ok = isinstance(value, int | float) and not isinstance(value, bool)
    ok = ok and (low <= value <= high or (item.type == "f32" and abs(value) == math.inf))
    ok = ok and (item.type == "f32" or isinstance(value, int))
    if not ok:
        raise EvaluationError(f"uniform {variable}.{item.name} is {value!r}; needed: {item.type}")
    return float(value) if item.type == "f32" else int(value)


def _grid(dispatch: Dispatch, scope: Mapping[str, Any], even: bool) -> tuple[int, int, int]:
    def count(value: str | int | None, name: str) -> int:
        number = evaluate(value, scope)
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise EvaluationError(
                f"dispatch {name} ({value}) is {number!r}; needed: an integer of at least 0"
            )
        return number

    if dispatch.workgroups is not None:
        grid = fold(count(dispatch.workgroups, "workgroups"), even)
    elif dispatch.threads is not None:
        size = count(dispatch.workgroup_size, "workgroupSize")
        if size == 0:
            raise EvaluationError("dispatch workgroupSize is 0; needed: at least 1")
        grid = fold(-(-count(dispatch.threads, "threads") // size), even)
    else:
        grid = (
            count(dispatch.x, "x"),
            count(1 if dispatch.y is None else dispatch.y, "y"),
            count(1 if dispatch.z is None else dispatch.z, "z"),
        )
    for axis, groups in zip("xyz", grid, strict=True):
        if groups > FOLD_WIDTH:
            raise EvaluationError(f"dispatch {axis} is {groups} workgroups; needed: at most {FOLD_WIDTH}")
    return grid


def fold(groups: int, even: bool) -> tuple[int, int, int]:
    """A grid of at least ``groups`` workgroups with no side over the limit.

    The published rule fills rows of 65,535; an even fold launches fewer workgroups in excess.
    """
    rows = -(-groups // FOLD_WIDTH)
    if even and rows > 1:
        return (-(-groups // rows), rows, 1)
    return (min(groups, FOLD_WIDTH), rows, 1)


def _shape(value: str | list[int | str], scope: Mapping[str, Any]) -> tuple[int, ...]:
    shape = evaluate(value, scope)
    dims = shape if isinstance(shape, list | tuple) else [shape]
    if not dims or not all(isinstance(d, int) and not isinstance(d, bool) and d >= 0 for d in dims):
        raise EvaluationError(f"scratch shape {value} gives {shape!r}; needed: integers of at least 0")
    return tuple(dims)


def element_bytes(element: str) -> int:
    """Bytes of one array element of a shader type: f16, f32, u32, i32, their atomics and vectors.

    Raises:
        EvaluationError: another type.
    """
    sizes = {scalar: size for size, scalar in STORAGE.values()}
    plain = element.replace(" ", "").removeprefix("atomic<").rstrip(">")
    width = 1
    if plain.startswith("vec") and plain[3:4] in ("2", "3", "4"):
        width = {"2": 2, "3": 4, "4": 4}[plain[3]]
        plain = plain[4:].lstrip("<")
        plain = {"f": "f32", "h": "f16", "i": "i32", "u": "u32"}.get(plain, plain)  # vec4f and its like
    if plain not in sizes:
        raise EvaluationError(f"element type {element} has no known size")
    return sizes[plain] * width
