"""A card as sections of text and tables, for a terminal and for Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from .card import Attribute, Card, Condition, Support, Tensor, VariantCard


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs and perhaps a table below it. Code stands between backticks."""

    title: str
    level: int = 2
    paragraphs: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def sections(card: Card) -> Iterator[Section]:
    """The whole card in order; what an op has not is left out."""
    since = (f"Since version {card.since_version}.",) if card.since_version is not None else ()
    yield Section(card.op, 1, (card.description, *since))
    yield from contract(card)
    yield _overview(card)
    for support in card.backends:
        yield from variants(f"Variants on {support.backend}", support)
    yield from _legend(card)
    yield from _accuracy(card)
    yield from _speed(card)
    where = f"The manifest is {card.source}."
    yield Section("Source", paragraphs=(where, f"SHA-256 (base64): `{card.digest}`"))


def contract(card: Card) -> Iterator[Section]:
    """What a call must be: tensors, attributes, types and rules."""
    header = ("name", "also called", "dtype", "presence", "shape", "what")
    for title, tensors in (("Inputs", card.inputs), ("Outputs", card.outputs)):
        yield Section(title, 2, (), *_without_empty(header, tuple(map(_tensor, tensors))))
    if card.attributes:
        names = ("name", "default", "may be", "what")
        yield Section("Attributes", 2, (), *_without_empty(names, tuple(map(_attribute, card.attributes))))
    if card.types:
        types = tuple((f"`{name}`", ", ".join(dtypes)) for name, dtypes in card.types.items())
        yield Section("Types", header=("variable", "dtypes"), rows=types)
    if card.rules:
        rules = tuple((f"`{r.argument}`", r.needed, f"`{r.expression}`") for r in card.rules)
        yield Section("Rules", header=("argument", "needed", "expression"), rows=rules)


def variants(title: str, support: Support) -> Iterator[Section]:
    """A backend's variants, with what all of them need said once."""
    if not support.variants:
        yield Section(title, paragraphs=(f"None: {'; '.join(support.refusals)}.",))
        return
    shared = [c for c in support.variants[0].when if all(c in variant.when for variant in support.variants)]
    paragraphs = ["The first whose conditions hold runs, in this order."]
    if shared and len(support.variants) > 1:
        paragraphs.append(f"All of them need: {'; '.join(c.words for c in shared)}.")
    else:
        shared = []
    if not all(variant.batch_invariant for variant in support.variants):
        paragraphs.append("Variants marked * may give a row different bits when the number of rows changes.")
    paragraphs += [f"Not offered: {refusal}." for refusal in support.refusals]
    rows = tuple(row for run in _runs(support.variants) for row in _lines(run, shared))
    header = ("variant", "priority", "dtypes", "runs when", "what")
    yield Section(title, 2, tuple(paragraphs), *_without_empty(header, rows))


