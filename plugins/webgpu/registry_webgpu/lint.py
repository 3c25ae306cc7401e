"""What one WGSL compiler lets pass and another refuses, or a device gets wrong: findings on a source's text.

Rules:

- ``divergent-barrier``: a ``return`` under a condition that may differ within a workgroup, with a barrier
  after it; a barrier within such a branch, or in a loop that such a branch leaves.
- ``loop-barrier``: a barrier in a loop whose bound may differ within a workgroup.
- ``subgroup-size``: a subgroup size taken for granted: 31, 32, 63 or 64 in a statement with a subgroup
  operation or value; the local index divided or masked by such a number where a source uses subgroups; the
  built-in ``num_subgroups`` (a driver was seen rounding it down); ``subgroup_id`` in a workgroup of several
  dimensions.
- ``endless-loop``: nothing in a loop brings it to its end.
- ``unreadable``: brackets do not match; nothing else was checked.

The same within a workgroup are constants, uniforms, ``workgroup_id``, ``num_workgroups``, ``subgroup_size``,
``num_subgroups``, ``workgroupUniformLoad``, and what is computed from these alone. All else may differ,
storage of every kind included, though WGSL lets read-only storage count as the same.

What it cannot see: a variable that differs anywhere counts as differing everywhere, as does one whose address
is taken; a function's parameters are what any of its calls gives them; what a pointer leads to is not
followed. Subgroup operations in branches are left to the compiler. A loop's end is read off its head and its
breaks, as a comparison of a variable that the loop changes; a step that is zero when it runs, a bound that
moves along and overflow go unseen. An index that reached another name before it is divided goes unseen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from registry.hookspecs import Finding

from .syntax import Function, Module, Statement, Unreadable, parse
from .uniformity import Uniformity, all_words
from .words import Words, closing, split

_SUBGROUP_CALL = re.compile(r"(subgroup|quad)[A-Z]")
_SUBGROUP_VALUE = re.compile(r"subgroup_|num_subgroups")
_INDICES = frozenset({"local_invocation_index", "local_invocation_id", "global_invocation_id"})
_SIZE = re.compile(r"(31|32|63|64)[ui]?\Z")
_SHIFT = re.compile(r"[56][ui]?\Z")
_ZERO, _ONE = re.compile(r"0+[ui]?\Z"), re.compile(r"1[ui]?\Z")
_UP, _DOWN = frozenset({"+=", "*=", "<<=", "++", "="}), frozenset({"-=", "/=", ">>=", "--", "="})
_TOWARDS = {"<": _UP, "<=": _UP, ">": _DOWN, ">=": _DOWN, "!=": _UP | _DOWN, "==": frozenset({"="})}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!=", "==": "=="}
_LOOPS = ("for", "while", "loop")

Steps = Mapping[str, set[str]]


def lint(source: str) -> tuple[Finding, ...]:
    """The findings on a source, by line."""
    try:
        return _findings(parse(source))
    except Unreadable as error:
        return (Finding("unreadable", error.line, str(error)),)
    except RecursionError:
        return (Finding("unreadable", 1, "blocks nest too deep"),)


def _findings(module: Module) -> tuple[Finding, ...]:
    found = {*Uniformity(module).findings(), *_subgroup_sizes(module)}
    for function in module.functions:
        found |= set(_endless_loops(function.body))
    return tuple(sorted(found, key=lambda finding: (finding.line, finding.rule, finding.text)))


# Subgroup sizes


def _subgroup_sizes(module: Module) -> Iterator[Finding]:
    words = {f.name: all_words(f.body) for f in module.functions}
    calls = (use.name for run in words.values() for w in run for use in w.uses if use.call)
    values = [(f, name, line, b) for f in module.functions for name, line, b in _builtins(module, f)]
    used = any(map(_SUBGROUP_CALL.match, calls)) or any(_SUBGROUP_VALUE.match(b) for _, _, _, b in values)
    for function, _, line, builtin in values:
        if builtin == "num_subgroups":
            text = "num_subgroups is wrong on some drivers; divide the workgroup's size by subgroup_size"
            yield Finding("subgroup-size", line, text)
        if builtin == "subgroup_id" and any(size.texts != ("1",) for size in _beyond_x(function)):
            text = (
                f"subgroup_id in a workgroup of {function.workgroup.text}: the order of invocations is open"
            )
            yield Finding("subgroup-size", line, text)
    for function in module.functions if used else ():
        own = {name for f, name, _, b in values if f is function and _SUBGROUP_VALUE.match(b)}
        indices = {name for f, name, _, b in values if f is function and b in _INDICES}
        for run in words[function.name]:
            text = f"`{run.text}` takes a subgroup size for granted"
            if _beside_subgroups(run, own) or _cuts(run, indices):
                yield Finding("subgroup-size", run.line, text)


def _builtins(module: Module, function: Function) -> Iterator[tuple[str, int, str]]:
    """The built-in values a function gets: name, line, built-in. A struct's are named ``name.member``."""
    for parameter in function.parameters:
        if parameter.builtin:
            yield parameter.name, parameter.line, parameter.builtin
        for member, builtin in module.builtins.get(parameter.type, {}).items():
            yield f"{parameter.name}.{member}", parameter.line, builtin


