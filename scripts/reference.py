"""The pages of the site that are made from the code: a card for each operator, Python, the command line."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path

import click

import registry
import registry_cuda
import registry_manifests
import registry_numpy
import registry_webgpu
from registry import conformance
from registry.cli import main

ROOT = Path(__file__).parent.parent

CLI = """\
# Command line

`registry`, or `python -m registry`. Tensors come from `.npy` and `.npz` files (`X=file.npy`,
`--from file.npz`) or are drawn by shape and seed (`X=2x8x768:f16 --seed 1`). A package may stand in place of
an operator's name: a folder, or `owner/name@v1`.

The status is 0; 1 where the answer is no (nothing accepts the call, a comparison or a test fails, the lint
finds something); 2 where the command cannot be carried out, with the error on standard error.
"""

RESULTS = (
    "registry.deciding.decision.Decision",
    "registry.deciding.decision.Candidate",
    "registry.planning.plan.Plan",
    "registry.comparing.report.Report",
    "registry.comparing.report.BackendVerdict",
    "registry.comparing.records.Comparison",
    "registry.judging.accuracy.Verdict",
    "registry.comparing.replayed.Replay",
    "registry.comparing.replayed.Replayed",
    "registry.measuring.benchmark.Benchmark",
    "registry.measuring.tuning.Tuning",
    "registry.cards.card.Card",
    "registry.cards.card.Support",
    "registry.cards.card.VariantCard",
    "registry.handle.Handle",
    "registry.opinfo.Op",
    "registry.calling.request.Request",
    "registry.status.Status",
)
"""What the functions return."""


def pages() -> dict[str, str]:
    """Every page by its path in the site."""
    reg = built_in()
    cards = {card_path(op): str(reg.card(op, results=ROOT / "docs")) for op in reg.ops()}
    return {**cards, "api.md": api(), "cli.md": cli()}


def built_in() -> registry.Registry:
    """What comes with the library, whatever else is installed here."""
    plugins = [registry_manifests, registry_numpy, registry_webgpu, registry_cuda]
    return registry.Registry(plugins, entry_points=False)


def card_path(op: str) -> str:
    """The page of an op."""
    return f"cards/{op.replace('::', '.')}.md"


def api() -> str:
    """The reference: every public name, by the docstrings."""
    public = {name: getattr(registry, name) for name in registry.__all__}
    classes = {name for name, value in public.items() if isinstance(value, type)}
    functions = [name for name in public if name not in classes and name != "hookimpl"]
    errors = [name for name in registry.__all__ if name in classes and issubclass(public[name], (Exception,))]
    plugins = ["Backend", "Claim", "Predicate", "Refusal", "Availability", "RenderedPass", "Finding"]
    plugins += ["Executable", "Reference", "Hooks", "hookimpl", "API_VERSION", "ENTRY_POINT_GROUP"]
    return "\n".join(
        (
            "# Python\n",
            "`import registry` has the functions; they are the methods of one shared `Registry`.\n",
            "## Functions\n",
            *(entry(f"registry.api.Registry.{name}", f"registry.{name}") for name in functions),
            "## The registry\n",
            "Every function above is a method, too.\n",
            entry("registry.api.Registry", "registry.Registry", members=("host", "forget_plans")),
            "## What comes back\n",
            *(entry(path) for path in RESULTS),
            "## Backends and plugins\n",
            *(entry(f"registry.hookspecs.{name}") for name in plugins),
            entry("registry.judging.accuracy.Expected"),
            "## Errors\n",
            *(entry(f"registry.errors.{name}", f"registry.{name}") for name in errors),
            "## Conformance\n",
            "`from registry import conformance`\n",
            *(entry(f"registry.conformance.{name}") for name in conformance.__all__),
            "## Tests of your own\n",
            "`from registry.testing import assert_backends_agree`\n",
            entry("registry.testing.assert_backends_agree"),
        )
    )


def cli() -> str:
    """The reference of the command line: each command as ``--help`` has it."""
    parts = [CLI]
    group = click.Context(main, info_name="registry", **main.context_settings)
    for name, command in sorted(main.commands.items()):
        context = click.Context(command, info_name=name, parent=group)
        options = [  # arguments are in the usage above, and have no help
            record
            for each in command.get_params(context)
            if isinstance(each, click.Option) and (record := each.get_help_record(context))
        ]
        parts += [f"## registry {name}", inspect.cleandoc(command.help or "")]
        parts.append(f"```\n{command.get_usage(context).removeprefix('Usage: ')}\n```")
        # A bar within backticks ends no cell, and an entity would stand there as it is.
        lines = [f"| `{flags}` | {text.replace('|', '&#124;')} |" for flags, text in options]
        parts.append("\n".join(("| option | what |", "|---|---|", *lines)))
    return "\n\n".join(parts) + "\n"


def entry(path: str, heading: str = "", members: Iterable[str] = ()) -> str:
    """A directive of mkdocstrings for one name."""
    name = heading or path.rpartition(".")[2]
    lines = [f"::: {path}", "    options:", f'      heading: "{name}"', f'      toc_label: "{name}"']
    if members:
        lines.append(f"      members: [{', '.join(members)}]")
    return "\n".join(lines) + "\n"
