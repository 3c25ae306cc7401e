"""The code blocks of the documentation: read from a page, and laid out so that they run as they stand.

A block with a title is a file. A ``console`` block is one command, ``$ registry ...``, with what it prints. A
``python`` block without a title goes on where the one before it ended. What cannot run says why in a comment
on the line above: ``<!-- not run: why -->``.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))

FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+?) -->\n)?```(?P<language>\w*)(?P<info>[^\n]*)\n(?P<text>.*?)^```$",
    re.S | re.M,
)
COMMAND = re.compile(r"\A\$ registry (?P<words>(?:[^\n\\]|\\.)*)\n(?P<output>.*)\Z", re.S)


@dataclass(frozen=True)
class Block:
    """A code block: its language, what is in it, and where that lies in the page (``start`` to ``end``).

    ``title`` is a file's path, or empty; ``reason`` says why it cannot run, or is empty.
    """

    page: Path
    line: int
    language: str
    title: str
    reason: str
    text: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def command(self) -> tuple[list[str], str]:
        """The arguments of the command of a console block, and what it is said to print."""
        found = COMMAND.match(self.text)
        assert found is not None, f"{self}: no '$ registry ...'"
        return found["words"].replace("\\\n", " ").split(), found["output"]

    def write(self, folder: Path) -> None:
        """Writes a block with a title as a file; the entry points of a ``pyproject.toml`` are there then."""
        file = folder / self.title
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.text, encoding="utf-8")
        if file.name == "pyproject.toml":
            _install(tomllib.loads(self.text)["project"], folder)


def read_blocks(page: Path) -> list[Block]:
    """Every block of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        title = re.search(r'title="([^"]+)"', match["info"])
        line = text.count("\n", 0, match.start("text"))
        found.append(
            Block(
                page,
                line,
                match["language"],
                title[1] if title else "",
                match["reason"] or "",
                match["text"],
                match.start("text"),
                match.end("text"),
            )
        )
    return found


def _install(project: dict[str, object], folder: Path) -> None:
    """What ``pip install`` leaves of a project for those who look for plugins along the path."""
    points = project["entry-points"]
    assert isinstance(points, dict)
    lines = [
        f"{line}\n"
        for group, entries in points.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
    ]
    info = folder / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    (info / "entry_points.txt").write_text("".join(lines), encoding="utf-8")
