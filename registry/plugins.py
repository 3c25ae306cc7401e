"""Discovery: plugins are loaded one by one, a broken one is kept as a reason and never stops the others."""

from __future__ import annotations

import importlib.metadata
import time
import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pluggy

from .environment import Environment, read_environment
from .errors import PluginError, RegistryWarning, shorten
from .hookspecs import API_VERSION, ENTRY_POINT_GROUP, Backend, Hooks, Reference

OURS = "kernel-registry"
PLUGINS_VARIABLE = "REGISTRY_PLUGINS"
HOOKS = ("registry_backends", "registry_manifests", "registry_references")


@dataclass(frozen=True)
class BrokenPlugin:
    """A plugin that did not load: its entry-point name, its distribution and the cause in one line."""

    plugin: str
    distribution: str
    cause: str
    error: BaseException | None = field(default=None, compare=False, repr=False)
    seconds: float = field(default=0.0, compare=False)


@dataclass
class Plugins:
    """What all plugins together bring."""

    backends: dict[str, Backend] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """How long the plugin of each backend took to load."""
    manifests: dict[str, Path] = field(default_factory=dict)
    tested: set[str] = field(default_factory=set)
    """Ops whose manifests come with this library, whose tests check them."""
    references: dict[str, Reference] = field(default_factory=dict)
    failures: list[BrokenPlugin] = field(default_factory=list)

    @cached_property
    def batching(self) -> tuple[Backend, ...]:
        """The backends that collect work in a batch."""
        return tuple(b for b in self.backends.values() if type(b).begin_batch is not Backend.begin_batch)


@dataclass(frozen=True)
class _Entry:
    name: str
    distribution: str
    load: Any


_Brought = tuple[_Entry, list[Backend], float]
"""What an entry point brought, and how many seconds it took."""


def load_plugins(
    extra: Iterable[object] = (), entry_points: bool = True, environment: Environment | None = None
) -> Plugins:
    """Loads plugins from the entry points and the objects given; ours come first, then by name.

    Of the entry points those that ``REGISTRY_PLUGINS``, a comma list, names; without it all. The environment
    is that of the process, where none is given.

    Raises:
        PluginError: a plugin is broken, under ``REGISTRY_STRICT=1`` only.
    """
    found = Plugins()
    environment = environment or read_environment()
    strict = environment.strict
    entries = _wanted(_entry_points(), environment.plugins, found) if entry_points else []
    entries += [_Entry(_name(plugin), "given directly", lambda plugin=plugin: plugin) for plugin in extra]
    brought: list[_Brought] = []
    for entry in entries:
        begin = time.perf_counter()
        try:
            backends = _load(entry, found)
            brought.append((entry, backends, time.perf_counter() - begin))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may leave by SystemExit, too
            cause = str(error) if isinstance(error, PluginError) else one_line(error)
            seconds = time.perf_counter() - begin
            found.failures.append(BrokenPlugin(entry.name, entry.distribution, cause, error, seconds))
    _admit(brought, found)
    for failure in found.failures:
        text = f"plugin {failure.plugin} of {failure.distribution} did not load: {failure.cause}"
        if strict:
            raise PluginError(
                text, plugin=failure.plugin, distribution=failure.distribution
            ) from failure.error
        warnings.warn(text, RegistryWarning, stacklevel=2)
    return found


def _entry_points() -> list[_Entry]:
    """One entry per distinct (distribution, name): a distribution seen through two paths counts once."""
    seen: dict[tuple[str, str], _Entry] = {}
    points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    # A distribution reads and parses its file of metadata anew each time it is asked for its name.
    names = {dist: dist.name for dist in {point.dist for point in points} if dist is not None}
    for point in points:
        distribution = names[point.dist] if point.dist is not None else "unknown"
        seen.setdefault((distribution, point.name), _Entry(point.name, distribution, point.load))
    return sorted(seen.values(), key=lambda e: (e.distribution != OURS, e.name, e.distribution))


def _wanted(entries: list[_Entry], names: Sequence[str], found: Plugins) -> list[_Entry]:
    """Those that ``REGISTRY_PLUGINS`` names, all without it; a name of no entry point is a failure."""
    if not names:
        return entries
    known = dict.fromkeys(entry.name for entry in entries)
    for name in dict.fromkeys(names):
        if name not in known:
            cause = f"no such entry point; {PLUGINS_VARIABLE} takes some of {', '.join(known)}"
            found.failures.append(BrokenPlugin(name, PLUGINS_VARIABLE, cause))
    return [entry for entry in entries if entry.name in names]


