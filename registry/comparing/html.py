"""A comparison as one HTML page: no script, no network, no other file. Its plots are SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import first_line
from ..judging.rounding import BUCKETS
from .bundle import rendered
from .records import CaseReport
from .report import Report
from .text import MAX_SHOWN, agreement, bucket_names, missing_lines, number

TEMPLATE = "report.html.jinja"

MAX_CASES = 200
"""So many cases are shown row by row, those that fail first; all count in the totals."""

GOOD, NEAR = 1.0, 16.0
"""Buckets up to these many ULP have a colour of their own."""


def page(report: Report) -> str:
    """The page as text."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, histogram=_bars, agreement=agreement)
    shown = sorted(report.cases, key=lambda case: not case.failures)[:MAX_CASES]
    return environment.get_template(TEMPLATE).render(
        report=report,
        state=_state(report),
        devices=report.system.get("devices", {}),
        facts=list(_facts(report.system)),
        plots=[(*key, _bars(counts)) for key, counts in report.histograms.items()],
        wrong=report.failures[:MAX_SHOWN],
        more=max(0, len(report.failures) - MAX_SHOWN),
        remarks=missing_lines(report),
        cases=shown,
        left_out=len(report.cases) - len(shown),
        decisions=[case for case in shown if case.evidence is not None],
        sources=list(_sources(shown)),
    )


def _state(report: Report) -> str:
    if not any(case.proves for case in report.cases):
        return "proves nothing"
    return "agrees" if report.ok else "fails"


def _facts(system: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in system.items():
        if name == "versions":
            yield name, ", ".join(f"{package} {version}" for package, version in value.items())
        elif name != "devices":
            yield name, str(value)


def _bars(counts: Sequence[int]) -> list[tuple[float, float, float, str, str]]:
    """Bars of a histogram in a box of 1 by 1: left, top, width, class, what it says. Heights are logarithms
    of counts, so that a single element shows beside millions."""
    names, limits = bucket_names(), (*BUCKETS, math.inf)
    top = math.log1p(max(counts, default=0)) or 1.0
    width = 1 / len(limits)
    return [
        (
            place * width,
            1 - max(0.06, math.log1p(count) / top),
            width * 0.86,
            "good" if limit <= GOOD else "near" if limit <= NEAR else "far",
            f"{names[place]} ULP: {count} of {sum(counts)} elements",
        )
        for place, (count, limit) in enumerate(zip(counts, limits, strict=False))
        if count
    ]


def _sources(cases: Sequence[CaseReport]) -> Iterator[tuple[str, str]]:
    """Every source text once, with who runs it."""
    users: dict[str, list[str]] = {}
    for case in cases:
        for place in dict.fromkeys(row.candidate for row in case.rows if case.evidence is not None):
            assert case.evidence is not None
            try:
                passes = [
                    (f"{item.id}: {item.shader}, {item.dispatch} workgroups", item.source)
                    for item in rendered(case.evidence, *place)
                ]
            except Exception as error:  # a stranger's render
                passes = [("cannot be rendered", first_line(error))]
            for about, text in passes:
                label = f"{' '.join(place)}, {about}"
                if label not in users.setdefault(text, []):
                    users[text].append(label)
    for text, labels in users.items():
        yield "; ".join(labels[:3]) + (f"; {len(labels) - 3} more" if len(labels) > 3 else ""), text
