"""Runs the commands shown in README.md and puts what they print below them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(
    r"(```console\n\$ (?P<command>registry (?:[^\n\\]|\\\n|\\.)*)\n)(?P<output>[^`]*?)(```)", re.S
)


def output_of(command: str, cache: str) -> str:
    """What the command prints, without colours. ``cache``: a folder in place of the user's own."""
    words = command.replace("\\\n", " ").split()[1:]
    done = subprocess.run(
        [sys.executable, "-m", "registry", *words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NO_COLOR": "1", "TERM": "dumb", "REGISTRY_CACHE_DIR": cache},
    )
    return "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())


def main() -> None:
    """Rewrites the README in place."""
    text = README.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as cache:
        text = BLOCK.sub(lambda m: m[1] + output_of(m["command"], cache) + m[4], text)
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
