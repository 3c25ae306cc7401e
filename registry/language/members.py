"""What expressions can reach inside a value: entries, list items, and a fixed table of methods.

Nothing here touches a Python attribute by name, so no expression gets at the objects behind values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from .meter import MANY, spend
from .values import (
    LIST,
    NUMBER,
    OBJECT,
    UNDEFINED,
    EvaluationError,
    Features,
    bounded,
    check_size,
    describe,
    tag,
)

_WORD_START = re.compile(r"\b[a-z]")


class Namespace(dict[str, Any]):
    """An object that a template made with ``namespace()``: the only kind whose entries it may set."""


def member(owner: Any, name: str) -> Any:
    """``owner.name``, a number with the tag it has when read."""
    return tag(entry(owner, name))


def item(owner: Any, index: Any) -> Any:
    """``owner[index]``, a number with the tag it has when read. Raises as ``element`` does."""
    return tag(element(owner, index))


def entry(owner: Any, name: str) -> Any:
    """``owner.name`` as it stands: an entry, else a method, else ``UNDEFINED``."""
    if isinstance(owner, OBJECT):
        if name in owner:
            return owner[name]
        method = OBJECT_METHODS.get(name)
    elif isinstance(owner, Features):
        if name == "has":
            return owner.has
        return owner.size if name == "size" else UNDEFINED
    elif isinstance(owner, str):
        if name == "length":
            return len(owner)
        method = TEXT_METHODS.get(name)
    elif isinstance(owner, LIST) and name == "length":
        return len(owner)
    else:
        return UNDEFINED
    return UNDEFINED if method is None else partial(method, owner)


def element(owner: Any, index: Any) -> Any:
    """``owner[index]`` as it stands: a member for text, an element for an Integer, else ``UNDEFINED``.

    Raises:
        EvaluationError: an index of another kind (a Float such as 8/4 too), an owner without items.
    """
    if isinstance(index, str) and isinstance(owner, (str, *LIST, *OBJECT, Features)):
        return entry(owner, index)
    if not isinstance(owner, (str, *LIST)):
        raise EvaluationError(f"{describe(owner)} has no items to index with {describe(index)}")
    if not isinstance(index, int) or isinstance(index, bool):
        raise EvaluationError(f"an index must be an Integer, found {describe(index)}")
    return owner[index] if -len(owner) <= index < len(owner) else UNDEFINED


def part(owner: Any, start: Any, stop: Any, step: Any) -> Any:
    """``owner[start:stop:step]`` of a list or a text; None stands for a bound that was left out.

    Raises:
        EvaluationError: an owner of another kind, a bound that is no Integer, a step of 0.
    """
    if not isinstance(owner, (str, *LIST)):
        raise EvaluationError(f"{describe(owner)} cannot be sliced")
    for bound in (start, stop, step):
        if bound is not None and (not isinstance(bound, int) or isinstance(bound, bool)):
            raise EvaluationError(f"a slice bound must be an Integer, found {describe(bound)}")
    if step == 0:
        raise EvaluationError("a slice step must not be 0")
    found = owner[start:stop:step]
    if len(found) >= MANY:
        spend(len(found))
    return found


def title(text: str) -> str:
    """The text with the first letter of every word in upper case."""
    return _WORD_START.sub(lambda match: match.group().upper(), text)


def capitalize(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def replace(text: str, old: str, new: str, count: int | None = None) -> str:
    """The text with ``old`` replaced by ``new``, at most ``count`` times."""
    found = text.count(old)
    check_size(len(text) + found * max(0, len(new) - len(old)), "characters of text")
    return text.replace(old, new, -1 if count is None else count)


def _split(text: str, separator: str | None = None, limit: int = -1) -> list[str]:
    return str(bounded(text)).split(separator, limit)


def get(owner: Mapping[str, Any], key: str, default: Any = None) -> Any:
    """The entry ``key`` of an object, else ``default`` (null)."""
    return owner.get(key, default)


def items(owner: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The entries of an object as pairs."""
    return list(owner.items())


def keys(owner: Mapping[str, Any]) -> list[str]:
    """The keys of an object."""
    return list(owner)


def values(owner: Mapping[str, Any]) -> list[Any]:
    """The values of an object."""
    return list(owner.values())


def sort_values(
    elements: list[Any] | tuple[Any, ...],
    *,
    reverse: bool = False,
    case_sensitive: bool = False,
    key: Callable[[Any], Any] = lambda element: element,
) -> list[Any]:
    """The elements sorted by ``key``, which gives numbers only or texts only.

    Raises:
        EvaluationError: the keys are of mixed or other kinds.
    """
    ranks = [key(element) for element in elements]
    if all(isinstance(rank, str) for rank in ranks):
        ranks = ranks if case_sensitive else [rank.casefold() for rank in ranks]
    elif not all(isinstance(rank, NUMBER) for rank in ranks):
        raise EvaluationError(f"cannot sort {describe(ranks)}: needs only numbers or only texts")
    order = sorted(range(len(ranks)), key=ranks.__getitem__, reverse=bool(reverse))
    return [elements[index] for index in order]


def dictsort(
    owner: Mapping[str, Any], case_sensitive: bool = False, by: str = "key", reverse: bool = False
) -> list[Any]:
    """The entries of an object as pairs, sorted by key or, with ``by="value"``, by value."""
    column = 1 if by == "value" else 0
    return sort_values(
        items(owner),
        reverse=reverse,
        case_sensitive=case_sensitive,
        key=lambda pair: pair[column],
    )


OBJECT_METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    "get": get,
    "items": items,
    "keys": keys,
    "values": values,
    "dictsort": dictsort,
}

TEXT_METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    "upper": lambda text: bounded(bounded(text).upper()),
    "lower": lambda text: bounded(bounded(text).lower()),
    "strip": lambda text: text.strip(),
    "lstrip": lambda text: text.lstrip(),
    "rstrip": lambda text: text.rstrip(),
    "title": lambda text: title(bounded(text)),
    "capitalize": lambda text: capitalize(bounded(text)),
    "startswith": lambda text, prefix: text.startswith(prefix),
    "endswith": lambda text, suffix: text.endswith(suffix),
    "split": _split,
    "replace": replace,
}