def markdown(parts: Iterable[Section]) -> str:
    """The sections as Markdown."""
    blocks = []
    for part in parts:
        blocks += [f"{'#' * part.level} {part.title}", *part.paragraphs]
        if part.header:
            lines = [part.header, ("---",) * len(part.header), *part.rows]
            blocks.append("\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _tensor(tensor: Tensor) -> tuple[str, ...]:
    called = f"`{tensor.called}`" if tensor.called != tensor.name else ""
    presence = "required" if tensor.required else "optional"
    shape = tensor.shape if tensor.shape.startswith("rank ") or not tensor.shape else f"`{tensor.shape}`"
    return (f"`{tensor.name}`", called, f"`{tensor.dtype}`", presence, shape, tensor.description)


def _attribute(attribute: Attribute) -> tuple[str, ...]:
    default = "required" if attribute.required and attribute.default is None else _code(attribute.default)
    allowed = ", ".join(_code(value) for value in attribute.allowed)
    return (f"`{attribute.name}`", default, allowed, attribute.description)


def _code(value: Any) -> str:
    if isinstance(value, float) and value == np.float32(value):
        value = float(str(np.float32(value)))  # 1e-12, which float32 holds as 9.999999960041972e-13
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _dtypes(dtypes: Any) -> str:
    said = {name: ", ".join(each) for name, each in dtypes.items()}
    if len(said) == 1:
        return next(iter(said.values()))
    return "; ".join(f"`{name}`: {each}" for name, each in said.items())


def _overview(card: Card) -> Section:
    rows = tuple(
        (
            support.backend,
            f"{support.priority:g}",
            _dtypes(support.dtypes) if support.variants else "none",
            str(len(support.variants)),
        )
        for support in card.backends
    )
    return Section("Backends", header=("backend", "priority", "dtypes", "variants"), rows=rows)


def _runs(variants: Sequence[VariantCard]) -> list[list[VariantCard]]:
    """Neighbours that differ in some conditions only."""

    def key(variant: VariantCard) -> Any:
        return variant.priority, variant.demoted_when, variant.dtypes, variant.batch_invariant

    return [list(run) for _, run in groupby(variants, key)]


def _lines(run: Sequence[VariantCard], shared: Sequence[Condition]) -> Iterator[tuple[str, ...]]:
    """A line for each variant; before those of a run, one with what they have in common."""
    first = run[0]
    common = [c for c in first.when if c not in shared and all(c in variant.when for variant in run)]
    last = tuple(f"last, if {c.words}" for c in first.demoted_when)
    facts = (f"{first.priority:g}", _dtypes(first.dtypes))
    if len(run) > 1 and (common or last):
        yield (f"{len(run)} variants", *facts, "; ".join((*(c.words for c in common), *last)), "")
        shared, last, facts = [*shared, *common], (), ("", "")
    for variant in run:
        mark = "" if variant.batch_invariant else " *"
        said = "; ".join((*(c.words for c in variant.when if c not in shared), *last))
        yield (f"`{variant.id}`{mark}", *facts, said or "always", variant.description)


def _without_empty(
    header: tuple[str, ...], rows: tuple[tuple[str, ...], ...]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """A table without the columns that are empty."""
    kept = [index for index in range(len(header)) if any(row[index] for row in rows)]
    return tuple(header[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in rows)


def _legend(card: Card) -> Iterator[Section]:
    """The expressions behind the words, and the values they speak of."""
    found: dict[Condition, None] = {}
    for support in card.backends:
        for variant in support.variants:
            found.update(dict.fromkeys((*variant.when, *variant.demoted_when)))
    rows = tuple(
        (c.words, f"`{c.expression}`") for c in found if c.expression not in ("", c.words.strip("`"))
    )
    if rows:
        text = ("The conditions above as the manifest has them.",)
        yield Section("Conditions", 2, text, ("in words", "expression"), rows)
    if card.derived:
        values = tuple((f"`{value.name}`", value.words, f"`{value.expression}`") for value in card.derived)
        header = ("name", "in words", "expression")
        yield Section("Derived values", 2, (), *_without_empty(header, values))


def _accuracy(card: Card) -> Iterator[Section]:
    if not card.accuracy:
        return
    text = (
        "The worst of all cases: share of the tolerance (above 1 is wrong), and distance from the correctly "
        "rounded answer in representable numbers (ULP).",
    )
    rows = tuple(
        (
            a.machine,
            a.backend,
            f"`{a.output}`",
            a.dtype,
            a.share,
            a.max_ulp,
            str(a.cases),
            str(a.failed),
        )
        for a in card.accuracy
    )
    header = ("machine", "backend", "output", "dtype", "share", "ULP", "cases", "failed")
    yield Section("Accuracy", 2, text, header, rows)


def _speed(card: Card) -> Iterator[Section]:
    if not card.speed:
        return
    text = ("As a fraction of what is named; 1 is as fast. Over all sizes that were measured.",)
    rows = tuple(
        (
            s.machine,
            s.backend,
            s.call,
            s.dtype,
            s.of,
            f"{s.median:.2f}",
            f"{s.lowest:.2f}",
            f"{s.highest:.2f}",
            str(s.sizes),
        )
        for s in card.speed
    )
    header = ("machine", "backend", "call", "dtype", "of", "median", "lowest", "highest", "sizes")
    yield Section("Speed", 2, text, header, rows)
