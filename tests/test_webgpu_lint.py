"""The lint over WGSL: each rule on small sources that break it and on near misses, and on our own sources."""

from __future__ import annotations

from typing import Any

import pytest
from forms import FORMS
from grid import cases, device

from registry_webgpu.lint import lint

HEAD = """
struct Params { rows: u32, step: u32 };
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> x: array<u32>;
@group(0) @binding(3) var<storage, read_write> count: atomic<u32>;
var<workgroup> partials: array<f32, 64>;
const COLUMNS: u32 = 100u;

fn total(part: f32, lid: u32) -> f32 {
  partials[lid] = part;
  workgroupBarrier();
  return partials[0];
}

fn row_of(group: vec3<u32>, width: u32) -> u32 {
  return group.x + group.y * width;
}

fn lane_of(lid: u32) -> u32 {
  return lid % 8u;
}

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lid: u32,
  @builtin(global_invocation_id) thread: vec3<u32>,
  VALUES
) {
"""


def rules(body: str, values: str = "") -> list[str]:
    """The rules broken by a body of `main`, where # is a barrier, that gets further built-in values."""
    return [finding.rule for finding in lint(whole(body, values))]


def whole(body: str, values: str = "") -> str:
    return HEAD.replace("VALUES", values) + body.replace("#", "workgroupBarrier();") + "\n}\n"


DIVERGENT = {
    "return on the local index": "if (lid > 3u) { return; } #",
    "return on the global index": "if (thread.x >= params.rows) { return; } #",
    "return by way of a let": "let row = thread.x; let off = row > 9u; if (off) { return; } #",
    "return by way of an assignment": "var i = 0u; i += lid; if (i > 3u) { return; } #",
    "return in an inner block": "if (params.rows > 1u) { if (lid == 0u) { return; } } #",
    "return in an else": "if (lid == 0u) { y[0] = 1.0; } else { return; } #",
    "return before a function with a barrier": "if (lid > 3u) { return; } y[0] = total(1.0, lid);",
    "return by a function's result": "if (lane_of(lid) == 1u) { return; } #",
    "return on workgroup memory": "if (partials[0] == 1.0) { return; } #",
    "return on an atomic": "if (atomicAdd(&count, 1u) == 0u) { return; } #",
    "return in a loop": "for (var i = 0u; i < 9u; i += 1u) { if (i > lid) { return; } } #",
    "return in a loop's barrier": "for (var i = 0u; i < 9u; i += 1u) { # if (i > lid) { return; } }",
    "barrier in a branch": "if (lid < 32u) { # }",
    "function in a branch": "if (lid < 32u) { y[0] = total(1.0, lid); }",
    "barrier in a switch": "switch lid { case 0u: { # } default: {} }",
    "assigned in a branch": "var go = false; if (lid == 0u) { go = true; } if (go) { # }",
    "break before a barrier": "for (var i = 0u; i < 9u; i += 1u) { if (i > lid) { break; } # }",
    "continue after a barrier": "for (var i = 0u; i < 9u; i++) { # if (i > lid) { continue; } }",
    "an address taken": "var n = 1u; let p = &n; *p = lid; if (n == 1u) { # }",
    "uniform load in a branch": "if (lid == 0u) { let a = workgroupUniformLoad(&partials[0]); }",
}

# What WGSL lets pass and the lint does not.
STRICTER = {"return on read-only storage": "if (x[0] == 1u) { return; } #"}

UNIFORM = {
    "return on the group": "let row = row_of(group, groups.x); if (row >= params.rows) { return; } #",
    "return on constants": "if (COLUMNS > 3u) { return; } #",
    "return after the last barrier": "# if (lid > 3u) { return; } y[lid] = 1.0;",
    "return of a function only": "y[lid] = select(1.0, 2.0, lane_of(lid) == 1u); y[0] = total(1.0, lid);",
    "a live flag": "let live = thread.x < params.rows; if (live) { y[lid] = 1.0; } #",
    "a branch without a barrier": "if (lid == 0u) { y[0] = 1.0; } #",
    "a shadowing name": "{ let i = lid; y[i] = 1.0; } let i = group.x; if (i > 3u) { return; } #",
    "a workgroup's load": "let n = workgroupUniformLoad(&partials[0]); if (n > 1.0) { return; } #",
    "a loop over the group's columns": "for (var i = 0u; i < params.rows; i += 1u) { # }",
    "a halving stride": "for (var s = 32u; s > 0u; s /= 2u) { if (lid < s) { y[lid] = 1.0; } # }",
    "a break without a barrier": "for (var i = 0u; i < 9u; i++) { if (i > lid) { break; } } #",
    "in comments": "// if (lid > 3u) { return; }\n/* if (lid > 1u) /* */ { return; } */ #",
    "a switch's break": "switch lid { case 0u: { break; } default: {} } #",
}


