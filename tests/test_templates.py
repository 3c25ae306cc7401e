"""Templates: printing, whitespace, statements, scopes, what is refused, and limits."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from registry.language.functions import FUNCTIONS
from registry.language.includes import expand
from registry.language.templates import TemplateError, parse_template
from registry.language.values import UNDEFINED, Features

CASES: dict[str, tuple[str, str]] = {
    # printing
    "a float": ("{{ a / 7 }}", "1.0"),
    "a floored quotient": ("{{ 8//4 }}u", "2u"),
    "int": ("{{ (8/4)|int }}u", "2u"),
    "joined": ("{{ (8/4) ~ 'u' }}", "2u"),
    "booleans and null": ("{{ true }} {{ false }} [{{ none }}]", "true false []"),
    "a float from outside": ("{{ two }}", "2"),
    "a small number": ("{{ epsilon }} {{ 0.0000001 }} {{ 1.5 }}", "0.00001 1e-7 1.5"),
    "large numbers": ("{{ 10 ** 21 }} {{ 10 ** 20 }}", "1e+21 100000000000000000000"),
    "no numbers": ("{{ 1/0 }} {{ -1/0 }} {{ 0/0 }}", "Infinity -Infinity NaN"),
    "negative zero": ("{{ -0.0 }} {{ 0 * -1 }}", "-0.0 0"),
    "lists": ("{{ shapes.X }} {{ ['a', (1, 2), true, none] }}", '[2, 3, 8] ["a", [1, 2], true, null]'),
    "objects": ("{{ {'a': {'b': 1}} }}", '{"a": {"b": 1}}'),
    "no escaping": ("{{ '<f32> & \\'x\\'' }}", "<f32> & 'x'"),
    "a remainder": ("{{ -7 % 4 }}", "-3"),
    "one level for + and ~": ("{{ 2 ~ 3 + 1 }}", "231"),
    # a template keeps the tags of its own values
    "a stored float": ("{% set x = 8/4 %}{{ x }}", "2.0"),
    "an entry": ("{% set n = namespace(x=8/4) %}{{ n.x }}{% set n.x = n.x / 2 %}{{ n.x }}", "2.01.0"),
    "an element": ("{% set c = [1.0, 0.5] %}{{ c[0] }} {% for x in c %}{{ x }};{% endfor %}", "1.0 1.0;0.5;"),
    "a member": ("{{ {'a': 4.0}.a }}", "4.0"),
    "a result": ("{{ ceilDiv(8.0, 4) }}", "2"),
    # whitespace
    "lines of statements": ("line1\n  {% if t %}\n  body\n  {% endif %}\nend\n", "line1\n  body\nend"),
    "values keep their indent": ("  {{ a }}\n  {{ a }}\n", "  7\n  7"),
    "one line end at the end": ("a\n\n", "a\n"),
    "a comment eats both sides": ("x\n   {#- c -#}   \ny", "xy"),
    "before a statement": ("a\n   {%- if t %}b{% endif %}", "ab"),
    "around a value": ("a \n{{- a -}}\n b", "a7b"),
    "a comment on a line": ("a\n  {# c\n d #}\nb", "a\nb"),
    "only one line end": ("{% if t %}\n\nx{% endif %}", "\nx"),
    "blanks within a line": ("a  {% if t %} b {% endif %} c", "a   b  c"),
    "two statements on a line": (" {% if t %} {% if t %}x{% endif %}{% endif %}", " x"),
    "brace and minus": ("   {- x", "{- x"),
    "minus and brace": ("-}\nx", "-}x"),
    "windows line ends": ("{% if t %}\r\nx\r\n{% endif %}\r\n", "\r\nx\r\n\r"),
    "braces of the shader": (
        "fn f() { let x = array<i32, 1>({a}); }",
        "fn f() { let x = array<i32, 1>({a}); }",
    ),
    "braces in a tag": ("{{ '}}' }}{{ {'a': {'b': 2}}.a.b }}", "}}2"),
    "nothing": ("", ""),
    # if
    "elif": ("{% if a == 1 %}x{% elif a == 7 %}y{% else %}z{% endif %}", "y"),
    "truth": ("{% if [] or {} or '' or 0 or none %}x{% else %}y{% endif %}", "y"),
    "no scope": ("{% if t %}{% set x = 1 %}{% endif %}{{ x }}", "1"),
    # for
    "for": (
        "{% for i in range(2) %}\n  let x{{ i }} = {{ i }}u;\n{% endfor %}\nend",
        "  let x0 = 0u;\n  let x1 = 1u;\nend",
    ),
    "break": (
        "{% for i in range(5) %}{{ i }}{% if i == 2 %}{% break %}{% endif %};{% endfor %}",
        "0;1;",
    ),
    "continue": (
        "{% for i in range(4) %}{{ i }}{% if i == 1 %}{% continue %}{% endif %};{% endfor %}",
        "0;2;3;",
    ),
    "one scope": (
        "{% set acc=10 %}{% for i in range(3) %}{% set acc = acc + i %}{{ acc }};{% endfor %}[{{ acc }}]",
        "10;11;13;[10]",
    ),
    "pairs": ("{% for k, v in {'x': 1, 'y': 2}.items() %}{{ k }}{{ v }}{% endfor %}", "x1y2"),
    "keys": ("{% for k in {'x': 1, 'y': 2} %}{{ k }}{% endfor %}", "xy"),
    "filtered": (
        "{% for i in range(6) if i is even %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% endfor %}",
        "1:0/3 2:2/3 3:4/3 ",
    ),
    "for else": ("{% for i in [] %}x{% else %}y{% endfor %}", "y"),
    "no iteration came to its end": (
        "{% for i in [1, 2] %}x{% continue %}{% else %}y{% endfor %}"
        "{% for i in [1] %}{% break %}{% else %}z{% endfor %}",
        "yz",
    ),
    "loop": (
        "{% for i in [5, 6, 7] %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}"
        "{{ loop.last }}{{ loop.previtem | default('-') }}{{ loop.nextitem | default('-') }};{% endfor %}",
        "032truefalse-6;121falsefalse57;210falsetrue6-;",
    ),
    "nested loops": (
        "{% for i in [1, 2] %}{% for j in [3, 4] %}{{ loop.index }}{% break %}{% endfor %}{{ loop.index }}"
        "{% else %}-{% endfor %}",
        "12",
    ),
    "ranges": (
        "{{ range(1, 4) }}{{ range(5, 0, -2) }}{{ range(8/4) }}{{ range(-1) }}",
        "[1, 2, 3][5, 3, 1][0, 1][]",
    ),
    # set
    "a tuple": ("{% set a, b = 1, 2 %}{{ a }}{{ b }}", "12"),
    "a block": ("{% set x %}a{{ a }}{% endset %}[{{ x }}]", "[a7]"),
    "a filtered block": ("{% set x | upper %}a{{ a }}b{% endset %}{{ x }}", "A7B"),
    "a namespace in a loop": (
        "{% set n = namespace(x=0) %}{% for i in range(4) %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}",
        "6",
    ),
    # macros
    "a macro": (
        "{% macro m(x, y=2) %}{{ x }}{{ y }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(y=5, x=4) }}",
        "12;13;45;",
    ),
    "dynamic scope": (
        "{% macro m() %}{{ i }}{% endmacro %}{% for i in range(3) %}{{ m() }}{% endfor %}",
        "012",
    ),
    "own scope": ("{% macro m() %}{% set x = 2 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{{ x }}", "21"),
    "a missing argument": ("{% macro m(x) %}{{ x is defined }}{% endmacro %}{{ m() }}", "false"),
    "a default of an argument": ("{% macro m(x, y=x + 1) %}{{ y }}{% endmacro %}{{ m(1) }}", "2"),
    "more arguments": (
        "{% macro m(x) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}",
        '[2, 3]{"k": 4}',
    ),
    "call": (
        "{% macro m(n) %}{% for k in range(n) %}<{{ caller() }}>{% endfor %}{% endmacro %}"
        "{% call m(2) %}{{ k }}{% endcall %}",
        "<0><1>",
    ),
    "call with arguments": (
        "{% macro m() %}{{ caller(1) }}{{ caller(2, 3) }}{% endmacro %}"
        "{% call(x, y=9) m() %}{{ x }}{{ y }};{% endcall %}",
        "19;23;",
    ),
    "filter": ("{% filter upper | replace('A', 'b') %}xa{{ a }}{% endfilter %}", "Xb7"),
    "generation": ("{% generation %}x{% endgeneration %}", "x"),
    # names that may be unknown
    "defined": ("{{ nope is defined }} {{ nope is undefined }} {{ a is defined }}", "false true true"),
    "default": ("{{ nope | default(3) }} {{ shapes.Y | default('-') }} {{ a | default(0) }}", "3 - 7"),
    "a missing member": ("{% if shapes.Y or not device.nope.deep %}x{% endif %}", "x"),
    "not taken": ("{% if not t %}{{ nope }}{% endif %}", ""),
    "features": ("{{ device.features.has('subgroups') }}{{ device.features.size }}", "true1"),
}
NAMES: dict[str, Any] = {
    **FUNCTIONS,
    "a": 7,
    "t": True,
    "two": 2.0,
    "epsilon": 1e-5,
    "shapes": {"X": [2, 3, 8]},
    "device": {"features": Features(["subgroups"]), "limits": {"maxX": 256.0}},
    "absent": UNDEFINED,
}


def render(source: str, **more: Any) -> str:
    return parse_template(source).render({**NAMES, **more})


@pytest.mark.parametrize(("source", "text"), CASES.values(), ids=CASES.keys())
def test_text(source: str, text: str) -> None:
    assert render(source) == text


REFUSED: dict[str, tuple[str, str, int]] = {
    "an unknown name": ("\n{{ shape }}", r"unknown name 'shape' \(did you mean 'shapes'\?\)", 2),
    "an unknown root": ("{{ missing.x.y }}", "unknown name 'missing'", 1),
    "an unknown condition": ("a\n{% if usesF16 %}{% endif %}", "unknown name 'usesF16'", 2),
    "a missing member": ("\n\n{{ shapes.Y }}", "prints shapes.Y, which is undefined", 3),
    "an undefined value": ("{{ absent }}", "prints absent, which is undefined", 1),
    "no else": ("{{ 'x' if not t }}", "undefined", 1),
    "an undefined block": ("{% filter map(attribute='x') | first %}{% endfilter %}", "list", 1),
    "a function": ("{{ ceilDiv }}", "no text form", 1),
    "features": ("{{ device.features }}", "no text form", 1),
    "in a macro": ("{% macro m() %}\n{{ nope }}{% endmacro %}\n\n{{ m() }}", "unknown name 'nope'", 2),
    "after a macro": ("{% macro m() %}\nx{% endmacro %}\n\n{{ m() ~ nope }}", "unknown name 'nope'", 4),
    "an operator": ("x\n{{ 1 +\n true }}", "needs two numbers", 2),
    "an unclosed value": ("\n{{ a", "not closed", 2),
    "an unclosed comment": ("\n{# a", "not closed", 2),
    "an unclosed block": ("{% if t %}", "end of template", 1),
    "an empty condition": ("{% if %}", "Expected an expression", 1),
    "a stray end": ("\n{% endfor %}", "endfor", 2),
    "a bracket": ("{{ a) }}", r"unexpected '\)'", 1),
    "an operator of others": ("{{ a && t }}", "write 'and'", 1),
    "an exponent": ("\n\n{{ 1e-5 }}", "is no number here", 3),
    "a filter": ("\n{{ a | round }}", "no filter 'round'", 2),
    "a test": ("{{ a is divisibleby }}", "no test", 1),
    "a keyword": ("{{ if }}", "unexpected 'if'", 1),
    "a loop over text": ("{% for x in 'abc' %}{% endfor %}", "a loop needs a list", 1),
    "a loop over a number": ("{% for x in a %}{% endfor %}", "a loop needs a list", 1),
    "a loop over nothing": ("{% for x in shapes.Y %}{% endfor %}", "a loop needs a list", 1),
    "recursion": ("{% for x in [1] recursive %}{% endfor %}", "recursive", 1),
    "unpacking": ("{% for x, y in [[1, 2], [3]] %}{% endfor %}", "list of 2 values", 1),
    "break outside": ("\n{% break %}", "break outside of a loop", 2),
    "too many arguments": ("{% macro m(x) %}{% endmacro %}{{ m(1, 2) }}", "takes 1 arguments", 1),
    "an unknown argument": ("{% macro m(x) %}{% endmacro %}{{ m(y=2) }}", "cannot take y", 1),
    "an argument twice": ("{% macro m(x) %}{% endmacro %}{{ m(1, x=2) }}", "cannot take x", 1),
    "calling a value": ("{% call a() %}{% endcall %}", "no function", 1),
    "set in a mapping": ("{% set shapes.X = 1 %}", "no namespace", 1),
    "set in an unknown name": ("{% set q.x = 1 %}", "no namespace", 1),
    "a step of 0": ("{{ range(1, 2, 0) }}", "range", 1),
    "half a range": ("{{ range(0.5) }}", "range needs integers", 1),
    "on purpose": ("\n{{ raise_exception('needs f16') }}", "needs f16", 2),
    **{
        name: (f"\n{{% {name} x %}}", f"(no statement|unknown tag) '{name}'", 2)
        for name in (
            *("autoescape", "block", "do", "extends", "from", "import", "print"),
            *("raw", "with", "endraw", "trans", "debug", "nonsense"),
        )
    },
    "a computed include": ("\n{% include x %}", "one path in quotes", 2),
    "plus": ("{%+ if t %}{% endif %}", "tag name expected", 1),
    "attributes": ("{{ shapes.__class__.__mro__ }}", "undefined", 1),
    "methods of methods": ("{{ shapes.keys.__self__ }}", "undefined", 1),
    "a macro's insides": ("{% macro m() %}{% endmacro %}{{ m.__globals__ }}", "undefined", 1),
    "format": ("{{ '{0.__class__}'.format(shapes) }}", "no function", 1),
    "self": ("{{ self }}", "unknown name 'self'", 1),
    "a hidden name": ("{{ the block }}", "expected token", 1),
}


@pytest.mark.parametrize(("source", "reason", "line"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(source: str, reason: str, line: int) -> None:
    with pytest.raises(TemplateError, match=reason) as caught:
        render(source)
    assert caught.value.line == line
    assert str(caught.value) == f"line {line}: {caught.value.message}"


def lines_up_to(count: int) -> str:
    return "\n".join(["{% if t %}", "{# c #}", "{{ a }}", "  {%- if t -%} ", "", " {% endif %}"] * count)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_lines_are_the_sources(count: int) -> None:
    source = lines_up_to(count) + "\n" + "{% endif %}\n" * count + "{{ nope }}"
    with pytest.raises(TemplateError) as caught:
        render(source)
    assert caught.value.line == source.count("\n") + 1


BIG = "{% set l = range(4096) %}{% for i in l %}{% for j in l %}"
ATTACKS: dict[str, str] = {
    "nested loops": BIG + "{% endfor %}{% endfor %}",
    "a long range": "{% for i in range(10 ** 9) %}x{% endfor %}",
    "a longer range": "{% for i in range(10 ** 30) %}x{% endfor %}",
    "much text": "{% for i in range(4000) %}" + "x" * 400 + "{% endfor %}",
    "much dropped text": "{% for i in range(4000) %}" + "x" * 400 + "{% continue %}{% endfor %}",
    "captured text": "{% for i in range(4000) %}{% set x %}" + "x" * 400 + "{% endset %}{% endfor %}",
    "doubled text": "{% set n = namespace(t='x') %}"
    "{% for i in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}",
    "doubled blocks": "{% set t = 'x' %}"
    "{% for i in range(60) %}{% set t %}{{ t }}{{ t }}{% endset %}{% endfor %}",
    "doubled lists": "{% set l = [1] %}{% for i in range(60) %}{% set l = [l, l] %}{% endfor %}{{ l }}",
    "hidden doubling": "{% set a = namespace(l=1) %}{% set b = namespace(l=1) %}"
    + "{% set a.x = b %}{% set a.y = b %}{% set b.x = a %}{% set b.y = a %}{{ pick([[true, [a]]], 0) }}",
    "a circle": "{% set n = namespace() %}{% set n.n = n %}{{ n }}",
    "a huge product": "{{ 'x' * 10 ** 9 }}",
    "a huge power": "{{ 10 ** (10 ** 9) }}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "two by two": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
    "{{ m(28) }}",
    "a call that calls": "{% macro m() %}{{ caller() }}{% endmacro %}"
    "{% call m() %}{{ caller() }}{% endcall %}",
    "large lists": BIG + "{% set x = (l + [] + []) | length %}{% endfor %}{% endfor %}",
    "many searches": BIG + "{% set x = [" + "-1 in l," * 400 + "] %}{% endfor %}{% endfor %}",
    "one long expression": BIG + "{{ [" + "l," * 2000 + "] | join }}{% endfor %}{% endfor %}",
    "work on long text": "{% set t %}"
    + "ab" * 60_000
    + "{% endset %}{% set l = range(4000) %}"
    + "{% for i in l %}{% for j in l %}{% set x = ('ac' in t) or ('ad' in t) %}{% endfor %}{% endfor %}",
    "long text split": "{% set t %}" + "a " * 60_000 + "{% endset %}{{ t.split(' ') | length }}",
    "a huge template": "{{ a }}" * 20_000,
    "many tags": "{{a}}" * 26_000 + "{{ nope }}",
    "deep blocks": "{% if t %}" * 5000,
    "deep loops": "{% for i in [1] %}" * 31 + "{% endfor %}" * 31,
    "deep brackets": "{{ " + "(" * 4000 + " }}",
    "deep operators": "{{ " + "-" * 4000 + "1 }}",
    "a long sum": "{{ " + "+".join(["1"] * 1500) + " }}",
    "a long tag": "{{ " + " " * 10_000 + " }}",
    "a long text": "{{ '" + "x" * 130_000 + "' }}",
    "open quotes": "{{ '" + '"' * 130_000,
    "opened tags": "{{" * 65_000,
    "opened comments": "{# " * 43_000,
    "blank lines": " \t" * 65_000 + "{{",
}


@pytest.mark.parametrize("source", ATTACKS.values(), ids=ATTACKS.keys())
def test_attacks_end(source: str) -> None:
    start = time.thread_time()
    with pytest.raises(TemplateError) as caught:
        render(source)
    assert time.thread_time() - start < 4
    assert len(str(caught.value)) < 1000


def test_a_text_may_be_long() -> None:
    assert len(render("{% for i in range(4000) %}" + "x" * 250 + "{% endfor %}")) == 10**6


def test_values_are_not_changed_and_runs_are_apart() -> None:
    template = parse_template(
        "{% set n = namespace(x=1) %}{% set n.x = n.x + 1 %}{% set l = l + [1] %}{{ l }}{{ n.x }}"
    )
    given_list = [0]
    assert [template.render({"l": given_list}) for _ in range(2)] == ["[0, 1]2"] * 2
    assert given_list == [0]
    assert parse_template("x{{ a }}") is parse_template("x{{ a }}")


def test_importing_does_not_import_jinja() -> None:
    code = "import sys, registry.language.templates; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


PIECES = st.sampled_from(
    [
        *("{{", "}}", "{%", "%}", "{{-", "-}}", "{%-", "-%}", "{#", "#}", "{#-", "-#}", "{", "}", "-", "+"),
        *("a", "nope", "if", "elif", "else", "endif", "for", "in", "endfor", "set", "endset", "=", ".", ","),
        *(
            "(",
            ")",
            "[",
            "]",
            ":",
            "|",
            "~",
            "**",
            "//",
            "'",
            '"',
            "\\",
            "\n",
            "\r\n",
            "1",
            "1.5",
            "1e5",
            "é",
        ),
        *("macro", "m", "endmacro", "call", "caller", "endcall", "filter", "upper", "endfilter", "break"),
        *("continue", "loop", "x.y", "is", "not", "defined", "default", "namespace()", "range(3)"),
        *("shapes.X", "raw", "with", "include", "true", "none", " ", "  ", "\t", "\0"),
        *("{% for i in shapes.X %}", "{% endfor %}", "{% if a %}", "{% endif %}", "{{ a }}"),
    ]
)


@settings(deadline=None, max_examples=400)
@given(st.lists(PIECES, max_size=40).map("".join) | st.lists(PIECES, max_size=40).map(" ".join) | st.text())
def test_any_text_renders_or_is_refused(source: str) -> None:
    try:
        assert isinstance(render(source), str)
    except TemplateError as error:
        assert 1 <= error.line <= source.count("\n") + 1


@settings(deadline=None)
@given(st.text().filter(lambda text: not any(sign in text for sign in ("{", "}"))))
def test_plain_text_stays(text: str) -> None:
    assert render(text) == text.removesuffix("\n")


@given(st.floats() | st.integers())
def test_numbers_print_as_themselves(number: float) -> None:
    text = render("{{ x }}", x=number)
    if math.isfinite(number):
        assert float(text) == float(number)


FILES = {
    "main": 'first\n  {% include "b" %}  \nthen {% include \'d/c\' %}.\n{% include "b" %}',
    "b": "B1\nB2\n",
    "d/c": "c{% include './e' %}",
    "d/e": "e",
    "astray": "{% include 'inner' %}",
    "inner": "{% include 'nowhere' %}",
    "loop": "{% include 'again' %}",
    "again": "\n{% include 'loop' %}",
    "many": "{% include 'd/e' %}" * 300,
    "large": "{% include 'whole' %}" * 9,
    "whole": "x" * 2**14,
}


def test_includes_are_written_out() -> None:
    got = expand("main", FILES.get)
    assert got.text == "first\nB1\nB2\nthen ce.\nB1\nB2\n"
    assert got.places == (("main", 1), ("b", 1), ("b", 2), ("main", 3), ("b", 1), ("b", 2))
    assert got.place(3) == ("b", 2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("loop", "in a circle: loop > again > loop"),
        ("many", "more than 256 times"),
        ("large", "more than 98304 characters"),
        ("nothing", "^line 1: 'nothing' is missing"),
        ("astray", "^line 1: 'nowhere', which astray > inner includes, is missing"),
    ],
)
def test_includes_that_are_refused(name: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        expand(name, FILES.get)


@given(st.lists(st.sampled_from(["x", "\n", " ", "{% include 'b' %}", "{% include 'd/c' %}", "{%"])))
def test_every_line_has_a_place(texts: list[str]) -> None:
    files = {**FILES, "main": "".join(texts)}
    got = expand("main", files.get)
    lines = got.text.split("\n")
    assert len(got.places) in (len(lines), len(lines) - 1)
    for line, (file, number) in zip(lines, got.places, strict=False):
        assert 1 <= number <= files[file].count("\n") + 1
        assert file != "b" or line.startswith(f"B{number}") or line == "" or "B" in line
