"""A hook of mkdocs: makes the pages that come from the code, and leads links between files to pages.

Made at build and never kept: the home page (the README), changes, contributing, a card for each operator, the
reference of Python and of the command line. See ``mkdocs.yml`` and ``scripts/docs.sh``.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
import reference

ROOT = Path(__file__).parent.parent
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files of the repository that are pages of the site."""
NAMED = {
    "registry/api.py": "api.md",
    "registry/hookspecs.py": "api.md#backends-and-plugins",
    "registry/judging/accuracy.py": "api.md#backends-and-plugins",
    "registry/cli.py": "cli.md",
}
"""Files of the repository that a page tells of."""

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.S | re.M)

CSS = """\
.md-grid { max-width: 76rem; }
.md-typeset table:not([class]) { font-size: 0.62rem; }
.md-typeset table:not([class]) td { padding: 0.5em 0.9em; }
.md-typeset td:first-child code { white-space: nowrap; }
.md-typeset pre > code { font-size: 0.62rem; }
.md-typeset .language-console pre > code { font-size: 0.5rem; }
.doc-contents { padding-left: 1rem; border-left: 0.05rem solid var(--md-default-fg-color--lightest); }
"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the operators' pages into the navigation."""
    for entry in config.nav or ():
        if entry.get("Operators") == "cards":
            entry["Operators"] = [
                {op.partition("::")[2]: reference.card_path(op)} for op in reference.built_in().ops()
            ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made."""
    made = {path: (ROOT / name).read_text(encoding="utf-8") for name, path in PAGES.items()}
    made |= reference.pages() | {"site.css": CSS}
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
