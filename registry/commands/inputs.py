"""Tensors for the command line: read from files, or drawn by shape and seed."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..calling.arrays import dtype_name
from ..dtypes import numpy_dtype
from ..errors import ContractError, suggestion
from ..judging.accuracy import round_to
from ..opinfo import Op

_SPEC = re.compile(r"(?P<name>\w+)=(?P<value>.+)", re.S)
_SHAPE = re.compile(r"\[?\s*(?P<dims>\d+(?:\s*[x,]\s*\d+)*)?\s*\]?(?::(?P<dtype>\w+))?")


def read_tensors(
    op: Op, specs: Sequence[str], files: Sequence[str], seed: int, data: bool = True
) -> dict[str, Any]:
    """Tensors of an op by name.

    ``specs`` are ``name=file.npy``, ``name=2x8x768`` or ``name=2x8x768:f16`` (normal numbers drawn from the
    seed); ``files`` are ``.npz`` archives whose entries are taken by name, entries of other names left out.
    Without ``data``, drawn tensors are ``(shape, dtype)`` pairs.

    Raises:
        ContractError: a file is missing or holds no arrays, a spec cannot be read, a name is unknown.
    """
    names = {name: spec.role for spec in op.inputs for name in (spec.arg, spec.role)}
    tensors: dict[str, Any] = {}
    for file in files:
        tensors.update({names[k]: v for k, v in _load(file, (".npz",)).items() if k in names})
    given: set[str] = set()
    for text in specs:
        match = _SPEC.fullmatch(text)
        if match is None:
            raise ContractError(f"{text!r}; needed: name=file.npy or name=2x8x768:f16")
        name, value = match["name"], match["value"]
        if name not in names:
            if name in op.attribute_names or name in op.scalars:
                raise ContractError(f"{op.id}: {name} is no tensor; it goes by --set {name}={match['value']}")
            known = ", ".join(spec.role for spec in op.inputs)
            raise ContractError(f"{op.id}: no input {name!r}{suggestion(name, list(names))}; inputs: {known}")
        role = names[name]
        if role in given:
            raise ContractError(f"{op.id}: {role} is given twice")
        given.add(role)
        shape = _SHAPE.fullmatch(value)
        if shape is None:
            tensors[role] = next(iter(_load(value, (".npy",)).values()))
            continue
        dims = tuple(int(d) for d in re.findall(r"\d+", shape["dims"] or ""))
        dtype = dtype_name(shape["dtype"] or "f32", name)
        tensors[role] = _draw(dims, dtype, role, seed) if data else (dims, dtype)
    return tensors


def read_settings(settings: Sequence[str], names: Sequence[str], unknown: str) -> dict[str, Any]:
    """Values by name from ``name=value`` texts; ``unknown`` begins what is said of another name.

    A value is a number, true, false, a JSON list or plain text.

    Raises:
        ContractError: not ``name=value``, or an unknown name.
    """
    import json

    found: dict[str, Any] = {}
    for text in settings:
        name, sign, value = text.partition("=")
        if not sign:
            raise ContractError(f"{text!r}; needed: name=value")
        if name not in names:
            known = ", ".join(names) or "none"
            raise ContractError(f"{unknown} {name!r}{suggestion(name, names)}; there are: {known}")
        if name in found:
            raise ContractError(f"{name} is given twice: {found[name]!r} and {value!r}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _draw(shape: tuple[int, ...], dtype: str, name: str, seed: int) -> np.ndarray[Any, Any]:
    """Normal numbers; each tensor has a stream of its own, so that adding one changes no other."""
    stream = np.random.default_rng([seed, *name.encode()])
    try:
        if dtype in ("float32", "float64", "float16", "bfloat16"):
            return round_to(stream.standard_normal(shape), dtype)
        return stream.integers(0, 100, shape).astype(numpy_dtype(dtype))
    except (MemoryError, ValueError) as error:
        raise ContractError(f"{name}: a tensor of shape {list(shape)} does not fit memory") from error


def _load(file: str, suffixes: tuple[str, ...]) -> Mapping[str, np.ndarray[Any, Any]]:
    path = Path(file)
    if path.suffix not in suffixes:
        raise ContractError(
            f"{file!r}; needed: a {' or '.join(suffixes)} file, or a shape such as 2x8x768:f16"
        )
    try:
        with path.open("rb") as file_object:
            loaded = np.load(file_object, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {path.stem: _bfloat16(loaded)}
            return {name: _bfloat16(loaded[name]) for name in loaded.files}
    except ValueError as error:
        needed = "one that numpy.save or numpy.savez writes, without objects"
        raise ContractError(f"{file}: no readable {path.suffix} file; needed: {needed}") from error
    except (OSError, EOFError, zipfile.BadZipFile, MemoryError) as error:
        raise ContractError(f"{file}: cannot be read ({error})") from error


def _bfloat16(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """NumPy's file format has no name for bfloat16; it comes back as two raw bytes."""
    return array.view(numpy_dtype("bfloat16")) if array.dtype == np.dtype("V2") else array
