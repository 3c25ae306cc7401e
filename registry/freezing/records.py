"""A decision as it is kept: what was asked, without data, what was chosen, and the sources that would run."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..calling.call import Call
from ..calling.request import Request, plain_value
from ..deciding.selection import availability
from ..errors import ContractError
from ..system import system

if TYPE_CHECKING:
    from ..api import Registry
    from ..catalog import Catalog
    from ..deciding.decision import Decision

_TENSOR = re.compile(r"(?P<dims>\d+(?:x\d+)*)?:(?P<dtype>\w+)(?: on (?P<device>\S.*))?")


@dataclass(frozen=True)
class Source:
    """The rendered source of a pass, by its SHA-256, and the grid it would run on."""

    id: str
    shader: str
    sha256: str
    dispatch: str
    language: str
    text: str = field(default="", compare=False)


@dataclass(frozen=True)
class Rejected:
    """Variants of a backend that were rejected for one reason; ``*`` stands for all of them."""

    backend: str
    variants: tuple[str, ...]
    because: str
    found: str = ""
    needed: str = ""


@dataclass(frozen=True)
class Chosen:
    """A backend's variant with the tunables that were measured for it, why, its passes, and what was rejected
    before it."""

    backend: str
    variant: str
    tunables: Mapping[str, Any] = field(default_factory=dict)
    because: str = field(default="", compare=False)
    passes: tuple[Source, ...] = ()
    rejected: tuple[Rejected, ...] = field(default=(), compare=False)

    def rejection(self, backend: str, variant: str) -> Rejected | None:
        """Why a candidate was rejected, if it was."""
        mine = (each for each in self.rejected if each.backend == backend)
        return next((each for each in mine if {variant, "*"} & {*each.variants}), None)

    @property
    def candidate(self) -> tuple[str, str, Mapping[str, Any]]:
        """What is chosen, without its sources."""
        return self.backend, self.variant, self.tunables


@dataclass(frozen=True)
class Asked:
    """A request as it was made: tensors as ``2x3x6:float32``, and what the call and ``configure`` settled.

    ``package`` is the folder or ``owner/name@commit`` that the op was loaded from; empty for a plugin's op.
    """

    op: str
    tensors: Mapping[str, str]
    outputs: tuple[str, ...]
    out: Mapping[str, str] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    args: Mapping[str, Any] = field(default_factory=dict)
    tunables: Mapping[str, Any] = field(default_factory=dict)
    backend: str | tuple[str, ...] | None = None
    variant: str | None = None
    device: str | None = None
    package: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The same for equal requests, and the order they are kept in."""
        return json.dumps(as_plain(self), sort_keys=True)

    def __str__(self) -> str:
        tensors = [f"{role}={text}" for role, text in self.tensors.items()]
        backend = self.backend if isinstance(self.backend, str | None) else ",".join(self.backend)
        named = {**self.attrs, **self.args, "backend": backend, "variant": self.variant}
        settled = {**named, "device": self.device, **{f"tunables.{n}": v for n, v in self.tunables.items()}}
        given = [f"{name}={value}" for name, value in settled.items() if value is not None]
        return f"{self.op}  {' '.join([*tensors, *given])}  ->  {', '.join(self.outputs)}"


@dataclass(frozen=True)
class Decided:
    """A request and what was chosen for it; ``on`` names the system that it was decided on."""

    asked: Asked
    chosen: Chosen
    on: str = ""


def as_plain(record: Any) -> dict[str, Any]:
    """A record as JSON data: what is empty, and the text of sources, is left out."""

    def tidy(value: Any) -> Any:
        if isinstance(value, dict):
            kept = {key: tidy(item) for key, item in value.items() if item not in (None, "", {}, ())}
            return {key: item for key, item in kept.items() if key != "text"}
        return [tidy(item) for item in value] if isinstance(value, tuple | list) else value

    plain: dict[str, Any] = tidy(asdict(record))
    return plain


def asked_of(catalog: Catalog, call: Call, request: Request) -> Asked:
    """A call, whose tensors may be pairs, as it is kept."""
    op = call.op
    package = ""
    if op.package is not None:
        origin = op.package.origin
        package = f"{origin.repo}@{origin.revision}" if origin else str(op.package.folder.resolve())
    inputs = {
        role: tensor_text(tensor.shape, tensor.dtype, request.devices.get(role))
        for role, tensor in request.inputs.items()
    }
    outputs = {role: request.outputs[role] for role in call.out}
    return Asked(
        op=op.id,
        tensors=inputs,
        outputs=call.asked,
        out={role: tensor_text(tensor.shape, tensor.dtype, None) for role, tensor in outputs.items()},
        attrs={name: plain_value(op, name, value) for name, value in call.attrs.items()},
        args={name: plain_value(op, name, value) for name, value in call.args.items()},
        tunables=dict(call.tunables),
        backend=call.backend,
        variant=call.variant,
        device=call.device,
        package=package,
        settings=catalog.settings(),
    )


def chosen_of(catalog: Catalog, call: Call, decision: Decision) -> Chosen:
    """What a decision has chosen, with the sources that would run.

    Raises:
        NoPlanError: nothing. BackendError: it cannot be rendered.
    """
    candidate, request = decision.require(), decision.request
    assert candidate.claim is not None
    here = availability(catalog, candidate.backend, call, request)
    backend = catalog.backend(candidate.backend)
    passes = () if request.empty else backend.render(decision.request_of(candidate), candidate.claim, here)
    tunables = dict(candidate.measured.chosen.tunables) if candidate.measured else {}
    sources = tuple(
        Source(
            id=item.id,
            shader=item.shader,
            sha256=hashlib.sha256(item.source.encode()).hexdigest(),
            dispatch="x".join(map(str, item.dispatch)),
            language=item.language,
            text=item.source,
        )
        for item in passes
    )
    return Chosen(
        candidate.backend, candidate.variant, tunables, candidate.because, sources, _rejected(decision)
    )


def _rejected(decision: Decision) -> tuple[Rejected, ...]:
    reasons: dict[tuple[str, ...], list[str]] = {}
    for candidate in decision.rejected:
        reasons.setdefault(
            (candidate.backend, candidate.because, candidate.found, candidate.needed), []
        ).append(candidate.variant)
    every = Counter(candidate.backend for candidate in decision.candidates)
    return tuple(
        Rejected(backend, ("*",) if len(variants) == every[backend] else tuple(variants), *reason)
        for (backend, *reason), variants in reasons.items()
    )


def system_of(registry: Registry, backends: Iterable[str]) -> dict[str, Any]:
    """What decisions are made on: date, machine, versions, the devices of these backends, the environment."""
    return {**system(registry, sorted(backends)), "environment": registry.catalog.environment.deciding}


def tensor_text(shape: tuple[int, ...], dtype: str, device: str | None) -> str:
    """``2x3x6:float32``, and ``2x3x6:float32 on name:0`` for a tensor on a device."""
    text = f"{'x'.join(str(int(dim)) for dim in shape)}:{dtype}"
    return text if device is None else f"{text} on {device}"


def parse_tensor(text: str) -> tuple[tuple[int, ...], str, str | None]:
    """The shape, dtype and device of a tensor's text.

    Raises:
        ContractError: it is not a tensor's text.
    """
    match = _TENSOR.fullmatch(text)
    if match is None:
        raise ContractError(f"found the tensor {text!r}; needed: a text such as 2x3x6:float32")
    dims = match["dims"].split("x") if match["dims"] else []
    return tuple(map(int, dims)), match["dtype"], match["device"]
