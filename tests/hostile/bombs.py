"""What a stranger may send: small recipes for manifests, expressions, templates and packages that cost much.

Each recipe is a function without arguments, so that a text of megabytes exists only while it is tried.
"""

# ruff: noqa: E501  (a recipe reads best in one line)

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from registry import Registry

from . import stages
from .stages import Outcome

MANY = 1_000_000


def manifest(**changes: Any) -> dict[str, Any]:
    """A small manifest that is right, with some keys replaced."""
    return {
        "domain": "test.hostile",
        "name": "Twice",
        "inputs": [{"role": "X", "dtype": "T"}],
        "outputs": [{"role": "Y", "dtype": "T", "shape": "shapes.X"}],
        "args": {"x": {"kind": "tensor", "semantic": "X"}, "y": {"kind": "tensor", "semantic": "Y"}},
        "typeConstraints": {"T": ["float32", "float16"]},
        "variants": [variant()],
        **changes,
    }


def variant(**changes: Any) -> dict[str, Any]:
    """A variant of one pass."""
    return {"id": "only", "passes": [one_pass()], **changes}


def one_pass(**changes: Any) -> dict[str, Any]:
    """A pass that doubles."""
    bindings = [
        {"name": "X", "buffer": {"type": "read-only-storage"}, "elementType": "$T"},
        {"name": "Y", "buffer": {"type": "storage"}, "elementType": "$T"},
    ]
    grid = {"threads": "numel(shapes.X)", "workgroupSize": 64}
    return {"shader": "twice.wgsl.jinja", "bindings": bindings, "dispatch": grid, **changes}


TEMPLATE = """{{ env.wgsl.resourceDeclarations }}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = id.x + id.y * groups.x * 64u;
  if (i < arrayLength(&X)) { Y[i] = X[i] + X[i]; }
}
"""


def _changed(**changes: Any) -> Callable[[], str]:
    return lambda: json.dumps(manifest(**changes))


def _in_pass(**changes: Any) -> Callable[[], str]:
    return lambda: json.dumps(manifest(variants=[variant(passes=[one_pass(**changes)])]))


def _loops(*counts: int) -> list[dict[str, Any]]:
    return [{"id": f"l{place}", "index": f"i{place}", "count": count} for place, count in enumerate(counts)]


SLOW = "fill(0, 4000) == fill(0, 4000) or " * 90 + "false"
"""An expression that does as much as its length admits."""

