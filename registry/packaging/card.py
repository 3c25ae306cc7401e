"""The card of an exported package: a README that says what the op is and how to use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..cards.card import card_of, own_variants
from ..cards.sections import Section, contract, markdown, variants
from ..manifest import Manifest
from ..opinfo import Op

_HEAD = """---
library_name: kernels
license: apache-2.0
tags:
- kernel
- webgpu
- wgsl
---
"""


def readme(op: Op, manifest: Manifest, files: Sequence[str]) -> str:
    """The text of the package's README. ``manifest`` is the one in the package, ``files`` are its paths."""
    packaged = replace(op, manifest=manifest)
    card = card_of(packaged, ())
    name = op.id.replace("::", ".")
    use = f'```python\nimport registry\n\nkernel = registry.load("owner/{name}", version=1)\n```'
    return _HEAD + markdown(
        (
            Section(name, 1, (card.description,)),
            *contract(card),
            *variants("Variants", own_variants(packaged)),
            Section("Files", paragraphs=("\n".join(f"- [`{file}`]({file})" for file in files),)),
            Section("Use", paragraphs=("With kernel-registry, from a folder or from the hub:", use)),
        )
    )
