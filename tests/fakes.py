"""Backends whose speed is set by the test: their runs move a clock, which takes the place of the real one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest

import registry_manifests
from registry import Availability, Backend, Claim, Registry, RenderedPass, hookimpl
from registry.measuring import timing
from registry_numpy import bias_add


@dataclass
class Clock:
    """Seconds that pass only where something says so."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(eq=False)
class Tensor:
    """A tensor of a fake backend."""

    owner: Fake
    values: np.ndarray[Any, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype(self) -> str:
        return self.values.dtype.name


@dataclass(eq=False)
class Fake(Backend):
    """Runs BiasAdd in as many seconds as ``costs`` says for each variant, the first of the highest priority.

    ``defects`` maps variants to what is wrong with them: ``wrong``, ``fails`` or ``unprepared``.
    ``tunable_costs`` has the seconds for values of the tunable ITEMS, which is then part of the source.
    With ``device`` it has tensors of its own, on which work is done when somebody waits; host arrays then
    cost ``transfer`` besides. A copy moves ``bytes_per_second``.
    """

    name: str = field()
    clock: Clock = field()
    costs: dict[str, float] = field()
    priority: float = 50
    defects: dict[str, str] = field(default_factory=dict)
    conditions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tunable_costs: dict[int, float] = field(default_factory=dict)
    driver: str = "1.0"
    source: str = "text"
    hardware: bool = True
    batch_invariant: bool = True
    device: bool = False
    transfer: float = 0.0
    bytes_per_second: float = 0.0
    pending: float = 0.0

    def probe(self, options: Mapping[str, Any]) -> Availability:
        return Availability(
            True, name=f"{self.name} device", hardware=self.hardware, details={"driver": self.driver}
        )

    def claims(self, op: Any) -> list[Claim]:
        return [
            Claim(
                variant,
                len(self.costs) - place,
                self.conditions.get(variant, ()),
                batch_invariant=self.batch_invariant,
            )
            for place, variant in enumerate(self.costs)
        ]

    def render(self, request: Any, claim: Claim, availability: Availability) -> tuple[RenderedPass, ...]:
        items = request.tunables.get("ITEMS", 2)
        source = f"{self.source} {claim.variant} {items if self.tunable_costs else ''}"
        one = RenderedPass(
            id="main",
            shader="x",
            language="x",
            source=source,
            constants={},
            inputs={},
            declarations="",
            uniforms={},
            dispatch=(1, 1, 1),
        )
        return (one,)

    def owns(self, array: object) -> bool:
        return isinstance(array, Tensor) and array.owner is self

    def location(self, tensor: Any) -> str:
        return f"{self.name}:0"

    def place(self, array: np.ndarray[Any, Any], options: Mapping[str, Any]) -> Any:
        if not self.device:
            return super().place(array, options)
        return Tensor(self, array.copy())

    def empty(self, shape: tuple[int, ...], dtype: str, options: Mapping[str, Any]) -> Any:
        return Tensor(self, np.empty(shape, dtype))

    def host(self, tensor: Any) -> np.ndarray[Any, Any]:
        return tensor.values.copy()

    def wait(self, options: Mapping[str, Any]) -> None:
        self.clock.now += self.pending
        self.pending = 0.0

    def copier(self, nbytes: int, options: Mapping[str, Any]) -> Any:
        def copy() -> None:
            self.pending += nbytes / self.bytes_per_second

        return copy if self.bytes_per_second else None

    def prepare(self, request: Any, claim: Claim, options: Mapping[str, Any]) -> Any:
        defect = self.defects.get(claim.variant)
        if defect == "unprepared":
            raise RuntimeError("it does not compile")
        cost = self.tunable_costs.get(request.tunables.get("ITEMS"), self.costs[claim.variant])

        def run(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
            if defect == "fails":
                raise RuntimeError("the device burns")
            on_device = isinstance(inputs["X"], Tensor)
            if on_device:
                self.pending += cost  # begun; done when somebody waits
            else:
                self.clock.now += cost + self.transfer
            x, bias, skip, y = (
                value.values if isinstance(value, Tensor) else value
                for value in (inputs["X"], inputs["bias"], inputs["skip"], outputs["Y"])
            )
            y[...] = x + bias + skip + (defect == "wrong")

        return run


def registry_of(monkeypatch: pytest.MonkeyPatch, clock: Clock, *backends: Backend) -> Registry:
    """A registry of fake backends alone, whose measurements go by their clock."""
    monkeypatch.setattr("registry.measuring.trials.stopwatch", partial(timing.stopwatch, clock=clock))
    monkeypatch.setattr("registry.measuring.benchmark.stopwatch", partial(timing.stopwatch, clock=clock))

    class plugin:
        @hookimpl
        def registry_backends() -> Any:  # type: ignore[misc]
            return backends

        @hookimpl
        def registry_references() -> Any:  # type: ignore[misc]
            return {bias_add.OP: bias_add.reference}

    return Registry([registry_manifests, plugin], entry_points=False)