JSON: Mapping[str, Callable[[], str]] = {
    "deep lists": lambda: "[" * MANY,
    "deep objects": lambda: '{"a":' * (MANY // 6),
    "deep, and closed": lambda: "[" * 400_000 + "]" * 400_000,
    "a million numbers": lambda: json.dumps([0] * 300_000),
    "a million empty lists": lambda: "[" + "[]," * 300_000 + "[]]",
    "many keys": lambda: json.dumps({f"k{i}": i for i in range(60_000)}),
    "one key, again and again": lambda: '{"a":1' + ',"a":1' * 150_000 + "}",
    "a number of many digits": lambda: '{"a":' + "9" * MANY + "}",
    "a huge exponent": lambda: '{"a": 1e999999999}',
    "an integer of 4000 digits": lambda: json.dumps(manifest(sinceVersion=10**4000)),
    "an integer of 400 digits": lambda: json.dumps(manifest(variants=[variant(priority=10**400)])),
    "a large allowed value": lambda: json.dumps(
        manifest(attributes={"a": 1}, attributeConstraints={"a": {"values": [10**400, 1]}})
    ),
    "a long text": lambda: json.dumps(manifest(description="x" * 1_000_000)),
    "a long name": lambda: json.dumps(manifest(name="x" * 1_000_000)),
    "a long role": _changed(inputs=[{"role": "x" * 500_000}]),
    "a long key": lambda: json.dumps(manifest(**{"x" * 900_000: 1})),
    "a key like an error": lambda: json.dumps(manifest(**{" - at `$" * 100_000: 1})),
    "a key with a quote": lambda: json.dumps(manifest(**{"a` - at `$.variants[0]`": 1})),
    "a key like a path of a list": lambda: json.dumps(manifest(**{"a` - at `$.inputs[...]": 1})),
    "a key like a path of a number": lambda: json.dumps(
        manifest(schemaVersion=1, **{"a` - at `$.schemaVersion.x": 1})
    ),
    "a key like a path of a text": lambda: json.dumps(manifest(**{"a` - at `$.name[...].x[3]": 1})),
    "a key like a path of a key": lambda: json.dumps(manifest(**{"a` - at `key in `$.args[...]": 1})),
    "a quote deeper": lambda: json.dumps(manifest(args={"a` - at `$.b": 7})),
    "unknown keys of many": lambda: json.dumps(
        manifest(args={f"a{i}": {"kind": "u32"} for i in range(6000)} | {"b": 7})
    ),
    "a wrong value behind many": lambda: json.dumps(
        manifest(args={**{f"a{i}": {"kind": "u32"} for i in range(3000)}, "b": {"kind": "u32", "oneOf": [7]}})
    ),
    "many inputs": lambda: json.dumps(manifest(inputs=[{"role": f"X{i}"} for i in range(6000)])),
    "many inputs and outputs": lambda: json.dumps(
        manifest(
            inputs=[{"role": f"X{i}"} for i in range(3000)], outputs=[{"role": f"Y{i}"} for i in range(3000)]
        )
    ),
    "many types and ports": lambda: json.dumps(
        manifest(
            typeConstraints={f"T{i}": ["float32"] for i in range(3000)},
            inputs=[{"role": f"X{i}", "dtype": "T2999"} for i in range(3000)],
        )
    ),
    "many allowed values": lambda: json.dumps(
        manifest(attributeNames=["a"], attributeConstraints={"a": {"values": list(range(19_000))}})
    ),
    "many lists of allowed values": lambda: json.dumps(
        manifest(
            attributeNames=[f"a{i}" for i in range(20)],
            attributeConstraints={f"a{i}": {"values": list(range(900))} for i in range(20)},
        )
    ),
    "many derived values": lambda: json.dumps(manifest(derive={f"d{i}": "1" for i in range(18_000)})),
    "many derived values in many variants": lambda: json.dumps(
        manifest(
            variants=[variant(id=f"v{i}", derive={f"d{j}": f"{j}" for j in range(900)}) for i in range(18)]
        )
    ),
    "a chain of derived values": lambda: json.dumps(
        manifest(derive={"d0": "[1]", **{f"d{i}": f"d{i - 1} + d{i - 1}" for i in range(1, 900)}})
    ),
    "a name that is not known among many": lambda: json.dumps(
        manifest(derive={f"{'ab' * 100}{i}": "1" for i in range(900)} | {"z": "ba" * 100})
    ),
    "names that are alike": lambda: json.dumps(
        manifest(derive={f"{'abcdefghij' * 100}{i:04}": "1" for i in range(900)} | {"z": "jihgfedcba" * 100})
    ),
    "a million variants": lambda: (
        '{"name":"A","inputs":[],"outputs":[],"args":{},"variants":[' + "{}," * 300_000 + "{}]}"
    ),
    "variants by families": lambda: json.dumps(
        manifest(
            variants=[
                {
                    "axes": {"a": list(range(1000)), "b": list(range(1000))},
                    "variants": [variant(id="v{a}_{b}")],
                }
            ]
        )
    ),
    "families of large cases": lambda: json.dumps(
        manifest(
            variants=[
                {
                    "cases": [{"id": f"v{i}", "t": ["x"] * 900} for i in range(20)],
                    "variants": [{"id": "{id}", "passes": ["{t}"] * 900}],
                }
            ]
        )
    ),
    "exclusions of many": lambda: json.dumps(
        manifest(
            variants=[
                {
                    "axes": {"a": list(range(500)), "b": list(range(500))},
                    "exclude": [{"a": i} for i in range(499)],
                    "variants": [variant(id="v{a}_{b}")],
                }
            ]
        )
    ),
    "a million passes": _in_pass(loops=_loops(1000, 1000)),
    "loops that come to nothing": _in_pass(loops=_loops(65000, 65000, 0)),
    "many loops": _in_pass(loops=_loops(*[1] * 1000)),
    "many passes of a binding set": lambda: json.dumps(
        manifest(
            bindingSets={
                "s": [
                    {
                        "name": f"p{i}",
                        "buffer": {"type": "uniform"},
                        "struct": {
                            "name": f"P{i}",
                            "fields": [
                                {"name": f"f{j}", "type": "f32", "value": f"{i} + {j}"} for j in range(60)
                            ],
                        },
                    }
                    for i in range(60)
                ]
            },
            variants=[variant(passes=[one_pass(id=f"p{i}", bindings="s") for i in range(1000)])],
        )
    ),
    "slow passes of a loop": lambda: json.dumps(
        manifest(
            variants=[
                variant(
                    passes=[
                        one_pass(
                            loops=[{"id": "a", "index": "i", "count": 4000}],
                            constants={f"c{i}": SLOW for i in range(20)},
                        )
                    ]
                )
            ]
        )
    ),
    "slow derived values": lambda: json.dumps(manifest(derive={f"d{i}": SLOW for i in range(280)})),
    "slow conditions": lambda: json.dumps(
        manifest(variants=[variant(id=f"v{i}", when=[f"{i} < 0 or {SLOW}"]) for i in range(280)])
    ),
    "a slow rule": lambda: json.dumps(
        manifest(
            registry={"contract": [{"rule": f"({SLOW}) == false", "argument": "X", "needed": "x"}] * 200}
        )
    ),
    "distinct expressions": lambda: json.dumps(
        manifest(derive={f"d{i}": " + ".join(["1"] * 500 + [str(i)]) for i in range(400)})
    ),
    "wide expressions": lambda: json.dumps(
        manifest(derive={f"d{i}": "[" + "1," * 2000 + f"{i}]" for i in range(240)})
    ),
    "a shape of many dimensions": _changed(outputs=[{"role": "Y", "shape": "fill(2, 4000)"}]),
    "a shape of endless size": _changed(outputs=[{"role": "Y", "shape": "fill(10 ** 300, 3)"}]),
    "a large scratch buffer": lambda: json.dumps(
        manifest(variants=[variant(intermediates=[{"id": "s", "dtype": "float32", "shape": ["10 ** 300"]}])])
    ),
    "a grid of endless size": _in_pass(dispatch={"workgroups": "10 ** 300"}),
    "a grid by nothing": _in_pass(dispatch={"threads": "numel(shapes.X)", "workgroupSize": "0"}),
    "a grid that is infinite": _in_pass(dispatch={"workgroups": "1 / 0"}),
    "a length that is endless": _in_pass(
        bindings=[{"name": "X", "buffer": {"type": "storage"}, "elementType": "f32", "length": 10**300}]
    ),
    "a uniform that is none": _in_pass(
        bindings=[
            {
                "name": "p",
                "buffer": {"type": "uniform"},
                "struct": {"name": "P", "fields": [{"name": "a", "type": "f32", "value": "0/0"}]},
            }
        ]
    ),
    "many fields": lambda: json.dumps(
        manifest(
            variants=[
                variant(
                    passes=[
                        one_pass(
                            bindings=[
                                {
                                    "name": "p",
                                    "buffer": {"type": "uniform"},
                                    "struct": {
                                        "name": "P",
                                        "fields": [
                                            {"name": f"a{i}", "type": "f32", "value": 1} for i in range(4000)
                                        ],
                                    },
                                }
                            ]
                        )
                    ]
                )
            ]
        )
    ),
    "a tunable without bounds": lambda: json.dumps(
        manifest(tunables={"a": 10**400}, derive={"b": "tunables.a * 2"})
    ),
    "prototypes": _changed(derive={"__proto__": "1"}),
    "a class": _changed(derive={"d": "shapes.__class__"}),
    "a class by index": _changed(derive={"d": "shapes['__class__'].mro()"}),
    "a constructor": _changed(derive={"constructor": "1"}),
    "half of a pair": lambda: json.dumps(manifest(description="\ud800")),
    "half of a pair as a key": lambda: json.dumps(manifest(derive={"\udfff": "1"})),
    "half of a pair as a file": _in_pass(shader="\ud800.wgsl"),
    "a zero as a file": _in_pass(shader="a\0.wgsl"),
    "a zero in a name": _changed(name="a\0"),
    "a letter that is no letter": _changed(name="Tw\u0456ce"),
    "right to left": _changed(name="Tw\u202eice"),
    "attributes in a circle of types": _changed(attributes={"a": {"b": [1, {"c": "d"}]}}),
    "an attribute of lists": lambda: json.dumps(manifest(attributes={"a": [[[1] * 30] * 30]})),
}

DOUBLING = "a0: &a0 [x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]\n" for i in range(1, 24)
)

