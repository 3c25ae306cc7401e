"""Families: variants written once, with ``{name}`` where they differ, and expanded for each case.

A family is a member of ``variants``. It lists its cases as records::

    - cases:
        - {id: row, priority: 10, bias: false}
        - {id: bias_row, priority: 11, bias: true}
      variants:
        - id: "{id}"
          priority: "{priority}"
          when: ["present.b == {bias}"]

or spans them by two axes, each a list of scalars or of records with a ``$key``; ``exclude`` drops
some combinations and ``cases`` adds values to some. A text that is exactly ``{name}`` becomes the
value itself (null deletes the key it stands for, a list inside a list is spliced); inside a longer
text the value must be a scalar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..errors import ManifestError, suggestion
from .documents import MAX_ENTRIES, measure, step

MAX_VARIANTS = 512
MAX_CELLS = 1024  # combinations of two axes, those that are left out included
MAX_TEXT = 256  # characters of a value inserted into a longer text

KEYS = ("cases", "axes", "exclude", "variants", "description")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")

Case = dict[str, Any]


def expand_families(variants: list[Any]) -> tuple[list[Any], list[str]]:
    """The variants with every family written out, in order, and for each its path as written.

    Raises:
        ManifestError: a malformed family, a placeholder no case fills, or too many variants.
    """
    expanded: list[Any] = []
    origins: list[str] = []
    nodes = 0
    for index, member in enumerate(variants):
        path = f"$.variants[{index}]"
        if not isinstance(member, dict) or not {"cases", "axes", "variants"} & member.keys():
            expanded.append(member)
            origins.append(path)
            continue
        _check_keys(member, path)
        templates = _list(member, "variants", path)
        for case in _axes_cases(member, path) if "axes" in member else _cases(member, path):
            for number, template in enumerate(templates):
                where = f"{path}.variants[{number}]"
                expanded.append(_fill(template, case, where))
                origins.append(where)
                nodes = measure(expanded[-1], nodes)
                if len(expanded) > MAX_VARIANTS:
                    raise ManifestError(f"more than {MAX_VARIANTS} variants", path=path)
    return expanded, origins


def _check_keys(family: Mapping[str, Any], path: str) -> None:
    for key in family:
        if key not in KEYS:
            raise ManifestError(
                f"unknown key {key!r} in a family{suggestion(key, KEYS)}; allowed: {', '.join(KEYS)}",
                path=step(path, key),
            )


def _list(record: Mapping[str, Any], key: str, path: str) -> list[Any]:
    value = record.get(key)
    if not isinstance(value, list) or not value:
        raise ManifestError(f"{key} is {value!r}; needed: a list, not empty", path=f"{path}.{key}")
    return value


def _record(value: Any, path: str) -> Case:
    if not isinstance(value, dict):
        raise ManifestError(f"found {value!r}; needed: a record of names and values", path=path)
    return value


def _cases(family: Mapping[str, Any], path: str) -> list[Case]:
    return [
        _record(case, f"{path}.cases[{index}]") for index, case in enumerate(_list(family, "cases", path))
    ]


def _axes_cases(family: Mapping[str, Any], path: str) -> list[Case]:
    axes = _record(family["axes"], f"{path}.axes")
    if len(axes) != 2:
        raise ManifestError(f"{len(axes)} axes; needed: exactly two", path=f"{path}.axes")
    rows, columns = (
        [
            _axis_value(name, value, f"{path}.axes.{name}[{index}]")
            for index, value in enumerate(_list(axes, name, f"{path}.axes"))
        ]
        for name in axes
    )
    if len(rows) * len(columns) > MAX_CELLS:
        found = f"{len(rows)} times {len(columns)} combinations"
        raise ManifestError(f"{found}; needed: at most {MAX_CELLS}", path=f"{path}.axes")
    for row in rows:
        for column in columns:
            if shared := row.keys() & column.keys():
                raise ManifestError(f"both axes give {', '.join(sorted(shared))}", path=f"{path}.axes")
    cells = [{**row, **column} for row in rows for column in columns]
    excluded = _overlays(family, "exclude", list(axes), cells, path)
    cells = [cell for cell in cells if not any(_matches(cell, e, list(axes)) for e in excluded)]
    for overlay in _overlays(family, "cases", list(axes), cells, path):
        for cell in cells:
            if _matches(cell, overlay, list(axes)):
                cell.update(overlay)
    return cells


def _axis_value(axis: str, value: Any, path: str) -> Case:
    if not isinstance(value, dict):
        return {axis: value}
    if "$key" not in value:
        raise ManifestError("a record of an axis has no $key, the value of the axis", path=path)
    return {axis: value["$key"], **{key: item for key, item in value.items() if key != "$key"}}


def _overlays(
    family: Mapping[str, Any], key: str, axes: list[str], cells: list[Case], path: str
) -> list[Case]:
    overlays = []
    for index, value in enumerate(_list(family, key, path) if key in family else ()):
        where = f"{path}.{key}[{index}]"
        overlay = _record(value, where)
        if not overlay.keys() & set(axes) or not any(_matches(c, overlay, axes) for c in cells):
            raise ManifestError(f"{overlay} matches no combination of {' and '.join(axes)}", path=where)
        overlays.append(overlay)
    return overlays


def _matches(cell: Case, pattern: Case, axes: list[str]) -> bool:
    return all(cell[axis] == pattern[axis] for axis in axes if axis in pattern)


def _fill(value: Any, case: Case, path: str) -> Any:
    if isinstance(value, str):
        whole = _PLACEHOLDER.fullmatch(value)
        return _lookup(case, whole[1], path) if whole else _interpolate(value, case, path)
    if isinstance(value, list):
        return _fill_list(value, case, path)
    if isinstance(value, dict):
        return _fill_record(value, case, path)
    return value


def _fill_list(items: list[Any], case: Case, path: str) -> list[Any]:
    filled: list[Any] = []
    for index, item in enumerate(items):
        where = step(path, index)
        new = _fill(item, case, where)
        if isinstance(item, str) and new is None:
            raise ManifestError(f"{item} is null and cannot delete a list's element", path=where)
        filled += new if isinstance(item, str) and isinstance(new, list) else [new]
        if len(filled) > MAX_ENTRIES:
            raise ManifestError(f"the list has more than {MAX_ENTRIES} entries after expansion", path=path)
    return filled


def _fill_record(record: Case, case: Case, path: str) -> Case:
    filled: Case = {}
    for key, item in record.items():
        where = step(path, key)
        name = _interpolate(key, case, where)
        if name in filled:
            raise ManifestError(f"the key {name!r} is there twice after expansion", path=where)
        new = _fill(item, case, where)
        if not (isinstance(item, str) and new is None):
            filled[name] = new
        elif name in ("id", "passes"):
            raise ManifestError(f"{item} is null; a variant needs its {name}", path=where)
    return filled


def _interpolate(text: str, case: Case, path: str) -> str:
    def insert(match: re.Match[str]) -> str:
        value = _lookup(case, match[1], path)
        shown = value if isinstance(value, str) else json.dumps(value)
        if value is None or isinstance(value, dict | list) or len(shown) > MAX_TEXT:
            raise ManifestError(
                f"{match[0]} is {shown[:80]}; needed inside a text: a scalar of at most "
                f"{MAX_TEXT} characters",
                path=path,
            )
        return shown

    return _PLACEHOLDER.sub(insert, text)


def _lookup(case: Case, name: str, path: str) -> Any:
    if name not in case:
        raise ManifestError(
            f"no case gives a value for {{{name}}}{suggestion(name, list(case))}; found: {', '.join(case)}",
            path=path,
        )
    return case[name]
