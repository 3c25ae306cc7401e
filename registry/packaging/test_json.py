"""``test.json``: the cases a package brings, run on the backends at hand."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..calling.arrays import NumpyArray
from ..dtypes import DTYPES, numpy_dtype
from ..errors import NoPlanError, RegistryError, first_line
from ..judging.accuracy import Verdict
from ..judging.judge import Judge, make_judge
from ..opinfo import Op, TensorSpec
from ..text import odd_character
from .files import Files

if TYPE_CHECKING:
    from ..api import Registry

NAME = "test.json"
MAX_CASES = 4096
MAX_VALUES = 2**24  # of all tensors together


@dataclass(frozen=True)
class Outcome:
    """What became of one case on one backend: ``passed``, ``failed`` or ``skipped``, and why."""

    case: str
    backend: str
    variant: str
    state: str
    reason: str


@dataclass(frozen=True)
class _Wanted:
    """An output of a case: what must come out, if the file says, and how far off it may be."""

    values: NumpyArray | None
    dtype: str
    shape: tuple[int, ...]
    tolerance: float | None
    nan: bool


def run_cases(registry: Registry, op: Op, backend: str | None = None) -> tuple[Outcome, ...] | str:
    """Runs the cases of a package's ``test.json`` on every backend that takes them, or on the one named.

    A text instead of outcomes says why there is nothing to run: no such file, or its form is not known.
    Values that the file gives are held against its tolerance; where it gives none, the op's float64
    reference judges, and without one the first result.

    Raises:
        PackageError: the file differs from its digest, or cannot be read.
    """
    package = op.package
    if package is None:
        return "it is no package"
    files = Files(package.folder, package.within)
    if not files.has(NAME):
        return f"the package has no {NAME}"
    files.expected = package.listed
    try:
        document = json.loads(files.text(NAME))
        fixtures, cases = document.get("fixtureArrays", {}), document["cases"]
        names = [case["name"] for case in cases]
        if not all(isinstance(name, str) for name in names):
            raise TypeError("a case without a name")
        if odd := odd_character("".join(names)):
            raise ValueError(f"a name holds the character {odd}")
        if len(names) > MAX_CASES:
            raise TypeError(f"{len(names)} cases; this version runs {MAX_CASES} at most")
        tensors = [entry for case in cases for side in ("inputs", "outputs") for entry in case[side].values()]
        if sum(math.prod(_type(entry)[1]) for entry in tensors) > MAX_VALUES:
            raise TypeError(f"its tensors have more than {MAX_VALUES} elements together")
        read = [(case, *_read(op, case, fixtures)) for case in cases]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        return f"the form of {NAME} is not known ({type(error).__name__}: {error})"
    found: list[Outcome] = []
    for case, call, wanted in read:
        skip = case.get("skipGpu")
        reason = skip.get("reason", "skipGpu") if isinstance(skip, dict) else None
        found += _run(registry, op, case["name"], call, wanted, backend, reason)
    return tuple(found)


def _run(
    registry: Registry,
    op: Op,
    name: str,
    call: dict[str, Any],
    wanted: Mapping[str, _Wanted],
    backend: str | None,
    skip: str | None,
) -> Iterator[Outcome]:
    first: dict[str, NumpyArray] = {}
    ran = False
    for status in registry.backends():
        if backend not in (None, status.name) or not status.available:
            continue
        if skip is not None:
            ran = True
            yield Outcome(name, status.name, "", "skipped", skip)
            continue
        try:
            result = registry.run(op, **call, backend=status.name)
        except NoPlanError:
            continue
        except RegistryError as error:
            ran = True
            yield Outcome(name, status.name, "", "failed", first_line(error))
            continue
        ran = True
        plan = registry.last()
        assert plan is not None
        values = dict(zip(plan.request.asked, map(registry.host, result), strict=True))
        judge = make_judge(registry, op, call["inputs"], plan.request.attrs)
        faults = []
        for role, value in values.items():
            verdict = _judge(role, value, wanted[role], judge, first.get(role, value))
            faults += [f"{role}: {verdict.reason}"] if not verdict.ok else []
        first = first or values
        state = "failed" if faults else "passed"
        yield Outcome(name, status.name, plan.variant, state, "; ".join(faults))
    if not ran:
        yield Outcome(name, "", "", "skipped", "no backend here takes it")


def _judge(role: str, value: NumpyArray, wanted: _Wanted, judge: Judge, first: NumpyArray) -> Verdict:
    if value.shape != wanted.shape or value.dtype.name != wanted.dtype:
        found = f"{value.dtype.name}{list(value.shape)}"
        return Verdict(False, f"{found}, expected {wanted.dtype}{list(wanted.shape)}")
    if wanted.values is None or (wanted.tolerance is None and judge.expected is not None):
        return judge.verdict(role, value, wanted.dtype, first)
    with np.errstate(all="ignore"):
        near = np.abs(value.astype(np.float64) - wanted.values) <= (wanted.tolerance or 0.0)
    near |= (value == wanted.values) | (np.isnan(wanted.values) & np.isnan(value.astype(np.float64)))
    near |= wanted.nan & np.isnan(value.astype(np.float64))
    if near.all():
        return Verdict(True, compared=value.size)
    index = tuple(int(i) for i in np.argwhere(~near)[0])
    count, limit = f"{np.count_nonzero(~near)} of {value.size}", wanted.tolerance or 0
    text = f"{value[index]!s} at {list(index)}, expected {wanted.values[index]!s} within {limit:g}"
    return Verdict(False, f"{count} elements differ: {text}")


def _read(op: Op, case: Mapping[str, Any], fixtures: Any) -> tuple[dict[str, Any], dict[str, _Wanted]]:
    """The call of a case, and its outputs by role."""
    inputs = {}
    for name, entry in case["inputs"].items():
        spec = _spec(op.inputs, name)
        dtype, shape = _type(entry)
        inputs[spec.role] = _values(entry["data"], shape, fixtures).astype(numpy_dtype(dtype))
    wanted = {}
    for name, entry in case["outputs"].items():
        dtype, shape = _type(entry)
        values = _values(entry["data"], shape, fixtures) if "data" in entry else None
        tolerance = None if entry.get("tolerance") is None else float(entry["tolerance"])
        role = _spec(op.outputs, name).role
        wanted[role] = _Wanted(values, dtype, shape, tolerance, bool(entry.get("allowNaN", False)))
    args = dict(case.get("args", {}))
    if not args.keys() <= op.scalars.keys():
        raise KeyError(f"no scalar argument {sorted(args.keys() - op.scalars.keys())[0]}")
    call = {"inputs": inputs, "attrs": dict(case.get("attrs", {})), "outputs": list(wanted), **args}
    return call, wanted


def _spec(specs: tuple[TensorSpec, ...], name: str) -> TensorSpec:
    for spec in specs:
        if name in (spec.arg, spec.role):
            return spec
    raise KeyError(f"no tensor {name}")


def _type(entry: Mapping[str, Any]) -> tuple[str, tuple[int, ...]]:
    dtype, shape = entry["dtype"], tuple(entry["shape"])
    if dtype not in DTYPES or not all(type(dim) is int and dim >= 0 for dim in shape):
        raise TypeError(f"a tensor {dtype}{list(shape)}")
    return dtype, shape


def _values(data: Any, shape: tuple[int, ...], fixtures: Any) -> NumpyArray:
    """Elements as float64: listed, listed once for several, or drawn from sines.

    The formula of the sines is this library's own: files say only their steps and the scale.
    """
    kind = data["kind"]
    if kind == "values":
        values = data["values"]
        if isinstance(values, dict):
            name = values["$ref"].removeprefix("#/fixtureArrays/")
            values = fixtures[name]
        return np.array([_number(each) for each in values], np.float64).reshape(shape)
    if kind == "fillFloat32":
        at = np.arange(math.prod(shape), dtype=np.float64)
        filled = np.sin(at * float(data["sinStep"])) + np.cos(at * float(data["cosStep"]))
        return np.asarray(np.float32(filled * float(data.get("scale", 1))), np.float64).reshape(shape)
    raise KeyError(f"data of kind {kind!r}")


def _number(value: Any) -> float:
    return float(value)  # "NaN" and "Infinity" are texts in JSON
