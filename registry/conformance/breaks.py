"""Breaks a legal case in one way that its contract forbids."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from ..calling.call import OPTIONS
from ..dtypes import DTYPES
from ..opinfo import Op
from .arguments import attribute_values, complaint, inferred, ranks_of, shapes_beside
from .cases import Case, Tensor

if TYPE_CHECKING:
    from ..api import Registry

NOT_A_NAME = "no_such_name"
OTHER_DTYPES = ("int32", "float64", "bool", "float16")


def breaks(registry: Registry, op: Op, case: Case) -> list[tuple[str, Iterator[Case]]]:
    """Illegal cases made from a legal one, by what they break, made when they are asked for.

    What only the rules of the manifest can tell, shapes and values, is sorted by the contract itself.
    """

    def refused(made: Iterator[Case]) -> Iterator[Case]:
        return (broken for broken in made if complaint(registry, op, broken) is not None)

    return [
        ("a required input is missing", _missing(op, case)),
        ("a name is unknown", _unknown(case)),
        ("a dtype is outside its constraint", _outside(op, case)),
        ("two tensors of one type differ in dtype", _mixed(op, case)),
        ("a shape breaks a rule", refused(_shapes(op, case))),
        ("an attribute is of the wrong type", _wrong_types(op, case)),
        ("an attribute breaks a rule", refused(_values(op, case))),
        ("a scalar argument is wrong", _scalars(op, case)),
        ("an output is asked for twice", _asked_twice(case)),
        ("a tensor is given twice", _given_twice(op, case)),
        ("an array to write does not fit", _out(registry, op, case)),
    ]


def _with(case: Case, **changed: Any) -> Case:
    return msgspec.structs.replace(case, **changed)


def _put(case: Case, role: str, **changed: Any) -> Case:
    """The case with one input changed, its elements plain."""
    kept = case.inputs[role]
    tensor = Tensor(**{"shape": kept.shape, "dtype": kept.dtype, **changed})
    return _with(case, inputs={**case.inputs, role: tensor})


def _missing(op: Op, case: Case) -> Iterator[Case]:
    for spec in op.inputs:
        if spec.required:
            yield _with(case, inputs={role: t for role, t in case.inputs.items() if role != spec.role})


def _unknown(case: Case) -> Iterator[Case]:
    yield _with(case, inputs={**case.inputs, NOT_A_NAME: Tensor((1,))})
    yield _with(case, attrs={**case.attrs, NOT_A_NAME: 1})
    yield _with(case, outputs=(*case.outputs, NOT_A_NAME), out={})


def _outside(op: Op, case: Case) -> Iterator[Case]:
    """Every tensor of one type in a dtype that the type does not admit."""
    for variable in {spec.dtype: None for spec in op.inputs if spec.role in case.inputs}:
        if variable not in op.manifest.type_constraints and variable not in DTYPES:
            continue
        roles = [s.role for s in op.inputs if s.dtype == variable and s.role in case.inputs]
        for dtype in OTHER_DTYPES:
            if dtype not in op.allowed_dtypes(variable):
                broken = case
                for role in roles:
                    broken = _put(broken, role, dtype=dtype)
                yield _with(broken, out={})


def _mixed(op: Op, case: Case) -> Iterator[Case]:
    for spec in op.inputs:
        others = [s for s in op.inputs if s.dtype == spec.dtype and s.role in case.inputs and s is not spec]
        if spec.role in case.inputs and others and spec.dtype is not None:
            for dtype in op.allowed_dtypes(spec.dtype):
                if dtype in DTYPES and dtype != case.inputs[spec.role].dtype:
                    yield _with(_put(case, spec.role, dtype=dtype), out={})


def _shapes(op: Op, case: Case) -> Iterator[Case]:
    primary = case.inputs[op.inputs[0].role].shape if op.inputs else ()
    for spec in op.inputs:
        if spec.role not in case.inputs:
            continue
        shape = case.inputs[spec.role].shape
        beside = ranks_of(shape) if spec is op.inputs[0] else shapes_beside(primary)
        larger = [(*shape[:axis], shape[axis] + 1, *shape[axis + 1 :]) for axis in range(len(shape))]
        empty = [(*shape[:axis], 0, *shape[axis + 1 :]) for axis in range(len(shape))]
        for other in dict.fromkeys([*beside, *larger, *empty, (2, *shape), (*shape, 2), ()]):
            if other != shape:
                yield _with(_put(case, spec.role, shape=other), out={})


def _wrong_types(op: Op, case: Case) -> Iterator[Case]:
    for name in op.attribute_names:
        default = op.attributes.get(name)
        numeric = isinstance(default, int | float) and not isinstance(default, bool)
        wrong: list[Any] = ["text", [1], True] if numeric else []
        wrong += [1, "text"] if isinstance(default, bool) else []
        wrong += [1, [1], True] if isinstance(default, str) else []
        for value in wrong:
            yield _with(case, attrs={**case.attrs, name: value})


def _values(op: Op, case: Case) -> Iterator[Case]:
    for name in op.attribute_names:
        others = [math.nan, math.inf, -math.inf, -1, 0.5, 2, 2**40, "text"]
        for value in [*attribute_values(op, name), *others]:
            if value is not None:
                yield _with(case, attrs={**case.attrs, name: value}, out={})


def _scalars(op: Op, case: Case) -> Iterator[Case]:
    for name, arg in op.scalars.items():
        if arg.required:
            yield _with(case, args={key: value for key, value in case.args.items() if key != name})
        wrong: list[Any] = [1] if arg.kind in ("string", "bool") else ["text", math.nan, math.inf, True]
        wrong += [0.5, 2**32] if arg.kind in ("u32", "i32") else []
        wrong += [NOT_A_NAME] if arg.one_of else []
        for value in wrong:
            yield _with(case, args={**case.args, name: value})


def _asked_twice(case: Case) -> Iterator[Case]:
    yield _with(case, outputs=(*case.outputs, case.outputs[0]), out={})


def _given_twice(op: Op, case: Case) -> Iterator[Case]:
    for spec in op.inputs:
        if spec.role in case.inputs and spec.role not in OPTIONS:
            yield _with(case, again=(spec.role,))
            if spec.arg != spec.role:
                yield _with(case, inputs={**case.inputs, spec.arg: case.inputs[spec.role]})


def _out(registry: Registry, op: Op, case: Case) -> Iterator[Case]:
    """Arrays to write of a shape or dtype that the manifest does not give the output."""
    bound = {spec.dtype for spec in op.inputs if spec.role in case.inputs}
    right = inferred(registry, op, case)
    for spec in op.outputs:
        if spec.role not in right:
            continue
        shape, dtype = right[spec.role].shape, right[spec.role].dtype
        if spec.shape is not None:
            for wrong in ((*shape, 2), (2, *shape), *([(*shape[:-1], shape[-1] + 1)] if shape else [])):
                yield _with(case, out={**right, spec.role: Tensor(wrong, dtype)})
        if spec.dtype in bound or spec.dtype in DTYPES:
            for other in OTHER_DTYPES:
                if other != dtype:
                    yield _with(case, out={**right, spec.role: Tensor(shape, other)})
