"""What there is: plugins, ops and backends, how they are configured, and how each stands on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .environment import read_environment
from .errors import BackendError, ContractError, ManifestError, RegistryError, suggestion
from .hookspecs import Availability, Backend
from .packaging.loaded import Loaded

if TYPE_CHECKING:
    from .deciding.tuned import Store
    from .opinfo import Op
    from .plugins import Plugins


KEEP: Any = object()
"""Stands for a setting that stays as it is."""


class Catalog:
    """Loads plugins and manifests when first asked for, probes backends once, and keeps the settings.

    Environment variables that begin with ``REGISTRY_`` are read when it is made and on ``refresh``.
    """

    def __init__(self, extra: Iterable[object], entry_points: bool):
        if not isinstance(extra, Iterable) or isinstance(extra, str | bytes):
            raise ContractError(f"plugins={extra!r}; needed: a sequence of modules or objects")
        self.extra = tuple(extra)
        self.entry_points = entry_points
        self._lock = threading.RLock()
        self._order: tuple[str, ...] | None = None
        self._options: dict[str, dict[str, Any]] = {}
        self.batch_invariant = False
        self.loaded = Loaded()
        self._tuned = True
        self.refresh()

    def refresh(self) -> None:
        """Forgets what was loaded and probed; reads the environment anew."""
        with self._lock:
            self._found: Plugins | None = None
            self._ops: dict[str, Op] = {}
            self._availabilities: dict[tuple[str, str | None], Availability] = {}
            self.environment = read_environment()
            self._store: Store | None = None

    def configure(
        self,
        order: Sequence[str] | None,
        options: Mapping[str, Mapping[str, Any]] | None,
        batch_invariant: bool,
        tuned: bool,
    ) -> None:
        """See ``Registry.configure``."""
        if tuned is not KEEP and not isinstance(tuned, bool):
            raise ContractError(f"configure(tuned={tuned!r}); needed: True or False")
        if batch_invariant is not KEEP and not isinstance(batch_invariant, bool):
            raise ContractError(f"configure(batch_invariant={batch_invariant!r}); needed: True or False")
        if order is not KEEP and order is not None and not order:
            raise ContractError("configure(backends=[]) leaves no backend; None means all, by priority")
        if isinstance(order, str):
            order = (order,)
        if order is not KEEP and order is not None and not isinstance(order, list | tuple):
            raise ContractError(f"configure(backends={order!r}); needed: a sequence of names, or None")
        if options is not None and not isinstance(options, Mapping):
            raise ContractError(f"configure(options={options!r}); needed: a mapping by backend")
        names = order if order in (KEEP, None) else tuple(self.known(name) for name in order)
        given = {self.known(name): self._checked(name, values) for name, values in (options or {}).items()}
        with self._lock:
            self._order = self._order if names is KEEP else names
            self._options = {**self._options, **given}
            if batch_invariant is not KEEP:
                self.batch_invariant = batch_invariant
            self._tuned = self._tuned if tuned is KEEP else tuned
            self._availabilities.clear()

    def settings(self) -> dict[str, Any]:
        """What ``configure`` has changed, as plain data; options that are objects are left out."""
        plain = {
            name: {option: value for option, value in values.items() if isinstance(value, str | int | float)}
            for name, values in self._options.items()
        }
        found = {
            "backends": list(self._order) if self._order else None,
            "options": {name: values for name, values in plain.items() if values},
            "batch_invariant": self.batch_invariant,
            "tuned": None if self._tuned else False,
        }
        return {name: value for name, value in found.items() if value or (value is False and name == "tuned")}

    def _checked(self, name: str, values: Any) -> dict[str, Any]:
        if not isinstance(values, Mapping):
            raise ContractError(f"options of {name} are {values!r}; needed: a mapping by name")
        known = self.backend(name).option_names
        for option in values:
            if option not in known:
                hint = suggestion(str(option), known)
                every = ", ".join(known) or "none"
                raise ContractError(f"{name} has no option {option!r}{hint}; options: {every}")
        try:
            self.backend(name).check_options(values)
        except RegistryError:
            raise
        except Exception as error:  # a stranger's
            raise ContractError(
                f"options of {name} cannot be checked: {type(error).__name__}: {error}"
            ) from error
        return dict(values)

    # Plugins and ops

    @property
    def plugins(self) -> Plugins:
        """Everything the plugins bring."""
        found = self._found
        if found is None:
            with self._lock:
                found = self._found
                if found is None:
                    from .plugins import load_plugins

                    found = self._found = load_plugins(self.extra, self.entry_points, self.environment)
        return found

    def op(self, name: str | Op) -> Op:
        """See ``Registry.op``."""
        from .opinfo import Op

        if isinstance(name, Op):
            return name
        if not isinstance(name, str):
            raise ContractError(f"an op is named by text; found {name!r}")
        loaded = None if self.has(name) else self.loaded.find(name)
        if loaded is not None:
            return loaded
        identity = self._op_id(name)
        op = self._ops.get(identity)
        if op is None:
            with self._lock:
                from .loading.loader import load_manifest

                file = self.plugins.manifests[identity]
                check = identity not in self.plugins.tested
                op = self._ops.get(identity) or load_manifest(file, check=check)
                if op.id != identity:
                    raise ManifestError(f"holds {op.id}; its place says {identity}", file=str(file))
                self._ops[identity] = op
        return op

    def has(self, name: str) -> bool:
        """Whether a plugin's op goes by that name: loaded packages do not take it."""
        known = self.plugins.manifests
        return any(name in (op, op.replace("::", "."), op.partition("::")[2]) for op in known)

    def _op_id(self, name: str) -> str:
        known = self.plugins.manifests
        exact = name if "::" in name else "::".join(name.rpartition(".")[::2])
        if exact in known:
            return exact
        matches = sorted(op for op in known if op.partition("::")[2] == name)
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise ContractError(f"several ops are called {name!r}: {', '.join(matches)}; name the domain")
        bare = [op.partition("::")[2] for op in known]
        raise ContractError(
            f"no op {name!r}{suggestion(name, [*bare, *known])}; ops: "
            f"{', '.join(sorted(known)) or 'none, for no plugin that was loaded brings one'}",
            argument=name,
        )

    # Backends

    def known(self, name: str) -> str:
        """The name of a backend, as given.

        Raises:
            ContractError: there is none of that name; lists what there is and which plugins failed.
        """
        known = self.plugins.backends
        if not isinstance(name, str):
            raise ContractError(f"a backend is named by text; found {name!r}")
        if name not in known:
            failed = [f"{f.plugin} ({f.cause})" for f in self.plugins.failures]
            broken = f"; plugins that did not load: {', '.join(failed)}" if failed else ""
            hint = suggestion(name, list(known))
            if name.partition(":")[0] in known:
                hint = f" (a device goes by device={name!r})"
            elif "," in name:
                hint = " (several names go as a list)"
            raise ContractError(
                f"no backend {name!r}{hint}; backends: {', '.join(known) or 'none'}{broken}",
                argument=name,
            )
        return name

    def backend(self, name: str) -> Backend:
        """The backend of that name; raises as ``known``."""
        return self.plugins.backends[self.known(name)]

    def listed(self) -> tuple[str, ...] | None:
        """The backends the user listed, by ``REGISTRY_BACKENDS`` or ``configure``; None without a list."""
        try:
            given = tuple(map(self.known, self.environment.backends))
        except ContractError as error:
            raise ContractError(f"REGISTRY_BACKENDS: {error}") from None
        return given or self._order

    def order(self) -> tuple[str, ...]:
        """The backends of an automatic choice, in order."""
        found = self.plugins.backends
        return self.listed() or tuple(sorted(found, key=lambda name: -found[name].priority))

    def ranked(self) -> tuple[str, ...]:
        """Every backend: those of an automatic choice in order, then the others."""
        order = self.order()
        return (*order, *(name for name in self.plugins.backends if name not in order))

    def options(self, name: str, device: str | None = None) -> dict[str, Any]:
        """What a backend is called with: its configured options and the device asked for."""
        part = self.split_device(device)[1] if device else None
        return {**self._options.get(name, {}), **({"device": part} if part else {})}

    def availability(self, name: str, device: str | None = None) -> Availability:
        """Whether a backend can run here; probed once."""
        with self._lock:
            if (name, device) not in self._availabilities:
                self._availabilities[name, device] = _probe(self.backend(name), self.options(name, device))
            return self._availabilities[name, device]

    # Measured choices

    @property
    def store(self) -> Store:
        """The measured choices that are kept."""
        with self._lock:
            if self._store is None:
                from .deciding.tuned import Store
                from .files import cache_folder

                self._store = Store(cache_folder())
            return self._store

    @property
    def tuned(self) -> bool:
        """Whether measured choices count: unless ``REGISTRY_TUNED=0`` or ``configure(tuned=False)``."""
        return self._tuned and self.environment.tuned

    def version(self, name: str) -> str:
        """The version of the distribution that a backend comes from; empty for one given directly."""
        from importlib import metadata

        try:
            return metadata.version(self.plugins.origins[name])
        except metadata.PackageNotFoundError:
            return ""

    # Devices

    def split_device(self, device: str) -> tuple[str, str | None]:
        """``name:part`` as (backend, part); the part is None when there is none."""
        if not isinstance(device, str):
            raise ContractError(f"device is {device!r}; needed: a name such as 'name' or 'name:0'")
        name, _, part = device.partition(":")
        return self.known(name), part or None

    def ready(self, device: str) -> tuple[Backend, dict[str, Any]]:
        """The backend of a device that is there, and the options for it.

        Raises:
            ContractError: no such backend.
            BackendError: it cannot run here; says why and what would help.
        """
        name = self.split_device(device)[0]
        here = self.availability(name, device)
        if not here.available:
            raise BackendError(f"{here.condition}: {here.found}; needed: {here.needed}", backend=name)
        return self.backend(name), self.options(name, device)

    def location(self, value: object) -> str | None:
        """The device a value lives on (``name:0``), or None when no backend owns it."""
        for backend in self.plugins.backends.values():
            if backend.owns(value):
                return backend.location(value)
        return None

    def at(self, device: str) -> Backend:
        """The backend of a device."""
        return self.plugins.backends[device.partition(":")[0]]


def _probe(backend: Backend, options: Mapping[str, Any]) -> Availability:
    try:
        backend.check_options(options)
        part = options.get("device")
        if part not in (None, "0") and type(backend).place is Backend.place:
            found = f"no device {part!r}: it works on host arrays"
            needed = f'device="{backend.name}", or leave device= out'
            return Availability(False, "the device is there", found, needed)
        here = backend.probe(options)
        if not isinstance(here, Availability):
            raise TypeError(f"probe gave {here!r}; needed: an Availability")
        return here
    except ContractError:  # an option that the user has set
        raise
    except (Exception, SystemExit) as error:  # a stranger's probe must not stop the others
        from .plugins import one_line

        return Availability(False, "probe works", one_line(error), "a working plugin")
