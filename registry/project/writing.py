"""Writes a small project that brings a backend, from the templates in this folder."""

from __future__ import annotations

import keyword
import re
import shutil
from pathlib import Path

from ..api import Registry
from ..errors import ContractError
from ..hookspecs import API_VERSION

TEMPLATES = Path(__file__).parent


def check_name(name: str) -> None:
    """Refuses a name that no backend can have, or that one has already.

    Raises:
        ContractError: says what is needed.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ContractError(
            f"NAME is {name!r}; needed: a lower-case letter, then letters, digits or _; no keyword of Python"
        )
    taken = {status.name: status.distribution for status in Registry().backends()}
    if name in taken:
        raise ContractError(f"NAME is {name!r}, a plugin of {taken[name]}; needed: a name of its own")


def write_project(name: str, folder: Path) -> list[Path]:
    """Writes the project into a folder that is new or empty, and says which files.

    Raises:
        ContractError: the folder is not empty, or cannot be written.
    """
    import jinja2

    package = f"registry_{name}"
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(
        loader=loader, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    values = {
        "name": name,
        "package": package,
        "class_name": "".join(part.capitalize() for part in name.split("_")) + "Backend",
        "api_version": API_VERSION,
    }
    files = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        f"src/{package}/__init__.py": "init.py",
        f"src/{package}/backend.py": "backend.py",
        "tests/test_backend.py": "test_backend.py",
    }
    written = []
    try:
        if folder.exists() and any(folder.iterdir()):
            raise ContractError(f"{folder} is not empty; needed: a new or empty folder (--dir)")
        for path, template in files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(environment.get_template(f"{template}.jinja").render(values), encoding="utf-8")
            written.append(file)
    except OSError as error:
        if written:
            shutil.rmtree(folder, ignore_errors=True)  # half a project, where nothing was
        raise ContractError(f"{folder} cannot be written ({error}); needed: a folder (--dir)") from error
    return written
