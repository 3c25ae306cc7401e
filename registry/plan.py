"""A plan: one decision made ready, so that the next call of the same kind only runs."""

from __future__ import annotations

import keyword
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from . import arrays
from .arrays import ArrayType
from .call import parse_call
from .catalog import Catalog
from .decide import Decision
from .dtypes import numpy_dtype
from .errors import BackendError, ContractError, RegistryError, as_backend_error
from .hookspecs import Backend, Executable
from .request import Request, plain_value


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Plan:
    """A request bound to a backend's executable. Call it with other arrays of the same kinds; thread-safe.

    Attributes: ``backend`` and ``variant`` (names), ``decision`` (why), ``request`` (shapes and dtypes),
    ``types`` (the kind of each input by role).
    """

    request: Request
    decision: Decision
    types: Mapping[str, ArrayType]
    target: Backend
    executable: Executable | None
    single: bool
    catalog: Catalog
    finished: Callable[[Plan], None]

    @property
    def backend(self) -> str:
        """The name of the backend that runs this plan."""
        return self.decision.require().backend

    @property
    def variant(self) -> str:
        """The variant that runs."""
        return self.decision.require().variant

    def __repr__(self) -> str:
        return f"<plan {self.request} on {self.backend} {self.variant}>"

    def __call__(self, /, *tensors: Any, **named: Any) -> Any:
        """Runs with other tensors, given by the names and positions of ``registry.run``, and ``out=``.

        Raises:
            ContractError: other shapes, dtypes, kinds or devices than the plan was made for, or an option
                that was settled when it was made.
        """
        settled = [name for name in ("backend", "variant", "device", "outputs", "profile") if name in named]
        if settled:
            raise ContractError(f"a plan's {settled[0]} is settled; prepare another plan")
        op = self.request.op
        call = parse_call(op, tensors, {**named, "outputs": self.request.asked})
        if call.tensors.keys() != self.types.keys():
            raise ContractError(
                f"{op.id}: this plan takes {', '.join(self.types)}; given: {', '.join(call.tensors)}",
                op=op.id,
            )
        for role, value in call.tensors.items():
            found = arrays.describe(value, f"{op.id}: {role}", self.catalog.location)
            if found != self.types[role]:
                raise ContractError(
                    f"{op.id}: {role} is {_text(found)}; this plan was made for {_text(self.types[role])}",
                    op=op.id,
                    argument=role,
                )
        settled_values = {**self.request.attrs, **self.request.args}
        for name, value in {**call.attrs, **call.args}.items():
            if plain_value(op, name, value) != settled_values.get(name):
                raise ContractError(
                    f"{op.id}: this plan was made for another {name}", op=op.id, argument=name
                )
        return self.execute(call.tensors, call.out)

    def execute(self, tensors: Mapping[str, Any], out: Mapping[str, Any]) -> Any:
        """Runs with tensors by role that are known to be of the plan's types; ``out`` is checked here."""
        inputs = {role: self._input(role, value) for role, value in tensors.items()}
        first = next((tensors[spec.role] for spec in self.request.op.inputs if spec.role in tensors), None)
        results: dict[str, Any] = {}
        destinations: dict[str, Any] = {}
        for role in self.request.asked:
            given = out.get(role)
            if given is None:
                destinations[role] = self._allocate(role, first)
            else:
                destinations[role] = self._given(role, given, inputs)
            results[role] = given
        if len(out) > 1:
            self._check_distinct({role: destinations[role] for role in out})
        if self.executable is not None:
            try:
                self.executable(inputs, destinations)
            except RegistryError:
                raise
            except Exception as error:
                names = {"op": self.request.op.id, "backend": self.backend, "variant": self.variant}
                raise as_backend_error(error, **names) from error
        for role, value in results.items():
            if value is None:
                results[role] = self._deliver(destinations[role], first)
        self.finished(self)
        if self.single:
            return results[self.request.asked[0]]
        return _result_type(self.request.asked)(*(results[role] for role in self.request.asked))

    def _input(self, role: str, value: Any) -> Any:
        kind = self.types[role]
        if kind.device is None:
            return arrays.to_host(value, role)
        return value if self._at_home(kind.device) else self.catalog.at(kind.device).host(value)

    def _at_home(self, device: str) -> bool:
        """Whether a device is of the plan's backend; by name, for a refresh makes new backend objects."""
        return device.partition(":")[0] == self.target.name

    def _first_device(self) -> str | None:
        return next(
            (self.types[s.role].device for s in self.request.op.inputs if s.role in self.types),
            None,
        )

    def _allocate(self, role: str, first: Any) -> Any:
        tensor = self.request.outputs[role]
        device = self._first_device()
        if device is not None and self._at_home(device):
            options = self.catalog.options(self.backend, device)
            return self.target.beside(first, tensor.shape, tensor.dtype, options)
        try:
            return np.empty(tensor.shape, numpy_dtype(tensor.dtype))
        except (MemoryError, ValueError) as error:
            message = f"output {role} of shape {arrays.shapes_text(tensor.shape)} does not fit memory"
            raise BackendError(
                message, op=self.request.op.id, backend=self.backend, variant=self.variant
            ) from error

    def _given(self, role: str, value: Any, inputs: Mapping[str, Any]) -> Any:
        tensor = self.request.outputs[role]
        kind = arrays.describe(value, f"out {role}", self.catalog.location)
        if (kind.shape, kind.dtype) != (tensor.shape, tensor.dtype):
            raise ContractError(
                f"{self.request.op.id}: out {role} is {_text(kind)}; needed: {tensor.dtype} "
                f"{arrays.shapes_text(tensor.shape)}",
                op=self.request.op.id,
                argument=role,
            )
        if kind.device is not None:
            if not self._at_home(kind.device):
                raise ContractError(f"out {role} is on {kind.device}, but {self.backend} runs this plan")
            for name, source in inputs.items():
                if self._overlaps(value, source):
                    raise ContractError(f"out {role} is input {name}; results never overwrite inputs")
            return value
        hosts = {name: source for name, source in inputs.items() if isinstance(source, np.ndarray)}
        return arrays.check_out(role, value, kind, hosts)

    def _check_distinct(self, destinations: Mapping[str, Any]) -> None:
        seen: list[tuple[str, Any]] = []
        for role, value in destinations.items():
            for other, earlier in seen:
                if self._overlaps(value, earlier):
                    op = self.request.op.id
                    raise ContractError(
                        f"{op}: out {role} and out {other} share memory", op=op, argument=role
                    )
            seen.append((role, value))

    def _overlaps(self, one: Any, other: Any) -> bool:
        """Whether two arrays of the host, or two tensors of the plan's backend, may share memory."""
        hosts = isinstance(one, np.ndarray), isinstance(other, np.ndarray)
        if all(hosts):
            return arrays.overlaps(one, other)
        return not any(hosts) and self.target.overlaps(one, other)

    def _deliver(self, result: Any, first: Any) -> Any:
        """A fresh result as the kind of the first tensor, on its device."""
        if not isinstance(result, np.ndarray):
            return result
        device = self._first_device()
        if device is not None:
            owner = self.catalog.at(device)
            return owner.place(result, self.catalog.options(owner.name, device))
        return arrays.like(result, first)


def _text(kind: ArrayType) -> str:
    where = f" on {kind.device}" if kind.device else ""
    return f"{kind.kind} {kind.dtype} {arrays.shapes_text(kind.shape)}{where}"


@cache
def _result_type(names: tuple[str, ...]) -> Any:
    fields = [f"{name}_" if keyword.iskeyword(name) or not name.isidentifier() else name for name in names]
    return namedtuple("Outputs", fields, rename=True)
