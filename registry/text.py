"""Tables as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def lay_out(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of cells in columns, indented by two spaces."""
    table = [header, *rows]
    widths = [max(len(line[column]) for line in table) for column in range(len(header))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]
