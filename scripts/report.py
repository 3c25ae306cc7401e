"""Opens the page of `registry compare --html` in a real browser and fails where it does not stand on its own.

    python scripts/report.py [PAGE.html] [--picture FILE.png]

Without PAGE two are made: of a call that agrees, and of drawn cases of which some fail. Each must have its
plots in the browser's document, give no message on its console, ask for nothing outside of the file, and give
a picture that is not empty: in a wide window, and in a narrow dark one. The browser is `chromium` on the
path, or what CHROMIUM says.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
WINDOWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("1400,1600", ()),
    ("500,1600", ("--force-dark-mode",)),
)
SECONDS = 120
BROWSERS_OWN = "not an origin"
"""What the browser's log calls the origin of requests that no page has made."""

TIMES_BLANK = 5
"""A picture's file is at least so many times as large as an empty page's: text and plots compress badly."""


def browser() -> str:
    """The browser's program."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        sys.exit("no browser: install chromium, or set CHROMIUM to its program")
    return found


def look(page: Path, *flags: str) -> tuple[str, list[str]]:
    """What a run of the browser prints, and what is wrong: console messages, requests beyond the file."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "net.json"
        command = [browser(), *FLAGS, f"--user-data-dir={folder}/profile", f"--log-net-log={log}", *flags]
        done = subprocess.run(
            [*command, page.resolve().as_uri()],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
            check=True,
        )
        wrong = [line for line in done.stderr.splitlines() if ":CONSOLE:" in line or ":CONSOLE(" in line]
        return done.stdout, wrong + [f"asks for {url}" for url in requests(json.loads(log.read_text()))]


def requests(log: dict[str, Any]) -> list[str]:
    """The addresses that a page asked for."""
    events = (event.get("params") for event in log["events"])
    asked = (params for params in events if isinstance(params, dict) and "initiator" in params)
    return [params["url"] for params in asked if params["initiator"] != BROWSERS_OWN and "url" in params]


def check(page: Path, picture: Path | None = None) -> list[str]:
    """What is wrong with a page; nothing where it opens as it should."""
    document, wrong = look(page, "--dump-dom")
    if not re.search(r"<svg[^>]*>\s*<rect", document):
        wrong.append("there is no plot in the document")
    with tempfile.TemporaryDirectory() as folder:
        blank, shot = Path(folder) / "blank.html", Path(folder) / "shot.png"
        blank.write_text("<!doctype html><title>blank</title>")
        for size, more in WINDOWS:
            weights = []
            for each in (blank, page):
                shot.unlink(missing_ok=True)
                found = look(each, f"--window-size={size}", f"--screenshot={shot}", *more)[1]
                weights.append(shot.stat().st_size)
            wrong += [f"{line} (window {size})" for line in found]
            if weights[1] < TIMES_BLANK * weights[0]:
                wrong.append(f"the picture is empty in a window of {size}: {weights[1]} bytes")
            if picture is not None:
                shutil.copy(shot, picture.with_stem(f"{picture.stem}-{size.partition(',')[0]}"))
    return wrong


def make_pages(folder: Path) -> list[Path]:
    """Pages of a call that agrees, and of cases that fail, for one variant is made wrong."""
    import registry
    from registry_numpy import backend

    x = np.random.default_rng(0).standard_normal((3, 8, 64)).astype(np.float32)
    agrees = registry.compare("BiasAdd", X=x, bias=x[0, 0], skip=x)
    right = backend._Blocked.__call__

    def wrong(self: Any, inputs: Any, outputs: Any) -> None:
        right(self, inputs, outputs)
        for value in outputs.values():
            value[..., 0] += value.dtype.type(1)

    backend._Blocked.__call__ = wrong  # type: ignore[method-assign]
    fails = registry.compare("LayerNormalization", cases=8, seed=1, backend="numpy")
    assert agrees.ok and not fails.ok, f"{agrees}\n{fails}"
    pages = []
    for name, report in {"agrees": agrees, "fails": fails}.items():
        pages.append(folder / f"{name}.html")
        pages[-1].write_text(report.html(), encoding="utf-8")
    return pages


def main() -> None:
    """Checks one page, or those that are made."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("page", nargs="?", type=Path)
    parser.add_argument("--picture", type=Path, help="keep the pictures, the width added to their names")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        failed = False
        for page in [options.page] if options.page else make_pages(Path(folder)):
            wrong = check(page, options.picture)
            print("\n  ".join([f"{page.name}: {'wrong' if wrong else 'opens as it should'}", *wrong]))
            failed |= bool(wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