YAML: Mapping[str, Callable[[], str]] = {
    "aliases that double": lambda: DOUBLING,
    "aliases of texts": lambda: f"a: &a {'x' * 200_000}\nb: [{', '.join(['*a'] * 200_000)}]\n",
    "aliases of nothing": lambda: "a: &a []\nb: [" + "*a, " * 200_000 + "*a]\n",
    "aliases as keys": lambda: "a: &a x\n*a : 1\n",
    "an alias of itself": lambda: "&a [*a]\n",
    "a mapping of itself": lambda: "&a {b: *a}\n",
    "many anchors": lambda: "\n".join(f"- &a{i} x" for i in range(60_000)),
    "one anchor, again and again": lambda: "\n".join("- &a x" for _ in range(100_000)),
    "deep flows": lambda: "[" * MANY,
    "deep flows of maps": lambda: "{a: " * 200_000,
    "deep blocks": lambda: "\n".join(" " * i + "a:" for i in range(1400)),
    "dashes": lambda: "- " * 500_000,
    "questions": lambda: "? " * 500_000,
    "many numbers": lambda: "- 1\n" * 250_000,
    "many empty entries": lambda: "-\n" * 500_000,
    "many keys": lambda: "".join(f"k{i}:\n" for i in range(100_000)),
    "many documents": lambda: "--- a\n" * 150_000,
    "many directives": lambda: "%FOO a\n" * 100_000 + "--- a\n",
    "many tags": lambda: "%TAG !a! tag:a\n" * 1000 + "--- !a!b c\n",
    "a tag for Python": lambda: "!!python/object/apply:os.system ['true']\n",
    "a merge": lambda: "a: &a {b: 1}\nc: {<<: *a}\n",
    "many escapes": lambda: '"' + "\\x41" * 250_000 + '"',
    "half of a pair": lambda: 'a: "\\ud800"\n',
    "a zero": lambda: "a: \0\n",
    "a zero escaped": lambda: 'name: "\\0"\n',
    "an integer of many digits": lambda: "a: " + "9" * 900_000,
    "hexadecimal digits": lambda: "a: 0x" + "f" * 900_000,
    "a float of many digits": lambda: "a: 1." + "9" * 900_000,
    "a huge exponent": lambda: "a: 1e" + "9" * 900_000,
    "many minus signs": lambda: "a: " + "-" * 900_000,
    "a long plain text over lines": lambda: "a:\n" + "  b\n" * 250_000,
    "a folded text": lambda: "a: >\n" + "  b\n\n" * 200_000,
    "blanks": lambda: " " * MANY,
    "line ends": lambda: "\n" * MANY,
    "comments": lambda: "#\n" * 500_000,
    "tabs": lambda: "a:\t\t" + "\t" * 900_000,
    "a byte order mark inside": lambda: "a: \ufeffb\n",
    "next line": lambda: "a: b\u0085c: d\u2028e: f",
}

