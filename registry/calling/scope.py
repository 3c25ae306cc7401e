"""The names an expression of a manifest can see, and the values derived from a request and a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..dtypes import STORAGE
from ..errors import ContractError
from ..language.expressions import EvaluationError, Features, evaluate, parse
from ..language.functions import FUNCTIONS, device_functions

if TYPE_CHECKING:
    from ..opinfo import Op, TensorSpec
    from .request import Request, TensorType

MAX_RANK = 64
"""What NumPy admits."""

FOLD_WIDTH = 65535
"""The most workgroups in one dimension of a grid that WebGPU promises."""

NO_DEVICE: Mapping[str, Any] = {
    "features": Features(()),
    "wgslLanguageFeatures": Features(()),
    "limits": {},
    "adapterInfo": {},
}
"""What shapes are inferred on: they must not depend on the device."""


def contract_scope(
    op: Op,
    tensors: Mapping[str, TensorType],
    dtypes: Mapping[str, str],
    attrs: Mapping[str, Any],
    args: Mapping[str, Any],
    device: Mapping[str, Any] = NO_DEVICE,
) -> dict[str, Any]:
    """The scope of a request before anything is derived. Tensors go by calling name and by role."""
    shapes: dict[str, list[int]] = {}
    tensor_dtypes: dict[str, str] = {}
    specs = (*op.inputs, *op.outputs)
    for spec in specs:
        if spec.role in tensors:
            shape = list(tensors[spec.role].shape)
            for name in (spec.role, spec.arg):
                shapes[name] = shape
                tensor_dtypes[name] = tensors[spec.role].dtype
    features = device["features"]
    return {
        **FUNCTIONS,
        **device_functions(features),
        "DISPATCH_FOLD_WIDTH": FOLD_WIDTH,
        "device": device,
        "attrs": attrs,
        "args": args,
        "present": {spec.arg: spec.role in tensors for spec in specs} | dict.fromkeys(op.scalars, False),
        "shapes": shapes,
        "ranks": {name: len(shape) for name, shape in shapes.items()},
        "tensorDtypes": tensor_dtypes,
        "logicalDtypes": dict(dtypes),
        "dtypes": {name: STORAGE[dtype][1] for name, dtype in dtypes.items()},
        "tunables": op.manifest.tunables,
        "constants": {},
        "source": {},
        "derive": {},
        "repeat": {},
    }


def request_scope(
    request: Request, device: Mapping[str, Any], condition: str | None = None
) -> dict[str, Any]:
    """The scope of a request on a device, with every derived value of the manifest, or those that a condition
    needs.

    Raises:
        EvaluationError: a derived value cannot be computed; names it.
    """
    scope = contract_scope(request.op, request.tensors, request.dtypes, request.attrs, request.args, device)
    scope["tunables"] = {**request.op.manifest.tunables, **request.tunables}
    entries = request.op.manifest.derive
    if condition is not None:
        needed = _reachable(condition, entries)
        entries = {name: value for name, value in entries.items() if name in needed}
    return derive(entries, scope)


def derive(entries: Mapping[str, Any], scope: Mapping[str, Any]) -> dict[str, Any]:
    """Adds derived values in order, bare and as ``derive.NAME``: each sees those before it.

    Raises:
        EvaluationError: names the entry that failed.
    """
    named = dict(scope["derive"])
    extended = {**scope, "derive": named}
    for name, value in entries.items():
        try:
            extended[name] = named[name] = evaluate(value, extended)
        except EvaluationError as error:
            raise EvaluationError(f"derive {name} = {value}: {error}") from error
    return extended


def infer_shape(op: Op, spec: TensorSpec, scope: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of an output by its expression, with only those derived values that it needs.

    Raises:
        ContractError: the expression fails or gives no list of non-negative integers.
    """
    try:
        shape = evaluate_derived(op, spec.shape, scope)
    except EvaluationError as error:
        raise ContractError(f"{op.id}: shape of {spec.role}: {error}", op=op.id) from error
    if (
        not isinstance(shape, list | tuple)
        or len(shape) > MAX_RANK
        or not all(isinstance(dim, int) and not isinstance(dim, bool) and dim >= 0 for dim in shape)
    ):
        raise ContractError(
            f"{op.id}: shape of {spec.role} ({spec.shape}) gives {str(shape)[:80]}; "
            f"needed: a list of at most {MAX_RANK} integers of at least 0",
            op=op.id,
        )
    return tuple(shape)


def evaluate_derived(op: Op, value: Any, scope: Mapping[str, Any]) -> Any:
    """The value of an expression without a device: only those derived values are computed that it needs.

    Raises:
        EvaluationError: it fails.
    """
    needed = _reachable(value, op.manifest.derive)
    named: dict[str, Any] = {}
    extended = {**scope, "derive": named}
    for name, each in op.manifest.derive.items():
        if name in needed:
            try:
                extended[name] = named[name] = evaluate(each, extended)
            except EvaluationError:
                continue  # then the expression fails too, if it really uses this value
    return evaluate(value, extended)


def bytes_moved(request: Request) -> int | None:
    """The bytes that a perfect kernel reads and writes for a request; None where the manifest does not say.

    Raises:
        EvaluationError: the expression fails.
    """
    op = request.op
    if op.manifest.registry.bytes_moved is None:
        return None
    scope = contract_scope(op, request.tensors, request.dtypes, request.attrs, request.args)
    return int(evaluate_derived(op, op.manifest.registry.bytes_moved, scope))


def _reachable(value: Any, definitions: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            expression = parse(item)
            names = expression.names | {member for root, member in expression.members if root == "derive"}
            fresh = (names & definitions.keys()) - found
            found |= fresh
            pending += [definitions[name] for name in fresh]
        elif isinstance(item, list):
            pending += item
        elif isinstance(item, dict):
            pending += item.values()
    return found
