"""A card as data: an op's contract, who runs it under which conditions, and what was measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..deciding.selection import claims_of
from ..dtypes import DTYPES, STORAGE
from ..files import sha256_base64
from ..hookspecs import Claim, Predicate, Refusal
from ..language.expressions import EvaluationError, evaluate, parse
from ..opinfo import Op, TensorSpec
from .phrases import Names, names_of
from .results import NOTHING, Accuracy, Results, Speed, read_results
from .words import in_words, value_in_words

if TYPE_CHECKING:
    from ..catalog import Catalog


@dataclass(frozen=True)
class Tensor:
    """An input or output. ``dtype`` is a type variable or a dtype, ``shape`` an expression or a rank."""

    name: str
    called: str
    dtype: str
    required: bool
    shape: str
    description: str


@dataclass(frozen=True)
class Attribute:
    """An attribute or a scalar argument. ``allowed`` is empty where its values are not listed."""

    name: str
    default: Any
    required: bool
    allowed: tuple[Any, ...]
    description: str


@dataclass(frozen=True)
class Rule:
    """A rule of the contract: what the argument must be, and the expression that checks it."""

    argument: str
    needed: str
    expression: str


@dataclass(frozen=True)
class Condition:
    """What must hold. ``words`` says it; ``expression`` is empty where the backend checks it in Python."""

    words: str
    expression: str


@dataclass(frozen=True)
class Derived:
    """A value that the manifest derives from a request. ``words`` is empty where there are none for it."""

    name: str
    expression: str
    words: str


@dataclass(frozen=True)
class VariantCard:
    """A variant on a backend. ``dtypes`` has, of each type variable with a choice, those
    that no condition excludes."""

    id: str
    priority: float
    dtypes: Mapping[str, tuple[str, ...]]
    when: tuple[Condition, ...]
    demoted_when: tuple[Condition, ...]
    batch_invariant: bool
    description: str


@dataclass(frozen=True)
class Support:
    """How a backend supports the op: variants, highest priority first, and reasons for what it has not."""

    backend: str
    priority: float
    variants: tuple[VariantCard, ...]
    refusals: tuple[str, ...]

    @property
    def dtypes(self) -> dict[str, tuple[str, ...]]:
        """The dtypes of each type variable that some variant takes."""
        found: dict[str, dict[str, None]] = {}
        for variant in self.variants:
            for name, dtypes in variant.dtypes.items():
                found.setdefault(name, {}).update(dict.fromkeys(dtypes))
        return {name: tuple(dtypes) for name, dtypes in found.items()}


@dataclass(frozen=True, repr=False)
class Card:
    """What an op is, who runs it, and how well. ``str()`` is its text in Markdown.

    ``types`` has the dtypes of each type variable, ``source`` says where the manifest comes from, ``digest``
    is its SHA-256 (base64); ``accuracy`` and ``speed`` are what was measured, where results were given.
    """

    op: str
    description: str
    since_version: int | None
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attributes: tuple[Attribute, ...]
    types: Mapping[str, tuple[str, ...]]
    rules: tuple[Rule, ...]
    derived: tuple[Derived, ...]
    backends: tuple[Support, ...]
    source: str
    digest: str
    accuracy: tuple[Accuracy, ...] = ()
    speed: tuple[Speed, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The card as plain data, for JSON."""
        found = asdict(self)
        for data, support in zip(found["backends"], self.backends, strict=True):
            data["dtypes"] = support.dtypes
        return found

    def __str__(self) -> str:
        from .sections import markdown, sections

        return markdown(sections(self))

    def __repr__(self) -> str:
        return f"<card of {self.op}>"


def make_card(catalog: Catalog, op: Op, results: str | Path | None = None) -> Card:
    """The card of an op. ``results`` is a folder with what was measured, as ``docs/`` of this project.

    Raises:
        ContractError: there are no results in that folder, or they cannot be read.
    """
    supports = tuple(
        _support(name, catalog.backend(name).priority, op, claims_of(catalog, name, op))
        for name in sorted(catalog.plugins.backends, key=lambda name: -catalog.backend(name).priority)
    )
    measured = read_results(Path(results), op.id) if results is not None else NOTHING
    return card_of(op, supports, measured)


def card_of(op: Op, supports: tuple[Support, ...], measured: Results = NOTHING) -> Card:
    """The card of an op whose variants are known."""
    m = op.manifest
    place = "/".join(Path(op.file).parts[-2:])
    return Card(
        op=op.id,
        description=m.description,
        since_version=m.since_version,
        inputs=_tensors(op.inputs, m.inputs),
        outputs=_tensors(op.outputs, m.outputs),
        attributes=_attributes(op),
        types={name: tuple(dtypes) for name, dtypes in m.type_constraints.items()},
        rules=tuple(Rule(rule.argument, rule.needed, rule.rule) for rule in m.registry.contract),
        derived=_derived(op),
        backends=supports,
        source=op.package.provenance if op.package else place,
        digest=_digest(op),
        accuracy=measured.accuracy,
        speed=measured.speed,
    )


