"""The registry: all that a program calls, most of it inherited."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .dispatch import Dispatcher
from .errors import ContractError

if TYPE_CHECKING:
    from .comparing.replayed import Replay
    from .comparing.report import Report
    from .conformance.cases import Case
    from .freezing.checking import Check
    from .freezing.decision_lock import DecisionLock
    from .freezing.recording import Log
    from .handle import Handle
    from .measuring.benchmark import Benchmark
    from .measuring.tuning import Tuning
    from .opinfo import Op


class Registry(Dispatcher):
    """Ops, backends and plans. The module's functions are the methods of one shared instance.

    Args:
        plugins: plugin modules or objects to load beside the entry points.
        entry_points: False leaves out every installed plugin, the built-in ones too.
    """

    def __init__(self, plugins: Iterable[object] = (), *, entry_points: bool = True):
        super().__init__(plugins, entry_points=entry_points)
        self._logs_lock = threading.Lock()
        freeze = self.catalog.environment.freeze
        if freeze is not None:
            from .freezing.recording import record_until_exit

            self._logs = (record_until_exit(self, freeze),)

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

        Afterwards it also goes by the name of its op, unless a plugin's op has that, and of its repository. A
        repository that is in the lock comes at the commit of the lock, and must have its digests.

        Args:
            source: a folder (flat, or with ``build/webgpu/`` inside), or the name of a repository.
            version: of a repository, its contract number: the newest commit of branch ``v1`` and so on.
            revision: of a repository, in place of the version: a commit, 40 hexadecimal digits.
            trust: lets packages of others than the format's publisher be fetched (default: False).
            frozen: takes repositories from ``registry.lock`` alone (default: by ``REGISTRY_FROZEN``).

        Raises:
            ContractError: neither a folder nor a name; version or revision wrong.
            PackageError: no manifest there, a template missing or outside the folder, a digest mismatch; not
                to be fetched, not trusted, not locked.
            ManifestError: the manifest is wrong.
        """
        from .handle import Handle
        from .packaging.finding import find_package

        if not isinstance(source, str | Path):
            raise ContractError(f"a package is a folder's path or a name; found {source!r}")
        frozen = self.catalog.environment.frozen if frozen is None else frozen
        op = find_package(
            source, version, revision, self.catalog.environment.lock_path, trust=trust, frozen=frozen
        )
        if self.catalog.loaded.add(op):
            self._memo.clear()
        return Handle(self, op)

    def packages(self) -> tuple[Handle, ...]:
        """Every package that was loaded, in order; ``handle.package`` tells where it comes from."""
        from .handle import Handle

        return tuple(Handle(self, op) for op in self.catalog.loaded.all())

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

        Takes what ``run`` takes, except ``out``; ``outputs`` defaults to the required ones. That no
        candidate accepts a call, or that one fails while running, is in the report and is not raised.

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
        from .files import path_of

        return replay(self, path_of(bundle, "bundle"), backend, variant, device, op)

    def bench(self, op: str | Op, /, *tensors: Any, variants: bool = False, **named: Any) -> Benchmark:
        """Times this call on every available backend, or those it names, side by side.

        Takes what ``run`` takes, except ``out``. Each backend runs the variant it would choose, or all
        ``variants`` (default: False), with host arrays and with tensors on its device; results are judged
        before. Times are seconds in the records, microseconds in print and in ``as_dicts``. Where a candidate
        fails, or none accepts the call, the result says so.

        Raises:
            ContractError: the call breaks the contract, has no data or no elements; no such backend, variant
                or device.
            PluginError: the op's reference fails.
        """
        from .measuring.benchmark import bench

        return bench(self, self.op(op), tensors, named, variants)

    def tune(self, op: str | Op, /, *tensors: Any, **named: Any) -> Tuning:
        """Measures every candidate that accepts this call, and keeps the choice for calls of its class.

        Takes what ``run`` takes, except ``out``, ``variant`` and ``tunables``. Tensors on the host count with
        their way to a device and back, tensors on a device without. Variants are measured first, then, by
        backend, the fastest one's tunables. A candidate whose results are wrong is never chosen; one that is
        not faster than the static choice by more than the spread does not replace it. The choice is kept in
        ``REGISTRY_CACHE_DIR`` or the platform's folder for caches; ``explain`` says where it is followed.

        Raises:
            ContractError: the call breaks the contract, has no data or no elements, or settles what is to be
                measured.
            NoPlanError: no candidate accepts the request.
            PluginError: the op's reference fails.
        """
        from .measuring.tuning import tune

        return tune(self, self.op(op), tensors, named)

    @contextmanager
    def record(self) -> Iterator[Log]:
        """Within it, the decision of every plan that is made or run is kept: of any thread, each request
        once.

        What it gives goes to ``freeze``. One may be inside another. While no log is open, a run only checks
        an empty tuple.
        """
        from .freezing.recording import Log

        log = Log(self)
        with self._logs_lock:
            self._logs = (*self._logs, log)
        try:
            yield log
        finally:
            with self._logs_lock:
                self._logs = tuple(each for each in self._logs if each is not log)

    def freeze(self, path: str | Path, log: Log, *, sources: bool = True) -> DecisionLock:
        """Adds recorded decisions to a lock of decisions, in place of those of equal requests.

        Args:
            path: the file, ``decisions.lock`` by custom; made where there is none.
            log: what ``record`` gave.
            sources: keeps the rendered sources in a folder beside the file, for ``check`` to compare.

        Raises:
            ContractError: the file is no lock, or cannot be written.
        """
        from .files import path_of
        from .freezing.decision_lock import add
        from .freezing.recording import Log

        if not isinstance(log, Log):
            raise ContractError(f"freeze takes a log of record(); found {log!r}")
        return add(path_of(path, "path"), log.decisions, log.system, sources=sources)

    def check(self, path: str | Path = "decisions.lock") -> Check:
        """Decides every request of a lock anew, on this machine and without data; nothing runs.

        What is chosen is prepared as for a run, so that a shader that does not compile here is not chosen.
        The result's ``ok`` tells whether each comes out as it did, by the same source; printed, it says why
        not.

        Raises:
            ContractError: there is no such file, or it is no lock.
        """
        from .files import path_of
        from .freezing.checking import check

        return check(self, path_of(path, "path"))