@pytest.mark.parametrize("body", [*DIVERGENT.values(), *STRICTER.values()], ids=[*DIVERGENT, *STRICTER])
def test_divergent_barriers(body: str) -> None:
    assert "divergent-barrier" in rules(body)


@pytest.mark.parametrize("body", UNIFORM.values(), ids=UNIFORM)
def test_barriers_that_all_come_to(body: str) -> None:
    assert rules(body) == []


def test_tint_is_of_the_same_opinion(tint: Any) -> None:
    for body in (*UNIFORM.values(), *STRICTER.values()):
        tint.create_shader_module(code=whole(body), label="uniform")
    for name, body in DIVERGENT.items():
        with pytest.raises(Exception, match="must only be called from uniform control flow"):
            tint.create_shader_module(code=whole(body), label=name)


def test_what_is_said() -> None:
    (found,) = lint(whole("if (thread.x >= params.rows) {\n  return;\n}\n#"))
    line = HEAD.count("\n") + 2
    assert (found.rule, found.line) == ("divergent-barrier", line)
    assert f"`(thread.x >= params.rows)` returns before the barrier of line {line + 2}" in found.text


def test_a_struct_of_values() -> None:
    source = """
struct Values { @builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32 };
@compute @workgroup_size(64)
fn main(values: Values) { if (values.WHICH > 3u) { return; } workgroupBarrier(); }
"""
    assert lint(source.replace("WHICH", "group.x")) == ()
    assert [finding.rule for finding in lint(source.replace("WHICH", "lid"))] == ["divergent-barrier"]


# Loops whose bound differs


@pytest.mark.parametrize(
    "body",
    [
        "for (var i = lid; i < COLUMNS; i += 64u) { # }",
        "for (var i = 0u; i < x[lid]; i += 1u) { # }",
        "var i = lid; while (i < COLUMNS) { # i += 64u; }",
        "for (var i = lid; i < COLUMNS; i += 64u) { y[i] = total(1.0, lid); }",
    ],
)
def test_barriers_in_loops_that_differ(body: str) -> None:
    assert "loop-barrier" in rules(body)


@pytest.mark.parametrize(
    "body",
    [
        "for (var i = lid; i < COLUMNS; i += 64u) { y[i] = 1.0; } #",
        "for (var i = 0u; i < COLUMNS; i += 64u) { y[i + lid] = 1.0; # }",
    ],
)
def test_barriers_beside_loops_that_differ(body: str) -> None:
    assert rules(body) == []


# Subgroups

LANE = "@builtin(subgroup_invocation_id) lane: u32, @builtin(subgroup_size) size: u32,"


@pytest.mark.parametrize(
    ("body", "values"),
    [
        ("y[lid] = subgroupAdd(1.0) / 32.0; y[lid] = subgroupShuffle(1.0, 31u);", ""),
        ("if (lane == 31u) { y[0] = 1.0; }", LANE),
        ("if (size == 64u) { y[0] = 1.0; }", LANE),
        ("y[lid] = subgroupAdd(1.0); y[lid & 31u] = 1.0;", ""),
        ("y[lid / 32u] = subgroupAdd(1.0);", ""),
        ("let mine = thread.x % 64u; y[mine] = subgroupAdd(1.0);", ""),
        ("let mine = lid >> 5u; y[mine] = subgroupAdd(1.0);", ""),
        ("y[0] = f32(n);", "@builtin(num_subgroups) n: u32,"),
    ],
)
def test_assumed_subgroup_sizes(body: str, values: str) -> None:
    assert set(rules(body, values)) == {"subgroup-size"}


@pytest.mark.parametrize(
    ("body", "values"),
    [
        ("y[lid & 31u] = 1.0;", ""),  # no subgroups in the source
        ("y[lid] = subgroupAdd(1.0); let column = group.x / 64u;", ""),  # no local index
        ("let subgroups = (64u + size - 1u) / size;", LANE.replace("lane", "other").replace("size: ", "s: ")),
        ("if (lane == 0u) { y[0] = subgroupAdd(1.0); }", LANE),
        ("y[lid] = subgroupAdd(1.0); y[lid / 16u] = 1.0;", ""),
    ],
)
def test_no_assumed_subgroup_sizes(body: str, values: str) -> None:
    assert rules(body, values) == []


def test_subgroup_id_in_several_dimensions() -> None:
    source = (
        "@compute @workgroup_size(SIZE) fn main(@builtin(subgroup_id) subgroup: u32) { let a = subgroup; }"
    )
    for size, expected in (("64", []), ("64, 1u, 1", []), ("8, 8", ["subgroup-size"])):
        assert [finding.rule for finding in lint(source.replace("SIZE", size))] == expected


