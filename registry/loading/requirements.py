"""What a variant of dialect 2.1 requires of a device, as conditions like its others."""

from __future__ import annotations

import re

from .dialect_2_1 import Requirements
from .documents import refuse

_LIMIT = re.compile(r"[A-Za-z][A-Za-z0-9]*")


def requirements(needs: Requirements, path: str) -> list[str]:
    """The conditions; ``path`` is where the requirements are written.

    Raises:
        ManifestError: a limit's name, a size or a pattern is invalid.
    """
    clauses = [f'device.features.has("{name}")' for name in needs.features]
    for name, value in needs.limits.items():
        if not _LIMIT.fullmatch(name):
            refuse(f"the limit {name!r}", "a limit's name", f"{path}.limits")
        clauses.append(f"device.limits.{name} >= {value:.0f}")
    least = needs.subgroup_min_size
    if least is not None:
        if least < 1:
            refuse(str(least), "at least 1", f"{path}.subgroupMinSize")
        clauses.append(
            f'has(device.adapterInfo, "subgroupMinSize") and device.adapterInfo.subgroupMinSize >= {least}'
        )
    configs = needs.subgroup_matrix_configs
    if configs is not None:
        # An adapter that reports no configurations is not held to them, and none here does.
        for config in configs or (None,):
            sizes = () if config is None else (config.m, config.n, config.k)
            if config is None or config == type(config)() or any(n is not None and n < 1 for n in sizes):
                refuse("an empty pattern", "component types or sizes of at least 1", path)
    return clauses
