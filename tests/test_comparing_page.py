"""The guide to comparisons: the report that it shows is real, and the format is all there.

That its Python and its commands run is checked with those of the other pages.
"""

from __future__ import annotations

import re
from typing import Any

from conftest import ROOT, load_script

from registry.comparing.bundle import Bundle

PAGE = ROOT / "docs/comparing.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_report_is_what_the_code_above_it_prints() -> None:
    code, shown = (block for block in load_script("pages").read_blocks(PAGE)[:2])
    names: dict[str, Any] = {}
    exec(compile(code.text, str(PAGE), "exec"), names)
    assert (code.language, shown.language) == ("python", "text")
    assert shown.text == f"{names['report']}\n", f"the report is now\n{names['report']}"


def test_every_key_of_the_format_is_in_the_table() -> None:
    rows = " ".join(line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", rows)) == set(Bundle.__struct_fields__)