def own_variants(op: Op) -> Support:
    """The variants of an op's manifest as variants of no backend, by the manifest's conditions alone."""
    claims = [
        Claim(v.id, v.priority, tuple(v.when or ()), tuple(v.demote_when or ()), v.batch_invariant)
        for v in op.manifest.variants
    ]
    return _support("", 0, op, claims)


def admits(conditions: Iterable[str | Predicate], dtypes: Mapping[str, str]) -> bool:
    """Whether the conditions that speak of dtypes alone admit these, on a device that has float16.

    ``dtypes`` are by type variable. What also asks for something else excludes no dtype.
    """
    known = {"dtypes": {name: STORAGE[dtype][1] for name, dtype in dtypes.items()}, "f16Ok": lambda _: True}
    for clause in conditions:
        if isinstance(clause, str) and "dtypes" in (names := parse(clause).names) and names <= known.keys():
            try:
                if evaluate(clause, known) is not True:
                    return False
            except EvaluationError:
                continue
    return True


def _support(backend: str, priority: float, op: Op, claims: Sequence[Claim | Refusal]) -> Support:
    ordered = sorted((c for c in claims if isinstance(c, Claim)), key=lambda c: -c.priority)
    refusals = [c for c in claims if isinstance(c, Refusal)]
    return Support(
        backend,
        priority,
        tuple(_variant(op, claim) for claim in ordered),
        tuple(map(_refusal, refusals)),
    )


def _refusal(refusal: Refusal) -> str:
    whose = "" if refusal.variant == "all" else f"{refusal.variant}, "
    return f"{whose}{refusal.condition}: found {refusal.found}, needed {refusal.needed}"


def _variant(op: Op, claim: Claim) -> VariantCard:
    types = {name: [d for d in ds if d in DTYPES] for name, ds in op.manifest.type_constraints.items()}
    types = {name: dtypes for name, dtypes in types.items() if len(dtypes) > 1} or types
    choices = [dict(zip(types, each, strict=True)) for each in itertools.product(*types.values())]
    admitted = [choice for choice in choices if admits(claim.when, choice)]
    names = names_of(op, claim.variant)
    variant = op.variants.get(claim.variant)
    return VariantCard(
        id=claim.variant,
        priority=claim.priority,
        dtypes={name: tuple(dict.fromkeys(choice[name] for choice in admitted)) for name in types},
        when=tuple(_condition(clause, names) for clause in claim.when),
        demoted_when=tuple(_condition(clause, names) for clause in claim.demote_when),
        batch_invariant=claim.batch_invariant,
        description=variant.description if variant is not None else "",
    )


def _condition(clause: str | Predicate, names: Names) -> Condition:
    if isinstance(clause, Predicate):
        return Condition(f"{clause.condition}: {clause.needed}", "")
    return Condition(in_words(clause, names) or f"`{clause}`", clause)


def _tensors(specs: Iterable[TensorSpec], ports: Iterable[Any]) -> tuple[Tensor, ...]:
    found = []
    for spec, port in zip(specs, ports, strict=True):
        shape = f"rank {port.rank}" if spec.shape is None and port.rank is not None else str(spec.shape or "")
        found.append(Tensor(spec.role, spec.arg, spec.dtype or "any", spec.required, shape, spec.description))
    return tuple(found)


def _attributes(op: Op) -> tuple[Attribute, ...]:
    texts, limits = op.manifest.attribute_descriptions, op.manifest.attribute_constraints
    found = []
    for name in op.attribute_names:
        limit = limits.get(name)
        allowed = tuple(limit.values or ()) if limit else ()
        required = limit is not None and limit.required
        found.append(Attribute(name, op.attributes.get(name), required, allowed, texts.get(name, "")))
    for name, arg in op.scalars.items():
        found.append(Attribute(name, None, arg.required, tuple(arg.one_of or ()), arg.description))
    return tuple(found)


def _derived(op: Op) -> tuple[Derived, ...]:
    names = names_of(op)
    return tuple(
        Derived(
            name,
            str(value),
            (value_in_words(value, names.within(name)) or "") if isinstance(value, str) else "",
        )
        for name, value in op.manifest.derive.items()
    )


def _digest(op: Op) -> str:
    if op.package is not None:
        return op.package.digests.get("manifest.json", "")
    return sha256_base64(Path(op.file).read_bytes())
