"""Which names an expression may use where: all are checked when a manifest is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..dtypes import DTYPES
from ..errors import ManifestError, suggestion
from ..language.expressions import parse
from ..language.functions import FUNCTIONS, RESERVED, device_functions
from ..language.members import OBJECT_METHODS
from ..language.values import Features
from ..manifest import Loop, Manifest, Pass, Variant
from ..opinfo import Op
from .documents import step

MAX_EXPRESSIONS = 2**15  # characters of a manifest's expressions, each text once

HELPERS = frozenset({*FUNCTIONS, *device_functions(Features())})
_DEVICE = ("device", "tunables", "DISPATCH_FOLD_WIDTH")


@dataclass(frozen=True)
class Names:
    """The names in scope at one place.

    ``known`` are the manifest's own and the namespaces, besides the helper functions; ``members``
    lists what a namespace holds, as far as the manifest tells; ``elsewhere`` says of a name that
    exists, but not here, why not. ``texts`` are the expressions that the manifest had so far.
    """

    known: frozenset[str]
    members: Mapping[str, frozenset[str]]
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)

    def plus(self, *names: str, **members: Iterable[str]) -> Names:
        """These names and some more; a keyword adds a namespace, or members to it."""
        grown = dict(self.members)
        for name, new in members.items():
            grown[name] = grown.get(name, frozenset()) | {*new}
        return replace(self, known=self.known | {*names, *members}, members=grown)


def tensor_names(op: Op) -> list[str]:
    """What the tensors of an op go by: argument and role of each."""
    return [name for spec in (*op.inputs, *op.outputs) for name in (spec.arg, spec.role)]


def contract_names(op: Op) -> Names:
    """What rules of the contract see: the request, without device or derived values."""
    manifest = op.manifest
    tensors = (*op.inputs, *op.outputs)
    named = tensor_names(op)
    dtypes = {*manifest.type_constraints, *(s.dtype for s in tensors if s.dtype in DTYPES)}
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
    known = {name: frozenset(new) for name, new in members.items()}
    return Names(frozenset(known), known, elsewhere)


def _all_constants(manifest: Manifest) -> Iterable[Mapping[str, Any]]:
    yield manifest.constants
    for variant in manifest.variants:
        yield variant.constants
        yield from (item.constants for item in variant.passes)


def request_names(op: Op, contract: Names) -> Names:
    """What manifest-level derived values see, before the first of them."""
    return contract.plus(*_DEVICE, derive=(), tunables=op.manifest.tunables)


def pass_names(names: Names, op: Op, variant: Variant, item: Pass) -> Names:
    """What source inputs see: constants and type variables, bare and as ``constants.NAME``, and counters."""
    constants = {*names.members["dtypes"]}
    for level in (op.manifest.constants, variant.constants, item.constants):
        constants |= level.keys()
    return loop_names(names, item.loops).plus(*constants, constants=constants)


def loop_names(names: Names, loops: Iterable[Loop]) -> Names:
    """What is seen inside loops: the counters of each, as ``repeat.NAME``."""
    for loop in loops:
        names = names.plus(repeat=("index", "count", loop.index, f"{loop.index}_count"))
    return names


def check_derive(entries: Mapping[str, Any], names: Names, path: str) -> Names:
    """Checks derived values in order, each seeing those before it; returns the names with them all.

    Raises:
        ManifestError: a name is reserved, or an expression is wrong.
    """
    later = dict.fromkeys(entries, "derived later; a derived value sees those before it")
    names = replace(names, elsewhere={**names.elsewhere, **later})
    for name, value in entries.items():
        where = step(path, name)
        if name in RESERVED or name in names.members["dtypes"]:
            reason = f"{name!r} is a word of the language or a type variable; choose another name"
            raise ManifestError(reason, path=where)
        check_value(value, names, where)
        names = names.plus(name, derive=(name,))
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
    if text not in names.texts:  # reading one takes long for its length
        names.texts[text] = len(text) + (next(reversed(names.texts.values())) if names.texts else 0)
        if names.texts[text] > MAX_EXPRESSIONS:
            needed = f"at most {MAX_EXPRESSIONS} characters of different expressions in a manifest"
            raise ManifestError(f"found more; needed: {needed}", path=path)
    try:
        expression = parse(text)
    except ManifestError as error:
        raise ManifestError(error.message, path=path) from error
    unknown = expression.names - names.known - HELPERS - expression.lenient
    if unknown:
        hints = [_hint(name, names) for name in sorted(unknown)]
        said = f"{'; '.join(hints)}, in {text!r}"
        if not unknown <= names.elsewhere.keys():  # of a name that is known elsewhere the hint says it all
            own = sorted(names.known - {*names.members})
            said += (
                f". Known here: {', '.join(own) or 'no own names'}; "
                f"namespaces {', '.join(sorted(names.members))}; "
                f"functions {', '.join(sorted(HELPERS))}. Text inside an expression needs quotes."
            )
        raise ManifestError(said, path=path)
    for root, member in sorted(expression.members):
        known = names.members.get(root)
        if known is not None and member not in known and member not in OBJECT_METHODS:
            found = ", ".join(sorted(known)) or "nothing"
            raise ManifestError(
                f"{root} has no {member!r}{suggestion(member, [*known])}, in {text!r}; it has: {found}",
                path=path,
            )


def _hint(name: str, names: Names) -> str:
    if name in names.elsewhere:
        return f"{name!r} is not known here: it is {names.elsewhere[name]}"
    return f"unknown name {name!r}{suggestion(name, [*names.known, *HELPERS])}"
