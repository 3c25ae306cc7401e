"""Measures how near every backend comes to the right answer, and writes the page that shows it.

    python scripts/accuracy.py                 # measures here: docs/accuracy/<device>.json, docs/accuracy.md
    python scripts/accuracy.py --out DIR       # the same below DIR
    python scripts/accuracy.py --jobs 8        # in as many processes
    python scripts/accuracy.py --page          # the page anew, from the results there are

It runs every variant of every backend that is available, in the form of call with the most tensors that the
variant takes, so that statistics and residual sums are measured too.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tests"))

from forms import FORMS, Form  # noqa: E402

from registry import Registry, RegistryError  # noqa: E402
from registry.judging.accuracy import Verdict, round_to  # noqa: E402
from registry.judging.judge import make_judge  # noqa: E402

HIDDEN = (1, 5, 768, 1000, 4097)
ROWS = (3, 18)  # a batch of 3 where there is one
PROBES = ((3, 8), (3, 7), (3, 1))  # sizes at which every variant takes some call
# The values to normalize: mean and spread by dtype; the last is for the other dtypes. What scales, shifts
# and biases them is always drawn as "normal".
DATA: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "normal": {"": (0.5, 1.5)},
    "off-centre": {"float32": (1e4, 1e-3), "float64": (1e4, 1e-3), "": (1000, 10)},
    "large": {"float16": (0, 1e4), "": (0, 1e15)},
    "small": {"": (0, 1e-4)},
}
VALUES = ("input", "skip", "X")


@dataclass
class Row:
    """What was seen of one output of an op in one dtype on one backend, and where the worst of it was."""

    op: str
    dtype: str
    backend: str
    output: str
    variants: set[str] = field(default_factory=set)
    cases: int = 0
    failed: int = 0
    max_ulp: float = 0.0
    share: float = 0.0
    worst: str = ""

    def add(self, variant: str, place: str, verdict: Verdict) -> None:
        """Counts one more comparison in."""
        self.variants.add(variant)
        self.cases += 1
        self.failed += not verdict.ok
        self.max_ulp = max(self.max_ulp, verdict.max_ulp)
        if verdict.share > self.share:
            self.share, self.worst = verdict.share, f"{variant}, {place}"


def measure(
    reg: Registry,
    ops: Iterable[str] = FORMS,
    hidden: Sequence[int] = HIDDEN,
    rows: Sequence[int] = ROWS,
    dtypes: Sequence[str] = (),
) -> list[Row]:
    """Runs the grid, in those dtypes only if any are named, and returns a row for each op, dtype, backend and
    output.

    A variant that raises counts as a failed case of each output.
    """
    found: dict[tuple[str, ...], Row] = {}
    backends = [status.name for status in reg.backends() if status.available]
    for op in ops:
        for dtype in dtypes or reg.op(op).manifest.type_constraints["T"]:
            forms = fullest_forms(reg, op, dtype, backends)
            for form, height, width in product(dict.fromkeys(forms.values()), rows, hidden):
                pairs = form.pairs(height, width, dtype)
                if pairs is None:
                    continue
                ready = [t for backend in backends for t in eligible(reg, op, pairs, backend)]
                takers = [taker for taker in ready if forms.get(taker) is form]
                for data in DATA if takers else ():
                    call = draw(pairs, dtype, data)
                    for backend, variant, output, verdict in judged(reg, op, call, takers):
                        key = (op, dtype, backend, output)
                        row = found.setdefault(key, Row(*key))
                        row.add(variant, f"{height} x {width}, {data}", verdict)
    return list(found.values())


def measure_part(part: tuple[str, str]) -> list[Row]:
    """One op in one dtype, in a process of its own."""
    op, dtype = part
    return measure(Registry(), [op], dtypes=[dtype])


def measure_apart(reg: Registry, jobs: int) -> list[Row]:
    """The same rows as `measure`, by that many processes."""
    parts = [(op, dtype) for op in FORMS for dtype in reg.op(op).manifest.type_constraints["T"]]
    # Neither CUDA nor WebGPU survives a fork.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        return [row for rows in pool.map(measure_part, parts) for row in rows]


def fullest_forms(reg: Registry, op: str, dtype: str, backends: Sequence[str]) -> dict[tuple[str, str], Form]:
    """For each backend and variant the form with the most tensors that it takes."""
    found: dict[tuple[str, str], Form] = {}
    sizes: dict[tuple[str, str], int] = {}
    for form in FORMS[op]:
        for rows, hidden in PROBES:
            pairs = form.pairs(rows, hidden, dtype)
            if pairs is None:
                continue
            count = len(pairs["inputs"]) + len(pairs["outputs"])
            for taker in (t for backend in backends for t in eligible(reg, op, pairs, backend)):
                if count > sizes.get(taker, 0):
                    found[taker], sizes[taker] = form, count
    return found


def eligible(reg: Registry, op: str, pairs: Mapping[str, Any], backend: str) -> list[tuple[str, str]]:
    """The variants of a backend that take a call, each with the backend's name."""
    return [(backend, row.variant) for row in reg.explain(op, **pairs, backend=backend).eligible]


