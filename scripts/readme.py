"""Runs the commands that the README and the pages show and puts what they print below them.

Without arguments all pages, else those named: ``python scripts/readme.py docs/kernels.md``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pages import PAGES, Block, read_blocks


def output_of(words: list[str], folder: Path) -> str:
    """What the command prints, run in a folder, without colours; the user's own cache is left out."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "registry", *words],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=folder,
        env={
            **os.environ,
            "NO_COLOR": "1",
            "TERM": "dumb",
            "PYTHONPATH": path,
            "REGISTRY_CACHE_DIR": str(folder / ".cache"),
        },
    )
    return "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())


def rewrite(page: Path) -> None:
    """Rewrites a page in place."""
    text, shift = page.read_text(encoding="utf-8"), 0
    with tempfile.TemporaryDirectory() as folder:
        for block in read_blocks(page):
            if block.title:
                block.write(Path(folder))
            elif block.language == "console":
                fresh = renewed(block, Path(folder))
                text = text[: block.start + shift] + fresh + text[block.end + shift :]
                shift += len(fresh) - len(block.text)
    page.write_text(text, encoding="utf-8")


def renewed(block: Block, folder: Path) -> str:
    """A console block with what its command prints now."""
    words, output = block.command
    return block.text[: len(block.text) - len(output)] + output_of(words, folder)


if __name__ == "__main__":
    for page in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        rewrite(page)