def _load(entry: _Entry, found: Plugins) -> list[Backend]:
    plugin = entry.load()
    # A manager of its own for each plugin: pluggy checks the signatures, names the culprit, and one raising
    # hook cannot hide what the others bring.
    manager = pluggy.PluginManager("registry")
    manager.add_hookspecs(Hooks)
    _check_names(plugin, entry)
    manager.register(plugin, name=entry.name)
    manager.check_pending()
    backends = [backend for batch in _results(manager, plugin, "registry_backends") for backend in batch]
    for backend in backends:
        _check_backend(backend, entry)
    folders = [Path(folder) for batch in _results(manager, plugin, "registry_manifests") for folder in batch]
    references: dict[str, Reference] = {}
    for batch in _results(manager, plugin, "registry_references"):
        references.update(_check_references(batch))
    files = {}
    for folder in folders:
        if not folder.is_dir():
            raise PluginError(f"registry_manifests names {folder}, which is no folder")
        for file in sorted([*folder.glob("*/*.yaml"), *folder.glob("*/*.json")]):
            files[f"{file.parent.name}::{file.stem}"] = file
    for op in [*(files.keys() & found.manifests.keys()), *(references.keys() & found.references.keys())]:
        raise PluginError(f"it brings {op}, which another plugin has brought already")
    found.manifests.update(files)
    if entry.distribution == OURS:
        found.tested.update(files)
    found.references.update(references)
    return backends


def _results(manager: pluggy.PluginManager, plugin: object, hook: str) -> list[Any]:
    """What the plugin's hook gave: one result, or none when it has no such hook."""
    results: list[Any] = getattr(manager.hook, hook)()
    if not results and hasattr(getattr(plugin, hook, None), "registry_impl"):
        raise PluginError(f"{hook} gave None; needed: what it brings, or an empty list")
    return results


def _check_names(plugin: object, entry: _Entry) -> None:
    known = set(HOOKS)
    hooks = [name for name in dir(plugin) if name.startswith("registry_")]
    marked = [name for name in hooks if hasattr(getattr(plugin, name, None), "registry_impl")]
    wrong = [name for name in marked if name not in known]
    if wrong:
        raise PluginError(
            f"unknown hook {', '.join(wrong)}; hooks: {', '.join(HOOKS)}",
            plugin=entry.name,
            distribution=entry.distribution,
        )
    if not marked:
        raise PluginError(
            f"it has no hook; needed: one of {', '.join(HOOKS)}, marked with hookimpl",
            plugin=entry.name,
            distribution=entry.distribution,
        )


def _check_backend(backend: object, entry: _Entry) -> None:
    wrong = None
    if not isinstance(backend, Backend):
        wrong = f"registry_backends gave a {type(backend).__qualname__}; needed: registry.Backend"
    elif (
        not isinstance(backend.priority, int | float)
        or isinstance(backend.priority, bool)
        or not abs(backend.priority) < 1e9
    ):
        wrong = f"priority {shorten(repr(backend.priority), 40)}; needed: a number below a thousand million"
    elif not isinstance(backend.name, str) or not backend.name.isidentifier():
        wrong = f"backend name {backend.name!r}; needed: a Python identifier"
    elif backend.api_version != API_VERSION:
        wrong = f"made for plugin interface {backend.api_version}; this is interface {API_VERSION}"
    elif not isinstance(backend.option_names, tuple | list) or not all(
        isinstance(name, str) for name in backend.option_names
    ):
        wrong = f"option_names {backend.option_names!r}; needed: a tuple of names"
    if wrong:
        raise PluginError(wrong, plugin=entry.name, distribution=entry.distribution)


def _check_references(batch: Any) -> Mapping[str, Reference]:
    if not isinstance(batch, Mapping) or not all(callable(function) for function in batch.values()):
        raise PluginError("registry_references gave no mapping of op ids to functions")
    return batch


def _admit(brought: list[_Brought], found: Plugins) -> None:
    """Ours keep their names; of two strangers with one name neither comes in."""
    claims: dict[str, list[_Entry]] = {}
    for entry, backends, _ in brought:
        for backend in backends:
            claims.setdefault(backend.name, []).append(entry)
    for entry, backends, seconds in brought:
        for backend in backends:
            rivals = [other for other in claims[backend.name] if other is not entry]
            if claims[backend.name].count(entry) > 1:
                rivals.append(entry)  # one plugin, two backends of one name
            ours = [other for other in rivals if other.distribution == OURS]
            if rivals and entry.distribution != OURS:
                owner = ours[0] if ours else rivals[0]
                found.failures.append(
                    BrokenPlugin(
                        entry.name,
                        entry.distribution,
                        f"backend name {backend.name!r} is also claimed by "
                        f"{owner.name} of {owner.distribution}",
                    )
                )
                continue
            found.backends.setdefault(backend.name, backend)
            found.origins.setdefault(backend.name, entry.distribution)
            found.seconds.setdefault(backend.name, seconds)


def _name(plugin: object) -> str:
    return str(getattr(plugin, "__name__", type(plugin).__name__))


def one_line(error: BaseException) -> str:
    """The exception in one line, with the place in the plugin's code that raised it."""
    text = shorten(" ".join(str(error).split()), 300)
    frames = traceback.extract_tb(error.__traceback__)
    # Frames of this module, of pluggy and of Python's import say nothing of where the plugin went wrong.
    skipped = {Path(__file__).parent, Path(str(pluggy.__file__)).parent}
    own = [f for f in frames if Path(f.filename).parent not in skipped and not f.filename.startswith("<")]
    place = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
    if isinstance(error, SyntaxError):
        text, place = error.msg, f" ({error.filename}:{error.lineno})"
    return (f"{type(error).__name__}: {text}" if text else type(error).__name__) + place
