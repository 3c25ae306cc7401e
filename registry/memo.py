"""Remembers the plan for each kind of call, so that a call of a known kind only runs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import arrays

if TYPE_CHECKING:
    from .plan import Plan

SIZE = 1024


class Memo:
    """Plans by the signature of a call; the least recently used goes first. Thread-safe.

    ``generation`` counts how often it was cleared: a plan that was being made meanwhile is not kept.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._lock = threading.Lock()
        self._plans: OrderedDict[Hashable, Plan] = OrderedDict()

    def get(self, key: Hashable) -> Plan | None:
        """The plan for a signature."""
        with self._lock:
            plan = self._plans.get(key)
            if plan is not None:
                self._plans.move_to_end(key)
            return plan

    def put(self, key: Hashable, plan: Plan, generation: int) -> None:
        """Keeps a plan that was begun in that generation."""
        with self._lock:
            if generation == self.generation:
                self._plans[key] = plan
                if len(self._plans) > SIZE:
                    self._plans.popitem(last=False)

    def clear(self) -> None:
        """Forgets all plans."""
        with self._lock:
            self.generation += 1
            self._plans.clear()


def signature(value: Any, location: arrays.Owner) -> Hashable:
    """What of an argument decides the plan: an array's kind, shape, dtype and device, else type and value.

    A value of rank 0 may be an attribute as well as a tensor, so it counts itself.

    Raises:
        ContractError, TypeError: the value is none of what a call takes, or cannot be told apart cheaply.
    """
    if type(value) is np.ndarray and value.ndim:
        return (value.dtype, value.shape)
    if value is None or isinstance(value, str | bool | int | float):
        return (type(value), value)
    if isinstance(value, np.generic) or (type(value) is np.ndarray and not value.dtype.hasobject):
        return (type(value), value.dtype, value.tobytes())
    if isinstance(value, tuple | list) and not arrays.is_pair(value):
        return (type(value), *(signature(item, location) for item in value))
    if isinstance(value, Mapping):
        return (dict, *((name, signature(item, location)) for name, item in value.items()))
    kind = arrays.describe(value, "argument", location)
    if not kind.shape:
        raise TypeError("the value of a scalar of another library is not read for a key")
    return kind
