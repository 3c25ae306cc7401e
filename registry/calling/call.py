"""Takes a call apart: which argument is which tensor, attribute or option, which outputs are wanted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..errors import ContractError, suggestion
from .arrays import is_pair

if TYPE_CHECKING:
    from ..opinfo import Op

OPTIONS = ("backend", "variant", "device", "outputs", "out", "inputs", "attrs", "tunables", "profile")


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call taken apart: tensors by role, scalar arguments, attributes, and what was asked for."""

    op: Op
    tensors: Mapping[str, Any]
    args: Mapping[str, Any]
    attrs: Mapping[str, Any]
    asked: tuple[str, ...]
    out: Mapping[str, Any]
    single: bool
    backend: str | tuple[str, ...] | None = None
    variant: str | None = None
    device: str | None = None
    tunables: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    profile: Mapping[str, Any] | None = None


def parse_call(op: Op, positional: Sequence[Any], named: Mapping[str, Any]) -> Call:
    """Sorts a call's arguments: a keyword is an option, a tensor, a scalar argument or an attribute, tried
    in that order.

    Raises:
        ContractError: too many, given twice, an output's name, unknown (with a suggestion).
    """
    if len(positional) > len(op.inputs):
        raise wrong(
            op,
            f"{len(positional)} tensors given by position; it takes {len(op.inputs)}: "
            + ", ".join(spec.role for spec in op.inputs),
        )
    roles = op.input_names
    tensors: dict[str, Any] = {}
    args: dict[str, Any] = {}
    attrs: dict[str, Any] = {}

    def put(target: dict[str, Any], key: str, value: Any) -> None:
        if key in target:
            raise wrong(op, f"{key} is given twice", key)
        target[key] = value

    for spec, value in zip(op.inputs, positional, strict=False):
        put(tensors, spec.role, value)
    for name, value in named.items():
        if name in OPTIONS:
            continue
        if name in roles:
            put(tensors, roles[name], value)
        elif name in op.scalars:
            put(args, name, value)
        elif name in op.attribute_names:
            put(attrs, name, value)
        else:
            raise _unknown(op, name)
    for name, value in _mapping(op, "inputs", named.get("inputs")).items():
        if name not in roles:
            raise _unknown(op, name, f"inputs[{name!r}]", list(roles))
        put(tensors, roles[name], value)
    for name, value in _mapping(op, "attrs", named.get("attrs")).items():
        if name not in op.attribute_names:
            raise _unknown(op, name, f"attrs[{name!r}]", list(op.attribute_names))
        put(attrs, name, value)
    asked, out, single = _outputs(op, named.get("outputs"), named.get("out"))
    return Call(
        op=op,
        tensors={role: value for role, value in tensors.items() if value is not None},
        args={name: value for name, value in args.items() if value is not None},
        attrs={name: value for name, value in attrs.items() if value is not None},
        asked=asked,
        out=out,
        single=single,
        backend=_backends(op, named.get("backend")),
        variant=_text(op, "variant", named.get("variant")),
        device=_text(op, "device", named.get("device")),
        tunables=_mapping(op, "tunables", named.get("tunables")),
        profile=named.get("profile"),
    )


def _backends(op: Op, value: Any) -> str | tuple[str, ...] | None:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise wrong(op, f"backend= is {value!r}; needed: a name or a sequence of names", "backend")
    if not value:
        raise wrong(op, "backend= names no backend; name one, or leave it out", "backend")
    return tuple(value)


def _text(op: Op, option: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise wrong(op, f"{option}= is {value!r}; needed: a name", option)
    return value


def _mapping(op: Op, option: str, value: Any) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise wrong(op, f"{option}= is of type {type(value).__name__}; needed: a mapping by name", option)
    return value or {}


def _outputs(op: Op, outputs: Any, out: Any) -> tuple[tuple[str, ...], dict[str, Any], bool]:
    roles = op.output_names

    def role(name: Any) -> str:
        if not isinstance(name, str) or name not in roles:
            hint = suggestion(str(name), list(roles))
            raise wrong(
                op,
                f"no output {name!r}{hint}; outputs: " + ", ".join(spec.role for spec in op.outputs),
                str(name),
            )
        return roles[name]

    if outputs is not None and not isinstance(outputs, Iterable):
        raise wrong(op, f"outputs= is {outputs!r}; needed: a name or a sequence of names", "outputs")
    if isinstance(outputs, str):
        asked: list[str] | None = [role(outputs)]
    else:
        asked = None if outputs is None else [role(name) for name in outputs]
    single = outputs is None or isinstance(outputs, str)
    if isinstance(out, Mapping):
        by_role = {role(name): value for name, value in out.items() if value is not None}
        if len(by_role) < sum(value is not None for value in out.values()):
            raise wrong(op, "out names an output twice; name it once, by role or by argument", "out")
        if asked is None:
            asked = list(by_role)
        extra = [name for name in by_role if name not in asked]
        if extra:
            text = f"out holds {', '.join(extra)}, which outputs= does not ask for; ask for it, or remove it"
            raise wrong(op, text, "out")
    else:
        asked = [spec.role for spec in op.outputs if spec.required] if asked is None else asked
        values = [] if out is None else [out] if is_pair(out) or not isinstance(out, list | tuple) else out
        if out is not None and len(values) != len(asked):
            text = f"out holds {len(values)} arrays for {len(asked)} outputs: {', '.join(asked)}"
            raise wrong(op, f"{text}; pass as many arrays as outputs", "out")
        by_role = dict(zip(asked, values, strict=False))
    if not asked:
        every = ", ".join(spec.role for spec in op.outputs)
        raise wrong(op, f"no output is asked for; name one or several of {every} in outputs=", "outputs")
    if len(set(asked)) < len(asked):
        raise wrong(op, f"an output is asked for twice: {', '.join(asked)}; name each once", "outputs")
    return tuple(asked), by_role, single and len(asked) == 1


def _unknown(op: Op, name: str, shown: str | None = None, among: Sequence[str] = ()) -> ContractError:
    if name in op.output_names:
        return wrong(
            op,
            f"{name} is an output; pass outputs={name!r} to get it or out={{{name!r}: array}} to place it",
            name,
        )
    known = among or [*op.input_names, *op.scalars, *op.attribute_names, *OPTIONS]
    what = ", ".join(spec.role for spec in op.inputs)
    attributes = ", ".join(op.attribute_names) or "none"
    return wrong(
        op,
        f"unknown argument {shown or name!r}{suggestion(str(name), list(known))}; "
        f"tensors: {what}; attributes: {attributes}; options: {', '.join(OPTIONS)}",
        name,
    )


def wrong(op: Op, message: str, argument: str | None = None) -> ContractError:
    """A ContractError that names the op."""
    return ContractError(f"{op.id}: {message}", op=op.id, argument=argument)
