"""Runs calls, and keeps a plan for each kind of call."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from .calling import arrays
from .calling.call import Call, parse_call
from .catalog import KEEP, Catalog
from .errors import ContractError, blaming
from .inspection import Inspection
from .planning.memo import Memo, make_route
from .planning.plan import Plan
from .planning.readers import Readers

if TYPE_CHECKING:
    from .freezing.recording import Log
    from .opinfo import Op


class Dispatcher(Inspection):
    """Runs calls on the best backend, and remembers plans."""

    def __init__(self, plugins: Iterable[object] = (), *, entry_points: bool = True):
        self.catalog = Catalog(plugins, entry_points)
        self._readers = Readers(self.catalog)
        self._memo = Memo(self._readers)
        self._here = threading.local()
        self._logs: tuple[Log, ...] = ()  # of those that record

    # Running

    def run(self, op: str | Op, /, *tensors: Any, **named: Any) -> Any:
        """Runs an op on the best backend, or on the one that is named.

        Args:
            op: ``Name``, ``domain::Name`` or ``domain.Name``.
            tensors: by position in manifest order; None is an absent optional tensor.
            named: tensors by ONNX name or calling name, attributes, and the options ``outputs`` (a name or
                several; default: those that ``out`` names as a mapping, else the required ones), ``out``
                (arrays to write), ``backend`` (a name, strict, or a sequence),
                ``variant``, ``device`` (``name``, ``name:0`` or ``name:part of its name``), ``inputs`` and
                ``attrs`` (mappings, for names that an option shadows), ``tunables`` (a mapping, in place of
                the manifest's).

        Returns:
            One array where one output is asked for, by its name, by default or by an ``out`` that is a
            mapping; a named tuple where several are, or where ``outputs`` is a sequence, even of one. They
            are of the kind of the first tensor in manifest order, on its device.

        Raises:
            ContractError: the call breaks the op's contract.
            NoPlanError: no candidate accepts the request; the message has every reason.
            BackendError: a backend failed while running, or the variant that was named while preparing.
        """
        memo, values = self._memo, (*tensors, *named.values())
        key, route = memo.find(op, tensors, named, values)
        if route is not None:
            return route.run(values)
        generation = memo.generation
        call = parse_call(self.op(op), tensors, named)
        plan, lasting = self._plan(call)
        if key is not None and lasting:
            memo.put(key, make_route(plan, tensors, named), generation)
        return plan.execute([call.tensors[role] for role in plan.roles], call.out)

    def prepare(self, op: str | Op, /, *tensors: Any, **named: Any) -> Plan:
        """A plan for calls like this one, to be called again and again. Arguments and errors as ``run``."""
        plan = self._plan(parse_call(self.op(op), tensors, named))[0]
        for log in self._logs:
            log.note(plan)
        return plan

    def last(self) -> Plan | None:
        """The plan of this thread's last run, or None."""
        return getattr(self._here, "plan", None)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Within it, device work of this thread's calls may go out as one submission; done on leaving."""
        with ExitStack() as stack:
            for backend in self.catalog.plugins.batching:
                with blaming(backend.name, "begin_batch"):
                    backend.begin_batch()
                stack.callback(backend.end_batch)
            yield

    # Devices

    def to_device(self, array: Any, device: str) -> Any:
        """Copies an array to a backend's device (``name``, ``name:0``, ``name:part of its name``).

        Raises:
            ContractError: no array, no such backend, or one that works on host arrays.
            BackendError: the device is not there, with what would help, or does not take it.
        """
        backend, options = self.catalog.ready(device)
        host = self.host(array)
        with blaming(backend.name, "to_device"):
            return backend.place(host, options)

    def host(self, array: Any) -> arrays.NumpyArray:
        """Any array or device tensor as a NumPy array."""
        kind = arrays.describe(array, "array", self.catalog.location)
        if kind.kind == "pair":
            raise ContractError("a (shape, dtype) pair holds no data; pass an array")
        if kind.device is not None:
            owner = self.catalog.at(kind.device)
            with blaming(owner.name, "a copy to the host"):
                return owner.host(array)
        return arrays.to_host(array)

    def empty(self, shape: Sequence[int], dtype: Any, device: str) -> Any:
        """A tensor of undefined contents on a backend's device. Raises as ``to_device``."""
        backend, options = self.catalog.ready(device)
        if dtype is None:  # which NumPy takes for float64
            raise ContractError("dtype is None; needed: a name such as 'float32'")
        if not isinstance(shape, Sequence):
            raise ContractError(f"shape is {shape!r}; needed: a sequence of dimensions")
        kind = arrays.describe((tuple(shape), arrays.dtype_name(dtype, "dtype")), "empty")
        with blaming(backend.name, "empty"):
            return backend.empty(kind.shape, kind.dtype, options)

    # Settings

    def configure(
        self,
        *,
        backends: Sequence[str] | None = KEEP,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        batch_invariant: bool = KEEP,
        tuned: bool = KEEP,
    ) -> None:
        """Sets the order of backends (these and no others; None: by priority) and options by backend.

        ``batch_invariant=True`` refuses variants by which a row's bits depend on the number of rows (default:
        False). ``tuned=False`` ignores what ``tune`` has measured (default: True). What is left out stays
        as it was. Forgets all plans.

        Raises:
            ContractError: an unknown backend or option, or a value of the wrong kind.
        """
        self.catalog.configure(backends, options, batch_invariant, tuned)
        self._memo.clear()

    def refresh(self) -> None:
        """Reads environment variables, plugins and devices anew; forgets all plans."""
        self.catalog.refresh()
        self._readers = Readers(self.catalog)
        self._memo = Memo(self._readers)

    def forget_plans(self) -> None:
        """Forgets all plans, as after a change of what they were chosen by."""
        self._memo.clear()

    def _plan(self, call: Call) -> tuple[Plan, bool]:
        from .planning.making import make_plan

        return make_plan(self.catalog, call, self._readers, self._remember)

    def _remember(self, plan: Plan) -> None:
        self._here.plan = plan
        if self._logs:
            for log in self._logs:
                log.note(plan)