EXPRESSIONS: Mapping[str, Callable[[], str]] = {
    "a text repeated": lambda: '"a" * 10 ** 9',
    "a list repeated": lambda: "[0] * 10 ** 9",
    "a power of powers": lambda: "9 ** 9 ** 9 ** 9",
    "a long sum": lambda: "+".join(["1"] * 2000),
    "a long sum of lists": lambda: "+".join(["l"] * 2000),
    "minus signs": lambda: "-" * 4000 + "1",
    "nots": lambda: "not " * 1000 + "true",
    "brackets": lambda: "(" * 2000 + "1" + ")" * 2000,
    "brackets within the limit": lambda: "(" * 32 + "1" + ")" * 32,
    "conditionals": lambda: "1 if true else " * 270 + "1",
    "filters": lambda: "l" + "|list" * 800,
    "members": lambda: "o" + ".a" * 2000,
    "indices": lambda: "l" + "[0]" * 1300,
    "joins of joins": lambda: "fill(fill('x' ~ t, 60)|join(t), 60)|join(t)",
    "replacing that grows": lambda: "('a' ~ t)|replace('', t)|replace('', t)|replace('', t)",
    "a list of lists": lambda: "[" * 31 + "fill(0, 100)" + "]" * 31,
    "lists of shared lists": lambda: "fill(fill(fill(fill(l, 60), 60), 60), 60)",
    "a sorted list of texts": lambda: "fill(t, 4000)|sort == fill(t, 4000)",
    "sorted again and again": lambda: "fill(t, 4000)" + "|sort" * 90,
    "unique lists": lambda: "fill(l, 4000)" + "|unique" * 90,
    "as much as there is room": lambda: SLOW,
    "looked for again and again": lambda: "7 in fill(0, 4000) or " * 90 + "false",
    "printed again and again": lambda: "(fill(0, 2000)|tojson) == '' or " * 90 + "false",
    "text of lists": lambda: "('' ~ fill(0, 2000)) == '' or " * 90 + "false",
    "upper again and again": lambda: "('\u00df'|upper) == '' or " * 90 + "false",
    "indents": lambda: "t|indent(4000)|indent(10 ** 15)",
    "an indent of nothing": lambda: "t|indent(-10 ** 300)",
    "an indent that is no number": lambda: "t|indent('x')",
    "an indent by half": lambda: "t|indent(0.5)",
    "a split by nothing": lambda: "t.split('')",
    "a split with a wrong limit": lambda: "t.split(' ', 10 ** 300)",
    "a count that is endless": lambda: "t.replace('a', 'b', 10 ** 300)",
    "a count that is no number": lambda: "t|replace('a', 'b', 0.5)",
    "a slice that is endless": lambda: "l[10 ** 300:-10 ** 300:10 ** 300]",
    "an index that is endless": lambda: "l[10 ** 300]",
    "no number": lambda: "max(0 / 0, 1) == floor(0 / 0) or ceil(1 / 0)",
    "a quotient that overflows": lambda: "10 ** 308 / 10 ** -308",
    "a product that overflows": lambda: "10 ** 308 * 10 ** 308 % 7",
    "an integer that overflows": lambda: "(10 ** 308 * 10)|int",
    "an infinite integer": lambda: "(1 / 0)|int // 1",
    "a number of many digits": lambda: "9" * 4000,
    "a fraction of many digits": lambda: "0." + "0" * 3000 + "1",
    "text as a number of many digits": lambda: "('" + "9" * 3000 + "')|int + ceil('" + "9" * 900 + "')",
    "digits of another script": lambda: "'\u0664\u0662'|int",
    "half of a pair": lambda: "'\\ud800'",
    "half of a pair, plain": lambda: "'\ud800'|tojson",
    "a zero": lambda: "'\0'",
    "a class": lambda: "t.__class__.__mro__",
    "a class by filter": lambda: "l|map('__class__')",
    "a class by attribute": lambda: "[t]|sort(attribute='__class__')",
    "a format": lambda: "'{0.__class__}'.format(t)",
    "percent": lambda: "'%999999999d' % 1",
    "keywords twice": lambda: "max(a=1, a=2)",
    "arguments of a function": lambda: "max(*fill(1, 4000), **o)",
    "named arguments that are wrong": lambda: "numel(shape=l, shape=l)",
    "a positional argument by name": lambda: "ceil(**{'value': 1, 'x': 2})",
    "functions as values": lambda: "[ceil, ceil] == ceil",
    "a method as a value": lambda: "o.keys ~ ''",
    "a function sorted": lambda: "[ceil, 1]|sort",
    "a function looked for": lambda: "ceil in o",
    "a list as a key": lambda: "o.get(l) or has(o, l)",
    "a list as a feature": lambda: "device.features.has(l)",
    "an object as a mark": lambda: "[o, l, none, true, 1, 1.0, 'a']|unique",
    "axes without end": lambda: "dim(shapes.x, 10 ** 300) + dim(shapes.x, -10 ** 300)",
    "axes of nothing": lambda: "[rows(shapes.y, 1), inner(shapes.y, 'x')]",
    "axes that are no numbers": lambda: "hasAxis(['x'], 0, 3)",
    "a rank that is endless": lambda: "hasAxis(l, 10 ** 300, 10 ** 308) or axisValue(l, l, 0, -3)",
    "sizes that are infinite": lambda: "moveAxis([1 / 0, 0 / 0], 0, 1) ~ numel([1 / 0, 0])",
    "odd things": lambda: "(10 ** 300) is odd or (0.5) is even",
    "a power of two without end": lambda: "pow2ceil(10 ** 308) + log2ceil(1 / 0) + log2ceil(0 / 0)",
    "powers of all kinds": lambda: "pow(-8, 1/3) ~ pow(0, -1) ~ pow(-0.0, -1) ~ pow('x', 'y')",
    "codes of all kinds": lambda: "onnxDtypeCode(l)",
    "all that is wrong": lambda: "o|dictsort(by='value')",
}

