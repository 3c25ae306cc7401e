"""The registry: runs calls, and keeps a plan for each kind of call."""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import arrays
from .call import Call, parse_call
from .catalog import Catalog, Status
from .errors import BackendError, ContractError, RegistryWarning, shorten
from .plan import Plan

if TYPE_CHECKING:
    from .comparison import Report
    from .decide import Decision
    from .hookspecs import RenderedPass
    from .manifest import Op
    from .package import Handle
    from .request import Request

MEMO_SIZE = 1024


class Registry:
    """Ops, backends and plans. The module's functions are the methods of one shared instance.

    Args:
        plugins: plugin modules or objects to load beside the entry points.
        entry_points: False leaves out every installed plugin, the built-in ones too.
    """

    def __init__(self, plugins: Iterable[object] = (), *, entry_points: bool = True):
        self.catalog = Catalog(plugins, entry_points)
        self._lock = threading.Lock()
        self._memo: OrderedDict[Any, Plan] = OrderedDict()
        self._here = threading.local()

    # What there is

    def ops(self) -> tuple[str, ...]:
        """The ids of all ops, ``domain::Name``, sorted."""
        return tuple(sorted(self.catalog.plugins.manifests))

    def op(self, name: str | Op) -> Op:
        """The op of that name: ``Name``, ``domain::Name`` or ``domain.Name``.

        Raises:
            ContractError: no such op (with a suggestion), or several of that bare name.
            ManifestError: its manifest is wrong.
        """
        return self.catalog.op(name)

    def backends(self) -> tuple[Status, ...]:
        """Every backend in order of preference, and every plugin that did not load, with the reasons."""
        return self.catalog.statuses()

    def last(self) -> Plan | None:
        """The plan of this thread's last run, or None."""
        return getattr(self._here, "plan", None)

    def load(self, folder: str | Path) -> Handle:
        """A published package folder (flat, or with ``build/webgpu/`` inside) as a callable op.

        Raises:
            PackageError: no manifest there, a template missing or outside the folder, a digest mismatch.
            ManifestError: the manifest is wrong.
        """
        from .package import Handle, load_package

        return Handle(self, load_package(Path(folder)))

    # Running

    def run(self, op: str | Op, /, *tensors: Any, **named: Any) -> Any:
        """Runs an op on the best backend, or on the one that is named.

        Args:
            op: ``Name``, ``domain::Name`` or ``domain.Name``.
            tensors: by position in manifest order; None is an absent optional tensor.
            named: tensors by ONNX name or calling name, attributes, and the options ``outputs`` (a name or
                several), ``out`` (arrays to write), ``backend`` (a name, strict, or a sequence),
                ``variant``, ``device`` (``name``, ``name:0`` or ``name:part of its name``), ``inputs`` and
                ``attrs`` (mappings, for names that an option shadows).

        Returns:
            One array, or a named tuple when several outputs are asked for; of the kind of the first tensor.

        Raises:
            ContractError: the call breaks the op's contract.
            NoPlanError: no candidate accepts the request; the message has every reason.
            BackendError: a backend failed while running, or the variant that was named while preparing.
        """
        try:
            key = (op, _signature(tensors, self.catalog), _signature(named, self.catalog))
        except ContractError:
            return self._plan(parse_call(self.op(op), tensors, named))  # raises it by the argument's name
        with self._lock:
            plan = self._memo.get(key)
            if plan is not None:
                self._memo.move_to_end(key)
        call = parse_call(plan.request.op if plan is not None else self.op(op), tensors, named)
        if plan is None:
            plan = self._plan(call)
            with self._lock:
                self._memo[key] = plan
                if len(self._memo) > MEMO_SIZE:
                    self._memo.popitem(last=False)
        return plan.execute(call.tensors, call.out)

    def prepare(self, op: str | Op, /, *tensors: Any, **named: Any) -> Plan:
        """A plan for calls like this one, to be called again and again. Arguments and errors as ``run``."""
        call = parse_call(self.op(op), tensors, named)
        return self._plan(call)

    def explain(self, op: str | Op, /, *tensors: Any, **named: Any) -> Decision:
        """Every candidate for this call with its verdict; nothing runs.

        Takes what ``run`` takes, ``(shape, dtype)`` pairs in place of arrays, and ``profile``: devices as
        plain data by backend, in place of this machine's.
        """
        from .decide import Policy
        from .selection import choose

        call = parse_call(self.op(op), tensors, named)
        return choose(self.catalog, call, self._bind(call), Policy(exhaustive=True))

    def render(self, op: str | Op, /, *tensors: Any, **named: Any) -> tuple[RenderedPass, ...]:
        """The source text of every pass that would run. Arguments as ``explain``.

        Raises:
            NoPlanError: no candidate accepts the request.
        """
        from .decide import Policy
        from .selection import availability, choose

        call = parse_call(self.op(op), tensors, named)
        request = self._bind(call)
        row = choose(self.catalog, call, request, Policy()).require()
        assert row.claim is not None
        here = availability(self.catalog, row.backend, call)
        return self.catalog.backend(row.backend).render(request, row.claim, here)

    def infer(self, op: str | Op, /, *tensors: Any, **named: Any) -> dict[str, tuple[tuple[int, ...], str]]:
        """The shape and dtype of each output asked for, without data and without a device."""
        request = self._bind(parse_call(self.op(op), tensors, named))
        return {role: (request.outputs[role].shape, request.outputs[role].dtype) for role in request.asked}

    def compare(self, op: str | Op, /, *tensors: Any, **named: Any) -> Report:
        """Runs every eligible backend and variant and judges each against the float64 reference.

        Takes what ``run`` takes, except ``out``; ``outputs`` defaults to the required ones.
        """
        from .comparison import compare

        return compare(self, self.op(op), tensors, named)

    # Devices

    def to_device(self, array: Any, device: str) -> Any:
        """Copies an array to a backend's device (``name``, ``name:0``, ``name:part of its name``).

        Raises:
            ContractError: no array, no such backend, or one that works on host arrays.
            BackendError: the device does not take it.
        """
        name, part = self.catalog.split_device(device)
        options = self.catalog.options(name)
        return self.catalog.backend(name).place(self.host(array), part, options)

    def host(self, array: Any) -> arrays.NumpyArray:
        """Any array or device tensor as a NumPy array."""
        kind = arrays.describe(array, "array", self.catalog.location)
        if kind.kind == "pair":
            raise ContractError("a (shape, dtype) pair holds no data; pass an array")
        if kind.device is not None:
            return self.catalog.at(kind.device).host(array)
        return arrays.to_host(array, "array")

    def empty(self, shape: Sequence[int], dtype: Any, device: str) -> Any:
        """A tensor of undefined contents on a backend's device. Raises as ``to_device``."""
        name, part = self.catalog.split_device(device)
        kind = arrays.describe((tuple(shape), dtype), "empty")
        options = self.catalog.options(name)
        return self.catalog.backend(name).empty(kind.shape, kind.dtype, part, options)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Within it, device work of this thread's calls may go out as one submission; done on leaving."""
        with ExitStack() as stack:
            for backend in self.catalog.plugins.backends.values():
                backend.begin_batch()
                stack.callback(backend.end_batch)
            yield

    # Settings

    def configure(
        self,
        *,
        backends: Sequence[str] | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Sets the order of backends (these and no others; None: by priority) and options by backend.

        Forgets all plans.

        Raises:
            ContractError: an unknown backend.
        """
        self.catalog.configure(backends, options)
        with self._lock:
            self._memo.clear()

    def refresh(self) -> None:
        """Reads environment variables, plugins and devices anew; forgets all plans."""
        self.catalog.refresh()
        with self._lock:
            self._memo.clear()

    # How a call becomes a plan

    def _bind(self, call: Call) -> Request:
        from .request import bind

        ours = None
        if call.op.package is not None and call.op.id in self.catalog.plugins.manifests:
            ours = self.op(call.op.id)
        request = bind(call, self.catalog.location, ours)
        places = set(request.devices.values())
        if len(places) > 1:
            raise ContractError(
                f"{call.op.id}: tensors on several devices: {', '.join(sorted(places))}; "
                "move them to one with registry.to_device",
                op=call.op.id,
            )
        return request

    def _plan(self, call: Call) -> Plan:
        from .decide import Policy
        from .selection import choose

        if call.profile is not None:
            raise ContractError("profile= describes a device that is not here; use explain, render or infer")
        request = self._bind(call)
        types = {
            role: arrays.describe(value, role, self.catalog.location) for role, value in call.tensors.items()
        }
        _need_data(types, call)
        failures: dict[tuple[str, str | None], str] = {}
        cause: BackendError | None = None
        while True:
            decision = choose(self.catalog, call, request, Policy(failures=failures))
            if decision.chosen is None and cause is not None and call.variant is not None:
                raise cause
            row = decision.require()
            assert row.claim is not None
            backend = self.catalog.backend(row.backend)
            at = call.device or next(
                (d for d in request.devices.values() if self.catalog.at(d) is backend), None
            )
            options = self.catalog.options(row.backend, at)
            try:
                executable = None if request.empty else backend.prepare(request, row.claim, options)
            except Exception as error:  # whatever a backend raises becomes the reason against its claim
                cause = _as_backend_error(error, call.op, row.backend, row.variant)
                text = " ".join(cause.message.split())
                failures[row.backend, None if cause.lost else row.variant] = shorten(text, 200)
                if call.variant is None:
                    warnings.warn(f"{cause}; trying the next candidate", RegistryWarning, stacklevel=3)
                continue
            return Plan(
                request,
                decision,
                types,
                backend,
                executable,
                call.single,
                self.catalog,
                self._remember,
            )

    def _remember(self, plan: Plan) -> None:
        self._here.plan = plan


def _as_backend_error(error: Exception, op: Op, backend: str, variant: str) -> BackendError:
    if isinstance(error, BackendError):
        if error.op is not None:
            return error
        return BackendError(
            error.message,
            op=op.id,
            backend=backend,
            variant=variant,
            line=error.line,
            lost=error.lost,
        )
    return BackendError(f"{type(error).__name__}: {error}", op=op.id, backend=backend, variant=variant)


def _need_data(types: Mapping[str, arrays.ArrayType], call: Call) -> None:
    pairs = [role for role, kind in types.items() if kind.kind == "pair"]
    pairs += [role for role, value in call.out.items() if arrays.is_pair(value)]
    if pairs:
        raise ContractError(
            f"{call.op.id}: {pairs[0]} is a (shape, dtype) pair; a run needs an array",
            op=call.op.id,
            argument=pairs[0],
        )


def _signature(value: Any, catalog: Catalog) -> Any:
    """What of an argument decides the plan: for arrays kind, shape, dtype and device, else type and value."""
    if type(value) is np.ndarray:
        return (value.dtype, value.shape)
    if value is None or isinstance(value, str | bool | int | float):
        return (type(value), value)
    if isinstance(value, tuple | list) and not arrays.is_pair(value):
        return (type(value), *(_signature(item, catalog) for item in value))
    if isinstance(value, Mapping):
        return (dict, *((name, _signature(item, catalog)) for name, item in value.items()))
    return arrays.describe(value, "argument", catalog.location)
