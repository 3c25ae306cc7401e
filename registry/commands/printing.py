"""What commands print: JSON for programs, and texts that no width cuts."""

from __future__ import annotations

import json
from typing import Any

import click
import numpy as np
from rich.text import Text

from .tables import make_console


def print_json(value: Any) -> None:
    """Prints plain data; NumPy's numbers become Python's, and what JSON does not have becomes a text."""
    click.echo(json.dumps(value, indent=2, default=_plain))


def print_text(text: str, style: str = "", stderr: bool = False) -> None:
    """Prints a text, lines as long as they are."""
    make_console(stderr).print(Text(text, style=style), soft_wrap=True)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)