SPACES = " " * 80_000
LONG = "{% set x %}" + "ab " * 30_000 + "{% endset %}"
"""A captured text that is longer than any an expression makes."""
GROWN = "{% set x %}{% for i in range(1000) %}ab \u00e9d " + "ab \u00e9d " * 140 + "{% endfor %}{% endset %}"

TEMPLATES: Mapping[str, Callable[[], str]] = {
    "endless loops": lambda: "{% for i in range(4000) %}" * 3 + "{% endfor %}" * 3,
    "loops that print": lambda: "{% for i in range(4000) %}" * 2 + "x" * 1000 + "{% endfor %}" * 2,
    "loops that print nothing": lambda: "{% for i in range(4000) %}" * 2 + "{% break %}" + "{% endfor %}" * 2,
    "nested deeply": lambda: "{% if true %}" * 5000 + "{% endif %}" * 5000,
    "many tags": lambda: "{{1}}" * 19_500,
    "many ifs": lambda: "{% if true %}{% endif %}" * 4000,
    "many branches": lambda: "{% if false %}" + "{% elif false %}" * 6000 + "{% endif %}",
    "many names": lambda: "".join(f"{{% set a{i} = fill(0, 4000) %}}" for i in range(3000)),
    "many texts": lambda: "".join(f"{{% set a{i} = fill('\u20ac', 2000)|join %}}" for i in range(2000)),
    "too long": lambda: "x" * 200_000,
    "blanks": lambda: SPACES + "{%" + SPACES[:15_000],
    "blanks before tags": lambda: ("\n" + " " * 1000 + "{# #}") * 95,
    "opened tags": lambda: "{%" * 49_000,
    "opened prints": lambda: "{{" * 49_000,
    "opened comments": lambda: "{#" * 49_000,
    "a macro of itself": lambda: "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "macros of each other": lambda: (
        "{% macro a() %}{{ b() }}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}"
    ),
    "macros that double": lambda: (
        "{% macro m0() %}x{% endmacro %}"
        + "".join(
            f"{{% macro m{i}() %}}{{{{ m{i - 1}() ~ m{i - 1}() }}}}{{% endmacro %}}" for i in range(1, 30)
        )
        + "{{ m29() }}"
    ),
    "macros that count": lambda: (
        "{% macro m0() %}{% endmacro %}"
        + "".join(
            f"{{% macro m{i}() %}}{{{{ m{i - 1}() }}}}{{{{ m{i - 1}() }}}}{{% endmacro %}}"
            for i in range(1, 30)
        )
        + "{{ m29() }}"
    ),
    "many arguments": lambda: "{% macro m() %}{{ varargs }}{% endmacro %}{{ m(*fill(0, 4000)) }}",
    "a caller that calls": lambda: (
        "{% macro m() %}{{ caller() }}{% endmacro %}" + "{% call m() %}" * 30 + "x" + "{% endcall %}" * 30
    ),
    "a call of nothing": lambda: "{% call n() %}x{% endcall %}",
    "a text that grows": lambda: (
        "{% set n = namespace(t='x') %}{% for i in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}"
    ),
    "a list that grows": lambda: (
        "{% set n = namespace(t=[1]) %}{% for i in range(60) %}{% set n.t = n.t + n.t %}{% endfor %}"
    ),
    "a list that deepens": lambda: (
        "{% set n = namespace(t=[]) %}{% for i in range(4000) %}{% set n.t = [n.t] %}{% endfor %}{{ n.t }}"
    ),
    "a list that deepens and is compared": lambda: (
        "{% set n = namespace(t=[]) %}{% for i in range(900) %}{% set n.t = [n.t] %}{% endfor %}{{ n.t|tojson }}"
    ),
    "a namespace of itself": lambda: "{% set n = namespace() %}{% set n.n = n %}{{ n }}",
    "a namespace of itself as text": lambda: (
        "{% set n = namespace(a=1) %}{% set n.n = n %}{{ n|tojson ~ [n] ~ (n == n) }}"
    ),
    "a namespace of itself, sorted": lambda: (
        "{% set n = namespace(a=1) %}{% set n.n = n %}{{ n|dictsort(by='value') }}"
    ),
    "a namespace of itself, in a list": lambda: (
        "{% set n = namespace() %}{% set n.n = [n] %}{% for i in n.n %}{{ max(i) }}{% endfor %}"
    ),
    "a loop kept": lambda: (
        "{% set n = namespace() %}{% for i in range(4000) %}{% set n.l = loop %}{% endfor %}{{ n.l }}"
    ),
    "captured and captured": lambda: (
        "{% set x %}x{% endset %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 40
    ),
    "titles": lambda: GROWN + "{% for i in range(900) %}{{ x|title|length }}{% endfor %}",
    "capitals": lambda: GROWN + "{% for i in range(900) %}{{ x|capitalize|length }}{% endfor %}",
    "upper": lambda: GROWN + "{% for i in range(900) %}{{ x is upper }}{% endfor %}",
    "trims": lambda: GROWN + "{% for i in range(900) %}{{ (x|trim)|length }}{% endfor %}",
    "joins of a text": lambda: GROWN + "{% for i in range(900) %}{{ x|join|length }}{% endfor %}",
    "replaced by nothing": lambda: (
        GROWN + "{% for i in range(900) %}{{ x|replace('ab', '')|length }}{% endfor %}"
    ),
    "replaced by as much": lambda: (
        GROWN + "{% for i in range(900) %}{{ x.replace('a', 'b')|length }}{% endfor %}"
    ),
    "split": lambda: GROWN + "{% for i in range(900) %}{{ x.split(' ')|length }}{% endfor %}",
    "compared": lambda: GROWN + "{% for i in range(900) %}{{ x == (x|trim) }}{% endfor %}",
    "found in itself": lambda: GROWN + "{% for i in range(900) %}{{ (x|trim) in x }}{% endfor %}",
    "sliced": lambda: GROWN + "{% for i in range(900) %}{{ x[::-1]|length }}{% endfor %}",
    "sliced and kept": lambda: GROWN + "".join(f"{{% set a{i} = x[{i}:] %}}" for i in range(4000)),
    "captured and kept": lambda: (
        GROWN + "".join(f"{{% set a{i} %}}{{{{ x[{i}:]|trim }}}}{{% endset %}}" for i in range(50))
    ),
    "as a number": lambda: (
        "{% set x %}{% for i in range(1000) %}"
        + "9" * 1000
        + "{% endfor %}{% endset %}{% for i in range(900) %}{{ x|int }}{{ x|float }}{{ ceil(x) }}{% endfor %}"
    ),
    "as JSON": lambda: GROWN + "{% for i in range(900) %}{{ x|tojson|length }}{% endfor %}",
    "in an error": lambda: GROWN + "{{ x - 1 }}",
    "in a loop": lambda: GROWN + "{% for i in x %}{% endfor %}",
    "indented": lambda: GROWN + "{% filter indent(2) %}{{ x }}{% endfilter %}",
    "as keys": lambda: GROWN + "{{ o.get(x) }}{{ o[x] }}{{ has(o, x) }}",
    "started with": lambda: GROWN + "{% for i in range(900) %}{{ x.startswith(x|trim) }}{% endfor %}",
    "a loop over much": lambda: (
        "{% for i in range(60) %}{% for a, b in fill([1, 2], 1300) %}{% endfor %}{% endfor %}"
    ),
    "unpacked wrongly": lambda: "{% for a, b in [1] %}{% endfor %}",
    "recursive": lambda: "{% for i in l recursive %}{{ loop(l) }}{% endfor %}",
    "an import": lambda: "{% import 'manifest.json' as m %}",
    "an include": lambda: "{% include n %}",
    "an exception": lambda: "{{ raise_exception('no') }}",
    "an exception of a list": lambda: "{{ raise_exception(l) }}",
    "a namespace of wrong things": lambda: "{{ namespace(1) }}{{ namespace(l) }}",
    "a range of wrong things": lambda: "{{ range(1, 2, 0) }}",
    "a range that is endless": lambda: "{{ range(10 ** 300) }}{{ range(-10 ** 300, 10 ** 300, 10 ** 299) }}",
    "a range without anything": lambda: "{{ range() }}",
    "a set of a call": lambda: "{% set ceil(1) = 2 %}",
    "a set of functions": lambda: "{% set ceil = 1 %}{{ ceil(2) }}",
    "windows": lambda: "{% if true %}\r\n" * 10 + "{% endif %}\r\n" * 10,
    "zeros": lambda: "\0{{ '\0' }}{% if '\0' %}\0{% endif %}",
    "halves of pairs": lambda: "\ud800{{ '\ud800' }}",
    "an operator that is missing": lambda: "{{ 1 + }}{% if %}{% endif %}",
    "words of Python": lambda: "{{ lambda }}{{ self }}{{ super() }}{{ true() }}",
}


