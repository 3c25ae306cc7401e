"""The card of an exported package: a README that says what the op is and how to use it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..manifest import Manifest
from ..opinfo import Op, TensorSpec

_HEAD = """---
library_name: kernels
license: apache-2.0
tags:
- kernel
- webgpu
- wgsl
---
"""


def card(op: Op, manifest: Manifest, files: Sequence[str]) -> str:
    """The text of the card. ``manifest`` is the one in the package, ``files`` are its paths."""
    name = op.id.replace("::", ".")
    parts = [
        f"# {name}",
        manifest.description,
        "## Inputs",
        _tensors(op.inputs),
        "## Outputs",
        _tensors(op.outputs),
    ]
    if op.attribute_names:
        texts = manifest.attribute_descriptions
        rows = [(f"`{n}`", f"`{op.attributes.get(n, 'none')}`", texts.get(n, "")) for n in op.attribute_names]
        parts += ["## Attributes", _table(("name", "default", "what"), rows)]
    types = [(f"`{n}`", ", ".join(f"`{d}`" for d in ds)) for n, ds in manifest.type_constraints.items()]
    parts += ["## Types", _table(("variable", "dtypes"), types)]
    rules = [(f"`{rule.argument}`", rule.needed) for rule in manifest.registry.contract]
    if rules:
        parts += ["## Rules", _table(("argument", "needed"), rules)]
    variants = sorted(manifest.variants, key=lambda variant: -variant.priority)
    lines = [f"- `{v.id}`{f': {v.description}' if v.description else ''}" for v in variants]
    parts += ["## Variants", "The first whose conditions hold runs.", "\n".join(lines)]
    parts += ["## Files", "\n".join(f"- [`{file}`]({file})" for file in files)]
    parts += [
        "## Use",
        "With kernel-registry, from a folder or from the hub:",
        f'```python\nimport registry\n\nkernel = registry.load("owner/{name}", version=1)\n```',
    ]
    return _HEAD + "\n\n".join(part for part in parts if part) + "\n"


def _tensors(specs: Iterable[TensorSpec]) -> str:
    rows = [
        (
            f"`{spec.arg}`",
            f"`{spec.role}`",
            f"`{spec.dtype}`" if spec.dtype else "any",
            "required" if spec.required else "optional",
            spec.description,
        )
        for spec in specs
    ]
    return _table(("name", "ONNX name", "dtype", "presence", "what"), rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)
