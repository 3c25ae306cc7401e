"""Writes tests/golden/: for each op some requests with their right outputs, and digests of its shaders.

    python scripts/golden.py

The files are what has been agreed on: a test compares, and a difference that is meant is written by this.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tests"))

from forms import FORMS, Form  # noqa: E402

from registry import Availability, Backend, Claim, Registry  # noqa: E402
from registry.calling.call import parse_call  # noqa: E402
from registry.calling.request import Request, bind  # noqa: E402
from registry.deciding.decide import Offer, decide  # noqa: E402
from registry.dtypes import SHORT_NAMES  # noqa: E402
from registry.judging.accuracy import round_to  # noqa: E402
from registry.opinfo import Op  # noqa: E402

FOLDER = ROOT / "tests" / "golden"
SIZE = (3, 8)  # rows and elements of a request
# A shader is rendered for the first two of these that it takes: rows longer than a workgroup, of a length
# that four divides and one it does not, a short row, a single element.
SIZES = ((3, 8192), (3, 1025), (3, 8), (3, 1))
PROFILES: Mapping[str, Mapping[str, Any]] = {
    "plain": {"webgpu": {"features": ["shader-f16"], "limits": {"maxStorageBuffersPerShaderStage": 8}}},
    "subgroups": {
        "webgpu": {
            "features": ["shader-f16", "subgroups"],
            "wgslLanguageFeatures": ["subgroup_id"],
            "adapterInfo": {"subgroupMinSize": 32, "subgroupMaxSize": 32},
            "implementation": "dawn",
        }
    },
}


def requests(reg: Registry, op: str) -> Iterator[dict[str, Any]]:
    """In each dtype the first form of call, the one with the most tensors and the last, as plain data."""
    forms = FORMS[op]
    most = max(forms, key=lambda form: len(form.shapes(*SIZE) or ()) + len(form.outputs))
    for dtype in reg.op(op).manifest.type_constraints["T"]:
        for form in dict.fromkeys((forms[0], most, forms[-1])):
            attrs = {**dict(form.attrs), **({"epsilon": 0.001} if form is most else {})}
            attrs = {name: value for name, value in attrs.items() if name in reg.op(op).attributes}
            inputs = draw(form, dtype)
            expected = reg.catalog.plugins.references[op](inputs, {**reg.op(op).attributes, **attrs})
            kinds = reg.infer(op, inputs=inputs, attrs=attrs, outputs=form.outputs)
            outputs = {role: round_to(expected[role].value, kind) for role, (_, kind) in kinds.items()}
            yield {
                "name": f"{dtype} {form.name}".strip(),
                "attrs": attrs,
                "inputs": {role: tensor(array) for role, array in inputs.items()},
                "outputs": {role: tensor(array) for role, array in outputs.items()},
            }


def draw(form: Form, dtype: str) -> dict[str, np.ndarray[Any, Any]]:
    """Short numbers that every dtype holds, each tensor from a stream of its own.

    Of the values to normalize the second row is far from zero and the last is constant.
    """
    pairs = form.pairs(*SIZE, dtype)
    assert pairs is not None
    inputs = {}
    for role, (shape, _) in pairs["inputs"].items():
        stream = np.random.default_rng([*role.encode()])
        array = np.clip(np.round(stream.standard_normal(shape) * 32) / 32, -3.875, 3.875)
        if role in ("input", "X"):
            rows = array.reshape(SIZE[0], -1)
            rows[1] = 96 + np.round(rows[1])
            rows[2] = 1.5
        inputs[role] = round_to(np.asarray(array), dtype)
    return inputs


def tensor(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """An array as plain data, its numbers as short as they can be and still be read back as they are."""
    flat = [
        float(number) if array.dtype == np.float64 else float(str(number)) for number in array.reshape(-1)
    ]
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": flat}


def first_forms(reg: Registry, op: str) -> dict[str, str]:
    """The name of the first form of call that each variant takes."""
    found: dict[str, str] = {}
    for form, size, profile in product(FORMS[op], SIZES[1:], PROFILES.values()):
        if len(found) == len(reg.op(op).variants):
            break
        for dtype in reg.op(op).manifest.type_constraints["T"]:
            pairs = form.pairs(*size, dtype)
            for row in reg.explain(op, **pairs, profile=profile).eligible if pairs else ():
                found.setdefault(row.variant, form.name)
    return {variant: found[variant] for variant in reg.op(op).variants}


def digests(reg: Registry, op: str, forms: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """By variant, dtype and profile, 16 digits of the SHA-256 of the source for two sizes the variant takes.

    ``forms`` names the form of call for each variant.
    """
    target = reg.op(op)
    by_name = {form.name: form for form in FORMS[op]}
    found: dict[str, dict[str, str]] = {variant: {} for variant in forms}
    for name, profile in PROFILES.items():
        for backend in map(reg.catalog.backend, profile):
            here = backend.imagine(profile[backend.name])
            claims = [claim for claim in backend.claims(target) if isinstance(claim, Claim)]
            for claim, dtype in product(claims, target.manifest.type_constraints["T"]):
                form = by_name[forms[claim.variant]]
                requests = [request_of(target, form, size, dtype) for size in SIZES]
                digest = digest_of(backend, here, claim, requests)
                if digest is not None:
                    found[claim.variant][f"{SHORT_NAMES[dtype]} {name}"] = digest
    return found


def digest_of(backend: Backend, here: Availability, claim: Claim, requests: Sequence[Request]) -> str | None:
    """The digest of a claim's source for the first two of the requests that it accepts; None for none."""
    offer = Offer(backend.name, here, [claim])
    accepted = (request for request in requests if decide(request, [offer]).chosen)
    passes = [item for request in islice(accepted, 2) for item in backend.render(request, claim, here)]
    text = "\0".join(item.source for item in passes)
    return hashlib.sha256(text.encode()).hexdigest()[:16] if passes else None


@cache
def request_of(op: Op, form: Form, size: tuple[int, int], dtype: str) -> Request:
    """A form of call at a size, bound to the op's contract."""
    pairs = form.pairs(*size, dtype)
    assert pairs is not None
    return bind(parse_call(op, (), pairs))


def file_of(op: str) -> Path:
    """The golden file of an op."""
    return FOLDER / f"{op.replace('::', '.')}.json"


def write(reg: Registry, op: str) -> None:
    """An op's file, one tensor or variant a line."""
    cases = []
    for case in requests(reg, op):
        parts = [f'"name": {json.dumps(case["name"])}', f'"attrs": {json.dumps(case["attrs"])}']
        parts += [f'"{kind}": {lines(case[kind], 4)}' for kind in ("inputs", "outputs")]
        cases.append("  {" + ",\n   ".join(parts) + "}")
    text = ",\n".join(cases)
    forms = first_forms(reg, op)
    shaders = {variant: {"form": forms[variant], **line} for variant, line in digests(reg, op, forms).items()}
    body = f'{{"op": {json.dumps(op)},\n "requests": [\n{text}],\n "shaders": {lines(shaders, 2)}}}\n'
    FOLDER.mkdir(exist_ok=True)
    file_of(op).write_text(body, encoding="utf-8")


def lines(values: Mapping[str, Any], indent: int) -> str:
    """An object with one member a line."""
    joint = ",\n" + " " * indent
    return "{\n" + " " * indent + joint.join(f'"{k}": {json.dumps(v)}' for k, v in values.items()) + "}"


def main() -> None:
    """Writes every file anew."""
    reg = Registry()
    for op in FORMS:
        write(reg, op)


if __name__ == "__main__":
    main()
