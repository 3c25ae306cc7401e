"""The commands of packages: ``registry lock`` and ``registry export``."""

from __future__ import annotations

from pathlib import Path

import click

import registry

from ..environment import read_environment
from ..errors import PackageError, RegistryError
from ..opinfo import Op
from ..text import counted
from .options import json_option, shared
from .printing import print_json, print_text
from .tables import make_console, table


@click.command("lock", short_help="Pin a package in registry.lock.")
@click.argument("package", required=False)
@click.option("--trust", is_flag=True, help="Let a package of another publisher in.")
@click.option("--check", is_flag=True, help="Only load what is locked, and change nothing.")
@json_option
def lock_command(package: str | None, trust: bool, check: bool, as_json: bool) -> None:
    """Pin a package in registry.lock: its commit and the digests of its files.

    PACKAGE is owner/name@v1 or owner/name@<commit>. Without it every pin is brought up to date.
    """
    from ..packaging.finding import fetch_new, locked, pin_of
    from ..packaging.hub import make_name
    from ..packaging.package_lock import add_pins, read_lock

    lock = read_lock(read_environment().lock_path)
    wanted = [pin.asked for pin in lock.pins]
    if package is not None:
        wanted = [make_name(package, None, None)]
    rows = []
    pins = []
    for asked in wanted:
        before = lock.find(asked)
        if check:
            if before is None:
                raise PackageError(f"{asked} is not in {lock.path}; `registry lock {asked}` adds it")
            op = locked(before, lock)
        else:
            op = fetch_new(asked, trust=trust or before is not None)
        pin = pin_of(op)
        state = "unchanged" if pin == before else "new" if before is None else f"was {before.revision}"
        rows.append((str(asked), op.id, pin.revision, str(len(pin.digests)), state))
        lock = lock.plus(pin)
        pins.append(pin)
    if pins and not check:
        add_pins(lock.path, pins)
    header = ("package", "op", "commit", "files", "state")
    if as_json:
        print_json([dict(zip(header, row, strict=True)) for row in rows])
    elif rows:
        make_console().print(table(str(lock.path), header, rows))
    else:
        print_text(f"{lock.path} pins nothing")


@click.command("export", short_help="Write an operator as a published package.")
@click.argument("op")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--dialect", type=click.Choice(["2.1", "1.0"]), default="2.1", show_default=True, help="Of the manifest."
)
@json_option
def export_command(op: str, folder: Path, dialect: str, as_json: bool) -> None:
    """Write an operator into FOLDER as a published package: manifest, templates, cases, digests, a card."""
    from ..packaging.export import export_op

    made = export_op(shared(), registry.op(op), folder, dialect)
    assert made.package is not None
    facts = {"op": made.id, "folder": str(folder), "dialect": dialect, "variants": len(made.variants)}
    if as_json:
        print_json({**facts, "digests": dict(made.package.digests)})
    else:
        variants = counted(len(made.variants), "variant")
        templates = counted(len(made.package.templates), "template")
        print_text(f"{made.id} in {folder}: dialect {dialect}, {variants}, {templates}")


def locked_ops() -> list[Op]:
    """The packages of registry.lock that are in the hub client's cache; says which are not."""
    from ..packaging.finding import locked
    from ..packaging.package_lock import read_lock

    lock = read_lock(read_environment().lock_path)
    found = []
    for pin in lock.pins:
        try:
            found.append(locked(pin, lock, cached=True))
        except RegistryError as error:
            print_text(f"left out: {error}", stderr=True)
    return found