def _beyond_x(function: Function) -> list[Words]:
    return [
        Words(tuple(t.rstrip("ui") for t in s.texts), s.line, s.key) for s in split(function.workgroup, ",")
    ][1:]


def _beside_subgroups(words: Words, values: set[str]) -> bool:
    subgroups = any(
        _SUBGROUP_CALL.match(use.name) if use.call else {use.name, f"{use.name}.{use.member}"} & values
        for use in words.uses
    )
    return subgroups and any(map(_SIZE.match, words.texts))


def _cuts(words: Words, indices: set[str]) -> bool:
    """Whether a local index is divided, masked or shifted by a likely subgroup size."""
    texts = words.texts
    for at in range(1, len(texts) - 1):
        number = _SHIFT if texts[at] == ">>" else _SIZE
        if texts[at] in ("&", "%", "/", ">>") and number.match(texts[at + 1]):
            before = texts[max(at - 5, 0) : at]
            names = {before[-1], *before[-3:-2], "".join(before[-3:]), "".join(before[-5:-2])}
            if names & indices:
                return True
    return False


# Loops


def _endless_loops(statements: tuple[Statement, ...]) -> Iterator[Finding]:
    for item in statements:
        if item.kind in _LOOPS and not _ends(item):
            head = f"{item.kind} {item.words.text}".strip()
            yield Finding("endless-loop", item.words.line, f"nothing in the loop brings `{head}` to its end")
        for inner in (item.body, item.otherwise):
            yield from _endless_loops(inner)


def _ends(loop: Statement) -> bool:
    steps = _steps(loop.after + loop.body)
    if loop.kind != "loop" and loop.words and _bounds(loop.words, steps):
        return True
    return any(
        not conditions or any(use.name in steps for condition in conditions for use in condition.uses)
        for conditions in _exits(loop.body, (), own=True)
    )


def _steps(statements: tuple[Statement, ...]) -> Steps:
    """The variables that statements change, each with the operators that do; ``i = i + 1`` is ``+=``."""
    found: dict[str, set[str]] = {}
    for words in all_words(statements):
        for use in words.uses:
            if use.address:
                found.setdefault(use.name, set()).add("=")
        if words.assignment is None:
            continue
        name, operator, value = words.assignment
        first = value.texts[0] if len(value.texts) == 1 else ""
        if operator in ("+=", "-=", "<<=", ">>=") and _ZERO.match(first):
            continue
        if operator in ("*=", "/=") and _ONE.match(first):
            continue
        if operator == "=" and value.texts[:1] == (name,) and value.texts[1:2] and len(value.texts) == 3:
            operator = f"{value.texts[1]}="
        found.setdefault(name, set()).add(operator)
    return found


def _bounds(condition: Words, steps: Steps) -> bool:
    """Whether a condition becomes false by the steps: one part of every alternative does."""
    condition = _bare(condition)
    alternatives = split(condition, "||")
    if len(alternatives) > 1:
        return all(_bounds(part, steps) for part in alternatives)
    parts = split(condition, "&&")
    if len(parts) > 1:
        return any(_bounds(part, steps) for part in parts)
    for operator in _TOWARDS:
        sides = split(condition, operator)
        if len(sides) == 2:
            left, right = sides
            never = operator == ">=" and right.texts == ("0u",)
            return not never and (
                _moves(left, steps, _TOWARDS[operator]) or _moves(right, steps, _TOWARDS[_MIRRORED[operator]])
            )
    return any(use.name in steps for use in condition.uses)


def _moves(side: Words, steps: Steps, operators: frozenset[str]) -> bool:
    return any(not use.call and steps.get(use.name, set()) & operators for use in side.uses)


def _bare(words: Words) -> Words:
    """Without brackets around the whole."""
    while words.texts[:1] == ("(",) and closing(words.texts, 0) == len(words.texts) - 1:
        words = words.part(1, -1)
    return words


def _exits(
    statements: tuple[Statement, ...], conditions: tuple[Words, ...], own: bool
) -> Iterator[tuple[Words, ...]]:
    """The conditions before each way out of a loop; ``own`` tells whether a ``break`` here is the loop's."""
    for item in statements:
        if item.kind == "return" or (item.kind == "break" and own):
            yield (*conditions, item.words) if item.words and item.kind == "break" else conditions
        inside = (*conditions, item.words) if item.kind in ("if", "switch", *_LOOPS) else conditions
        ours = own and item.kind not in ("switch", *_LOOPS)
        for inner in (item.body, item.otherwise):
            yield from _exits(inner, inside, ours)
