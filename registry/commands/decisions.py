"""The commands of the lock of decisions: ``registry freeze`` and ``registry check``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

import registry

from ..calling.call import parse_call
from ..errors import ContractError
from ..freezing.checking import HEADER, Difference
from ..freezing.decision_lock import NAME, DecisionLock, add, read_lock
from ..freezing.recording import Log
from ..freezing.records import Decided
from ..planning.making import bind_call, settle
from ..text import counted
from .options import call_options, json_option, read_call, shared
from .printing import print_json, print_text
from .tables import make_console, table

file_option = click.option(
    "--file", "file", type=click.Path(path_type=Path), default=NAME, show_default=True, help="The lock."
)


@click.command("freeze", short_help="Write what requests are decided to into decisions.lock.")
@call_options(data=False, profile=False)
@file_option
@click.option("--no-sources", is_flag=True, help="Keep digests of the rendered sources only.")
def freeze_command(as_json: bool, file: Path, no_sources: bool, **options: Any) -> None:
    """Write what requests are decided to into decisions.lock, for `registry check`.

    OP with tensors is one request. `registry freeze -- python program.py`, or a path to a script, runs a
    program and records every request that it makes.
    """
    command = _command(options)
    if command is not None:
        made, lock = _run(command, file, not no_sources, as_json)
    else:
        made, lock = _freeze_one(options, file, not no_sources)
    _print(made, lock, as_json)


def _command(options: dict[str, Any]) -> list[str] | None:
    """The program to run, where the arguments name one and no op."""
    words = [options["op"], *options["tensors"]]
    script = words[0].endswith(".py")
    if shared().catalog.has(words[0]):
        return None
    if not (script or shutil.which(words[0])):
        if len(words) > 1 and not any("=" in word for word in words):
            text = f"{words[0]!r} is no op and no program that can be found"
            raise ContractError(f"{text}; needed: an op of `registry ops`, or a program on the path")
        return None
    params = click.get_current_context().command.params
    others = [p.opts[-1] for p in params if p.name not in ("op", "tensors") and options.get(p.name or "")]
    if others:
        raise ContractError(
            f"{others[0]} goes with an op; {words[0]} is a program, which settles its own calls"
        )
    return [sys.executable, *words] if script else words


def _run(
    command: list[str], file: Path, sources: bool, as_json: bool
) -> tuple[tuple[Decided, ...], DecisionLock]:
    with tempfile.TemporaryDirectory() as folder:
        drafted = Path(folder) / NAME
        environment = {**os.environ, "REGISTRY_FREEZE": str(drafted)}
        try:
            # What the program prints must not stand between what we print for programs.
            place = 2 if as_json else None
            status = subprocess.run(command, env=environment, check=False, stdout=place).returncode
        except OSError as error:
            raise ContractError(f"{command[0]} cannot be run ({error})") from error
        if status != 0:
            click.echo(f"{' '.join(command)} exited with status {status}; {file} is unchanged", err=True)
            sys.exit(status if status > 0 else 128 - status)
        if not drafted.exists():
            raise ContractError(
                f"{' '.join(command)} recorded nothing: it made no registry call, "
                "or ended without exit handlers (os._exit)"
            )
        draft = read_lock(drafted)
        lock = add_draft(file, draft, sources)
    return draft.decisions, lock


def add_draft(file: Path, draft: DecisionLock, sources: bool) -> DecisionLock:
    """Adds the decisions of one lock to another, with the sources that were kept."""
    lock = DecisionLock(file)
    for name, system in draft.systems.items():
        decisions = [each for each in draft.with_texts() if each.on == name]
        lock = add(file, decisions, system, sources=sources)
    return lock


def _freeze_one(
    options: dict[str, Any], file: Path, sources: bool
) -> tuple[tuple[Decided, ...], DecisionLock]:
    op, named = read_call(False, **options)
    catalog = shared().catalog
    call = parse_call(op, (), named)
    decision = settle(catalog, call, bind_call(catalog, call))[0]
    log = Log(shared())
    log.add(call, decision)
    return log.decisions, registry.freeze(file, log, sources=sources)


def _print(made: tuple[Decided, ...], lock: DecisionLock, as_json: bool) -> None:
    header = ("request", "backend", "variant", "passes")
    rows = [
        (str(each.asked), each.chosen.backend, each.chosen.variant, str(len(each.chosen.passes)))
        for each in made
    ]
    if as_json:
        named = [dict(zip(header, row, strict=True)) for row in rows]
        print_json({"file": str(lock.path), "decisions": named, "kept": len(lock.decisions)})
        return
    make_console().print(table(None, header, rows))
    print_text(f"{lock.path} has {counted(len(lock.decisions), 'decision')}")


@click.command("check")
@click.argument("file", type=click.Path(path_type=Path), default=NAME)
@json_option
def check_command(file: Path, as_json: bool) -> None:
    """Decide every request of a lock anew. Says what comes out otherwise, and why; status 1 if any does."""
    found = registry.check(file)
    if as_json:
        print_json(found.as_dict())
    else:
        print_text(found.headline, "bold")
        for each in found.differences:
            _print_difference(each)
        for line in found.notes():
            print_text(line)
    if not found.ok:
        sys.exit(1)


def _print_difference(found: Difference) -> None:
    console = make_console()
    console.print()
    if found.rows:
        console.print(table(found.request, HEADER, found.rows))
    else:
        print_text(found.request, "bold")
    for text in filter(None, (found.message, *found.diffs)):
        print_text(text)
