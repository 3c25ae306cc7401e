"""A plan: one decision made ready, so that the next call of the same kind only runs."""

from __future__ import annotations

import keyword
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..calling import arrays
from ..calling.arrays import ArrayType
from ..calling.call import Call, parse_call, wrong
from ..calling.request import Request, plain_value
from ..catalog import Catalog
from ..dtypes import numpy_dtype
from ..errors import BackendError, ContractError, RegistryError, as_backend_error
from ..hookspecs import Backend, Executable
from .memo import Memo, make_route
from .readers import Readers

if TYPE_CHECKING:
    from ..deciding.decision import Decision

NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Plan:
    """A request bound to a backend's executable. Call it with other arrays of the same kinds; thread-safe.

    Attributes: ``backend`` and ``variant`` (names), ``decision`` (why), ``request`` (shapes and dtypes),
    ``call`` (what was asked, pairs in place of arrays), ``types`` (the kind of each input by role).
    """

    request: Request
    decision: Decision
    call: Call
    types: Mapping[str, ArrayType]
    target: Backend
    executable: Executable | None
    catalog: Catalog
    readers: Readers
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

        Returns:
            What ``registry.run`` gives for the outputs that the plan was prepared for: one array, or a named
            tuple.

        Raises:
            ContractError: other shapes, dtypes, kinds or devices than the plan was made for, or an option
                that was settled when it was made.
            BackendError: the backend failed while running.
        """
        values = (*tensors, *named.values())
        key, route = self._routes.find(None, tensors, named, values)
        if route is not None:
            return route.run(values)
        call = self._read(tensors, named)
        results = self.execute([call.tensors[role] for role in self.roles], call.out)
        if key is not None:
            self._routes.put(key, make_route(self, tensors, named), 0)
        return results

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """The roles of the inputs, in manifest order."""
        return tuple(spec.role for spec in self.request.op.inputs if spec.role in self.types)

    @cached_property
    def _routes(self) -> Memo:
        """The ways in which the plan has been called."""
        return Memo(self.readers, 16)

    def _read(self, tensors: Sequence[Any], named: Mapping[str, Any]) -> Call:
        """The call, checked to be what the plan was made for."""
        settled = [
            name
            for name in ("backend", "variant", "device", "outputs", "tunables", "profile")
            if name in named
        ]
        op = self.request.op
        if settled:
            what = f"{'= and '.join(settled)}= {'was' if len(settled) == 1 else 'were'}"
            raise wrong(
                op,
                f"{what} settled when the plan was prepared ({self.backend}, {self.variant}); "
                f"leave {'it' if len(settled) == 1 else 'them'} out, or prepare another plan",
                settled[0],
            )
        call = parse_call(op, tensors, {**named, "outputs": self.request.asked})
        if call.tensors.keys() != self.types.keys():
            found = f"{', '.join(call.tensors) or 'no tensor'}; this plan takes {', '.join(self.types)}"
            raise wrong(op, f"given {found}; prepare another plan for others")
        for role, value in call.tensors.items():
            kind = arrays.describe(value, f"{op.id}: {role}", self.catalog.location)
            if kind != self.types[role]:
                made_for = f"this plan was made for {_text(self.types[role])}"
                raise wrong(op, f"{role} is {_text(kind)}; {made_for}; prepare another plan", role)
        settled_values = {**self.request.attrs, **self.request.args}
        for name, value in {**call.attrs, **call.args}.items():
            if plain_value(op, name, value) != settled_values.get(name):
                made_for = f"this plan was made for {settled_values.get(name)!r}"
                raise wrong(op, f"{name} is {value!r}; {made_for}; prepare another plan", name)
        return call

    def execute(
        self,
        tensors: Sequence[Any],
        out: Mapping[str, Any] = NOTHING,
        *,
        ready: bool = False,
        known: bool = False,
    ) -> Any:
        """Runs with tensors in the order of ``roles``, known to be of the plan's types; ``out`` is checked.

        ``ready``: the tensors are such as ``is_ready`` is true for. ``known``: ``out`` was already checked
        for arrays of this kind; only overlap is checked again.
        """
        first = tensors[0] if tensors else None
        if not ready:
            tensors = [convert(value) for convert, value in zip(self._converters, tensors, strict=True)]
        inputs = dict(zip(self.roles, tensors, strict=False))
        if out:
            outputs = {
                role: allocate(first)
                if out.get(role) is None
                else self._given(role, out[role], inputs, known)
                for role, allocate in self._outputs
            }
            self._check_distinct({role: outputs[role] for role in out})
        else:
            outputs = {role: allocate(first) for role, allocate in self._outputs}
        if self.executable is not None:
            try:
                self.executable(inputs, outputs)
            except RegistryError:
                raise
            except Exception as error:
                names = {"op": self.request.op.id, "backend": self.backend, "variant": self.variant}
                raise as_backend_error(error, **names) from error
        self.finished(self)
        results: Iterable[Any] = outputs.values()
        deliver = self._deliver
        if out or deliver:
            results = [
                out[role] if out.get(role) is not None else deliver(value, first) if deliver else value
                for role, value in outputs.items()
            ]
        return self._collect(results)

    def is_ready(self, tensors: Sequence[Any]) -> bool:
        """Whether the backend takes tensors of these very kinds as they are."""
        return all(
            convert is _as_it_is or (type(value) is np.ndarray and value.dtype.isnative)
            for convert, value in zip(self._converters, tensors, strict=True)
        )

    @cached_property
    def _converters(self) -> tuple[Callable[[Any], Any], ...]:
        """What makes each input one that the backend takes."""

        def converter(role: str) -> Callable[[Any], Any]:
            device = self.types[role].device
            if device is None:
                return arrays.to_host
            return _as_it_is if self._at_home(device) else self.catalog.at(device).host

        return tuple(map(converter, self.roles))

    @cached_property
    def _outputs(self) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
        """Every output asked for, and what allocates it beside the first input."""
        return tuple((role, self._allocator(role)) for role in self.request.asked)

    @cached_property
    def _collect(self) -> Callable[[Iterable[Any]], Any]:
        """What makes the results one: the only one itself, or a named tuple."""
        return _only if self.call.single else _result_type(self.request.asked)._make

    def _at_home(self, device: str) -> bool:
        """Whether a device is of the plan's backend; by name, for a refresh makes new backend objects."""
        return device.partition(":")[0] == self.target.name

    def _first_device(self) -> str | None:
        return self.types[self.roles[0]].device if self.roles else None

    def _allocator(self, role: str) -> Callable[[Any], Any]:
        shape, dtype = self.request.outputs[role].shape, self.request.outputs[role].dtype
        device = self._first_device()
        if device is not None and self._at_home(device):
            beside, options = self.target.beside, self.catalog.options(self.backend, device)
            return lambda first: beside(first, shape, dtype, options)
        stored = numpy_dtype(dtype)

        def on_host(first: Any) -> Any:
            try:
                return np.empty(shape, stored)
            except (MemoryError, ValueError) as error:
                message = f"output {role} of shape {list(shape)} does not fit memory"
                raise BackendError(
                    message, op=self.request.op.id, backend=self.backend, variant=self.variant
                ) from error

        return on_host

    def _given(self, role: str, value: Any, inputs: Mapping[str, Any], known: bool) -> Any:
        op = self.request.op
        if not known:
            self._check_kind(role, value)
        if self.target.owns(value):
            for name, source in inputs.items():
                if not isinstance(source, np.ndarray) and self.target.overlaps(value, source):
                    raise wrong(op, f"out {role} is input {name}; results never overwrite inputs", role)
            return value
        hosts = {name: source for name, source in inputs.items() if isinstance(source, np.ndarray)}
        try:
            return arrays.check_out(role, value, hosts)
        except ContractError as error:
            raise wrong(op, str(error), role) from None

    def _check_kind(self, role: str, value: Any) -> None:
        tensor = self.request.outputs[role]
        kind = arrays.describe(value, f"out {role}", self.catalog.location)
        if (kind.shape, kind.dtype) != (tensor.shape, tensor.dtype):
            raise ContractError(
                f"{self.request.op.id}: out {role} is {_text(kind)}; needed: {tensor.dtype} "
                f"{list(tensor.shape)}",
                op=self.request.op.id,
                argument=role,
            )
        if kind.device is not None and not self._at_home(kind.device):
            text = f"out {role} is on {kind.device}, but {self.backend} runs this plan"
            raise wrong(self.request.op, f"{text}; pass one that {self.backend} takes", role)

    def _check_distinct(self, destinations: Mapping[str, Any]) -> None:
        seen: list[tuple[str, Any]] = []
        for role, value in destinations.items():
            for other, earlier in seen:
                if self._overlaps(value, earlier):
                    text = f"out {role} and out {other} share memory; pass arrays that lie apart"
                    raise wrong(self.request.op, text, role)
            seen.append((role, value))

    def _overlaps(self, one: Any, other: Any) -> bool:
        """Whether two arrays of the host, or two tensors of the plan's backend, may share memory."""
        hosts = isinstance(one, np.ndarray), isinstance(other, np.ndarray)
        if all(hosts):
            return arrays.overlaps(one, other)
        return not any(hosts) and self.target.overlaps(one, other)

    @cached_property
    def _deliver(self) -> Callable[[Any, Any], Any] | None:
        """What makes a fresh result one of the kind of the first tensor, on its device."""
        device = self._first_device()
        if device is None:
            kind = self.types[self.roles[0]].kind if self.roles else "numpy"
            return None if kind == "numpy" else arrays.like
        if self._at_home(device):
            return None
        owner = self.catalog.at(device)
        deliver, options = owner.deliver, self.catalog.options(owner.name, device)
        return lambda result, first: deliver(result, first, options)


def _text(kind: ArrayType) -> str:
    where = f" on {kind.device}" if kind.device else ""
    return f"{kind.kind} {kind.dtype} {list(kind.shape)}{where}"


def _as_it_is(value: Any) -> Any:
    return value


def _only(results: Iterable[Any]) -> Any:
    (result,) = results
    return result


@cache
def _result_type(names: tuple[str, ...]) -> Any:
    fields = [f"{name}_" if keyword.iskeyword(name) or not name.isidentifier() else name for name in names]
    return namedtuple("Outputs", fields, rename=True)
