"""The guide to comparisons: its Python and its commands run, its output is real, its format complete."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import ROOT

from registry import Registry
from registry.cli import main
from registry.comparing.bundle import Bundle

PAGE = ROOT / "docs/comparing.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCK = re.compile(r"```(python|sh|text)\n(.*?)```", re.S)


def test_every_block_runs_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, default: None
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for kind, code in BLOCK.findall(TEXT):
        if kind == "python":
            exec(compile(code, str(PAGE), "exec"), names)
        elif kind == "text":
            assert code == f"{names['report']}\n", f"the report is now\n{names['report']}"
        else:
            for line in code.splitlines():
                program, *words = shlex.split(line)
                done = CliRunner().invoke(main, words)
                assert program == "registry" and done.exit_code == 0, f"{line}\n{done.output}{done.stderr}"
    assert "<svg" in Path("page.html").read_text(encoding="utf-8")
    assert "worst at [0, 2, 7]" in names["message"] and "saved: failed/BiasAdd-" in names["message"]
    (saved,) = Path("failed").iterdir()
    assert isinstance(names["reg"], Registry) and names["reg"].replay(saved, backend="hasty").same


def test_every_key_of_the_format_is_in_the_table() -> None:
    rows = " ".join(line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", rows)) == set(Bundle.__struct_fields__)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT) + re.findall(r"\]\(([^)#]+)#", TEXT):
        assert (ROOT / "docs" / target).exists(), target
