"""Which names an expression may use where: every name of a manifest is checked before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .documents import step
from .dtypes import STORAGE
from .errors import ManifestError, suggestion
from .expressions import parse
from .functions import FUNCTIONS, device_functions
from .manifest import Manifest, Op, Pass, Variant
from .members import OBJECT_METHODS
from .values import Features

HELPERS = frozenset({*FUNCTIONS, *device_functions(Features())})
_REQUEST = ("shapes", "ranks", "tensorDtypes", "dtypes", "logicalDtypes", "present", "attrs", "args")
_DEVICE = ("device", "tunables", "DISPATCH_FOLD_WIDTH")


@dataclass(frozen=True)
class Names:
    """The names in scope at one place.

    ``known`` are the manifest's own and the namespaces, besides the helper functions; ``members`` lists
    what a namespace holds, as far as the manifest tells; ``elsewhere`` says of a name that exists, but
    not here, why not.
    """

    known: frozenset[str]
    members: Mapping[str, frozenset[str]]
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def plus(self, *names: str, **members: Iterable[str]) -> Names:
        """These names and some more; a namespace given by keyword becomes known with its members."""
        return replace(
            self,
            known=self.known | {*names, *members},
            members={
                **self.members,
                **{name: self.members.get(name, frozenset()) | {*new} for name, new in members.items()},
            },
        )


def contract_names(manifest: Manifest) -> Names:
    """What rules of the contract see: the request, without device or derived values."""
    op = Op(manifest, "")
    tensors = (*op.inputs, *op.outputs)
    named = {name for spec in tensors for name in (spec.role, spec.arg)}
    dtypes = {*manifest.type_constraints, *(s.dtype for s in tensors if s.dtype in STORAGE)}
    members: dict[str, Iterable[str]] = {
        "shapes": named,
        "ranks": named,
        "tensorDtypes": named,
        "dtypes": dtypes,
        "logicalDtypes": dtypes,
        "present": {*(spec.arg for spec in tensors), *op.scalars},
        "attrs": op.attribute_names,
        "args": {*op.scalars, *named},
    }
    elsewhere = {
        **dict.fromkeys(("constants", "source"), "only a pass sees it"),
        **{name: f"a type variable; write dtypes.{name}" for name in manifest.type_constraints},
        **{
            name: "a constant; only source inputs, dispatch and uniforms see constants"
            for constants in _all_constants(manifest)
            for name in constants
        },
        **dict.fromkeys(manifest.derive, "a derived value, which this place does not see"),
    }
    return Names(frozenset(_REQUEST), {k: frozenset(v) for k, v in members.items()}, elsewhere)


def _all_constants(manifest: Manifest) -> Iterable[Mapping[str, Any]]:
    yield manifest.constants
    for variant in manifest.variants:
        yield variant.constants
        yield from (item.constants for item in variant.passes)


def request_names(manifest: Manifest, contract: Names) -> Names:
    """What manifest-level derived values see, before the first of them."""
    return contract.plus(*_DEVICE, tunables=manifest.tunables)


def pass_names(names: Names, manifest: Manifest, variant: Variant, item: Pass) -> Names:
    """What source inputs see: constants and type variables too, bare and as ``constants.NAME``."""
    constants = {*names.members["dtypes"]}
    for level in (manifest.constants, variant.constants, item.constants):
        constants |= level.keys()
    return names.plus(*constants, constants=constants)


def check_derive(entries: Mapping[str, Any], names: Names, path: str) -> Names:
    """Checks derived values in order, each seeing those before it; returns the names with all of them."""
    for name in entries:
        reason = "derived later; a derived value sees those before it"
        names = replace(names, elsewhere={**names.elsewhere, name: reason})
    for name, value in entries.items():
        check_value(value, names, step(path, name))
        names = names.plus(name)
    return names


def check_value(value: Any, names: Names, path: str) -> None:
    """Checks every expression in a value: each text in it, to any depth.

    Raises:
        ManifestError: no expression, an unknown name, or an unknown member of a namespace.
    """
    if isinstance(value, list):
        for index, item in enumerate(value):
            check_value(item, names, step(path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            check_value(item, names, step(path, key))
    elif isinstance(value, str):
        _check_expression(value, names, path)


def _check_expression(text: str, names: Names, path: str) -> None:
    try:
        expression = parse(text)
    except ManifestError as error:
        raise ManifestError(error.message, path=path) from error
    unknown = expression.names - names.known - HELPERS - expression.lenient
    if unknown:
        hints = [_hint(name, names) for name in sorted(unknown)]
        own = sorted(names.known - {*names.members})
        raise ManifestError(
            f"{'; '.join(hints)}, in {text!r}. Known here: {', '.join(own) or 'no own names'}; "
            f"namespaces {', '.join(sorted(names.members))}; functions {', '.join(sorted(HELPERS))}. "
            "A text inside an expression needs its own quotes.",
            path=path,
        )
    for root, member in sorted(expression.members):
        known = names.members.get(root)
        if known is not None and member not in known and member not in OBJECT_METHODS:
            found = ", ".join(sorted(known)) or "nothing"
            raise ManifestError(
                f"{root} has no {member!r}{suggestion(member, [*known])}, in {text!r}; "
                f"it has: {found}",
                path=path,
            )


def _hint(name: str, names: Names) -> str:
    if name in names.elsewhere:
        return f"{name!r} is not known here: it is {names.elsewhere[name]}"
    return f"unknown name {name!r}{suggestion(name, [*names.known, *HELPERS])}"
