"""The manifest language: syntax, values, functions, limits, and explanations."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from registry.errors import ManifestError, RegistryError
from registry.language.expressions import (
    UNDEFINED,
    EvaluationError,
    ExpressionError,
    Features,
    evaluate,
    parse,
    retag,
)
from registry.language.functions import FUNCTIONS, RESERVED, device_functions
from registry.language.reasons import Leaf, why_false
from registry.language.values import json_text, number_text

REPOSITORY = Path(__file__).resolve().parents[1]
SEEDS = Path(os.environ.get("REGISTRY_SEEDS", REPOSITORY.parent / "shared" / "seeds"))
INF = math.inf


def scope_of(**more: Any) -> dict[str, Any]:
    features = Features(["subgroups"])
    return {
        **FUNCTIONS,
        **device_functions(features),
        "X": [2, 3, 8],
        "E": [],
        "five": 5,
        "s": [2, 3, 8],
        "half": 0.5,
        "two": 2.0,
        "text": "Hello World",
        "missing": UNDEFINED,
        "nothing": None,
        "shapes": {"X": [2, 3, 8], "E": [], "One": [8]},
        "ranks": {"X": 3},
        "present": {"x": True, "r": False},
        "attrs": {"axis": -1.0, "epsilon": 1e-5},
        "device": {
            "features": features,
            "wgslLanguageFeatures": Features(),
            "limits": {"maxX": 256},
            "adapterInfo": {"vendor": "", "isFallbackAdapter": False},
        },
        **more,
    }


def value(text: str, **more: Any) -> Any:
    return parse(text).evaluate(scope_of(**more))


def same(found: Any, expected: Any) -> bool:
    """Equality that tells 1 from 1.0 and from true, and NaN equal to itself."""
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        pairs = zip(found, expected, strict=False)
        return len(found) == len(expected) and all(same(a, b) for a, b in pairs)
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(found, float) and math.isnan(found)
    return type(found) is type(expected) and bool(found == expected)


VALUES: list[tuple[str, Any]] = [
    # precedence and signs
    ("-2 ** 2", 4),
    ("2 ** 3 ** 2", 64),
    ("five--3", 8),
    ("five -3", 2),
    ("five-3", 2),
    ("[1,-2]", [1, -2]),
    ("1 if true else -1", 1),
    ("not -five", False),
    ("-3 | abs", 3),
    ("2 ~ 3 + 1", "231"),
    ("1 == 2 == false", True),
    ("not 1 == 2", True),
    ("1 + 2 * 3 - 4 / 2", 5),
    ("5 if false else 6 if false else 7", 7),
    ("true and 2 == 3 if present.r else false", False),
    ("1 if false", UNDEFINED),
    ("true or false and false", True),
    # numbers
    ("7 // 2", 3),
    ("-7 // 2", -4),
    ("7.0 // 2", 3),
    ("7.0 // 2 is integer", "error"),
    ("(7.0 // 2) is integer", False),
    ("(8/4) is integer", False),
    ("8 / 4", 2),
    ("8 / 4 is integer", "error"),
    ("two is integer", True),
    ("attrs.axis is integer", True),
    ("1.0 is integer", False),
    ("5.5 % 2", 1.5),
    ("-5.5 % 2", -1.5),
    ("-7 % 4", -3),
    ("7 % -4", 3),
    ("1/0", INF),
    ("-1/0", -INF),
    ("0/0", math.nan),
    ("5 % 0", math.nan),
    ("1 // 0", INF),
    ("2 ** -1", 0.5),
    ("(2 ** -1) is number", True),
    ("0 ** -1", "error"),
    ("10 ** 400", "error"),
    ("true ** 2", 1),
    ("-true", -1),
    ("9007199254740992 + 1", 9007199254740992),
    ("10**308*10", INF),
    ("10**308 + 10**308 - 10**308", INF),
    ("9" * 400, INF),
    ("0.00001", 1e-5),
    # kinds that do not mix
    ("true + 1", "error"),
    ("true < 2", "error"),
    ("'a' < 'b'", "error"),
    ("1 < 2 < 3", "error"),
    ("none < 2", "error"),
    ("missing < 2", "error"),
    ("missing + 1", "error"),
    ("nothing ~ 'a'", "error"),
    ("missing ~ 'a'", "error"),
    ("-missing", "error"),
    ("'a' * 3", "error"),
    # text
    ("'a' + 1", "a1"),
    ("'a' ~ (8/4)", "a2"),
    ("'a' ~ true", "atrue"),
    ("'a' ~ [1, 2]", "a1,2"),
    ("'a' ~ 0.00001", "a0.00001"),
    ("'a' ~ 0.0000001", "a1e-7"),
    ("[1] + [2]", [1, 2]),
    ("'a' 'b'", "ab"),
    (r"'\n\t\'\\'", "\n\t'\\"),
    ("'é'", "é"),
    # equality
    ("1 == 1.0", True),
    ("'1' == 1", "error"),
    ("true == 1", "error"),
    ("true == 'true'", "error"),
    ("'' == 0", "error"),
    ("shapes.One == 8", "error"),
    ("shapes.X == '2,3,8'", "error"),
    ("shapes.E == ''", "error"),
    ("[1,2] == [1,2]", False),
    ("shapes.X == shapes.X", True),
    ("none == none", True),
    ("missing == none", True),
    ("none == false", False),
    ("none == 0", False),
    ("missing == 2", False),
    ("missing == false", False),
    ("missing != 2", True),
    ("0/0 == 0/0", False),
    # in
    ("3 in [3.0]", True),
    ("'3' in [3]", False),
    ("true in [1]", False),
    ("9 not in X", True),
    ("'ell' in text", True),
    ("'X' in shapes", True),
    ("4 in missing", False),
    ("4 not in missing", True),
    ("missing in [1]", "error"),
    ("none in [1]", "error"),
    ("4 in none", "error"),
    ("4 in 'text'", "error"),
    ("'subgroups' in device.features", False),
    # truth
    ("[] or 1", 1),
    ("0 or 'a'", "a"),
    ("0/0 or 1", 1),
    ("ranks.X and present.x", True),
    ("present.x and ranks.X", 3),
    ("1 if E else 2", 2),
    ("1 if 'false' else 2", 1),
    ("1 if {} else 2", 2),
    ("missing and missing.x", UNDEFINED),
    # members
    ("X[9]", UNDEFINED),
    ("X[-4]", UNDEFINED),
    ("X[-1]", 8),
    ("X[1.0]", "error"),
    ("X[8/4]", "error"),
    ("X['a']", UNDEFINED),
    ("X[true]", "error"),
    ("X[0:2]", [2, 3]),
    ("X[::-1]", [8, 3, 2]),
    ("X[::0]", "error"),
    ("X[0.5:]", "error"),
    ("X.0", 2),
    ("shapes.X.0", 2),
    ("X.length", 3),
    ("text.length", 11),
    ("text[0:5]", "Hello"),
    ("device.nope.deep", UNDEFINED),
    ("nothing.x", UNDEFINED),
    ("missing[0]", "error"),
    ("nothing[0]", "error"),
    ("five[0]", "error"),
    ("shapes.constructor", UNDEFINED),
    ("shapes['__proto__']", UNDEFINED),
    ("shapes.get('X')", [2, 3, 8]),
    ("shapes.get('nope')", None),
    ("shapes.get('nope', 1)", 1),
    ("shapes.keys()", ["X", "E", "One"]),
    ("{'b': 1, 'a': 2}.dictsort()", [("a", 2), ("b", 1)]),
    ("device.features.has('subgroups')", True),
    ("device.features.has('shader-f16')", False),
    ("device.features.size", 1),
    ("device.features.names", UNDEFINED),
    ("five()", "error"),
    ("missing()", "error"),
    ("X.append(1)", "error"),
    ("text.format(1)", "error"),
    ("text.upper()", "HELLO WORLD"),
    ("text.split(' ')", ["Hello", "World"]),
    ("text.replace('l', 'L', 1)", "HeLlo World"),
    ("text.startswith('He')", True),
    ("max(*X)", 8),
    ("min(**{'a': 1})", "error"),
    # tests and filters
    ("nope is defined", False),
    ("nope is undefined", True),
    ("none is defined", True),
    ("five is not defined", False),
    ("1 if five is defined else 2", 1),
    ("five is odd", True),
    ("half is odd", "error"),
    ("true is number", False),
    ("X is iterable", True),
    ("shapes is mapping", True),
    ("min is callable", True),
    ("'abc' is lower", True),
    ("missing | default(3)", 3),
    ("0 | default(3)", 0),
    ("0 | default(3, true)", 3),
    ("X | length", 3),
    ("X | first", 2),
    ("E | first", UNDEFINED),
    ("X | reverse", [8, 3, 2]),
    ("[3, 1, 2] | sort", [1, 2, 3]),
    ("[3, 1, 2] | sort(reverse=true)", [3, 2, 1]),
    ("[1, 'a'] | sort", "error"),
    ("[1, true, 1, '1'] | unique", [1, True, "1"]),
    ("X | join('x')", "2x3x8"),
    ("[{'a': 1}, {'b': 2}] | map(attribute='a', default=0)", [1, 0]),
    ("[{'a': 1}, {'a': 0}] | selectattr('a')", [{"a": 1}]),
    ("[{'a': 1}, {'a': 2}] | rejectattr('a', 'equalto', 2)", [{"a": 1}]),
    ("2.7 | int", 2),
    ("-2.5 | int", -3),
    ("'12px' | int", 12),
    ("'px' | int", 0),
    ("(8/4) | string", "2.0"),
    ("X | tojson", "[2, 3, 8]"),
    ("'a\nb' | indent(2)", "a\n  b"),
    ("text | upper", "HELLO WORLD"),
    ("five | upper", "error"),
    ("{'a': 1} | items", [("a", 1)]),
    # functions
    ("min()", INF),
    ("max()", -INF),
    ("min(true,2)", 1),
    ("max('10',9)", 10),
    ("max(none, 1)", math.nan),
    ("min(X, 1)", "error"),
    ("ceil('3')", 3),
    ("floor(-0.5)", -1),
    ("pow(2, 0.5)", 2**0.5),
    ("pow(0, -1)", INF),
    ("pow(-8, 0.5)", math.nan),
    ("pow(10, 400)", INF),
    ("ceilDiv(7, 2)", 4),
    ("ceilDiv(-7,4)", -1),
    ("ceilDiv(7,0)", INF),
    ("ceilDiv(0,0)", math.nan),
    ("pow2ceil(0)", 1),
    ("pow2ceil(-3)", 1),
    ("pow2ceil(0.5)", 1),
    ("pow2ceil(1.5)", 2),
    ("pow2ceil(5)", 8),
    ("pow2ceil(1024)", 1024),
    ("pow2ceil(none)", math.nan),
    ("log2ceil(1)", 0),
    ("log2ceil(9)", 4),
    ("numel(E)", 1),
    ("numel([3, 0])", 0),
    ("numel(shapes.typo)", "error"),
    ("dim(X, -1)", 8),
    ("dim(X, 3)", 2),
    ("dim(X, 5)", 8),
    ("dim(X, -4)", 8),
    ("dim(X,'1')", 3),
    ("dim(E, 0)", None),
    ("dim(X, 0.5)", None),
    ("dim(E, -1) / 4", "error"),
    ("cols(X, 1)", 3),
    ("rank(X)", 3),
    ("rows(E,0)", 1),
    ("rows(X, -1)", 6),
    ("outer(X, 1)", 2),
    ("outer(X, 3)", 1),
    ("outer(E, 0)", 1),
    ("inner(X, 0)", 24),
    ("prefix(X, 2)", [2, 3]),
    ("prefix(X, -1)", []),
    ("suffix(X, 1)", [3, 8]),
    ("fill(7, 3)", [7, 7, 7]),
    ("fill(7, -1)", "error"),
    ("fill(7, 0.5)", "error"),
    ("moveAxis(X, 0, -1)", [3, 8, 2]),
    ("moveAxis(X, 3, 0)", "error"),
    ("moveAxis(E, 0, 0)", "error"),
    ("permuteShape(X, [2, 0, -2])", [8, 2, 3]),
    ("permuteShape(X, [0, 0, 1])", "error"),
    ("reversedAxes(3)", [2, 1, 0]),
    ("broadcastShape([3, 1], [2, 1, 4])", [2, 3, 4]),
    ("broadcastShape([1], [0])", [0]),
    ("broadcastShape([2], [3])", "error"),
    ("matmulShape([5, 2, 3], [3, 4])", [5, 2, 4]),
    ("matmulShape([3], [3, 4])", [4]),
    ("matmulShape([2, 3], [3])", [2]),
    ("matmulShape([2, 3], [2, 3])", "error"),
    ("broadcastable([8], X)", True),
    ("broadcastable([1, 8], X)", True),
    ("broadcastable(E, X)", True),
    ("broadcastable(X, [8])", False),
    ("broadcastable([2], X)", False),
    ("sameShape(X, [2, 3, 8])", True),
    ("sameShape(X, shapes.nope)", "error"),
    ("hasAxis([-1], 2, 3)", True),
    ("hasAxis([-1], 2, 0)", False),
    ("axisValue([7, 9], [0, -1], 2, 3, 0)", 9),
    ("axisValue([7], [0, -1], 2, 3, 0)", 0),
    ("isUniqueIntList([0, -1], -3, 3, 3)", True),
    ("isUniqueIntList([2, -1], -3, 3, 3)", False),
    ("isUniqueIntList([0, 3], 0, 3)", False),
    ("isUniqueIntList([0.5], 0, 3)", False),
    ("isUniqueIntList('a', 0, 3)", False),
    ("has(device.adapterInfo, 'vendor')", True),
    ("has(device.adapterInfo, 'subgroupMinSize')", False),
    ("has(device.features, 'subgroups')", False),
    ("has(none, 'a')", False),
    ("dtypeBytes('float16')", 2),
    ("dtypeBytes('vec2<u32>')", 8),
    ("dtypeBytes('bool')", 4),
    ("dtypeBytes('nope')", "error"),
    ("onnxDtypeCode('float16')", 10),
    ("pick([[[],1]],2)", 1),
    ("pick([['',1]],2)", 2),
    ("pick([[1]],2)", "error"),
    ("f16Ok('f32')", True),
    ("f16Ok('float16')", False),
    ("f16Allowed('f16')", False),
    ("f16Allowed('i32')", False),
    ("f16Allowed('bf16')", False),
]

NO_EXPRESSIONS = [
    "", " ", "1e-5", "1E5", "1.5e3", "0x10", "0b1", "1_000", "1.", ".5", "5.length", "1.5.x", "007",
    "a b", "five }} five", "five %}", "five #}", "{# a #}", "x = 1", "1;2", "a && b", "a || b",
    r"'\x41'", r"'\d'", r"'\N{DASH}'", "'open", "é", "x.é", "[1", "(1]", "x if", "not", "1 +", "in",
    "x is odd(1)", "x is nope", "x is equalto 2", "x | nope", "x | abs.y", "{1: 2}", "{a: 2}",
    "1 if true else", "X[1, 2:3]", "x is", "a == not b", "f(a=1, 2)", "f(,)", "lambda: 1", "!a",
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), VALUES, ids=lambda item: str(item)[:40])
def test_values(text: str, expected: Any) -> None:
    if isinstance(expected, str) and expected == "error":
        with pytest.raises(EvaluationError):
            value(text)
    else:
        assert same(value(text), expected), value(text)


@pytest.mark.parametrize("text", NO_EXPRESSIONS)
def test_refused_syntax(text: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert isinstance(caught.value, ManifestError)


def test_errors_say_what_to_do() -> None:
    with pytest.raises(ExpressionError, match=r"'1e-5' is no number here; write digits"):
        parse("1e-5")
    with pytest.raises(ExpressionError, match="write 'and'"):
        parse("a && b")
    with pytest.raises(ExpressionError, match=r"no filter 'lenght' \(did you mean 'length'"):
        parse("x | lenght")
    with pytest.raises(EvaluationError, match=r"^dim\(E, 0\) / 4: '/' needs two numbers, found null"):
        value("1 + dim(E, 0) / 4")


def test_unknown_names_are_found_in_dead_branches() -> None:
    with pytest.raises(EvaluationError) as caught:
        value("5 if true else nope and fivee")
    message = str(caught.value)
    assert "'fivee' (did you mean 'five'?)" in message and "'nope'" in message
    assert "quoted" in message and "shapes" in message and "ceilDiv" in message


def test_names() -> None:
    expression = parse(
        "f(shapes.x, k=a)[b].c is odd or maybe is defined or both is defined and both"
        " or attrs['axis'] | default(d)"
    )
    assert expression.names == set("fabd") | {"shapes", "maybe", "both", "attrs"}
    assert expression.lenient == {"maybe"}
    assert expression.members == {("shapes", "x"), ("attrs", "axis")}


def test_evaluate_takes_any_json() -> None:
    document = {"a": ["five", 4.0, True], "b": {"c": '"f32"'}, "d": None}
    assert evaluate(document, scope_of()) == {"a": [5, 4, True], "b": {"c": "f32"}, "d": None}
    assert same(evaluate(4.0, {}), 4)


def test_retag_keeps_identity() -> None:
    shape = [1, 2.5]
    assert retag(shape) is shape
    assert same(retag([1.0, (2.0,), {"a": 3.0}, True]), [1, (2,), {"a": 3}, True])
    assert retag(2**53 + 1) == 2**53


def test_no_way_into_python() -> None:
    for text in ("X.__class__", "text.__class__", "min.__globals__", "device.features._names"):
        assert value(text) is UNDEFINED
    for text in ("X['__class__']", "shapes.get.__self__", "text['format']", "device['__dict__']"):
        assert value(text) is UNDEFINED


def test_parsing_is_cached_and_features_are_plain() -> None:
    assert parse("five + 1") is parse("five + 1")
    assert Features(["a"]) == Features(("a", "a")) and Features(["a"]) != Features()
    assert not UNDEFINED and repr(UNDEFINED) == "undefined"
    assert {"ceilDiv", "f16Ok", "loop", "derive"} <= RESERVED


def test_importing_does_not_import_jinja() -> None:
    code = (
        "import sys, registry.language.expressions, registry.language.functions, registry.language.reasons;"
        "sys.exit('jinja2' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY).returncode == 0


@pytest.mark.parametrize(
    "text",
    ["(" * 80 + "1" + ")" * 80, "[" * 33 + "]" * 33, "+".join(["1"] * 1000), "not " * 1000 + "true",
     "-" * 4000 + "1", "x" * 5000, "1 if 1 else " * 300 + "1", "a" + ".b" * 1500,
     "f" + "()" * 1500],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_oversized_expressions_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    ["fill(0, 10**9)", "fill(fill(fill(0, 1000), 1000), 1000)", "fill('a', 3000) | join('bb')",
     "fill(1.5, 3000) | join", "'aaaaaaaa'" + ".replace('a', 'aaaaaaaa')" * 20,
     "fill(0, 3000) + fill(0, 3000)", "'a' | indent(10**9)", "'a\n' | indent(10**5)",
     "reversedAxes(10**7)", "'x' ~ fill(1.5, 3000)", "fill(1.5, 3000) | tojson"],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_oversized_values_are_refused(text: str) -> None:
    with pytest.raises(EvaluationError):
        value(text)


def test_values_cannot_double_without_end() -> None:
    scope: dict[str, Any] = {"a": [0] * 100}
    with pytest.raises(EvaluationError, match="limit"):
        for _ in range(60):
            scope["a"] = parse("[a, a]").evaluate(scope)


def test_number_text() -> None:
    cases = {
        "0.00001": 1e-5, "1e-7": 1e-7, "9.999999960041972e-13": 9.999999960041972e-13,
        "1.5e+300": 1.5e300, "1e+21": 1e21, "100000000000000000000": 1e20, "123.25": 123.25,
        "-0.1": -0.1, "NaN": math.nan, "Infinity": INF, "-Infinity": -INF, "0": -0.0, "2": 2.0,
        "0.000001": 1e-6, "1152921504606847000": 2**60, "5e-324": 5e-324,
    }  # fmt: skip
    assert {number_text(number): number for number in cases.values()}.keys() == cases.keys()
    assert (number_text(2.0, point=True), number_text(-0.0, point=True)) == ("2.0", "-0.0")
    assert json_text({"a": [1, "b", None, UNDEFINED]}) == '{"a": [1, "b", null, undefined]}'


# Properties

doubles = st.floats(allow_nan=False, allow_infinity=False)
numbers = st.integers(-(2**53), 2**53) | doubles.filter(lambda x: not x.is_integer())


def js(symbol: str, a: float, b: float) -> float:
    """The operator on IEEE doubles, from NumPy, which shares no code with the evaluator."""
    import numpy as np

    with np.errstate(all="ignore"):
        x, y = np.float64(a), np.float64(b)
        quotient = np.divide(x, y)
        results = {"+": x + y, "-": x - y, "*": x * y, "/": quotient, "//": np.floor(quotient)}
        return float(np.fmod(x, y) if symbol == "%" else results[symbol])


@given(numbers, numbers, st.sampled_from(["+", "-", "*", "/", "//", "%"]))
def test_arithmetic_is_that_of_doubles(a: float, b: float, symbol: str) -> None:
    found = parse(f"a {symbol} b").evaluate({"a": a, "b": b})
    expected = js(symbol, a, b)
    assert same(float(found), expected)
    assert isinstance(found, int) == expected.is_integer()


@given(doubles)
def test_number_text_reads_back(number: float) -> None:
    assert float(number_text(number)) == number


ATOMS = [
    "X",
    "E",
    "five",
    "half",
    "text",
    "missing",
    "nothing",
    "shapes",
    "1",
    "2.5",
    "'a'",
    "true",
]
FORMS = [
    "({}) + ({})", "({}) ~ ({})", "({}) if ({}) else {}", "not ({})", "({}) and ({})", "({}) or {}",
    "({}) == ({})", "({}) in [{}]", "({}) < ({})", "({}) % ({})", "-({})", "({}).x", "({})[{}]",
    "[{}, {}][0:1]", "min({}, {})", "dim({}, {})", "({}) | default({})", "({}) is defined",
    "({}) ** ({})", "({}) | string", "({}) is not none", "({}, {})", "fill({}, {})",
    "({}) // ({}) * 2",
]  # fmt: skip


def grown(part: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def filled(form: str) -> st.SearchStrategy[str]:
        return st.tuples(*[part] * form.count("{}")).map(lambda parts: form.format(*parts))

    return st.sampled_from(FORMS).flatmap(filled)


@settings(max_examples=400, deadline=None)
@given(st.recursive(st.sampled_from(ATOMS), grown, max_leaves=12))
def test_generated_expressions_evaluate_print_and_explain(text: str) -> None:
    from registry.language.syntax import parse_tree, unparse

    try:
        expression = parse(text)
    except ExpressionError:
        assume(False)
    printed = unparse(expression.tree)
    assert parse_tree(printed) == expression.tree
    try:
        expression.evaluate(scope_of())
    except EvaluationError as error:
        assert str(error)
    assert isinstance(why_false(expression, scope_of(), {"five": text}), Leaf)


FRAGMENTS = [
    "X", "five", " ", "(", ")", "[", "]", "{", "}", "'", '"', "1", "2.5", ".", ",", ":", "|", "+",
    "-", "*", "**", "/", "%", "~", "==", "<", " in ", " is ", " not ", " and ", " if ", " else ",
    "abs", "{{", "}}", "{%", "%}", "#}", "\\", "\n", "=", "!", "e5", "0x", "_", "min", "odd",
    "é", "\0",
]  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join) | st.text(max_size=30))
def test_any_text_gives_a_value_or_our_error(text: str) -> None:
    try:
        expression = parse(text)
        assert expression.names >= expression.lenient
        expression.evaluate(scope_of())
    except RegistryError as error:
        assert isinstance(error, ExpressionError | EvaluationError)


# Explanations

DERIVED = {
    "aligned": "dim(shapes.x, 1) % 4 == 0",
    "biasOk": "false if not present.bias else (ranks.bias == 1)",
    "residualOk": "aligned and ranks.x == 2 if present.residual else false",
    "both": "present.x and aligned",
    "loop": "loop and true",
    "rankOk": "false if ranks.x != 3 or not present.x else true",
}


def reason(text: str, **more: Any) -> tuple[str, str, str]:
    scope: dict[str, Any] = {
        **FUNCTIONS,
        **device_functions(Features()),
        "shapes": {"x": [3, 6], "y": [4, 6], "x3": [2, 3, 8]},
        "ranks": {"x": 2},
        "present": {"x": True, "bias": False, "residual": False},
        "dtypes": {"T": "f16"},
        "attrs": {"axis": 1, "mode": "a"},
        "device": {"features": Features(), "limits": {"maxX": 256}},
        "loop": False,
        **more,
    }
    for name, definition in DERIVED.items():
        if name != "loop":
            scope[name] = parse(definition).evaluate(scope)
    leaf = why_false(parse(text), scope, DERIVED)
    return leaf.condition, leaf.found, leaf.needed


@pytest.mark.parametrize(
    ("text", "leaf"),
    [
        ("present.bias", ("present.bias", "false", "true")),
        ("not present.x", ("present.x", "true", "false")),
        ("ranks.x == 3", ("ranks.x", "2", "== 3")),
        ("3 == ranks.x", ("ranks.x", "2", "== 3")),
        ("3 < ranks.x", ("ranks.x", "2", "> 3")),
        ("ranks.bias == 1", ("ranks.bias", "undefined", "== 1")),
        ("not ranks.x == 2", ("ranks.x", "2", "!= 2")),
        ("300 <= device.limits.maxX", ("device.limits.maxX", "256", ">= 300")),
        (
            "dim(shapes.x, 0) == dim(shapes.y, 0)",
            ("dim(shapes.x, 0)", "3", "== 4 (dim(shapes.y, 0))"),
        ),
        ("shapes.x[1] <= shapes.x[0] * 1", ("shapes.x[1]", "6", "<= 3 (shapes.x[0] * 1)")),
        ("attrs.mode == 'b'", ("attrs.mode", "a", "== b")),
        ("attrs.axis in [-1, 2]", ("attrs.axis", "1", "in [-1, 2]")),
        ("attrs.axis not in [1]", ("attrs.axis", "1", "not in [1]")),
        ("aligned", ("dim(shapes.x, 1) % 4", "2", "== 0")),
        ("present.x and both and nope", ("dim(shapes.x, 1) % 4", "2", "== 0")),
        ("biasOk", ("present.bias", "false", "true")),
        ("residualOk", ("present.residual", "false", "true")),
        ("rankOk", ("ranks.x", "2", "== 3")),
        ("ranks.x == 3 or 4 == ranks.x", ("ranks.x", "2", "== 3 or == 4")),
        (
            "ranks.x == 3 or present.bias",
            ("ranks.x == 3 or present.bias", "false", "one of: ranks.x == 3, present.bias"),
        ),
        ("not (present.bias or ranks.x == 2)", ("ranks.x", "2", "!= 2")),
        ("not (present.x and ranks.x == 2)", ("present.x and ranks.x == 2", "true", "false")),
        (
            "sameShape(shapes.x, shapes.y)",
            ("sameShape(shapes.x, shapes.y)", "[3, 6] and [4, 6]", "true"),
        ),
        ("f16Ok(dtypes.T)", ("f16Ok(dtypes.T)", "false for f16", "true")),
        (
            'device.features.has("subgroups")',
            ('device.features.has("subgroups")', "false", "true"),
        ),
        ("attrs.axis is string", ("attrs.axis", "1", "is string")),
        ("attrs.axis is not integer", ("attrs.axis", "1", "is not integer")),
        ("ranks.x", ("ranks.x", "2", "true")),
        ("present.x and ranks.x", ("ranks.x", "2", "true")),
        ("present.x if present.bias", ("present.bias", "false", "true")),
        ("loop", ("loop", "false", "true")),
        ("false", ("false", "false", "true")),
        (
            "1 < (none)",
            ("1 < none", "1 < none: '<' needs two numbers, found number 1 and null", "true"),
        ),
        ("unheard == 1", ("unheard == 1", "unknown name 'unheard'", "true")),
        (
            "present.x and numel(shapes.z) > 1",
            (
                "numel(shapes.z) > 1",
                "numel(shapes.z): needs a shape (a list of numbers), found undefined",
                "true",
            ),
        ),
    ],
)
def test_why_false(text: str, leaf: tuple[str, str, str]) -> None:
    assert reason(text) == leaf


# The published manifests


def strings(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, Mapping):
        for child in node.values():
            yield from strings(child)
    elif isinstance(node, list):
        for child in node:
            yield from strings(child)


def published_expressions(document: Mapping[str, Any]) -> Iterator[str]:
    places: list[Any] = [document.get("derive", {}), document.get("constants", {})]
    places += [port.get("shape", []) for port in document["outputs"]]
    for variant in document["variants"]:
        places += [variant.get(key, {}) for key in ("when", "demoteWhen", "derive", "constants")]
        for step in variant["passes"]:
            places += [step.get("constants", {}), step.get("source", {}).get("inputs", {})]
            places += [step["dispatch"]]
    yield from strings(places)
    bindings = [document.get("bindingSets", {})]
    bindings += [step["bindings"] for variant in document["variants"] for step in variant["passes"]]
    pending = bindings
    while pending:
        node = pending.pop()
        if isinstance(node, Mapping):
            yield from strings([node.get("value", []), node.get("default", [])])
            pending += node.values()
        elif isinstance(node, list):
            pending += node


@pytest.mark.skipif(not SEEDS.is_dir(), reason="set REGISTRY_SEEDS to a folder of published manifests")
@pytest.mark.parametrize("name", ["SkipLayerNormalization", "BiasAdd", "LayerNormalization"])
def test_published_manifests_parse(name: str) -> None:
    from registry.language.syntax import parse_tree, unparse

    document = json.loads((SEEDS / f"{name}.manifest.json").read_text(encoding="utf-8"))
    texts = list(published_expressions(document))
    assert len(texts) > 20
    for text in texts:
        tree = parse(text).tree
        assert parse_tree(unparse(tree)) == tree
