"""A hook of mkdocs: makes the pages that come from the code, and leads links between files to pages.

Made at build and never kept: the home page (the README), changes, contributing, a card for each operator, the
reference of Python and of the command line. See ``mkdocs.yml`` and ``scripts/docs.sh``.
"""

from __future__ import annotations

import inspect
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import registry
import registry_cuda
import registry_manifests
import registry_numpy
import registry_webgpu
from registry import conformance
from registry.cli import main

ROOT = Path(__file__).parent.parent
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files of the repository that are pages of the site."""
NAMED = {"registry/hookspecs.py": "api.md#backends-and-plugins"}
"""Files of the repository that a page tells of."""

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.S | re.M)

CLI = """\
# Command line

`registry`, or `python -m registry`. Tensors come from `.npy` and `.npz` files (`X=file.npy`,
`--from file.npz`) or are drawn by shape and seed (`X=2x8x768:f16 --seed 1`). A package may stand in place of
an operator's name: a folder, or `owner/name@v1`.

The status is 0; 1 where the answer is no (nothing accepts the call, a comparison or a test fails, the lint
finds something); 2 where the command cannot be carried out, with the error on standard error.
"""

RESULTS = (
    "registry.decision.Decision",
    "registry.decision.Row",
    "registry.plan.Plan",
    "registry.comparison.Report",
    "registry.benchmark.Benchmark",
    "registry.tuning.Tuning",
    "registry.cards.card.Card",
    "registry.package.Handle",
    "registry.opinfo.Op",
    "registry.status.Status",
)
"""What the functions return."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the operators' pages into the navigation."""
    for entry in config.nav or ():
        if entry.get("Operators") == "cards":
            entry["Operators"] = [{op.partition("::")[2]: card_path(op)} for op in built_in().ops()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made."""
    made = {path: (ROOT / name).read_text(encoding="utf-8") for name, path in PAGES.items()}
    reg = built_in()
    for op in reg.ops():
        made[card_path(op)] = str(reg.card(op, results=ROOT / "docs"))
    made |= {"api.md": api(), "cli.md": cli(), "site.css": CSS}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads links to files of the repository to the pages made of them; of others the text stays."""
    source = next((name for name, path in PAGES.items() if path == page.file.src_uri), None)
    folder = posixpath.dirname(source if source is not None else f"docs/{page.file.src_uri}")
    return outside_fences(markdown, lambda text: LINK.sub(lambda m: relink(m, folder, page, files), text))


def relink(match: re.Match[str], folder: str, page: Page, files: Files) -> str:
    """A link as the site has it."""
    text, target = match.groups()
    path, _, anchor = target.partition("#")
    if "://" in target or not path:
        return match[0]
    file = posixpath.normpath(posixpath.join(folder, path))
    place = NAMED.get(file) or PAGES.get(file) or file.removeprefix("docs/")
    place, _, named = place.partition("#")
    if files.get_file_from_path(place) is None:
        return text
    anchor = anchor or named
    here = posixpath.dirname(page.file.src_uri)
    return f"[{text}]({posixpath.relpath(place, here or '.')}{f'#{anchor}' if anchor else ''})"


def outside_fences(text: str, change: Any) -> str:
    """Changes what is no code block."""
    parts, last = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*parts, change(text[last:])])


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
            *(entry(f"registry.dispatch.Registry.{name}", f"registry.{name}") for name in functions),
            "## The registry\n",
            "Every function above is a method, too.\n",
            entry("registry.dispatch.Registry", "registry.Registry", members=("host", "forget_plans")),
            "## What comes back\n",
            *(entry(path) for path in RESULTS),
            "## Backends and plugins\n",
            *(entry(f"registry.hookspecs.{name}") for name in plugins),
            "## Errors\n",
            *(entry(f"registry.errors.{name}", f"registry.{name}") for name in errors),
            "## Conformance\n",
            "`from registry import conformance`\n",
            *(entry(f"registry.conformance.{name}") for name in conformance.__all__),
        )
    )


def cli() -> str:
    """The reference of the command line: each command as ``--help`` has it."""
    parts = [CLI]
    for name, command in sorted(main.commands.items()):
        context = click.Context(command, info_name=f"registry {name}")
        options = [
            record for each in command.get_params(context) if (record := each.get_help_record(context))
        ]
        parts += [f"## registry {name}", inspect.cleandoc(command.help or "")]
        parts.append(f"```\n{command.get_usage(context).removeprefix('Usage: ')}\n```")
        lines = [("option", "what"), ("---", "---"), *((f"`{flags}`", text) for flags, text in options)]
        parts.append(
            "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)
        )
    return "\n\n".join(parts) + "\n"


def entry(path: str, heading: str = "", members: Iterable[str] = ()) -> str:
    """A directive of mkdocstrings for one name."""
    name = heading or path.rpartition(".")[2]
    lines = [f"::: {path}", "    options:", f'      heading: "{name}"', f'      toc_label: "{name}"']
    if members:
        lines.append(f"      members: [{', '.join(members)}]")
    return "\n".join(lines) + "\n"


CSS = """\
.md-grid { max-width: 76rem; }
.md-typeset table:not([class]) { font-size: 0.62rem; }
.md-typeset table:not([class]) td { padding: 0.5em 0.9em; }
.md-typeset td:first-child code { white-space: nowrap; }
.md-typeset pre > code { font-size: 0.62rem; }
.doc-contents { padding-left: 1rem; border-left: 0.05rem solid var(--md-default-fg-color--lightest); }
"""
