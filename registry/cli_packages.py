"""The commands of packages: ``registry lock`` and ``registry export``."""

from __future__ import annotations

import json

import click
from rich.text import Text

from .catalog import Catalog
from .cli_call import json_option
from .errors import PackageError
from .tables import make_console, table


@click.command("lock")
@click.argument("package", required=False)
@click.option("--trust", is_flag=True, help="Let a package of another publisher in.")
@click.option("--check", is_flag=True, help="Only load what is locked, and change nothing.")
@json_option
def lock_command(package: str | None, trust: bool, check: bool, as_json: bool) -> None:
    """Pin a package in registry.lock: its commit and the digests of its files.

    PACKAGE is owner/name@v1 or owner/name@<commit>. Without it every entry is brought up to date.
    """
    from .packages.finding import entry_of, fetch, find_package
    from .packages.hub import Reference, make_reference
    from .packages.lock import Lock, read_lock

    lock = read_lock(Catalog((), False).lock_path())
    rows = []
    if package is None:
        wanted = [
            Reference(e.repo, e.version, None if e.version is not None else e.revision) for e in lock.entries
        ]
    else:
        wanted = [make_reference(package, None, None)]
    for reference in wanted:
        before = lock.find(reference)
        if check:
            op = find_package(str(reference), None, None, lock, trust=False, frozen=True)
        elif package is None or trust or reference.trusted or before is not None:
            if reference.branch is None:
                raise PackageError(f"{reference}: which one? Needed: {reference}@v1 or {reference}@<commit>")
            op = fetch(reference, reference.branch, reference.version)
        else:
            op = find_package(str(reference), None, None, Lock(lock.path), trust=trust, frozen=False)
        entry = entry_of(op)
        state = "unchanged" if entry == before else "new" if before is None else f"was {before.revision}"
        rows.append((str(reference), op.id, entry.revision, str(len(entry.digests)), state))
        lock = lock.plus(entry)
    if not check:
        lock.write()
    header = ("package", "op", "commit", "files", "state")
    if as_json:
        click.echo(json.dumps([dict(zip(header, row, strict=True)) for row in rows], indent=2))
    elif rows:
        make_console().print(table(str(lock.path), header, rows))
    else:
        make_console().print(Text(f"{lock.path} pins nothing"))
