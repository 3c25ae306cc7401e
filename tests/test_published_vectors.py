"""What the published format's own engine makes of these expressions and templates, value by value."""

from __future__ import annotations

import math
from typing import Any

import pytest

from registry.errors import ManifestError
from registry.language.expressions import EvaluationError, evaluate
from registry.language.functions import FUNCTIONS
from registry.language.templates import TemplateError, parse_template
from registry.language.values import UNDEFINED

SCOPE: dict[str, Any] = {
    **FUNCTIONS,
    "X": [2, 3, 8],
    "E": [],
    "five": 5,
    "ranks": {"X": 3},
    "present": {"x": True},
    "missing": UNDEFINED,
}
ERROR = "error"
EXPRESSIONS: list[tuple[str, Any]] = [
    ("-2 ** 2", 4),
    ("2 ** 3 ** 2", 64),
    ("five--3", 8),
    ("five -3", 2),
    ("1 if true else -1", 1),
    ("7 // 2", 3),
    ("-7 // 2", -4),
    ("5.5 % 2", 1.5),
    ("-5.5 % 2", -1.5),
    ("1/0", math.inf),
    ("[] or 1", 1),
    ("0 or 'a'", "a"),
    ("ranks.X and present.x", True),
    ("present.x and ranks.X", 3),
    ("min()", math.inf),
    ("min(true,2)", 1),
    ("max('10',9)", 10),
    ("ceil('3')", 3),
    ("dim(X,'1')", 3),
    ("ceilDiv(-7,4)", -1),
    ("ceilDiv(7,0)", math.inf),
    ("pow2ceil(0.5)", 1),
    ("numel(E)", 1),
    ("rows(E,0)", 1),
    ("pick([[[],1]],2)", 1),
    ("pick([['',1]],2)", 2),
    ("'a' 'b'", "ab"),
    ("1e-5", ERROR),
    ("0x10", ERROR),
    ("1.", ERROR),
    ("8 / 4 is integer", ERROR),
    ("(8/4) is integer", False),
    ("7.0 // 2", 3),
    ("X[9]", UNDEFINED),
    ("X[-4]", UNDEFINED),
    ("X[1.0]", ERROR),
    ("X[0:2]", [2, 3]),
    ("X.0", 2),
    ("1 if E else 2", 2),
    ("1 if 'false' else 2", 1),
    ("none < 2", ERROR),
    ("missing < 2", ERROR),
    ("missing == 2", False),
    ("4 in missing", False),
    ("none in [1]", ERROR),
]


@pytest.mark.parametrize(("text", "value"), EXPRESSIONS, ids=[text for text, _ in EXPRESSIONS])
def test_expressions(text: str, value: Any) -> None:
    if value is ERROR:
        with pytest.raises((EvaluationError, ManifestError)):
            evaluate(text, SCOPE)
        return
    found = evaluate(text, SCOPE)
    if isinstance(value, bool) or value is UNDEFINED:
        assert found is value
    else:
        assert (list(found) if isinstance(found, tuple) else found) == value
        assert isinstance(found, str) is isinstance(value, str)


TEMPLATES: list[tuple[str, str]] = [
    ("{{ a / 7 }}", "1.0"),
    ("{{ 8//4 }}u", "2u"),
    ("{{ (8/4)|int }}u", "2u"),
    ("{{ (8/4) ~ 'u' }}", "2u"),
    ("line1\n  {% if t %}\n  body\n  {% endif %}\nend\n", "line1\n  body\nend"),
    ("  {{ a }}\n  {{ a }}\n", "  7\n  7"),
    ("a\n\n", "a\n"),
    ("x\n   {#- c -#}   \ny", "xy"),
    ("a\n   {%- if t %}b{% endif %}", "ab"),
    (
        "{% for i in range(2) %}\n  let x{{ i }} = {{ i }}u;\n{% endfor %}\nend",
        "  let x0 = 0u;\n  let x1 = 1u;\nend",
    ),
    ("{% for i in range(5) %}{{ i }}{% if i == 2 %}{% break %}{% endif %};{% endfor %}", "0;1;"),
    (
        "{% set acc=10 %}{% for i in range(3) %}{% set acc = acc + i %}{{ acc }};{% endfor %}[{{ acc }}]",
        "10;11;13;[10]",
    ),
    ("   {- x", "{- x"),
    ("-}\nx", "-}x"),
    ("{{ {'a': {'b': 1}} }}", '{"a": {"b": 1}}'),
    ("{{ missing.x.y }}", ""),
    ("{{ 8 / 4 }}u", "2.0u"),
    ("{{ true }} {{ none }}|{{ 0.00001 }} {{ 0.0000001 }}", "true |0.00001 1e-7"),
]


@pytest.mark.parametrize(("source", "text"), TEMPLATES, ids=[source for source, _ in TEMPLATES])
def test_templates(source: str, text: str) -> None:
    assert parse_template(source).render({"a": 7, "t": True}, []) == text


@pytest.mark.parametrize("source", ["{% raw %}", "{% with %}"])
def test_what_templates_have_not(source: str) -> None:
    with pytest.raises(TemplateError):
        parse_template(source)


def test_what_was_lost_is_told() -> None:
    lost: list[str] = []
    source = "{% if nope %}x{% endif %}{{ nope | default(1) }}{{ shapes.Y }}{{ missing.x.y }}"
    assert parse_template(source).render({"shapes": {}}, lost) == "1"
    assert lost == ["shapes.Y", "missing.x.y"]
