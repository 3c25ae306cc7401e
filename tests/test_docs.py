"""The documentation: what it shows runs, what there is has a text, and its links lead somewhere."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner
from conftest import ROOT, load_script

import registry
from registry import conformance, errors, hookspecs
from registry.cli import main

pages = load_script("pages")
BLOCKS = {page: pages.read_blocks(page) for page in pages.PAGES}
TO_RUN = {
    page.name: [b for b in blocks if not b.reason and (b.title or b.language in ("python", "console"))]
    for page, blocks in BLOCKS.items()
}
COMMAND = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*registry ((?:[^\n\\]|\\.)*)", re.M | re.S)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, default: None) -> Iterator[Path]:
    """An empty folder to run a page in: what is written there can be imported, plugins too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", [name for name, blocks in TO_RUN.items() if blocks])
def test_a_page_runs_as_it_stands(page: str, folder: Path, webgpu: registry.Registry) -> None:
    names: dict[str, Any] = {"__name__": "page", "__file__": str(folder / "page.py")}
    for block in TO_RUN[page]:
        if block.title:
            block.write(folder)
            registry.refresh()
        elif block.language == "python":
            exec(compile("\n" * block.line + block.text, str(block.page), "exec"), names)
        else:
            words, output = block.command
            result = CliRunner().invoke(main, words)
            assert result.exit_code == 0, f"{block}: {result.output}"
            assert result.stdout.split()[:3] == output.split()[:3], f"{block}: run scripts/readme.py"


def test_what_does_not_run_says_why() -> None:
    skipped = [block for blocks in BLOCKS.values() for block in blocks if block.reason]
    assert len(skipped) < 8 and all(len(block.reason) > 10 for block in skipped)


def test_every_command_line_is_understood(folder: Path) -> None:
    seen, group = set(), click.Context(main, info_name="registry", **main.context_settings)
    for block in (block for blocks in BLOCKS.values() for block in blocks):
        if block.language not in ("sh", "console"):
            continue
        shown = block.text.partition("\n")[0] if block.language == "console" else block.text
        for line in COMMAND.findall(shown):
            name, *words = shlex.split(line.replace("\\\n", " "), comments=True)
            try:
                main.commands[name].make_context(name, words, parent=group)
            except (click.UsageError, KeyError) as error:
                pytest.fail(f"{block}: registry {line}: {error}")
            seen.add(name)
    assert len(seen) > 8


def test_every_command_and_option_has_a_text() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, command in main.commands.items():
        assert command.help, name
        assert f"`{name}" in readme or f"registry {name}" in readme, name
        for option in command.params:
            assert not isinstance(option, click.Option) or option.help, f"{name} {option.name}"


def test_every_variable_has_a_line() -> None:
    tests = [ROOT / "tests/conftest.py", ROOT / "tests/test_large.py"]
    sources = [*ROOT.glob("registry/**/*.py"), *ROOT.glob("plugins/**/*.py"), *tests]
    everything = "".join(path.read_text(encoding="utf-8") for path in sources)
    read = set(re.findall(r"\"(REGISTRY_[A-Z_]+[A-Z])\"", everything))
    page = (ROOT / "docs/environment.md").read_text(encoding="utf-8")
    described = set(re.findall(r"^\| `(REGISTRY_[A-Z_]+[A-Z])", page, re.M))
    assert "REGISTRY_BACKENDS" in read
    assert read - described == set(), "read and not described"
    software = {name for name in described if re.fullmatch("REGISTRY_[A-Z]+_SOFTWARE", name)}
    assert [name for name in described - software if name not in everything] == []


def test_every_error_and_every_option_of_a_backend_is_in_the_guide(every: registry.Registry) -> None:
    guide = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    kinds = [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert [kind.__name__ for kind in kinds if f"| `{kind.__name__}` |" not in guide] == [
        "RegistryError", "RegistryWarning",  # the root, and what is no error: both in the text
    ]  # fmt: skip
    for name, backend in every.catalog.plugins.backends.items():
        for option in backend.option_names:
            assert f"| `{name}` | `{option}` |" in guide


def members(value: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class of this library defines itself."""
    for name, member in vars(value).items():
        if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property)):
            yield name, member


def public() -> Iterator[tuple[str, Any]]:
    """Every public name, with what it stands for."""
    for module in (registry, conformance, hookspecs, errors):
        listed = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if isinstance(value, type) and value.__module__ == module.__name__ and name[0] != "_"
        ]
        yield from ((f"{module.__name__}.{name}", getattr(module, name)) for name in listed)


def test_every_public_name_has_a_docstring() -> None:
    missing = []
    for name, value in public():
        if isinstance(value, type) or inspect.isroutine(value):
            own = [(name, value)] if not isinstance(value, type) else [(name, value), *members(value)]
            missing += [f"{name} {part}" for part, each in own if not inspect.getdoc(each)]
    assert missing == []


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    return load_script("reference")


def test_every_public_name_is_in_the_reference(reference: ModuleType) -> None:
    page = reference.api()
    shown = {
        line.removeprefix("::: ").rpartition(".")[2] for line in page.splitlines() if line.startswith(":::")
    }
    assert {name.rpartition(".")[2] for name, _ in public()} - shown == set()


def test_the_reference_has_every_command_and_operator(reference: ModuleType) -> None:
    made = reference.pages()
    for name, command in main.commands.items():
        section = made["cli.md"].partition(f"## registry {name}\n")[2].partition("\n## ")[0]
        for option in command.params:
            assert not isinstance(option, click.Option) or f"`{option.opts[0]}" in section, (
                name,
                option.opts,
            )
    assert "| `OP`" not in made["cli.md"] and not re.search("`[^`]*&#124;", made["cli.md"])
    cards = {path for path in made if path.startswith("cards/")}
    assert cards == {f"cards/{op.replace('::', '.')}.md" for op in reference.built_in().ops()}
    assert all("## Accuracy" in made[path] and "## Speed" in made[path] for path in cards)


def test_links_lead_somewhere() -> None:
    for page in (*pages.PAGES, ROOT / "CHANGELOG.md", *ROOT.glob("examples/*/README.md")):
        for target in re.findall(r"\]\(([^)\s]+)\)", pages.FENCE.sub("", page.read_text(encoding="utf-8"))):
            path, _, anchor = target.partition("#")
            if "://" in target:
                continue
            file = (page.parent / path) if path else page
            assert file.exists(), f"{page.name}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.M)
                slugs = {
                    re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings
                }
                assert anchor in slugs, f"{page.name}: {target}"
