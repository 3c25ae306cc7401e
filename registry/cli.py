"""The command line: ``registry`` or ``python -m registry``."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from typing import Any

import click

import registry

from .commands.card import card_command
from .commands.compare import compare_command, replay_command
from .commands.conformance import test_command
from .commands.decisions import check_command, freeze_command
from .commands.inventory import backends_command, op_command, ops_command
from .commands.packages import export_command, lock_command
from .commands.plugin import new_plugin_command
from .commands.printing import print_text
from .commands.run import explain_command, render_command, run_command
from .commands.tune import bench_command, tune_command
from .errors import RegistryError


class _Group(click.Group):
    """Prints our errors as one message and exits with status 2; a traceback is for bugs."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except RegistryError as error:
            print_text(f"{type(error).__name__}: {error}", stderr=True)
            sys.exit(2)

    def main(self, *arguments: Any, **options: Any) -> Any:
        """The command line; where there is no room for what it prints, it says so."""
        try:
            try:
                return super().main(*arguments, **options)
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
        except OSError as error:
            if error.errno not in _NOT_WRITTEN or error.filename is not None:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's own last flush
            if error.errno == errno.EPIPE:  # nobody reads on, which is no fault
                sys.exit(1)
            click.echo(f"cannot write the output: {error.strerror}", err=True)
            sys.exit(2)


_NOT_WRITTEN = (errno.EPIPE, errno.ENOSPC, errno.EFBIG, errno.EIO)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(registry.__version__, prog_name="registry")
def main() -> None:
    """Runs ONNX-style operators on the best backend, and says why."""


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    print_text(f"warning: {message}", stderr=True)


COMMANDS = (
    ops_command,
    op_command,
    backends_command,
    run_command,
    explain_command,
    render_command,
    card_command,
    compare_command,
    replay_command,
    test_command,
    tune_command,
    bench_command,
    freeze_command,
    check_command,
    lock_command,
    export_command,
    new_plugin_command,
)
for command in COMMANDS:
    main.add_command(command)
