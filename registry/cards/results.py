"""What was measured of an op: accuracy and speed, from the files that this project's scripts write."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..errors import ContractError
from ..text import counted

Rows = list[dict[str, Any]]
Row = TypeVar("Row")


@dataclass(frozen=True)
class Accuracy:
    """The worst of an output on a backend of a machine: its share of the tolerance, above 1 is wrong."""

    machine: str
    backend: str
    output: str
    dtype: str
    share: str
    max_ulp: str
    cases: int
    failed: int


@dataclass(frozen=True)
class Speed:
    """The speed of one form of call over all sizes measured, as a fraction of another: ``of`` says whose."""

    machine: str
    backend: str
    call: str
    dtype: str
    of: str
    median: float
    lowest: float
    highest: float
    sizes: int


@dataclass(frozen=True)
class Results:
    """All that was measured of an op."""

    accuracy: tuple[Accuracy, ...] = ()
    speed: tuple[Speed, ...] = ()


NOTHING = Results()


def read_results(folder: Path, op: str) -> Results:
    """The results of an op in a folder: ``accuracy/*.json``, ``performance/*-device.jsonl``, ``*-cpu.jsonl``.

    Raises:
        ContractError: there are no such files, or one cannot be read.
    """
    accuracies = sorted((folder / "accuracy").glob("*.json"))
    devices = sorted((folder / "performance").glob("*-device.jsonl"))
    processors = sorted((folder / "performance").glob("*-cpu.jsonl"))
    if not (accuracies or devices or processors):
        needed = "a folder with accuracy/*.json or performance/*.jsonl"
        raise ContractError(f"results={str(folder)!r}: nothing measured there; needed: {needed}")
    return Results(
        tuple(row for file in accuracies for row in _read(file, op, _accuracy)),
        (
            *(row for file in devices for row in _read(file, op, _of_a_copy)),
            *(row for file in processors for row in _read(file, op, _of_a_peer)),
        ),
    )


def _read(file: Path, op: str, parse: Callable[[str, str, str], Iterator[Row]]) -> list[Row]:
    """The rows of a file; ``parse`` takes its text, the op and the machine's name."""
    machine = file.stem.removesuffix("-device").removesuffix("-cpu")
    try:
        return list(parse(file.read_text(encoding="utf-8"), op, machine))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ContractError(f"{file}: cannot be read as results ({type(error).__name__}: {error})") from error


def _accuracy(text: str, op: str, machine: str) -> Iterator[Accuracy]:
    names = ("backend", "output", "dtype", "share", "max_ulp", "cases", "failed")
    for row in json.loads(text)["rows"]:
        if row["op"] == op:
            yield Accuracy(machine, **{name: row[name] for name in names})


def _of_a_copy(text: str, op: str, machine: str) -> Iterator[Speed]:
    rows = [row for row in _ours(text, op) if row["fraction"] is not None]
    for (backend, call, dtype), found in _groups(rows, "backend", "call", "dtype"):
        of = "a copy on the device"
        yield _speed(machine, backend, call, dtype, of, [row["fraction"] for row in found])


def _of_a_peer(text: str, op: str, machine: str) -> Iterator[Speed]:
    rows = [row for row in _ours(text, op) if "ratio" in row and not row["wrong"]]
    for (threads, way, call, dtype), found in _groups(rows, "threads", "way", "call", "dtype"):
        of = f"ONNX Runtime, {counted(threads, 'thread')}, {way}"
        yield _speed(machine, "numpy", call, dtype, of, [row["ratio"] for row in found])


def _ours(text: str, op: str) -> Rows:
    rows = [json.loads(line) for line in text.splitlines()]
    return [row for row in rows if row["what"] == "registry" and row["op"] == op]


def _groups(rows: Rows, *names: str) -> Iterator[tuple[tuple[Any, ...], Rows]]:
    found: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    yield from found.items()


def _speed(machine: str, backend: str, call: str, dtype: str, of: str, values: list[float]) -> Speed:
    median = statistics.median(values)
    return Speed(machine, backend, call, dtype, of, median, min(values), max(values), len(values))
