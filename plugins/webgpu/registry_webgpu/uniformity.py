"""Barriers that part of a workgroup may miss: which values differ within it, and what they decide."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from registry.hookspecs import Finding

from .syntax import Function, Module, Statement
from .words import Use, Words

BARRIERS = frozenset({"workgroupBarrier", "storageBarrier", "textureBarrier", "workgroupUniformLoad"})
SAME = frozenset({"workgroup_id", "num_workgroups", "subgroup_size", "num_subgroups"})
_DIFFERING_CALL = re.compile(r"(subgroup|quad|atomic)[A-Z]")

Key = int | tuple[int, str]


@dataclass(frozen=True)
class _Cause:
    """Why only part of a workgroup may come to a place: a branch, a loop's bound, or a return before."""

    kind: str
    line: int
    condition: str

    def finding(self, barrier: int) -> Finding:
        """What is said of a barrier at such a place."""
        rule = "loop-barrier" if self.kind == "loop" else "divergent-barrier"
        how = {
            "branch": f"`{self.condition}` leads to the barrier of line {barrier}",
            "leave": f"`{self.condition}` leaves a loop with the barrier of line {barrier}",
            "loop": f"the loop's bound `{self.condition}` decides over the barrier of line {barrier}",
            "return": f"`{self.condition}` returns before the barrier of line {barrier}",
        }
        return Finding(rule, self.line, f"{how[self.kind]}, and may differ within a workgroup")


@dataclass(frozen=True)
class _Place:
    """Where a statement stands: its function, what it depends on, and the loops that it may leave.

    A loop is its key and the number of causes outside it.
    """

    function: Function
    causes: tuple[_Cause, ...] = ()
    breaks: tuple[int, int] | None = None
    continues: tuple[int, int] | None = None

    @property
    def divided(self) -> bool:
        """Whether a branch or loop runs for part of the workgroup here, returned invocations aside."""
        return any(cause.kind != "return" for cause in self.causes)

    def under(self, *causes: _Cause) -> _Place:
        """The same place, depending on more."""
        return replace(self, causes=(*self.causes, *causes)) if causes else self


