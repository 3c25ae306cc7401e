"""The registry: runs calls, and keeps a plan for each kind of call."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import arrays
from .call import Call, parse_call
from .catalog import KEEP, Catalog
from .errors import ContractError
from .memo import Memo, make_route
from .plan import Plan
from .readers import Readers
from .status import Status, statuses

if TYPE_CHECKING:
    from .benchmark import Benchmark
    from .cards.card import Card
    from .comparing.replayed import Replay
    from .comparing.report import Report
    from .conformance.cases import Case
    from .decision import Decision
    from .decisions.checking import Check
    from .decisions.lockfile import Lock
    from .decisions.recording import Log
    from .hookspecs import Backend, Finding, RenderedPass
    from .opinfo import Op
    from .package import Handle
    from .request import Request
    from .symbols import Shape
    from .tuning import Tuning


class Registry:
    """Ops, backends and plans. The module's functions are the methods of one shared instance.

    Args:
        plugins: plugin modules or objects to load beside the entry points.
        entry_points: False leaves out every installed plugin, the built-in ones too.
    """

    def __init__(self, plugins: Iterable[object] = (), *, entry_points: bool = True):
        self.catalog = Catalog(plugins, entry_points)
        self._readers = Readers(self.catalog)
        self._memo = Memo(self._readers)
        self._here = threading.local()
        self._logs: tuple[Log, ...] = ()
        self._logs_lock = threading.Lock()
        freeze = os.environ.get("REGISTRY_FREEZE")
        if freeze:
            from .decisions.recording import record_until_exit

            self._logs = (record_until_exit(self, Path(freeze)),)

    # What there is

    def ops(self) -> tuple[str, ...]:
        """The ids of all ops, ``domain::Name``, sorted: those of plugins and of loaded packages."""
        loaded = {op.id for op in self.catalog.loaded.all()}
        return tuple(sorted(loaded.union(self.catalog.plugins.manifests)))

    def op(self, name: str | Op) -> Op:
        """The op of that name: ``Name``, ``domain::Name`` or ``domain.Name``.

        Raises:
            ContractError: no such op (with a suggestion), or several of that bare name.
            ManifestError: its manifest is wrong.
        """
        return self.catalog.op(name)

    def backends(self) -> tuple[Status, ...]:
        """Every backend in order of preference, and every plugin that did not load, with the reasons."""
        return statuses(self.catalog)

    def card(self, op: str | Op, /, *, results: str | Path | None = None) -> Card:
        """What an op is and who runs it: contract, variants by backend with conditions in words, dtypes.

        Args:
            op: ``Name``, ``domain::Name`` or ``domain.Name``.
            results: a folder with what was measured, such as ``docs/`` of this project's checkout; accuracy
                and speed are shown from it (default: None, neither).

        ``str()`` of it is Markdown. Takes no device: backends that cannot run here are in it.

        Raises:
            ContractError: no such op, or no results in that folder.
            ManifestError: its manifest is wrong.
        """
        from .cards.card import make_card

        return make_card(self.catalog, self.op(op), results)

    def last(self) -> Plan | None:
        """The plan of this thread's last run, or None."""
        return getattr(self._here, "plan", None)

    def load(
        self,
        source: str | Path,
        *,
        version: int | None = None,
        revision: str | None = None,
        trust: bool = False,
        frozen: bool | None = None,
    ) -> Handle:
        """A published package as a callable op: a folder, or ``"owner/name"`` from the Hugging Face Hub.

        Afterwards it also goes by the name of its op, unless a plugin's op has that, and of its repository.

        Args:
            source: a folder (flat, or with ``build/webgpu/`` inside), or the name of a repository.
            version: of a repository, its contract number: the newest commit of branch ``v1`` and so on.
            revision: of a repository, in place of the version: a commit, 40 hexadecimal digits.
            trust: lets packages of others than the format's publisher be fetched (default: False).
            frozen: takes repositories from ``registry.lock`` alone (default: by ``REGISTRY_FROZEN``).

        A repository that is in the lock comes at the commit of the lock, and must have its digests.

        Raises:
            ContractError: neither a folder nor a name; version or revision wrong.
            PackageError: no manifest there, a template missing or outside the folder, a digest mismatch; not
                to be fetched, not trusted, not locked.
            ManifestError: the manifest is wrong.
        """
        from .package import Handle
        from .packaging.finding import find_package

        if not isinstance(source, str | Path):
            raise ContractError(f"a package is a folder's path or a name; found {source!r}")
        frozen = self.catalog.frozen() if frozen is None else frozen
        op = find_package(source, version, revision, self.catalog.lock_path(), trust=trust, frozen=frozen)
        if self.catalog.loaded.add(op):
            self._memo.clear()
        return Handle(self, op)

    def packages(self) -> tuple[Handle, ...]:
        """Every package that was loaded, in order; ``handle.package`` tells where it comes from."""
        from .package import Handle

        return tuple(Handle(self, op) for op in self.catalog.loaded.all())

    # Running

    def run(self, op: str | Op, /, *tensors: Any, **named: Any) -> Any:
        """Runs an op on the best backend, or on the one that is named.

        Args:
            op: ``Name``, ``domain::Name`` or ``domain.Name``.
            tensors: by position in manifest order; None is an absent optional tensor.
            named: tensors by ONNX name or calling name, attributes, and the options ``outputs`` (a name or
                several), ``out`` (arrays to write), ``backend`` (a name, strict, or a sequence),
                ``variant``, ``device`` (``name``, ``name:0`` or ``name:part of its name``), ``inputs`` and
                ``attrs`` (mappings, for names that an option shadows), ``tunables`` (a mapping, in place of
                the manifest's).

        Returns:
            One array, or a named tuple when outputs are asked for as a sequence or mapping. They are of the
            kind of the first tensor in manifest order, on its device.

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
        return self._render(op, tensors, named)[1]

    def lint(self, op: str | Op, /, *tensors: Any, **named: Any) -> dict[str, tuple[Finding, ...]]:
        """What compilers or devices are known to disagree on in each pass that would run, by the pass's id.

        Arguments as ``explain``; errors as ``render``. Empty for a backend without source text.
        """
        backend, passes = self._render(op, tensors, named)
        return {item.id: tuple(backend.lint(item)) for item in passes}

    def infer(self, op: str | Op, /, *tensors: Any, **named: Any) -> dict[str, tuple[Shape, str]]:
        """The shape and dtype of each output asked for, without data and without a device.

        Dimensions may have names: ``X=(("batch", "seq", 768), "float32")``. A name is a size of at least 2
        that differs from every other name and number of the call; it comes back in the outputs' shapes.

        Raises:
            ContractError: the call breaks the contract, or an output's dimension is computed from names.
        """
        from .symbols import infer

        return infer(self._bind, parse_call(self.op(op), tensors, named))

    def peak_memory(self, op: str | Op, /, *tensors: Any, **named: Any) -> dict[str, int | None]:
        """The most bytes of scratch a run holds, by backend: inputs and outputs are not counted, nor their
        copies on a device.

        Each backend that accepts the call is there, with the variant it would run; None where a backend
        cannot say. Arguments as ``explain``.

        Raises:
            NoPlanError: no candidate accepts the request.
        """
        from .decide import Policy
        from .selection import availability, choose

        call = parse_call(self.op(op), tensors, named)
        request = self._bind(call)
        decision = choose(self.catalog, call, request, Policy(exhaustive=True))
        decision.require()
        found: dict[str, int | None] = {}
        for row in decision.eligible:
            if row.backend not in found and row.claim is not None:
                backend, here = (
                    self.catalog.backend(row.backend),
                    availability(self.catalog, row.backend, call, request),
                )
                exact = decision.request_of(row)
                found[row.backend] = 0 if request.empty else backend.scratch_bytes(exact, row.claim, here)
        return found

    def compare(
        self,
        op: str | Op,
        /,
        *tensors: Any,
        cases: int | Sequence[Mapping[str, Any] | Case] | None = None,
        seed: int = 0,
        **named: Any,
    ) -> Report:
        """Runs every eligible backend and variant and judges each against the float64 reference.

        Takes what ``run`` takes, except ``out``; ``outputs`` defaults to the required ones.

        Args:
            cases: several calls in one report: mappings of arguments, each beside the other arguments; or a
                number, so many requests drawn from the manifest as ``registry test`` draws them (default: the
                one call that the other arguments make).
            seed: of drawn requests. (Attributes of these two names go through ``attrs``.)

        Raises:
            ContractError: a call breaks the contract, or has no data.
            PluginError: the op's reference fails.
        """
        from .comparing.running import compare

        return compare(self, self.op(op), tensors, named, cases, seed)

    def replay(
        self,
        bundle: str | Path,
        *,
        backend: str | Sequence[str] | None = None,
        variant: str | None = None,
        device: str | None = None,
        op: str | Op | None = None,
    ) -> Replay:
        """Runs the comparison that a bundle holds on this machine, and says what is the same.

        Args:
            bundle: a file of ``Report.save``.
            backend: one, or several (default: all that are available here).
            variant: one (default: all that accept the call).
            device: ``name``, ``name:0`` or ``name:part of its name`` (default: each backend's own).
            op: the op to run (default: the one that the bundle names; a package must be given or loaded).

        Raises:
            PackageError: the file is no bundle, or damaged, truncated or made to deceive.
            ContractError: it cannot be read; no such op, backend or variant; the call breaks the contract.
        """
        from .comparing.replaying import replay

        return replay(self, Path(bundle), backend, variant, device, op)

    def bench(self, op: str | Op, /, *tensors: Any, variants: bool = False, **named: Any) -> Benchmark:
        """Times this call on every available backend, or those it names, side by side.

        Takes what ``run`` takes, except ``out``. Each backend runs the variant it would choose, or all
        ``variants``, with host arrays and with tensors on its device; results are judged before.
        """
        from .benchmark import bench

        return bench(self, self.op(op), tensors, named, variants)

    def tune(self, op: str | Op, /, *tensors: Any, **named: Any) -> Tuning:
        """Measures every candidate that accepts this call, and keeps the choice for calls of its class.

        Takes what ``run`` takes, except ``out``, ``variant`` and ``tunables``. Tensors on the host count with
        their way to a device and back, tensors on a device without. Variants are measured first, then, by
        backend, the fastest one's tunables. A candidate whose results are wrong is never chosen; one that is
        not faster than the static choice by more than the spread does not replace it. The choice is kept in
        ``REGISTRY_CACHE_DIR`` or the platform's folder for caches; ``explain`` says where it is followed.

        Raises:
            ContractError: the call breaks the contract, has no data, or settles what is to be measured.
            NoPlanError: no candidate accepts the request.
        """
        from .tuning import tune

        return tune(self, self.op(op), tensors, named)

    # A lock of decisions

    @contextmanager
    def record(self) -> Iterator[Log]:
        """Within it, the decision of every plan that is made or run is kept: of any thread, each request
        once.

        What it gives goes to ``freeze``. One may be inside another. While none is open, a run asks nothing
        but whether there is one.
        """
        from .decisions.recording import Log

        log = Log(self)
        with self._logs_lock:
            self._logs = (*self._logs, log)
        try:
            yield log
        finally:
            with self._logs_lock:
                self._logs = tuple(each for each in self._logs if each is not log)

    def freeze(self, path: str | Path, log: Log, *, sources: bool = True) -> Lock:
        """Adds recorded decisions to a lock of decisions, in place of those of equal requests.

        Args:
            path: the file, ``decisions.lock`` by custom; made where there is none.
            log: what ``record`` gave.
            sources: keeps the rendered sources in a folder beside the file, for ``check`` to compare.

        Raises:
            ContractError: the file is no lock, or cannot be written.
        """
        from .decisions.lockfile import add
        from .decisions.recording import Log

        if not isinstance(log, Log):
            raise ContractError(f"freeze takes a log of record(); found {log!r}")
        return add(Path(path), log.decisions, log.conditions, sources=sources)

    def check(self, path: str | Path = "decisions.lock") -> Check:
        """Decides every request of a lock anew, on this machine and without data; nothing runs.

        What is chosen is prepared as for a run, so that a shader that does not compile here is not chosen.
        The result's ``ok`` tells whether each comes out as it did, by the same source; printed, it says why
        not.

        Raises:
            ContractError: there is no such file, or it is no lock.
        """
        from .decisions.checking import check

        return check(self, Path(path))

    # Devices

    def to_device(self, array: Any, device: str) -> Any:
        """Copies an array to a backend's device (``name``, ``name:0``, ``name:part of its name``).

        Raises:
            ContractError: no array, no such backend, or one that works on host arrays.
            BackendError: the device is not there, with what would help, or does not take it.
        """
        backend, options = self.catalog.ready(device)
        return backend.place(self.host(array), options)

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
        backend, options = self.catalog.ready(device)
        if not isinstance(shape, Sequence):
            raise ContractError(f"shape is {shape!r}; needed: a sequence of dimensions")
        kind = arrays.describe((tuple(shape), arrays.dtype_name(dtype, "dtype")), "empty")
        return backend.empty(kind.shape, kind.dtype, options)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Within it, device work of this thread's calls may go out as one submission; done on leaving."""
        with ExitStack() as stack:
            for backend in self.catalog.plugins.batching:
                backend.begin_batch()
                stack.callback(backend.end_batch)
            yield

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

    def _render(
        self, op: str | Op, tensors: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Backend, tuple[RenderedPass, ...]]:
        from .decide import Policy
        from .selection import availability, choose

        call = parse_call(self.op(op), tensors, named)
        request = self._bind(call)
        decision = choose(self.catalog, call, request, Policy())
        row = decision.require()
        assert row.claim is not None
        here = availability(self.catalog, row.backend, call, request)
        backend = self.catalog.backend(row.backend)
        return backend, backend.render(decision.request_of(row), row.claim, here)

    def _bind(self, call: Call) -> Request:
        from .planning import bind_call

        return bind_call(self.catalog, call)

    def _plan(self, call: Call) -> tuple[Plan, bool]:
        from .planning import make_plan

        return make_plan(self.catalog, call, self._readers, self._remember)

    def _remember(self, plan: Plan) -> None:
        self._here.plan = plan
        if self._logs:
            for log in self._logs:
                log.note(plan)
