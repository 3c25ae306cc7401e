"""The command ``registry new-plugin``: a small project that brings a backend."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("new-plugin", short_help="Write a project with a backend of yours.")
@click.argument("name")
@click.option(
    "--dir", "folder", metavar="DIR", type=click.Path(path_type=Path), help="Default: ./registry-NAME."
)
def new_plugin_command(name: str, folder: Path | None) -> None:
    """Write a project with a backend called NAME: installed with pip, it runs one op and passes its tests."""
    from ..project.writing import check_name, write_project

    check_name(name)
    target = folder or Path(f"registry-{name}")
    for path in write_project(name, target):
        click.echo(path)
    click.echo(f"next: cd {target} && pip install -e '.[test]' && pytest")
