"""Manifests as documents of the published dialects."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..cards.card import admits
from ..errors import PackageError
from ..language.functions import RESERVED
from ..manifest import Binding, Manifest, Pass, Variant
from ..opinfo import Op
from . import renaming

DTYPES = ("float16", "float32", "int8", "int16", "int32", "int64", "uint8", "uint32", "bool")
"""What the published dialects know; bfloat16 and float64 are this library's own."""

Document = dict[str, Any]


def published(op: Op) -> Manifest:
    """The manifest as far as the dialects reach: their dtypes, and the variants that can then be chosen.

    Raises:
        PackageError: a type variable or the whole op is left without anything.
    """
    manifest = op.manifest
    kept = {name: [d for d in dtypes if d in DTYPES] for name, dtypes in manifest.type_constraints.items()}
    if empty := [name for name, dtypes in kept.items() if not dtypes]:
        raise PackageError(f"{op.id}: {empty[0]} has no dtype that packages know ({', '.join(DTYPES)})")
    choices = [dict(zip(kept, each, strict=True)) for each in itertools.product(*kept.values())]
    alive = [variant for variant in manifest.variants if any(admits(variant.when or (), c) for c in choices)]
    if not alive:
        raise PackageError(f"{op.id}: no variant is for dtypes that packages know ({', '.join(DTYPES)})")
    return msgspec.structs.replace(manifest, type_constraints=kept, variants=alive)


def write_1_0(manifest: Manifest) -> Document:
    """The manifest in dialect 1.0. Rules of the contract become conditions of every variant.

    Raises:
        PackageError: it has loops or derived values of a pass, which only dialect 2.1 has.
    """
    rules = [rule.rule for rule in manifest.registry.contract]
    for variant in manifest.variants:
        for item in variant.passes:
            if item.loops or item.derive:
                raise PackageError(f"{manifest.name}: pass {item.id} repeats or derives; needed: dialect 2.1")
    document: Document = plain(manifest)
    document.pop("registry", None)
    for variant in document["variants"]:
        variant.pop("batchInvariant", None)
        if rules or "when" in variant:
            variant["when"] = [*rules, *variant.get("when", ())]
    return document