def _included(files: Mapping[str, str]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        for name, text in files.items():
            (folder / name).write_text(text)

    return make


def _twice(folder: Path) -> None:
    """Many templates, each as large as a file may be."""
    variants = []
    for index in range(500):
        name = f"t{index}.wgsl.jinja"
        variants.append(variant(id=f"v{index}", passes=[one_pass(shader=name)]))
        (folder / name).write_bytes(b" " * (4 * 2**20 if index < 12 else 1))
    (folder / "manifest.json").write_text(json.dumps(manifest(variants=variants)))


def _slow_passes(folder: Path) -> None:
    """A template that uses its whole time, for each pass of a loop."""
    loops = [{"id": "a", "index": "i", "count": 4000}]
    (folder / "manifest.json").write_text(
        json.dumps(manifest(variants=[variant(passes=[one_pass(loops=loops)])]))
    )
    text = "{% for i in range(240) %}{% set x = fill(0, 4000)|sort %}{% endfor %}"
    (folder / "twice.wgsl.jinja").write_text(text)


def _metadata(text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "metadata.json").write_text(text) and None


def _pipe(folder: Path) -> None:
    (folder / "twice.wgsl.jinja").unlink()
    os.mkfifo(folder / "twice.wgsl.jinja")


def _manifest_pipe(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    os.mkfifo(folder / "manifest.json")


def _device(folder: Path) -> None:
    (folder / "twice.wgsl.jinja").unlink()
    (folder / "twice.wgsl.jinja").symlink_to("/dev/zero")


def _circle(folder: Path) -> None:
    (folder / "twice.wgsl.jinja").unlink()
    (folder / "twice.wgsl.jinja").symlink_to("twice.wgsl.jinja")


def _replaced(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(data) and None


PACKAGES: Mapping[str, Callable[[Path], None]] = {
    "an include of itself": _included({"twice.wgsl.jinja": '{% include "twice.wgsl.jinja" %}'}),
    "includes that double": _included(
        {"twice.wgsl.jinja": '{% include "i0" %}'}
        | {f"i{i}": f'{{% include "i{i + 1}" %}}' * 4 for i in range(30)}
        | {"i30": "x" * 1000}
    ),
    "includes that end nowhere": _included(
        {"twice.wgsl.jinja": '{% include "i0" %}'}
        | {f"i{i}": f'{{% include "i{i + 1}" %}}' for i in range(400)}
    ),
    "an include from outside": _included({"twice.wgsl.jinja": '{% include "../../../etc/passwd" %}'}),
    "an include of the root": _included({"twice.wgsl.jinja": '{% include "/etc/passwd" %}'}),
    "an include of the folder": _included({"twice.wgsl.jinja": '{% include "." %}'}),
    "an include with a zero": _included({"twice.wgsl.jinja": '{% include "a\0b" %}'}),
    "many includes of nothing": _included({"twice.wgsl.jinja": '{% include "e" %}' * 200_000, "e": ""}),
    "blanks before an include": _included({"twice.wgsl.jinja": " " * 4_000_000}),
    "opened includes": _included({"twice.wgsl.jinja": '{% include "' * 300_000}),
    "many large templates": _twice,
    "slow passes": _slow_passes,
    "comments that are not closed": _replaced("twice.wgsl.jinja", b"/*" * 65_000),
    "directives that are not closed": _replaced("twice.wgsl.jinja", b"enable\n" * 18_000),
    "numbers that are none": _replaced("twice.wgsl.jinja", b"1." * 65_000),
    "slashes": _replaced("twice.wgsl.jinja", b"/" * 131_000),
    "calls that are none": _replaced("twice.wgsl.jinja", b"subgroupA " * 13_000),
    "words without an end": _replaced("twice.wgsl.jinja", b"subgroupA" * 14_000),
    "blanks and tabs": _replaced("twice.wgsl.jinja", b"{{ n }}" + b" \t" * 65_000),
    "blocks in blocks": _replaced("twice.wgsl.jinja", b"fn f() {" + b"{" * 60_000 + b"}" * 60_000 + b"}"),
    "ifs in ifs": _replaced("twice.wgsl.jinja", b"fn f() {" + b"if(a){" * 12_000 + b"}" * 12_000 + b"}"),
    "ifs after ifs": _replaced("twice.wgsl.jinja", b"fn f() { if(a){}" + b"else if(a){}" * 9000 + b"}"),
    "loops in loops": _replaced("twice.wgsl.jinja", b"fn f() {" + b"loop{" * 12_000 + b"}" * 12_000 + b"}"),
    "brackets in brackets": _replaced(
        "twice.wgsl.jinja", b"fn f() { let a = " + b"(" * 60_000 + b"1" + b")" * 60_000 + b";}"
    ),
    "functions that call": _replaced(
        "twice.wgsl.jinja", b"".join(b"fn f%d(){f%d();}" % (i, i + 1) for i in range(5000))
    ),
    "a function that calls itself": _replaced("twice.wgsl.jinja", b"fn f() { f(); f(); f(); }"),
    "a long statement": _replaced("twice.wgsl.jinja", b"fn f() { let a = " + b"a + " * 30_000 + b"a; }"),
    "commas": _replaced("twice.wgsl.jinja", b"fn f() { f(" + b"a," * 60_000 + b"a); }"),
    "brackets that stay open": _replaced("twice.wgsl.jinja", b"fn f() { let a = " + b"f(a[" * 30_000),
    "angles": _replaced("twice.wgsl.jinja", b"var<private> a: " + b"array<" * 20_000),
    "blocks that stay open": _replaced("twice.wgsl.jinja", b"fn f() { while a < 1 {" * 5000),
    "a pipe": _pipe,
    "a pipe as manifest": _manifest_pipe,
    "a device": _device,
    "a circle of links": _circle,
    "metadata of a million files": _metadata(
        json.dumps(
            {
                "name": "test.hostile.Twice",
                "backend": {"type": "webgpu"},
                "webgpu": {"manifestSpec": "1.0"},
                "digest": {"algorithm": "sha256", "files": {f"f{i}": "" for i in range(150_000)}},
            }
        )
    ),
    "metadata with half of a pair": _metadata('{"name": "\\ud800"}'),
    "metadata with half of a pair as a path": _metadata(
        '{"name": "a", "backend": {"type": "webgpu"}, "webgpu": {"manifestSpec": "1.0"},'
        ' "digest": {"algorithm": "sha256", "files": {"\\ud800": "x"}}}'
    ),
    "metadata that is deep": _metadata("[" * 4_000_000),
    "metadata of digits": _metadata("9" * 4_000_000),
    "a digest that lies": _metadata(
        '{"name": "test.hostile.Twice", "backend": {"type": "webgpu"}, "webgpu": {"manifestSpec": "1.0"},'
        ' "digest": {"algorithm": "sha256", "files": {"manifest.json": "AAAA"}}}'
    ),
    "a manifest with a byte order mark": _replaced("manifest.json", b"\xef\xbb\xbf{}"),
    "a manifest in UTF-16": _replaced("manifest.json", "{}".encode("utf-16")),
    "a template that is no UTF-8": _replaced("twice.wgsl.jinja", b"\xc3("),
    "a template of zeros": _replaced("twice.wgsl.jinja", b"\0" * 100_000),
}


def write_package(folder: Path, spoil: Callable[[Path], None] = lambda folder: None) -> Path:
    """A package of the small manifest in a folder, spoiled."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps(manifest()))
    (folder / "twice.wgsl.jinja").write_text(TEMPLATE)
    spoil(folder)
    return folder


def walks(reg: Registry, folder: Path) -> Iterator[tuple[str, str, Callable[[], list[Outcome]]]]:
    """Every recipe by kind and name, and what makes it and takes all steps with it; files go into a folder."""

    def manifest_of(recipe: Callable[[], str], suffix: str) -> Callable[[], list[Outcome]]:
        def take() -> list[Outcome]:
            file = folder / f"manifest{suffix}"
            file.write_bytes(recipe().encode("utf-8", "surrogatepass"))
            return stages.walk_manifest(reg, file)

        return take

    def package_of(name: str, spoil: Callable[[Path], None]) -> Callable[[], list[Outcome]]:
        return lambda: stages.walk_package(reg, write_package(folder / name.replace(" ", "-"), spoil))

    yield from (("json", name, manifest_of(recipe, ".json")) for name, recipe in JSON.items())
    yield from (("yaml", name, manifest_of(recipe, ".yaml")) for name, recipe in YAML.items())
    for name, recipe in EXPRESSIONS.items():
        yield "expression", name, lambda recipe=recipe: stages.walk_expression(recipe())
    for name, recipe in TEMPLATES.items():
        yield "template", name, lambda recipe=recipe: stages.walk_template(recipe())
    yield from (("package", name, package_of(name, spoil)) for name, spoil in PACKAGES.items())