class Uniformity:
    """Follows values through a module until nothing new is found to differ."""

    def __init__(self, module: Module):
        self._module = module
        self._functions = {function.name: function for function in module.functions}
        self._differing: set[Key] = set()
        self._results: set[str] = set()
        self._left: dict[int, frozenset[_Cause]] = {}
        self._barriers = _with_barriers(module)
        self._found: set[Finding] = set()

    def findings(self) -> set[Finding]:
        """The findings of the barrier rules."""
        before = None
        while before != (before := (len(self._differing), len(self._results), dict(self._left))):
            self._found.clear()
            for function in reversed(self._module.functions):  # callers mostly stand last
                self._block(function.body, self._parameters(function), _Place(function))
        return self._found

    def _parameters(self, function: Function) -> dict[str, Key]:
        scope: dict[str, Key] = {}
        for parameter in function.parameters:
            scope[parameter.name] = parameter.key
            if parameter.builtin and parameter.builtin not in SAME:
                self._differing.add(parameter.key)
            for member, builtin in self._module.builtins.get(parameter.type, {}).items():
                scope[f"{parameter.name}.{member}"] = (parameter.key, member)
                if builtin not in SAME:
                    self._differing |= {(parameter.key, member), parameter.key}
        return scope

    def _differs(self, words: Words, scope: Mapping[str, Key]) -> bool:
        return any(self._use_differs(use, scope) for use in words.uses)

    def _use_differs(self, use: Use, scope: Mapping[str, Key]) -> bool:
        if use.call:
            return use.name in self._results or _DIFFERING_CALL.match(use.name) is not None
        key = scope.get(f"{use.name}.{use.member}") if use.member else None
        key = scope.get(use.name) if key is None else key
        if key is not None:
            return key in self._differing
        return self._module.variables.get(use.name, "uniform") != "uniform"

    # Each gives the returns that part of the workgroup may have taken, for what comes after.

    def _block(
        self, statements: tuple[Statement, ...], outer: Mapping[str, Key], place: _Place
    ) -> tuple[_Cause, ...]:
        scope = dict(outer)
        returned: tuple[_Cause, ...] = ()
        for statement in statements:
            returned += self._statement(statement, scope, place.under(*returned))
        return returned

    def _statement(self, item: Statement, scope: dict[str, Key], place: _Place) -> tuple[_Cause, ...]:
        self._expression(item.words, scope, place)
        differs = self._differs(item.words, scope)
        if item.kind in ("block", "case", "continuing"):
            return self._block(item.body, scope, place)
        if item.kind in ("if", "switch"):
            if item.kind == "switch":
                place = replace(place, breaks=None)
            inside = place
            if differs:
                inside = place.under(_Cause("branch", item.words.line, item.words.text))
            return self._block(item.body, scope, inside) + self._block(item.otherwise, scope, inside)
        if item.kind in ("for", "while", "loop"):
            return self._loop(item, dict(scope), place)
        if item.kind in ("let", "var", "const"):
            scope[item.name] = item.words.key
            if differs:
                self._differing.add(item.words.key)
        elif item.kind == "return":
            if differs or place.divided:
                self._results.add(place.function.name)
            dividing = [cause for cause in place.causes if cause.kind != "return"]
            return tuple(_Cause("return", item.words.line, cause.condition) for cause in dividing[-1:])
        elif item.kind in ("break", "continue"):
            self._leave(item, place, differs)
        elif item.words.assignment is not None:
            self._assign(item.words, scope, place)
        return ()

    def _loop(self, item: Statement, scope: dict[str, Key], place: _Place) -> tuple[_Cause, ...]:
        for statement in item.before:
            self._statement(statement, scope, place)
        key = item.words.key
        self._expression(item.words, scope, place)
        loop = (key, len(place.causes))
        inside = replace(place, breaks=loop, continues=loop).under(*self._left.get(key, ()))
        if self._differs(item.words, scope):
            inside = inside.under(_Cause("loop", item.words.line, item.words.text))
        returned = self._block((*item.body, *item.after), scope, inside)
        if returned:  # the invocations that are left go round again
            self._left[key] = self._left.get(key, frozenset()) | set(returned)
        return returned

    def _leave(self, item: Statement, place: _Place, differs: bool) -> None:
        loop = place.breaks if item.kind == "break" else place.continues
        if loop is None:  # a switch is left, whose branches meet again after it
            return
        key, outside = loop
        causes = {c for c in place.causes[outside:] if c.kind == "branch"}
        if differs:  # `break if`
            causes.add(_Cause("branch", item.words.line, item.words.part(1).text))
        if causes:
            leaves = {replace(cause, kind="leave") for cause in causes}
            self._left[key] = self._left.get(key, frozenset()) | leaves

    def _assign(self, words: Words, scope: Mapping[str, Key], place: _Place) -> None:
        assignment = words.assignment
        assert assignment is not None
        target, _, value = assignment
        index = Words(words.texts[: -len(value.texts) - 1], words.line, words.key)
        named = {use.name for use in index.uses} - {target}
        by_index = any(self._use_differs(Use(name), scope) for name in named)
        key = scope.get(target)
        if key is not None and (self._differs(value, scope) or by_index or place.divided):
            self._differing.add(key)

    def _expression(self, words: Words, scope: Mapping[str, Key], place: _Place) -> None:
        for use in words.uses:
            if use.address and use.name in scope:
                self._differing.add(scope[use.name])
            if not use.call:
                continue
            if use.name in self._barriers:
                self._found |= {cause.finding(words.line) for cause in place.causes}
            if use.name in self._functions:
                self._give(self._functions[use.name], use.arguments, scope)

    def _give(self, function: Function, arguments: tuple[Words, ...], scope: Mapping[str, Key]) -> None:
        differing = [self._differs(argument, scope) for argument in arguments]
        if len(arguments) != len(function.parameters):  # commas that were not understood
            differing = [any(differing)] * len(function.parameters)
        for parameter, differs in zip(function.parameters, differing, strict=True):
            if differs:
                self._differing.add(parameter.key)


def _with_barriers(module: Module) -> frozenset[str]:
    """The barriers, and the functions that come to one, directly or through others."""
    calls = {
        function.name: {use.name for words in all_words(function.body) for use in words.uses if use.call}
        for function in module.functions
    }
    found = set(BARRIERS)
    while more := {name for name, called in calls.items() if name not in found and called & found}:
        found |= more
    return frozenset(found)


def all_words(statements: tuple[Statement, ...]) -> list[Words]:
    """The words of every statement, those within blocks too."""
    found: list[Words] = []
    for item in statements:
        found.append(item.words)
        for inner in (item.before, item.after, item.body, item.otherwise):
            found += all_words(inner)
    return found