# Loops without an end


@pytest.mark.parametrize(
    "body",
    [
        "loop { y[0] += 1.0; }",
        "while (true) { y[0] += 1.0; }",
        "for (;;) { y[0] += 1.0; }",
        "for (var i = 0u; i < 9u; i -= 1u) { y[i] = 1.0; }",
        "for (var i = 9u; i > 0u; i++) { y[i] = 1.0; }",
        "for (var i = 9u; i >= 0u; i--) { y[i] = 1.0; }",
        "for (var i = 0u; i < 9u; i += 0u) { y[i] = 1.0; }",
        "for (var i = 0u; i < 9u; i = i - 1u) { y[i] = 1.0; }",
        "for (var i = 0u; i < 9u;) { y[i] = 1.0; }",
        "var k = 0u; for (var i = 0u; k < 9u; i += 1u) { y[i] = 1.0; }",
        "for (var i = 0u; i < 9u || x[0] > 1u; i += 1u) { y[i] = 1.0; }",
        "loop { if (x[0] == 1u) { break; } }",
        "while (atomicLoad(&count) == 0u) { }",
        "loop { switch lid { case 0u: { break; } default: {} } }",
        "loop { for (var i = 0u; i < 3u; i++) { if (i == 1u) { break; } } }",
    ],
)
def test_endless_loops(body: str) -> None:
    assert rules(body) == ["endless-loop"]


@pytest.mark.parametrize(
    "body",
    [
        "for (var i = lid; i < COLUMNS; i += 64u) { y[i] = 1.0; }",
        "for (var i = lid; COLUMNS > i; i = i + 64u) { y[i] = 1.0; }",
        "for (var s = 32u; s > 0u; s >>= 1u) { y[s] = 1.0; }",
        "for (var i = 9; i >= 0; i--) { y[i] = 1.0; }",
        "for (var k = 0u; k < 2u && lid + k < params.rows; k += 1u) { y[k] = 1.0; }",
        "for (var i = 0u; i < 9u; i += params.step) { y[i] = 1.0; }",
        "for (var i = 0u; i < 9u;) { y[i] = 1.0; i += 1u; }",
        "var i = 0u; while (i < 9u) { i++; }",
        "var go = true; while (go) { go = x[lid] > 1u; }",
        "var i = 0u; loop { if (i >= 9u) { break; } i += 1u; }",
        "var i = 0u; loop { i += 1u; continuing { break if i > 9u; } }",
        "loop { y[0] = 1.0; break; }",
        "var i = 0u; loop { i++; if (i > 3u) { return; } }",
    ],
)
def test_loops_that_end(body: str) -> None:
    assert rules(body) == []


# The text itself


@pytest.mark.parametrize(
    "source",
    [
        "fn main() { if (true) { ",
        "fn main( {",
        "fn",
        "fn f() { for (var i = 0u) {} }",
        "}",
        "@",
        "fn f() { let }",
        "fn f(a) {}",
        f"fn f() {'{' * 5000}{'}' * 5000}",
    ],
    ids=range(9),
)
def test_what_cannot_be_read(source: str) -> None:
    (found,) = lint(source)
    assert found.rule == "unreadable" and found.line == 1


def test_everything_of_the_language_is_read() -> None:
    source = """
enable f16; requires subgroup_id; diagnostic(off, derivative_uniformity);
alias Row = array<vec2<f32>, 4>;
override WIDTH: u32 = 0x40u;
const_assert WIDTH > 1e-3;
@group(0) @binding(0) var picture: texture_2d<f32>;
var<private> own = array<array<u32, 2>, 2>();
@must_use fn twice(v: f32) -> f32 { return v * 2.0e0f; }
fn put(p: ptr<function, array<f32, 4>>, at: u32) { (*p)[at] = .5; }
@compute @workgroup_size(WIDTH, 1, 1) @diagnostic(off, chromium.unreachable_code)
fn main(@builtin(local_invocation_id) lid: vec3<u32>,) {
  @diagnostic(off, derivative_uniformity) if lid.x == 0u { return; } else if (lid.x == 1u) {} else {}
  var<function> row: Row; ; _ = twice(1h); { discard; }
  switch (lid.x) { case 0u, 1u: { } case default { } }
  for (; row[0].x < 2.0 ;) { row[0].x++; }
}
"""
    assert lint(source) == ()


# Our own


@pytest.mark.parametrize("op", FORMS)
def test_our_sources_are_clean(op: str) -> None:
    subgroups = device("dawn", subgroups=True, software=True)
    memory = device("dawn", subgroups=False, software=False)
    read = 0
    for case in cases(op, [(4097, subgroups), (1000, memory)]):
        assert lint(case.source) == (), f"{op} {case.call}\n{case.source}"
        read += 1
    assert read >= 4
