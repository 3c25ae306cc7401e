"""The command ``registry card``: what an operator is, who runs it, and how well."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

import registry

from .options import find_op, frozen_option, json_option, shared
from .printing import print_json
from .tables import make_console, table

if TYPE_CHECKING:
    from ..cards.sections import Section


@click.command("card", short_help="Print an operator's card: contract and variants.")
@click.argument("op")
@click.option("--markdown", is_flag=True, help="Print Markdown.")
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Show what was measured, too: a folder such as docs/ of the project's checkout.",
)
@frozen_option
@json_option
def card_command(op: str, markdown: bool, results: Path | None, frozen: bool, as_json: bool) -> None:
    """Print an operator's card: contract, variants by backend with their conditions in words, dtypes.

    OP is an operator, a package folder or its name. With --results accuracy and speed as well.
    """
    if markdown and as_json:
        raise click.UsageError("--markdown and --json exclude each other.")
    made = registry.card(find_op(shared(), op, frozen), results=results)
    if as_json:
        print_json(made.as_dict())
    elif markdown:
        click.echo(str(made), nl=False)
    else:
        from ..cards.sections import sections

        _show(sections(made))


def _show(parts: Iterable[Section]) -> None:
    console = make_console()
    for number, part in enumerate(parts):
        if number:
            console.print()
        console.print(Text(part.title, style="bold"))
        for paragraph in part.paragraphs:
            console.print(Text(_unmarked(paragraph)), soft_wrap=not part.header)
        if part.header:
            rows = [tuple(map(_unmarked, row)) for row in part.rows]
            console.print(table(None, part.header, rows))


def _unmarked(text: str) -> str:
    return text.replace("`", "")