def plain(value: Any) -> Any:
    """Records as objects, without what is the default."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if not isinstance(value, msgspec.Struct):
        return value
    found = {}
    for each in msgspec.structs.fields(value):
        item = getattr(value, each.name)
        default = each.default if each.default_factory is msgspec.NODEFAULT else each.default_factory()
        if item != default:
            found[each.encode_name] = plain(item)
    return found


@dataclass
class Writer:
    """Writes the manifest of an op in dialect 2.1, and its templates to go with it.

    ``templates`` are those the op uses, by path. There a constant and an input of a template are both a
    derived value; an input whose name is taken goes by another one.
    """

    op: Op
    manifest: Manifest
    templates: Mapping[str, str]
    handles: dict[str, Document] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        specs = (*self.op.inputs, *self.op.outputs)
        self._calling = {spec.role: spec.arg for spec in specs}
        self._roots = {root for text in self.templates.values() for root in renaming.roots(text)}
        passes = [item for variant in self.manifest.variants for item in variant.passes]
        values: dict[str, set[str]] = {}
        for item in passes:
            for name, value in item.source.inputs.items():
                values.setdefault(name, set()).add(json.dumps(value))
        known = {*self.manifest.derive, *self.manifest.constants, *self._tensor_names(), *RESERVED}
        for variant in self.manifest.variants:
            known |= {*variant.derive, *variant.constants}
            known |= {name for item in variant.passes for name in item.constants}
        for name, said in values.items():
            same = said == {json.dumps(name)} and name not in self._roots
            free = name not in known and name not in self._roots
            self.inputs[name] = name if same or free else f"{name}Input"

    def _tensor_names(self) -> Iterable[str]:
        return (*self._calling, *self._calling.values(), *self.manifest.type_constraints)

    def rename(self, path: renaming.Path) -> renaming.Path:
        """A path of dialect 1.0 as 2.1 has it: tensors by calling name, constants and inputs bare."""
        head, *rest = path
        if rest and head in ("shapes", "ranks", "tensorDtypes"):
            return (head, self._calling.get(rest[0], rest[0]), *rest[1:])
        if rest and head == "constants":
            return tuple(rest)
        if rest and head == "source":
            return (self.inputs[rest[0]] if rest[0] in self.inputs else rest[0], *rest[1:])
        return path

    def template(self, text: str) -> str:
        """A template with the names of dialect 2.1."""
        return renaming.in_template(text, self.rename)

    def document(self) -> Document:
        """The manifest.

        Raises:
            PackageError: a constant has the name of a derived value and another meaning.
        """
        m = self.manifest
        variants = [self._variant(variant) for variant in m.variants]
        made: Document = {
            "domain": m.domain,
            "name": m.name,
            "description": m.description,
            "sinceVersion": m.since_version,
            "inputs": self._ports(m.inputs),
            "outputs": self._ports(m.outputs),
            "args": {n: _without(plain(a), "semantic", "role", "dtype") for n, a in self.op.scalars.items()},
            "attributes": {
                name: self._described(m.attributes, m.attribute_descriptions, name)
                for name in self.op.attribute_names
            },
            "attributeConstraints": plain(m.attribute_constraints),
            "typeConstraints": m.type_constraints,
            "tunables": {n: self._described(m.tunables, m.tunable_descriptions, n) for n in m.tunables},
            "derive": self._values({**m.derive, **self._constants(m.constants, m.derive)}),
            "when": [renaming.in_expression(rule.rule, self.rename) for rule in m.registry.contract],
            "bindings": self.handles,
            "variants": variants,
        }
        return {key: value for key, value in made.items() if value not in ({}, [], None, "")}

    def _ports(self, ports: Iterable[Any]) -> Document:
        made = {}
        for port in ports:
            entry = {"onnx": port.role, **_without(plain(port), "role")}
            if "shape" in entry:
                entry["shape"] = self._values(entry["shape"])
            required = next(s.required for s in (*self.op.inputs, *self.op.outputs) if s.role == port.role)
            entry.pop("optional", None)
            made[self._calling[port.role]] = entry if required else {**entry, "optional": True}
        return made

    @staticmethod
    def _described(values: Mapping[str, Any], texts: Mapping[str, str], name: str) -> Document:
        entry = {"default": values[name]} if name in values else {}
        return {**entry, "description": texts[name]} if name in texts else entry

    def _values(self, value: Any) -> Any:
        return renaming.in_value(value, self.rename)

    def _constants(self, constants: Mapping[str, Any], *derived: Mapping[str, Any]) -> Document:
        """Constants as derived values: one that repeats what is derived under its name is that."""
        made = {}
        for name, value in constants.items():
            taken = any(name in level for level in derived)
            if (taken and value != name) or name in RESERVED:
                raise PackageError(
                    f"{self.op.id}: the constant {name!r} has the name of another value; rename it"
                )
            if not taken:
                made[name] = value
        return made

    def _variant(self, variant: Variant) -> Document:
        derive = {
            **variant.derive,
            **self._constants(variant.constants, self.manifest.derive, variant.derive),
        }
        made = {
            **_without(plain(variant), "batchInvariant", "constants"),
            "when": self._values(list(variant.when or ())),
            "demoteWhen": self._values(list(variant.demote_when or ())),
            "derive": self._values(derive),
            "intermediates": [
                {**plain(scratch), "shape": self._values(scratch.shape)} for scratch in variant.intermediates
            ],
            "passes": [self._pass(item, variant) for item in variant.passes],
        }
        return {key: value for key, value in made.items() if value not in ({}, [])}

    def _pass(self, item: Pass, variant: Variant) -> Document:
        if item.loops:
            raise PackageError(f"{self.op.id}: pass {item.id} repeats; export the package it is from instead")
        derive = {
            **self._constants(item.constants, self.manifest.derive, variant.derive),
            **item.derive,
            **{
                self.inputs[name]: value
                for name, value in item.source.inputs.items()
                if value != self.inputs[name]
            },
        }
        sets = self.manifest.binding_sets
        bindings = sets[item.bindings] if isinstance(item.bindings, str) else item.bindings
        made = {
            **_without(plain(item), "source", "constants"),
            "shader": item.template,
            "derive": self._values(derive),
            "bindings": [self._handle(binding) for binding in bindings],
            "dispatch": self._values(plain(item.dispatch)),
            "profile": self._values(item.profile),
        }
        return {key: value for key, value in made.items() if value not in ({}, [])}

    def _handle(self, binding: Binding) -> str:
        """The handle of a binding, made when it is met first."""
        entry: Document = {"name": binding.variable, "buffer": binding.buffer.type}
        if binding.struct is not None:
            fields = [_without(plain(each), "semantic", "description") for each in binding.struct.fields]
            entry |= {"structName": binding.struct.name, "struct": self._fields(fields)}
        else:
            ways = (binding.arg, binding.name, binding.role, binding.semantic)
            tensors = {**{arg: arg for arg in self._calling.values()}, **self._calling}
            arg = next((tensors[way] for way in ways if way in tensors), None)
            entry |= {"arg": arg} if arg is not None and binding.scratch is None else {}
            entry |= {"scratch": binding.scratch} if binding.scratch is not None else {}
            entry |= {"elementType": binding.element_type}
            entry |= {"length": binding.length} if binding.length is not None else {}
        for number in itertools.count(1):
            handle = binding.variable if number == 1 else f"{binding.variable}_{number}"
            if self.handles.setdefault(handle, entry) == entry:
                return handle
        raise AssertionError("numbers do not end")

    def _fields(self, fields: list[Document]) -> list[Document]:
        return [
            {key: self._values(item) if key in ("value", "default") else item for key, item in each.items()}
            for each in fields
        ]


def _without(entry: Document, *keys: str) -> Document:
    return {key: item for key, item in entry.items() if key not in keys}
