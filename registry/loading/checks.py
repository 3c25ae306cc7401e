"""What must hold in a manifest beyond the types of its fields, checked once when it is loaded."""

from __future__ import annotations

import re

from ..dtypes import DTYPES, FLOATS
from ..errors import ManifestError
from ..manifest import Manifest, Port, value_key
from ..opinfo import Op
from .basics import (
    IDENTIFIER,
    NAME,
    need_entries,
    need_identifiers,
    need_known,
    need_match,
    need_unique,
    one_of,
)
from .documents import refuse, step
from .names import Names, check_derive, check_value, contract_names, request_names, tensor_names
from .variants import check_bindings, check_variants

_DOMAIN = re.compile(r"[a-z][a-z0-9]*(?:\.[A-Za-z][A-Za-z0-9_]*)*")


def check_manifest(manifest: Manifest) -> None:
    """Checks names, references, forms and every expression of a manifest.

    Raises:
        ManifestError: the first fault, with its path, what was found and what is needed.
    """
    _check_header(manifest)
    _check_args(manifest)
    _check_attributes(manifest)
    for name, bindings in manifest.binding_sets.items():
        check_bindings(bindings, step("$.bindingSets", name))
    op = Op(manifest, "")
    contract = contract_names(op)
    request = request_names(op, contract)
    need_identifiers(manifest.derive, "$.derive")
    derived = check_derive(manifest.derive, request, "$.derive")
    _check_extensions(op, contract, derived)
    for index, port in enumerate(manifest.outputs):
        check_value(port.shape, derived, f"$.outputs[{index}].shape")
    check_value(manifest.constants, derived, "$.constants")
    check_variants(op, derived)


def _check_header(manifest: Manifest) -> None:
    need_match(_DOMAIN, manifest.domain, "$.domain", "a domain such as ai.onnx")
    need_match(IDENTIFIER, manifest.name, "$.name", NAME)
    for variable, dtypes in manifest.type_constraints.items():
        path = step("$.typeConstraints", variable)
        need_match(IDENTIFIER, variable, path, NAME)
        need_entries(dtypes, path)
        for index, dtype in enumerate(dtypes):
            need_known(dtype, DTYPES, "dtype", step(path, index))
    given = {port.role for port in manifest.inputs}
    for kind, ports in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        need_unique([port.role for port in ports], "role", f"$.{kind}", ".role")
        for index, port in enumerate(ports if kind == "outputs" else ()):
            if port.role in given:
                needed = "another one than any input; one tensor in place is not supported"
                refuse(f"role {port.role!r}", needed, f"$.outputs[{index}].role")
        for index, port in enumerate(ports):
            _check_port(port, manifest, f"$.{kind}[{index}]")
    need_identifiers(manifest.tunables, "$.tunables")
    need_identifiers(manifest.constants, "$.constants")


def _check_port(port: Port, manifest: Manifest, path: str) -> None:
    need_match(IDENTIFIER, port.role, f"{path}.role", NAME)
    if port.dtype is not None:
        known = (*manifest.type_constraints, *DTYPES)
        need_known(port.dtype, known, "dtype or type variable", f"{path}.dtype")


def _check_args(manifest: Manifest) -> None:
    need_entries(manifest.args, "$.args")
    need_identifiers(manifest.args, "$.args")
    ports = (*manifest.inputs, *manifest.outputs)
    roles = [port.role for port in ports]
    optional = {port.role for port in ports if port.optional}
    taken: dict[str, str] = {}
    for name, arg in manifest.args.items():
        path = f"$.args.{name}"
        if arg.dtype is not None:
            need_known(arg.dtype, DTYPES, "dtype", f"{path}.dtype")
        if arg.kind == "tensor":
            if arg.semantic is None:
                refuse("a tensor without semantic", f"the role it binds: {one_of(roles)}", path)
            need_known(arg.semantic, roles, "role", f"{path}.semantic")
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
            need_entries(arg.one_of, f"{path}.oneOf")


def _check_attributes(manifest: Manifest) -> None:
    names = (*manifest.attributes, *manifest.attribute_names)
    need_unique(names, "attribute", "$.attributeNames", "", len(manifest.attributes))
    for name, default in manifest.attributes.items():
        if isinstance(default, dict):
            wanted = "an attribute's default stands by itself: a number, a string, a list"
            raise ManifestError(f"found an object {default}; {wanted}", path=step("$.attributes", name))
    for name, constraint in manifest.attribute_constraints.items():
        path = step("$.attributeConstraints", name)
        need_known(name, names, "attribute", path)
        values = constraint.values
        if values is None and not constraint.required:
            refuse("neither required: true nor values", "at least one of them", path)
        if constraint.required and name in manifest.attributes:
            refuse("required, with a default", "one or the other", f"{path}.required")
        if values is None:
            continue
        need_entries(values, f"{path}.values")
        seen: set[object] = set()
        for index, value in enumerate(values):
            if value_key(value) in seen:
                refuse(f"{value!r} again", "each value once", f"{path}.values[{index}]")
            seen.add(value_key(value))
        if name in manifest.attributes and not constraint.allows(manifest.attributes[name]):
            default = manifest.attributes[name]
            refuse(f"the default {default!r}", f"one of {values}", step("$.attributes", name))


def _check_extensions(op: Op, contract: Names, derived: Names) -> None:
    arguments = (*tensor_names(op), *op.scalars, *op.attribute_names)
    for index, rule in enumerate(op.manifest.registry.contract):
        path = f"$.registry.contract[{index}]"
        need_known(rule.argument, arguments, "tensor, argument or attribute", f"{path}.argument")
        check_value(rule.rule, contract, f"{path}.rule")
    check_value(op.manifest.registry.bytes_moved, contract, "$.registry.bytesMoved")
    check_value(op.manifest.registry.independent_axes, derived, "$.registry.independentAxes")
    for name, values in op.manifest.registry.tune.items():
        need_known(name, op.tunables, "tunable", step("$.registry.tune", name))
        need_entries(values, step("$.registry.tune", name))
    for name in op.manifest.registry.tolerance:
        need_known(name, FLOATS, "floating-point dtype", step("$.registry.tolerance", name))
