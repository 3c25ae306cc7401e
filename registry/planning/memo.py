"""Remembers the plan for each kind of call, so that a call of a known kind only runs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import call, itemgetter
from typing import TYPE_CHECKING, Any

from ..calling.call import OPTIONS
from .readers import Reader, Readers

if TYPE_CHECKING:
    from ..opinfo import Op
    from .plan import Plan

SIZE = 1024

Values = tuple[Any, ...]
"""The arguments of a call: those by position, then those by name."""


@dataclass(frozen=True)
class Route:
    """How the arguments of a call of a known kind go to a plan.

    ``inputs`` gives the tensors in the plan's order, ``ready`` says whether the backend takes them as they
    are; ``out``, where any is given, gives the outputs by role.
    """

    plan: Plan
    inputs: Callable[[Values], Sequence[Any]]
    ready: bool
    out: Callable[[Values], Mapping[str, Any]] | None

    def run(self, values: Values) -> Any:
        """Runs the plan with the arguments of a call."""
        if self.out is None:
            return self.plan.execute(self.inputs(values), ready=self.ready)
        return self.plan.execute(self.inputs(values), self.out(values), ready=self.ready, known=True)


@dataclass(frozen=True, eq=False)
class Form:
    """The calls of an op with arguments of the same types and names, each read by the same readers."""

    name: Hashable
    readers: tuple[Reader, ...]
    routes: dict[Hashable, Route] = field(default_factory=dict)


Key = tuple[Form, Hashable]


class Memo:
    """Routes by the kind of a call; the oldest goes first. Thread-safe.

    ``generation`` counts how often it was cleared: a plan that was being made meanwhile is not kept.
    """

    def __init__(self, readers: Readers, size: int = SIZE) -> None:
        self.generation = 0
        self._readers = readers
        self._size = size
        self._lock = threading.Lock()
        self._forms: dict[Hashable, Form] = {}
        self._kept: deque[Key] = deque()

    def find(
        self, op: Hashable, tensors: Values, named: Mapping[str, Any], values: Values
    ) -> tuple[Key | None, Route | None]:
        """The key of a call, and its route when it is of a known kind. ``values`` are all its arguments. No
        key: the arguments cannot be read cheaply, or are wrong; `parse_call` then reads them and raises."""
        name = (op, len(tensors), *named, *map(type, values))
        try:
            form = self._forms.get(name)
            if form is None:
                form = Form(name, tuple(map(self._readers.of, map(type, values))))
            kinds = tuple(map(call, form.readers, values))
            return (form, kinds), form.routes.get(kinds)
        except Exception:  # a stranger's object may raise anything; read in full, it is named
            return None, None

    def put(self, key: Key, route: Route, generation: int) -> None:
        """Keeps a route that was begun in that generation."""
        form, kinds = key
        with self._lock:
            if generation != self.generation:
                return
            form = self._forms.setdefault(form.name, form)
            if kinds not in form.routes:
                self._kept.append((form, kinds))
            form.routes[kinds] = route
            if len(self._kept) > self._size:
                oldest, kinds = self._kept.popleft()
                del oldest.routes[kinds]
                if not oldest.routes:
                    del self._forms[oldest.name]

    def clear(self) -> None:
        """Forgets all routes."""
        with self._lock:
            self.generation += 1
            self._forms.clear()
            self._kept.clear()


def make_route(plan: Plan, tensors: Values, named: Mapping[str, Any]) -> Route:
    """The route of a call that has been read, and found right, for the plan made of it."""
    op = plan.request.op
    roles = op.input_names
    names = list(named)
    # Where each tensor is: the place of an argument, and within that, if it is a mapping, the key.
    found: dict[str, tuple[int, str | None]] = {}
    for place, (spec, value) in enumerate(zip(op.inputs, tensors, strict=False)):
        if value is not None:
            found[spec.role] = (place, None)
    for name in _tensor_names(op, named):
        if named[name] is not None:
            found[roles[name]] = (len(tensors) + names.index(name), None)
    for name, value in (named.get("inputs") or {}).items():
        if value is not None:
            found[roles[name]] = (len(tensors) + names.index("inputs"), name)
    inputs = _picker([found[role] for role in plan.roles])
    ready = plan.is_ready(inputs((*tensors, *named.values())))
    return Route(plan, inputs, ready, _out_picker(plan, len(tensors), names, named.get("out")))


def _picker(places: Sequence[tuple[int, str | None]]) -> Callable[[Values], Sequence[Any]]:
    if len(places) > 1 and all(key is None for _, key in places):
        return itemgetter(*(place for place, _ in places))
    return lambda values: [values[place] if key is None else values[place][key] for place, key in places]


def _out_picker(
    plan: Plan, count: int, names: list[str], out: Any
) -> Callable[[Values], Mapping[str, Any]] | None:
    if out is None:
        return None
    op, asked = plan.request.op, plan.request.asked
    place = count + names.index("out")
    if isinstance(out, Mapping):
        pairs: list[tuple[Any, str]] = [
            (name, op.output_names[name]) for name, value in out.items() if value is not None
        ]
    elif isinstance(out, list | tuple):
        pairs = list(enumerate(asked))
    else:
        return lambda values: {asked[0]: values[place]}
    return lambda values: {role: values[place][key] for key, role in pairs}


def _tensor_names(op: Op, named: Mapping[str, Any]) -> Iterator[str]:
    return (name for name in named if name in op.input_names and name not in OPTIONS)