def draw(pairs: Mapping[str, Any], dtype: str, data: str) -> dict[str, Any]:
    """The call with numbers of that kind; each tensor has a stream of its own."""
    inputs = {}
    for role, (shape, _) in pairs["inputs"].items():
        kind = DATA[data if role in VALUES else "normal"]
        mean, spread = kind.get(dtype, kind[""])
        stream = np.random.default_rng([*role.encode(), *shape])
        inputs[role] = round_to(np.asarray(stream.standard_normal(shape) * spread + mean), dtype)
    return {**pairs, "inputs": inputs}


def judged(
    reg: Registry, op: str, call: Mapping[str, Any], takers: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str, str, Verdict]]:
    """The verdict on every output of each taker: backend, variant, output, verdict."""
    attrs = {**reg.op(op).attributes, **call["attrs"]}
    judge = make_judge(reg, reg.op(op), call["inputs"], attrs)
    for backend, variant in takers:
        try:
            values = reg.run(op, **call, backend=backend, variant=variant)
        except RegistryError as error:
            print(f"{op} {backend} {variant}: {error}", file=sys.stderr)
            for output in call["outputs"]:
                yield backend, variant, output, Verdict(False, str(error))
            continue
        for output, value in zip(call["outputs"], values, strict=True):
            yield backend, variant, output, judge.verdict(output, value, value.dtype.name, value)


def machine(reg: Registry) -> dict[str, Any]:
    """What the numbers are from: devices with their drivers, versions, the date."""
    backends = reg.backends()  # which imports their libraries
    libraries = {"numpy", "ml_dtypes", "kernel-registry"}
    for text in metadata.requires("kernel-registry") or ():
        if "extra ==" in text:
            libraries.add(re.split(r"[^\w.-]", text)[0])
    loaded = {
        name
        for module, names in metadata.packages_distributions().items()
        if module in sys.modules
        for name in names
    }
    return {
        "date": datetime.date.today().isoformat(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"Python": platform.python_version()}
        | {name: metadata.version(name) for name in sorted({"kernel-registry", *(loaded & libraries)})},
        "backends": {
            status.name: {"device": status.device}
            | {name: text_of(value) for name, value in status.details.items()}
            for status in backends
            if status.available
        },
    }


def text_of(value: Any) -> str:
    """A detail of a backend as one line."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def slug(name: str) -> str:
    """A device's name as a file's."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def save(file: Path, where: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Writes a result, one row a line."""
    head = json.dumps(where, indent=1)[1:-2]
    lines = ",\n  ".join(json.dumps(plain(row)) for row in rows)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'{{{head},\n "rows": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


