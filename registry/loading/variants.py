"""What must hold in the variants of a manifest: their passes, bindings and dispatches."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..dtypes import DTYPES
from ..manifest import Binding, Dispatch, Pass, Variant
from ..opinfo import Op
from .basics import (
    IDENTIFIER,
    NAME,
    need_at_most,
    need_entries,
    need_identifiers,
    need_known,
    need_match,
    need_unique,
)
from .documents import refuse, step
from .families import MAX_VARIANTS
from .names import Names, check_derive, check_value, loop_names, pass_names, tensor_names

MAX_BINDINGS = 64
MAX_NESTING = 8  # loops in one another
MAX_FIELDS = 256  # of a uniform struct

_ELEMENT = re.compile(r"\$?\w+|(?:vec[234]|atomic)<\s*\w+\s*>")  # it goes into the shader as it stands
_STABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]*")


def check_variants(op: Op, derived: Names) -> None:
    """Checks every variant; ``derived`` are the names that the op's own derived values add.

    Raises:
        ManifestError: the first fault.
    """
    variants = op.manifest.variants
    need_entries(variants, "$.variants")
    need_at_most(MAX_VARIANTS, variants, "variants", "$.variants")
    for index, variant in enumerate(variants):
        need_match(_STABLE, variant.id, f"$.variants[{index}].id", "letters, digits and _")
    need_unique([variant.id for variant in variants], "id", "$.variants", ".id")
    for index, variant in enumerate(variants):
        path = f"$.variants[{index}]"
        for key, clauses in (("when", variant.when), ("demoteWhen", variant.demote_when)):
            if clauses is not None:
                need_entries(clauses, f"{path}.{key}")
                for number, clause in enumerate(clauses):
                    need_entries(clause.strip(), f"{path}.{key}[{number}]")
                check_value(clauses, derived, f"{path}.{key}")
        _check_variant(variant, op, derived, path)


def _check_variant(variant: Variant, op: Op, derived: Names, path: str) -> None:
    need_identifiers(variant.tunables, f"{path}.tunables")
    need_identifiers(variant.constants, f"{path}.constants")
    need_identifiers(variant.derive, f"{path}.derive")
    tuned = derived.plus(tunables=variant.tunables)
    names = check_derive(variant.derive, tuned, f"{path}.derive")
    check_value(variant.constants, names, f"{path}.constants")
    tensors = tensor_names(op)
    need_unique([scratch.id for scratch in variant.intermediates], "id", f"{path}.intermediates", ".id")
    for number, scratch in enumerate(variant.intermediates):
        where = f"{path}.intermediates[{number}]"
        need_match(IDENTIFIER, scratch.id, f"{where}.id", NAME)
        if scratch.id in tensors:
            refuse(f"the id {scratch.id!r}", "a name that is no tensor's", f"{where}.id")
        dtypes = [dtype for dtype in DTYPES if dtype != "int64"]
        need_known(scratch.dtype, dtypes, "scratch dtype", f"{where}.dtype")
        check_value(scratch.shape, names, f"{where}.shape")
    need_entries(variant.passes, f"{path}.passes")
    need_unique([item.id for item in variant.passes], "id", f"{path}.passes", ".id")
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
    need_at_most(MAX_NESTING, item.loops, "loops around a pass", f"{path}.loops")
    for number, loop in enumerate(item.loops):
        where = f"{path}.loops[{number}]"
        outer = [each.index for each in item.loops[:number]]
        need_match(IDENTIFIER, loop.index, f"{where}.index", NAME)
        if loop.index in ("index", "count", *outer):
            refuse(f"index {loop.index!r}", "a name of its own, not index nor count", f"{where}.index")
        check_value(loop.count, loop_names(names, item.loops[:number]), f"{where}.count")
    need_identifiers(item.constants, f"{path}.constants")
    check_value(item.constants, names, f"{path}.constants")
    inner = pass_names(names, op, variant, item)
    need_identifiers(item.derive, f"{path}.derive")
    inner = check_derive(item.derive, inner, f"{path}.derive")
    check_value(item.source.inputs, inner, f"{path}.source.inputs")
    full = inner.plus(source=item.source.inputs)
    if isinstance(item.bindings, str):
        sets = op.manifest.binding_sets
        need_known(item.bindings, sets, "binding set", f"{path}.bindings")
        bindings, where = sets[item.bindings], step("$.bindingSets", item.bindings)
    else:
        bindings, where = item.bindings, f"{path}.bindings"
        check_bindings(bindings, where)
    tensors = [*tensor_names(op), *(buffer.id for buffer in variant.intermediates)]
    for index, binding in enumerate(bindings):
        _check_binding_use(binding, tensors, full, f"{where}[{index}]")
    _check_dispatch(item.dispatch, full, f"{path}.dispatch")
    check_value(item.profile, full, f"{path}.profile")
    variables = [binding.variable for binding in bindings]
    for index, alias in enumerate(item.view_alias):
        for key, variable in (("input", alias.input), ("output", alias.output)):
            need_known(variable, variables, "binding", f"{path}.viewAlias[{index}].{key}")


def check_bindings(bindings: Sequence[Binding], path: str) -> None:
    """Checks a list of bindings by itself; what it refers to is checked where a pass uses it."""
    need_entries(bindings, path)
    need_at_most(MAX_BINDINGS, bindings, "bindings", path)
    for index, binding in enumerate(bindings):
        where = f"{path}[{index}]"
        need_match(IDENTIFIER, binding.variable, f"{where}.name", NAME)
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
            need_match(IDENTIFIER, binding.struct.name, f"{where}.struct.name", NAME)
            need_entries(fields, f"{where}.struct.fields")
            need_at_most(MAX_FIELDS, fields, "fields", f"{where}.struct.fields")
            need_unique(fields, "field", f"{where}.struct.fields", ".name")
            for number, name in enumerate(fields):
                need_match(IDENTIFIER, name, f"{where}.struct.fields[{number}].name", NAME)
    need_unique([binding.variable for binding in bindings], "binding", path, ".name")


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
        need_known(binding.arg, tensors, "tensor", f"{path}.arg")
    elif not any(way in tensors for way in ways):
        need_known(ways[0], tensors, "tensor", f"{path}.name")
    for key, value in (("elementType", binding.element_type), ("length", binding.length)):
        if not isinstance(value, str):
            continue
        if value.startswith("$"):
            known = names.members["constants"] | names.members["derive"]
            need_known(value[1:], known, "constant", f"{path}.{key}")
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
