"""What must hold in a manifest beyond the types of its fields, checked once when it is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from ..accuracy import RELATIVE
from ..dtypes import STORAGE
from ..errors import ManifestError, suggestion
from ..manifest import Binding, Dispatch, Manifest, Pass, Port, Variant, value_key
from ..opinfo import Op
from .documents import refuse, step
from .families import MAX_VARIANTS
from .names import (
    Names,
    check_derive,
    check_value,
    contract_names,
    loop_names,
    pass_names,
    request_names,
)

MAX_BINDINGS = 64
MAX_NESTING = 8  # loops in one another
MAX_FIELDS = 256  # of a uniform struct

_DOMAIN = re.compile(r"[a-z][a-z0-9]*(?:\.[A-Za-z][A-Za-z0-9_]*)*")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = "a name of letters, digits and _, no digit first"
_ELEMENT = re.compile(r"\$?\w+|(?:vec[234]|atomic)<\s*\w+\s*>")  # it goes into the shader as it stands
_STABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]*")


def check_manifest(manifest: Manifest) -> None:
    """Checks names, references, forms and every expression of a manifest.

    Raises:
        ManifestError: the first fault, with its path, what was found and what is needed.
    """
    _check_header(manifest)
    _check_args(manifest)
    _check_attributes(manifest)
    for name, bindings in manifest.binding_sets.items():
        _check_bindings(bindings, step("$.bindingSets", name))
    op = Op(manifest, "")
    contract = contract_names(op)
    request = request_names(op, contract)
    _identifiers(manifest.derive, "$.derive")
    derived = check_derive(manifest.derive, request, "$.derive")
    _check_extensions(op, contract, derived)
    for index, port in enumerate(manifest.outputs):
        check_value(port.shape, derived, f"$.outputs[{index}].shape")
    check_value(manifest.constants, derived, "$.constants")
    _check_variants(op, derived)


def _check_header(manifest: Manifest) -> None:
    _match(_DOMAIN, manifest.domain, "$.domain", "a domain such as ai.onnx")
    _match(IDENTIFIER, manifest.name, "$.name", _NAME)
    for variable, dtypes in manifest.type_constraints.items():
        path = step("$.typeConstraints", variable)
        _match(IDENTIFIER, variable, path, _NAME)
        _not_empty(dtypes, path)
        for index, dtype in enumerate(dtypes):
            _known(dtype, STORAGE, "dtype", step(path, index))
    given = {port.role for port in manifest.inputs}
    for kind, ports in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        _unique([port.role for port in ports], "role", f"$.{kind}", ".role")
        for index, port in enumerate(ports if kind == "outputs" else ()):
            if port.role in given:
                needed = "another one than any input; one tensor in place is not supported"
                refuse(f"role {port.role!r}", needed, f"$.outputs[{index}].role")
        for index, port in enumerate(ports):
            _check_port(port, manifest, f"$.{kind}[{index}]")
    _identifiers(manifest.tunables, "$.tunables")
    _identifiers(manifest.constants, "$.constants")


def _check_port(port: Port, manifest: Manifest, path: str) -> None:
    _match(IDENTIFIER, port.role, f"{path}.role", _NAME)
    if port.dtype is not None:
        known = (*manifest.type_constraints, *STORAGE)
        _known(port.dtype, known, "dtype or type variable", f"{path}.dtype")


def _check_args(manifest: Manifest) -> None:
    _not_empty(manifest.args, "$.args")
    _identifiers(manifest.args, "$.args")
    ports = (*manifest.inputs, *manifest.outputs)
    roles = [port.role for port in ports]
    optional = {port.role for port in ports if port.optional}
    taken: dict[str, str] = {}
    for name, arg in manifest.args.items():
        path = f"$.args.{name}"
        if arg.dtype is not None:
            _known(arg.dtype, STORAGE, "dtype", f"{path}.dtype")
        if arg.kind == "tensor":
            if arg.semantic is None:
                refuse("a tensor without semantic", f"the role it binds: {_or(roles)}", path)
            _known(arg.semantic, roles, "role", f"{path}.semantic")
            if other := taken.get(arg.semantic):
                needed = f"one argument a role; {other!r} binds it already"
                refuse(f"semantic {arg.semantic!r}", needed, f"{path}.semantic")
            taken[arg.semantic] = name
            if arg.required and arg.semantic in optional:
                refuse("an argument that is required, of an optional tensor", "required: false", path)
        elif name in roles:
            refuse(f"a scalar named {name!r}", "a name that is no tensor's", path)
        if arg.one_of is not None:
            if arg.kind != "string":
                refuse(f"oneOf on a {arg.kind}", "oneOf on strings only", f"{path}.oneOf")
            _not_empty(arg.one_of, f"{path}.oneOf")


def _check_attributes(manifest: Manifest) -> None:
    names = (*manifest.attributes, *manifest.attribute_names)
    _unique(names, "attribute", "$.attributeNames", "", len(manifest.attributes))
    for name, default in manifest.attributes.items():
        if isinstance(default, dict):
            wanted = "an attribute's default stands by itself: a number, a string, a list"
            raise ManifestError(f"found an object {default}; {wanted}", path=step("$.attributes", name))
    for name, constraint in manifest.attribute_constraints.items():
        path = step("$.attributeConstraints", name)
        _known(name, names, "attribute", path)
        values = constraint.values
        if values is None and not constraint.required:
            refuse("neither required: true nor values", "at least one of them", path)
        if constraint.required and name in manifest.attributes:
            refuse("required, with a default", "one or the other", f"{path}.required")
        if values is None:
            continue
        _not_empty(values, f"{path}.values")
        seen: set[object] = set()
        for index, value in enumerate(values):
            if value_key(value) in seen:
                refuse(f"{value!r} again", "each value once", f"{path}.values[{index}]")
            seen.add(value_key(value))
        if name in manifest.attributes and not constraint.allows(manifest.attributes[name]):
            default = manifest.attributes[name]
            refuse(f"the default {default!r}", f"one of {values}", step("$.attributes", name))


def _check_extensions(op: Op, contract: Names, derived: Names) -> None:
    arguments = (*_tensor_names(op), *op.scalars, *op.attribute_names)
    for index, rule in enumerate(op.manifest.registry.contract):
        path = f"$.registry.contract[{index}]"
        _known(rule.argument, arguments, "tensor, argument or attribute", f"{path}.argument")
        check_value(rule.rule, contract, f"{path}.rule")
    check_value(op.manifest.registry.bytes_moved, contract, "$.registry.bytesMoved")
    check_value(op.manifest.registry.independent_axes, derived, "$.registry.independentAxes")
    for name, values in op.manifest.registry.tune.items():
        _known(name, op.tunables, "tunable", step("$.registry.tune", name))
        _not_empty(values, step("$.registry.tune", name))
    for name in op.manifest.registry.tolerance:
        _known(name, tuple(RELATIVE), "floating-point dtype", step("$.registry.tolerance", name))


def _check_variants(op: Op, derived: Names) -> None:
    variants = op.manifest.variants
    _not_empty(variants, "$.variants")
    _at_most(MAX_VARIANTS, variants, "variants", "$.variants")
    for index, variant in enumerate(variants):
        _match(_STABLE, variant.id, f"$.variants[{index}].id", "letters, digits and _")
    _unique([variant.id for variant in variants], "id", "$.variants", ".id")
    for index, variant in enumerate(variants):
        path = f"$.variants[{index}]"
        for key, clauses in (("when", variant.when), ("demoteWhen", variant.demote_when)):
            if clauses is not None:
                _not_empty(clauses, f"{path}.{key}")
                for number, clause in enumerate(clauses):
                    _not_empty(clause.strip(), f"{path}.{key}[{number}]")
                check_value(clauses, derived, f"{path}.{key}")
        _check_variant(variant, op, derived, path)


def _check_variant(variant: Variant, op: Op, derived: Names, path: str) -> None:
    _identifiers(variant.tunables, f"{path}.tunables")
    _identifiers(variant.constants, f"{path}.constants")
    _identifiers(variant.derive, f"{path}.derive")
    tuned = derived.plus(tunables=variant.tunables)
    names = check_derive(variant.derive, tuned, f"{path}.derive")
    check_value(variant.constants, names, f"{path}.constants")
    tensors = _tensor_names(op)
    _unique([scratch.id for scratch in variant.intermediates], "id", f"{path}.intermediates", ".id")
    for number, scratch in enumerate(variant.intermediates):
        where = f"{path}.intermediates[{number}]"
        _match(IDENTIFIER, scratch.id, f"{where}.id", _NAME)
        if scratch.id in tensors:
            refuse(f"the id {scratch.id!r}", "a name that is no tensor's", f"{where}.id")
        dtypes = [dtype for dtype in STORAGE if dtype != "int64"]
        _known(scratch.dtype, dtypes, "scratch dtype", f"{where}.dtype")
        check_value(scratch.shape, names, f"{where}.shape")
    _not_empty(variant.passes, f"{path}.passes")
    _unique([item.id for item in variant.passes], "id", f"{path}.passes", ".id")
    for number, item in enumerate(variant.passes):
        _check_pass(item, variant, op, names, f"{path}.passes[{number}]")


def _check_pass(item: Pass, variant: Variant, op: Op, names: Names, path: str) -> None:
    shaders = {name for name in (item.shader, item.source.shader) if name}
    if len(shaders) != 1:
        found = " and ".join(sorted(shaders)) or "none"
        refuse(f"shader {found}", "one template, in shader or source.shader", f"{path}.shader")
    width = item.subgroup_collectives_width
    if width not in (None, "portable", 4, 8, 16, 32, 64, 128):
        needed = "'portable' or a power of two from 4 to 128"
        refuse(repr(width), needed, f"{path}.subgroupCollectivesWidth")
    _at_most(MAX_NESTING, item.loops, "loops around a pass", f"{path}.loops")
    for number, loop in enumerate(item.loops):
        where = f"{path}.loops[{number}]"
        outer = [each.index for each in item.loops[:number]]
        _match(IDENTIFIER, loop.index, f"{where}.index", _NAME)
        if loop.index in ("index", "count", *outer):
            refuse(f"index {loop.index!r}", "a name of its own, not index nor count", f"{where}.index")
        check_value(loop.count, loop_names(names, item.loops[:number]), f"{where}.count")
    _identifiers(item.constants, f"{path}.constants")
    check_value(item.constants, names, f"{path}.constants")
    inner = pass_names(names, op, variant, item)
    _identifiers(item.derive, f"{path}.derive")
    inner = check_derive(item.derive, inner, f"{path}.derive")
    check_value(item.source.inputs, inner, f"{path}.source.inputs")
    full = inner.plus(source=item.source.inputs)
    if isinstance(item.bindings, str):
        sets = op.manifest.binding_sets
        _known(item.bindings, sets, "binding set", f"{path}.bindings")
        bindings, where = sets[item.bindings], step("$.bindingSets", item.bindings)
    else:
        bindings, where = item.bindings, f"{path}.bindings"
        _check_bindings(bindings, where)
    tensors = [*_tensor_names(op), *(buffer.id for buffer in variant.intermediates)]
    for index, binding in enumerate(bindings):
        _check_binding_use(binding, tensors, full, f"{where}[{index}]")
    _check_dispatch(item.dispatch, full, f"{path}.dispatch")
    check_value(item.profile, full, f"{path}.profile")
    variables = [binding.variable for binding in bindings]
    for index, alias in enumerate(item.view_alias):
        for key, variable in (("input", alias.input), ("output", alias.output)):
            _known(variable, variables, "binding", f"{path}.viewAlias[{index}].{key}")


def _check_bindings(bindings: Sequence[Binding], path: str) -> None:
    _not_empty(bindings, path)
    _at_most(MAX_BINDINGS, bindings, "bindings", path)
    for index, binding in enumerate(bindings):
        where = f"{path}[{index}]"
        _match(IDENTIFIER, binding.variable, f"{where}.name", _NAME)
        uniform = binding.buffer.type == "uniform"
        if uniform and binding.struct is None:
            refuse("a uniform without struct", "struct: {name, fields}", where)
        if binding.element_type is not None and not _ELEMENT.fullmatch(binding.element_type):
            wanted = "a type such as f32, vec4<f16>, atomic<u32>, or $NAME"
            refuse(f"the element type {binding.element_type!r}", wanted, f"{where}.elementType")
        if not uniform and binding.element_type is None:
            refuse("a storage buffer without elementType", "elementType, or $NAME", where)
        extra = (binding.element_type, binding.length) if uniform else (binding.struct,)
        if any(value is not None for value in extra):
            needed = "elementType and length on storage, struct on uniforms"
            refuse(f"a {binding.buffer.type} buffer with fields of the other kind", needed, where)
        if isinstance(binding.length, int) and binding.length < 1:
            refuse(f"length {binding.length}", "at least 1", f"{where}.length")
        if binding.struct is not None:
            fields = [field.name for field in binding.struct.fields]
            _match(IDENTIFIER, binding.struct.name, f"{where}.struct.name", _NAME)
            _not_empty(fields, f"{where}.struct.fields")
            _at_most(MAX_FIELDS, fields, "fields", f"{where}.struct.fields")
            _unique(fields, "field", f"{where}.struct.fields", ".name")
            for number, name in enumerate(fields):
                _match(IDENTIFIER, name, f"{where}.struct.fields[{number}].name", _NAME)
    _unique([binding.variable for binding in bindings], "binding", path, ".name")


def _check_binding_use(binding: Binding, tensors: Sequence[str], names: Names, path: str) -> None:
    """Checks a binding in a pass: the tensor behind it, references to constants, uniform values."""
    if binding.struct is not None:
        for number, item in enumerate(binding.struct.fields):
            where = f"{path}.struct.fields[{number}]"
            check_value(item.value, names, f"{where}.value")
            check_value(item.default, names, f"{where}.default")
        return
    ways = [
        name for name in (binding.scratch, binding.arg, binding.name, binding.role, binding.semantic) if name
    ]
    if binding.arg is not None:
        _known(binding.arg, tensors, "tensor", f"{path}.arg")
    elif not any(way in tensors for way in ways):
        _known(ways[0], tensors, "tensor", f"{path}.name")
    for key, value in (("elementType", binding.element_type), ("length", binding.length)):
        if not isinstance(value, str):
            continue
        if value.startswith("$"):
            known = names.members["constants"] | names.members["derive"]
            _known(value[1:], known, "constant", f"{path}.{key}")
        elif key == "length":
            refuse(f"length {value!r}", "an integer or $NAME", f"{path}.{key}")


def _check_dispatch(dispatch: Dispatch, names: Names, path: str) -> None:
    keys = {"x": dispatch.x, "y": dispatch.y, "z": dispatch.z, "workgroups": dispatch.workgroups,
            "threads": dispatch.threads, "workgroupSize": dispatch.workgroup_size}  # fmt: skip
    given = {key: value for key, value in keys.items() if value is not None}
    explicit = "x" in given and given.keys() <= {"x", "y", "z"}
    if not explicit and given.keys() not in ({"workgroups"}, {"threads", "workgroupSize"}):
        needed = "x with y and z if wanted; or workgroups; or threads and workgroupSize"
        refuse(" and ".join(given) or "nothing", needed, path)
    for key, value in given.items():
        if isinstance(value, int) and value < 0:
            refuse(str(value), "at least 0", f"{path}.{key}")
        check_value(value, names, f"{path}.{key}")


def _tensor_names(op: Op) -> list[str]:
    return [name for spec in (*op.inputs, *op.outputs) for name in (spec.arg, spec.role)]


def _identifiers(names: Iterable[str], path: str) -> None:
    for name in names:
        _match(IDENTIFIER, name, step(path, name), _NAME)


def _match(pattern: re.Pattern[str], text: str, path: str, needed: str) -> None:
    if not pattern.fullmatch(text):
        refuse(repr(text), needed, path)


def _known(name: str, known: Iterable[str], what: str, path: str) -> None:
    names = list(dict.fromkeys(known))
    if name not in names:
        refuse(f"unknown {what} {name!r}{suggestion(name, names)}", _or(names), path)


def _or(names: Sequence[str]) -> str:
    return f"one of {', '.join(names)}" if names else "none is declared"


def _not_empty(value: Any, path: str) -> None:
    if not value:
        refuse(f"nothing ({value!r})", "at least one entry, or leave the key out", path)


def _at_most(limit: int, items: Sequence[Any], what: str, path: str) -> None:
    if len(items) > limit:
        refuse(f"{len(items)} {what}", f"at most {limit}", path)


def _unique(names: Sequence[str], what: str, path: str, tail: str, skip: int = 0) -> None:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in first:
            where = f"{step(path, index - skip)}{tail}"
            refuse(f"{what} {name!r} again", f"each {what} once", where)
        first[name] = index