def plain(row: Row) -> dict[str, Any]:
    """A row for JSON, which has no infinity; numbers of three digits."""
    return {
        **asdict(row),
        "variants": len(row.variants),
        **{name: f"{value:.3g}" for name, value in (("max_ulp", row.max_ulp), ("share", row.share))},
    }


METHOD = """\
# Accuracy

Made by `python scripts/accuracy.py`, which runs every variant of every backend at hand, in the form of call
with the most tensors that it takes, and holds each output against the float64 reference, element by element.
The results are in [accuracy/](accuracy/), a file a device, with variant and case of each worst number.

- **Sizes**: {rows} rows of {hidden} elements.
- **Values**: *normal* has mean 0.5 and spread 1.5; *off-centre* mean 10000 and spread 0.001, in halves 1000
  and 10; *large* spread 1e15, in float16 10000; *small* spread 0.0001. What scales, shifts and biases them is
  *normal*.
- **Cells** are `share / ULP`. The share is the largest part of the [tolerance](../README.md#numbers) that any
  element takes: above 1 is wrong. A half that is one unit in the last place off takes all of it.
- ULP is the distance from the correctly rounded answer in representable numbers. Near zero, where those lie
  dense, it is large whatever computes in float32, for a difference such as x - mean is not that exact.
- Statistics are float32, whatever the dtype of the tensors, which the column names.
"""


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The page of all results by device."""
    lines = [METHOD.format(rows=" and ".join(map(str, ROWS)), hidden=", ".join(map(str, HIDDEN)))]
    for name, result in results.items():
        versions = ", ".join(f"{package} {version}" for package, version in result["versions"].items())
        lines += [f"## {name}", "", f"{result['date']}, {result['system']}, {versions}.", ""]
        for backend, details in result["backends"].items():
            lines.append(f"- **{backend}**: " + "; ".join(f"{key} {text}" for key, text in details.items()))
        dtypes = list(dict.fromkeys(row["dtype"] for row in result["rows"]))
        header = ("op", "output", "backend", "cases", *dtypes)
        lines += ["", f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
        groups: dict[tuple[str, str, str], dict[str, Any]] = {}
        for row in result["rows"]:
            groups.setdefault((row["op"], row["output"], row["backend"]), {})[row["dtype"]] = row
        for key, rows in groups.items():
            cases = sum(row["cases"] for row in rows.values())
            cells = [cell(rows[dtype]) if dtype in rows else "" for dtype in dtypes]
            lines.append(f"| {' | '.join((*key, str(cases), *cells))} |")
        lines.append("")
    return "\n".join(lines)


def cell(row: Mapping[str, Any]) -> str:
    """One dtype of one output on one backend."""
    fails = f"**{row['failed']} of {row['cases']} fail**, " if row["failed"] else ""
    return f"{fails}{row['share']} / {row['max_ulp']}"


def write_page(folder: Path) -> None:
    """``accuracy.md`` from every result in ``accuracy/``."""
    files = sorted((folder / "accuracy").glob("*.json"))
    results = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
    (folder / "accuracy.md").write_text(page(results), encoding="utf-8")


def main() -> None:
    """Measures and writes; exit code 1 when a case failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder to write below (docs)")
    parser.add_argument(
        "--name", help="the device's name for the file; by default the first backend's device"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes that measure (1)")
    parser.add_argument("--page", action="store_true", help="only the page, from the results there are")
    args = parser.parse_args()
    failed = 0
    if not args.page:
        reg = Registry()
        rows = measure_apart(reg, args.jobs) if args.jobs > 1 else measure(reg)
        where = machine(reg)
        first = next(iter(where["backends"].values()))
        file = args.out / "accuracy" / f"{slug(args.name or first['device'])}.json"
        save(file, where, rows)
        failed = sum(row.failed for row in rows)
        print(f"{file}: {sum(row.cases for row in rows)} cases, {failed} failed")
    write_page(args.out)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
