"""``test.json`` for an op of ours: a few calls, and what its float64 reference says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..calling.arrays import NumpyArray
from ..conformance.arguments import complaint, dtypes_of, inferred
from ..conformance.cases import Case
from ..conformance.drafts import Draft
from ..dtypes import finfo, numpy_dtype
from ..errors import PackageError
from ..judging.accuracy import round_to
from ..judging.judge import make_judge
from ..opinfo import Op

if TYPE_CHECKING:
    from ..api import Registry

SHAPES = ((2, 3, 8), (3, 16), (2, 5, 7), (1, 4, 68))
DTYPES = ("float32", "float16")
STEPS = 8  # changes that make a draft legal, at most


def write_cases(registry: Registry, op: Op, names: Mapping[str, str]) -> dict[str, Any]:
    """Cases of an op with what its float64 reference says; ``names`` are those tensors have in the file.

    One for each of a few shapes and dtypes, with the optional tensors and without.

    Raises:
        PackageError: the op has no reference.
    """
    if op.id not in registry.catalog.plugins.references:
        raise PackageError(f"{op.id} has no reference; a plugin gives one by registry_references")
    cases: list[dict[str, Any]] = []
    for shape in SHAPES:
        for whole in (False, True):
            for dtype in DTYPES:
                case = _legal(registry, op, _draft(op, shape, dtype, whole))
                if case is not None:
                    cases.append(_written(registry, op, case, names, f"{len(cases)}"))
    return {"cases": cases}


def _draft(op: Op, shape: tuple[int, ...], dtype: str, whole: bool) -> Draft:
    variables = {spec.dtype: dtypes_of(op, spec.dtype) for spec in op.inputs if spec.dtype is not None}
    return Draft(
        shape=shape,
        picks={spec.role: 0 for spec in op.inputs if spec.required or whole},
        dtypes={name: dtype if dtype in known else known[0] for name, known in variables.items()},
        outputs=tuple(spec.role for spec in op.outputs if spec.required or whole),
        attrs={},
        args={},
    )


def _legal(registry: Registry, op: Op, draft: Draft) -> Case | None:
    """The case of a draft, changed until the contract takes it; None where no change helps."""
    for _ in range(STEPS):
        blamed = complaint(registry, op, draft.case(op))
        if blamed is None:
            return draft.case(op)
        others = draft.alternatives(op, blamed)
        better = next((o for o in others if complaint(registry, op, o.case(op)) != blamed), None)
        if better is None:
            return None
        draft = better
    return None


def _written(registry: Registry, op: Op, case: Case, names: Mapping[str, str], number: str) -> dict[str, Any]:
    arrays = case.arrays()
    attrs = {**op.attributes, **case.attrs}
    judge = make_judge(registry, op, arrays, attrs)
    assert judge.expected is not None
    outputs = {}
    for role, tensor in inferred(registry, op, case).items():
        answer, dtype = judge.expected[role], tensor.dtype
        limit = judge.tolerances[dtype].relative * float(np.max(answer.floor + answer.magnitude, initial=0.0))
        if dtype != "float32":
            limit += float(finfo(numpy_dtype(dtype)).eps) * float(np.max(np.abs(answer.value), initial=0.0))
        outputs[names[role]] = {
            "dtype": dtype,
            "shape": list(tensor.shape),
            "tolerance": limit,
            "data": {
                "kind": "values",
                "values": round_to(answer.value, "float32").astype(float).ravel().tolist(),
            },
        }
    shapes = " ".join(f"{names[role]}{list(array.shape)}" for role, array in arrays.items())
    dtype = next(iter(arrays.values())).dtype.name
    return {
        "name": f"{number}: {dtype} {shapes} -> {', '.join(outputs)}",
        "inputs": {
            names[role]: {
                "dtype": array.dtype.name,
                "shape": list(array.shape),
                "data": _data(array),
            }
            for role, array in arrays.items()
        },
        "outputs": outputs,
        "provenance": {"source": "a float64 reference"},
    }


def _data(array: NumpyArray) -> dict[str, Any]:
    # As short as tells one float32 from the next.
    return {"kind": "values", "values": [float(str(each)) for each in array.astype(np.float32).ravel()]}
