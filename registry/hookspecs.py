"""The plugin interface: what a backend is, what it claims, and the three hooks that bring it in.

A distribution offers a plugin through the entry-point group ``registry.backends``. The plugin is a module
or an object with any of the three hooks below, marked with ``hookimpl``. The built-in backends come in by
the same door.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import pluggy

from .errors import ContractError

if TYPE_CHECKING:
    import numpy as np

    from .calling.request import Request
    from .judging.accuracy import Expected
    from .opinfo import Op

API_VERSION = 1
ENTRY_POINT_GROUP = "registry.backends"

hookspec = pluggy.HookspecMarker("registry")
hookimpl = pluggy.HookimplMarker("registry")

Reference = Callable[
    ["Mapping[str, np.ndarray[Any, Any]]", Mapping[str, Any]],
    "Mapping[str, Expected] | Mapping[str, np.ndarray[Any, Any]]",
]
"""``reference(tensors by role, attributes) -> every output by role``, in float64.

An output is an `Expected`, which brings its own tolerance, or a plain array, held to the default one.
"""


@dataclass(frozen=True)
class Predicate:
    """A condition in Python, for what a manifest expression cannot say.

    ``test(request, device)`` returns None when the condition holds, else the value found, as text.
    """

    condition: str
    needed: str
    test: Callable[[Request, Mapping[str, Any]], str | None]


@dataclass(frozen=True)
class Claim:
    """A backend's offer to run an op by one variant.

    ``variant`` is the id of a manifest variant or a name of the backend's own. ``when`` must hold entirely,
    in order: manifest expressions (exactly true) or predicates. One true ``demote_when`` keeps the claim as
    a fallback behind every claim of the backend that is not demoted. Higher ``priority`` comes first; ties
    keep the order of the claims. ``batch_invariant`` is False where a row's bits depend on how many rows
    there are, as when a row is split over workgroups.
    """

    variant: str
    priority: float = 0
    when: tuple[str | Predicate, ...] = ()
    demote_when: tuple[str | Predicate, ...] = ()
    batch_invariant: bool = True


@dataclass(frozen=True)
class Refusal:
    """A backend's reason not to run an op, or one variant of it, at all."""

    condition: str
    found: str
    needed: str
    variant: str = "all"


@dataclass(frozen=True)
class Availability:
    """Whether a backend can run here, on which device, and if not, why and what would help.

    ``device`` is what manifest conditions see as ``device`` (features, limits, ...); ``hardware`` is False
    for an adapter that is emulated on the CPU and must not win an automatic choice. ``details`` are shown by
    ``registry backends``; ``note``, where there is one, by every decision for the backend; ``record`` is the
    backend's own note of the device, handed back to its ``render``.
    """

    available: bool
    condition: str = "available"
    found: str = ""
    needed: str = ""
    hardware: bool = True
    name: str = ""
    device: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    details: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    note: str = ""
    record: object = None

    def __post_init__(self) -> None:
        for kind, names in _KINDS:
            for name in names:
                if not isinstance(value := getattr(self, name), kind):
                    found = f"{name} is a {type(value).__name__}"
                    raise TypeError(f"Availability: {found}; needed: a {kind.__name__}")


_KINDS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (bool, ("available", "hardware")),
    (str, ("condition", "found", "needed", "name", "note")),
    (Mapping, ("device", "details")),
)


@dataclass(frozen=True, kw_only=True)
class RenderedPass:
    """One dispatch as it would run: the source and all that was baked into it or goes beside it.

    ``constants`` and ``inputs`` are the manifest's evaluated constants and source inputs; ``declarations``
    is the block of resource declarations; ``uniforms`` maps field to value; ``dispatch`` is the number of
    workgroups in x, y and z.
    """

    id: str
    shader: str
    language: str
    source: str
    constants: Mapping[str, Any]
    inputs: Mapping[str, Any]
    declarations: str
    uniforms: Mapping[str, Any]
    dispatch: tuple[int, int, int]


@dataclass(frozen=True)
class Finding:
    """What a backend's lint says of a rendered source: the rule, the line that breaks it, and how."""

    rule: str
    line: int
    text: str


