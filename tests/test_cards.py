"""Cards: conditions in words, a card that agrees with decisions, and what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import ROOT

from registry import Claim, ContractError, Refusal, Registry
from registry.cards.card import admits
from registry.cards.phrases import Names
from registry.cards.words import in_words
from registry.cli import main
from registry.hookspecs import Backend

NAMES = Names(
    tensors={"x": "X", "X": "X", "b": "B", "B": "B", "y": "Y", "Y": "Y"},
    outputs=frozenset(["y", "Y"]),
    derived={
        "hidden": "dim(shapes.X, -1)",
        "lanes": "min(hidden, 64)",
        "fits": "lanes * 8 <= device.limits.maxComputeWorkgroupStorageSize",
        "long": "hidden > tunables.LONG and not fits",
        "many": "ranks.X >= 1 and ranks.B >= 1 and numel(shapes.B) == hidden and "
        "dim(shapes.B, -1) == hidden and broadcastable(shapes.B, shapes.X)",
        "hard": "pick([[hidden > 1, 2]])",
        "turn": "turn",
        "five": 5,
    },
    tunables={"LONG": 1024},
)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("dim(shapes.X, 2) % 4 == 0", "dimension 2 of X is a multiple of 4"),
        ("hidden % 2 == 1", "the last dimension of X is odd"),
        ("hidden % five != 3", "the last dimension of X modulo 5 is not 3"),
        ('dtypes.T in ["f32", "f16", "bf16"]', "T is float32, float16 or bfloat16"),
        ('not dtypes.T in ["f32", "f16"]', "T is neither float32 nor float16"),
        ('tensorDtypes.X != "float32"', "the dtype of X is not float32"),
        ("ranks.x >= 2", "X has rank at least 2"),
        ("ranks.X < 3 + ranks.B", "the rank of X is less than 3 plus the rank of B"),
        ("present.b == true", "B is given"),
        ("present.y == false and not present.b", "without Y and B"),
        ("present.b == true and not present.y", "with B, without Y"),
        ("not (present.b and hidden == 1)", "B is left out or the last dimension of X is not 1"),
        ("present.b and (hidden == 1 or hidden == 2)", "B is given and (the last dimension of X is 1 or "
         "the last dimension of X is 2)"),
        ("sameShape(shapes.B, [hidden])", "B has shape (the last dimension of X)"),
        ("broadcastable(shapes.B, shapes.X)", "B broadcasts to X"),
        ("numel(shapes.X) > 0", "X has elements"),
        ("attrs.axis is integer and attrs.axis >= -ranks.X",
         "axis is an integer and axis is at least minus the rank of X"),
        ("f16Ok(dtypes.T)", "the device has `shader-f16` where T is float16"),
        ('device.features.has("subgroups")', "the device has `subgroups`"),
        ("not device.adapterInfo.isFallbackAdapter", "the adapter is no software one"),
        ("fits", "`lanes` times 8 is at most the device's `maxComputeWorkgroupStorageSize`"),
        ("not long", "the last dimension of X is at most `LONG` (1024) or "
         "`lanes` times 8 is at most the device's `maxComputeWorkgroupStorageSize`"),
        ("hidden if present.b else true", None),
        ("not many", "`many` does not hold"),
        ("present.b and hidden == 1 and present.b", "B is given and the last dimension of X is 1"),
        ("hard == 2", "`hard` is 2"),
        ("turn", "`turn` holds"),
        ("pick([[hidden > 1, 2]]) == 2", None),
        ("min(hidden, 4) <= max(hidden, 5)", None),
    ],
)  # fmt: skip
def test_conditions_in_words(expression: str, words: str | None) -> None:
    assert in_words(expression, NAMES) == words


def test_derived_values_in_words(every: Registry) -> None:
    words = {value.name: value.words for value in every.card("SkipLayerNormalization").derived}
    assert words["hiddenSize"] == "the last dimension of input" and words["wordElements"] == ""
    assert words["fits"] == "`skipWg` times 8 is at most the device's `maxComputeWorkgroupStorageSize`"


def test_a_strangers_definitions_do_not_grow() -> None:
    lots = {f"d{n}": " and ".join([f"d{n - 1}"] * 30) for n in range(1, 40)} | {"d0": "present.b"}
    names = Names(tensors={}, derived=lots)
    assert len(in_words("d39 and d38", names) or "") < 100_000
    assert in_words(" and ".join(["present.b"] * 100), names) is None


@pytest.mark.parametrize("op", ["BiasAdd", "LayerNormalization", "SkipLayerNormalization"])
def test_every_condition_of_ours_has_words(every: Registry, op: str) -> None:
    for support in every.card(op).backends:
        for kernel in support.variants:
            for condition in (*kernel.when, *kernel.demoted_when):
                assert condition.words and condition.words.strip("`") != condition.expression, condition


def test_the_card_agrees_with_decisions(every: Registry) -> None:
    card = every.card("BiasAdd")
    assert [support.backend for support in card.backends] == ["webgpu", "cuda", "numpy"]
    profile = {"webgpu": {"features": ["shader-f16"]}, "numpy": {}, "cuda": {"computeCapability": [9, 0]}}
    for dtype in card.types["T"]:
        pairs = {
            name: (shape, dtype) for name, shape in (("X", (1, 3, 8)), ("bias", (8,)), ("skip", (1, 3, 8)))
        }
        rows = every.explain("BiasAdd", **pairs, profile=profile).eligible
        for support in card.backends:
            taking = {k.id for k in support.variants if dtype in k.dtypes["T"]}
            assert {row.variant for row in rows if row.backend == support.backend} == taking, dtype
            assert (dtype in support.dtypes["T"]) is bool(taking)


def test_dtypes_by_conditions() -> None:
    assert admits(('dtypes.T == "f16"', "f16Ok(dtypes.T)"), {"T": "float16"})
    assert not admits(('dtypes.T == "f16"',), {"T": "float32"})
    assert admits(('dtypes.T == "f16" or ranks.X == 1', "dtypes.U == 1 + none"), {"T": "float32"})


def test_the_card_of_a_package(fresh: Registry, tmp_path: Path) -> None:
    from registry.packaging.export import export_op

    export_op(fresh, fresh.op("BiasAdd"), tmp_path / "made", "2.1")
    readme = (tmp_path / "made/README.md").read_text()
    assert "dimension 2 of X is a multiple of 4" in readme and "float64" not in readme
    handle = fresh.load(tmp_path / "made")
    card = handle.card()
    assert card.digest == handle.package.digests["manifest.json"] and card.source == handle.package.provenance
    assert [bool(support.variants) for support in card.backends] == [True, False]
    assert "None: it claims the op: found no claim, needed a backend that has this op." in str(card)
    result = CliRunner().invoke(main, ["card", str(tmp_path / "made"), "--markdown"])
    assert result.exit_code == 0 and result.output.startswith("# com.microsoft::BiasAdd\n")


class Odd(Backend):
    """Some of it refused, some split by rows."""

    name = "odd"

    def claims(self, op: Any) -> list[Claim | Refusal]:
        return [Claim("split", batch_invariant=False), Refusal("a | b", "c", "d", "other")]


def test_what_a_backend_marks(every: Registry) -> None:
    import registry_manifests
    from registry import hookimpl

    class plugin:
        @hookimpl
        def registry_backends() -> list[Backend]:
            return [Odd()]

    text = str(Registry([registry_manifests, plugin], entry_points=False).card("BiasAdd"))
    assert "| `split` * |" in text and "different bits when the number of rows changes" in text
    assert "Not offered: other, a | b: found c, needed d." in text


def test_what_was_measured(every: Registry, tmp_path: Path) -> None:
    card = every.card("SkipLayerNormalization", results=ROOT / "docs")
    file = ROOT / "docs/accuracy/llvmpipe.json"
    rows = [row for row in json.loads(file.read_text())["rows"] if row["op"] == card.op]
    here = [row for row in card.accuracy if row.machine == "llvmpipe"]
    assert [(row.output, row.share) for row in here] == [(row["output"], row["share"]) for row in rows]
    assert {row.of.split(",")[0] for row in card.speed} == {"a copy on the device", "ONNX Runtime"}
    assert all(0 < row.lowest <= row.median <= row.highest and row.sizes for row in card.speed)
    assert "## Speed" in str(card) and "## Speed" not in str(every.card("SkipLayerNormalization"))
    with pytest.raises(ContractError, match="nothing measured there"):
        every.card("BiasAdd", results=tmp_path)
    row = {"what": "registry", "op": card.op, "threads": 1, "way": "w", "call": "c", "dtype": "float32"}
    lines = [json.dumps({**row, "ratio": ratio, "wrong": ratio > 3}) for ratio in (1.0, 2.0, 9.0)]
    (tmp_path / "performance").mkdir()
    (tmp_path / "performance/here-cpu.jsonl").write_text("\n".join(lines))
    (speed,) = every.card("SkipLayerNormalization", results=tmp_path).speed
    assert (speed.median, speed.highest, speed.sizes) == (1.5, 2.0, 2)  # what is wrong has no speed
    (tmp_path / "accuracy").mkdir()
    (tmp_path / "accuracy/here.json").write_text('{"rows": [{"op": "com.microsoft::BiasAdd"}]}')
    with pytest.raises(ContractError, match=r"here\.json: cannot be read as results \(KeyError"):
        every.card("BiasAdd", results=tmp_path)


def test_the_command() -> None:
    result = CliRunner().invoke(main, ["card", "BiasAdd", "--json"])
    card = json.loads(result.output)
    vec4 = next(kernel for kernel in card["backends"][0]["variants"] if kernel["id"] == "vec4")
    assert {
        "words": "dimension 2 of X is a multiple of 4",
        "expression": "dim(shapes.X, 2) % 4 == 0",
    } in vec4["when"]
    assert card["backends"][0]["dtypes"] == {"T": ["float32", "float16", "bfloat16"]}
    shown = CliRunner().invoke(main, ["card", "BiasAdd"]).output
    assert "dimension 2 of X" in shown and "`" not in shown
    assert "2 ** 128" in CliRunner().invoke(main, ["card", "LayerNormalization"]).output
    assert CliRunner().invoke(main, ["card", "BiasAdd", "--json", "--markdown"]).exit_code == 2