class Executable(Protocol):
    """What a backend prepares: ready to run one request again and again, from several threads. Any callable
    with these two arguments is one.
    """

    def __call__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Fills ``outputs`` from ``inputs``, both keyed by role.

        Every value is a NumPy array (native byte order, any strides) or a tensor of this backend. Outputs
        are allocated already, never overlap an input, and have the request's shapes and dtypes. Host arrays
        are filled when it returns; work on a device may then still be on its way.

        Raises:
            BackendError: the run failed; the outputs' contents are undefined.
        """


class Backend:
    """Base class of backends: override what applies. ``name`` and ``claims`` and ``prepare`` are required."""

    name: str = ""
    priority: float = 50
    api_version: int = API_VERSION
    option_names: tuple[str, ...] = ()
    """The options ``registry.configure(options={name: ...})`` takes for this backend."""
    extremes_promised: bool = True
    """Whether results are right where NaN, infinity or subnormal numbers reach them. Where they need not be,
    a deviation is no failure of conformance, but noted."""

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuses option values, its own environment variables' included, that the backend does not know.

        Raises:
            ContractError: says the option, the value found and what is needed.
        """

    def probe(self, options: Mapping[str, Any]) -> Availability:
        """Says whether the backend can run here. Cheap, never raising.

        ``options`` are those of ``registry.configure(options={name: ...})``, plus ``device``: the part after
        the colon of the device asked for, when one was.
        """
        return Availability(True, name=self.name)

    def imagine(self, profile: Mapping[str, Any]) -> Availability:
        """A device described as plain data, in place of this machine's.

        Raises:
            ContractError: the backend knows no such descriptions, or this one is malformed.
        """
        raise ContractError(
            f"profile={{{self.name!r}: ...}}: this backend takes no device profile; leave it out"
        )

    def claims(self, op: Op) -> Sequence[Claim | Refusal]:
        """The variants this backend offers for an op, or its reasons not to."""
        raise NotImplementedError(f"{type(self).__name__} has no method claims")

    def prepare(self, request: Request, claim: Claim, options: Mapping[str, Any]) -> Executable:
        """Makes a claim ready to run: renders, compiles, allocates what persists.

        Raises:
            BackendError: it cannot be prepared after all.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method prepare")

    def render(self, request: Request, claim: Claim, availability: Availability) -> tuple[RenderedPass, ...]:
        """The source text of every pass, without touching a device. Empty for a backend without source."""
        return ()

    def lint(self, rendered: RenderedPass) -> Sequence[Finding]:
        """What stands in a rendered source that compilers or devices are known to disagree on, by line."""
        return ()

    def scratch_bytes(self, request: Request, claim: Claim, availability: Availability) -> int | None:
        """The most bytes a run of the claim holds beyond its inputs and outputs, without touching a device.

        Copies of inputs and outputs on a device count as them. None: the backend cannot say.
        """
        return None

    def owns(self, array: object) -> bool:
        """Whether the array is a tensor of this backend."""
        return False

    def location(self, tensor: Any) -> str:
        """The device of one of this backend's tensors, for instance ``name:0``."""
        return self.name

    def place(self, array: np.ndarray[Any, Any], options: Mapping[str, Any]) -> Any:
        """Copies a host array to the device; ``options`` as for ``probe``."""
        text = f"backend {self.name!r} works on host arrays; it has no device to copy to"
        raise ContractError(f"{text}; pass the array to run as it is")

    def empty(self, shape: tuple[int, ...], dtype: str, options: Mapping[str, Any]) -> Any:
        """A tensor of undefined contents on the device; ``options`` as for ``probe``."""
        text = f"backend {self.name!r} works on host arrays; it has no device to allocate on"
        raise ContractError(f"{text}; pass a NumPy array to run")

    def reader(self, kind: type) -> Callable[[Any], Hashable] | None:
        """A quick way to tell this backend's tensors of a type apart, or None.

        What it returns for a tensor decides the tensor's shape, dtype and device, and that the backend takes
        it; repeated calls are recognised by it.
        """
        return None

    def template(self, op: Op, name: str) -> str | None:
        """The text of one of this backend's templates that a manifest names; None where it has none."""
        return None

    def beside(self, tensor: Any, shape: tuple[int, ...], dtype: str, options: Mapping[str, Any]) -> Any:
        """A tensor of undefined contents on the device of another one, and of its kind where a backend
        owns several kinds."""
        return self.empty(shape, dtype, options)

    def deliver(self, array: np.ndarray[Any, Any], tensor: Any, options: Mapping[str, Any]) -> Any:
        """Copies a host array to the device of a tensor, as its kind where a backend owns several kinds."""
        return self.place(array, options)

    def remarks(self, tensors: Mapping[str, Any]) -> Iterable[str]:
        """What a run does with these tensors of the backend beside computing, such as a copy: a line each."""
        return ()

    def overlaps(self, one: Any, other: Any) -> bool:
        """Whether two of this backend's tensors may share memory."""
        return one is other

    def host(self, tensor: Any) -> np.ndarray[Any, Any]:
        """Copies one of this backend's tensors to a new host array."""
        raise ContractError(f"backend {self.name!r} has no tensors of its own")

    def wait(self, options: Mapping[str, Any]) -> None:
        """Returns when all work begun so far on the device is done; ``options`` as for ``probe``.

        For clocks. A backend whose runs end when they return has nothing to wait for.
        """

    def copier(self, nbytes: int, options: Mapping[str, Any]) -> Callable[[], None] | None:
        """What begins a copy within the device's memory that moves so many bytes, read and written together.

        Its speed is what a kernel's is measured by. None: the backend cannot say. ``options`` as for
        ``probe``.
        """
        return None

    def begin_batch(self) -> None:
        """From here on, device work of the calling thread may be collected instead of submitted."""

    def end_batch(self) -> None:
        """Submits what the calling thread has collected since ``begin_batch``.

        Raises:
            BackendError: a deferred failure, naming its op.
        """


class Hooks:
    """The hook specifications."""

    @hookspec
    def registry_backends(self) -> Iterable[Backend]:
        """The backends this plugin brings."""
        raise NotImplementedError

    @hookspec
    def registry_manifests(self) -> Iterable[Path]:
        """Folders of manifests laid out as ``<domain>/<Op>.yaml`` (or ``.json``)."""
        raise NotImplementedError

    @hookspec
    def registry_references(self) -> Mapping[str, Reference]:
        """Float64 reference functions by op id (``domain::Name``), the judges of every comparison."""
        raise NotImplementedError
