"""`assert_backends_agree`: silent when they do, readable when they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_comparison import LN, N4, V, X, answer_with, with_stranger
from test_package import write

import registry_manifests
import registry_numpy
from registry import ContractError, Registry
from registry.testing import assert_backends_agree

NUMPY = Registry([registry_manifests, registry_numpy], entry_points=False)


def wrong() -> Registry:
    bad = N4.copy()
    bad[1, 2] += 0.25
    return with_stranger(answer_with(bad))


def test_the_report_comes_back_when_all_agree() -> None:
    report = assert_backends_agree("LayerNormalization", X, V, epsilon=0.5, registry=NUMPY)
    assert report.ok and "epsilon=0.5" in report.request
    report = assert_backends_agree("LayerNormalization", **LN, backends="numpy", registry=wrong())
    assert {row.backend for row in report.rows} == {"numpy"}
    calls: Any = [{"X": X}, {"X": X[:1]}]
    assert len(assert_backends_agree("LayerNormalization", Scale=V, cases=calls, registry=NUMPY).cases) == 2


def test_the_shared_registry_is_the_default(default: None) -> None:
    assert assert_backends_agree("LayerNormalization", **LN, backends=["numpy"]).ok


def test_the_message_has_what_one_needs() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_backends_agree("LayerNormalization", **LN, registry=wrong())
    text = str(caught.value)
    for part in (
        "backends do not agree on ai.onnx::LayerNormalization  X f32[3, 4]",
        "against the float64 reference",
        "FAILS stranger only Y:",
        "1 of 12 elements fail, worst at [1, 2]",
        "X[1, 0:4] = 4 5 6 7",
        "Scale[0:4] = 1 1 1 1",
        "numpy agrees: 2 results",
        "stranger fails: 1 of 1 result",
        "set REGISTRY_BUNDLES=FOLDER or pass bundles=FOLDER",
    ):
        assert part in text, text


def test_bundles_are_saved_where_one_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match=r"saved: .*registry replay") as caught:
        assert_backends_agree("LayerNormalization", **LN, registry=wrong(), bundles=tmp_path / "given")
    (path,) = (tmp_path / "given").iterdir()
    assert str(path) in str(caught.value)
    assert wrong().replay(path, backend="stranger").same and NUMPY.replay(path).ok
    monkeypatch.setenv("REGISTRY_BUNDLES", str(tmp_path / "said"))
    with pytest.raises(AssertionError, match="saved"):
        assert_backends_agree("LayerNormalization", **LN, registry=wrong())
    assert [each.name for each in (tmp_path / "said").iterdir()] == [path.name]


def test_a_named_backend_that_runs_nothing_is_no_success() -> None:
    with pytest.raises(ContractError, match="no backend 'nobody'"):
        assert_backends_agree("LayerNormalization", **LN, backends=["numpy", "nobody"], registry=NUMPY)
    reg = with_stranger(answer_with(N4))
    reg.catalog.backend("stranger").claims = lambda op: []  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="stranger ran nothing: "):
        assert_backends_agree("LayerNormalization", **LN, backends=("numpy", "stranger"), registry=reg)
    with pytest.raises(AssertionError, match="nothing is proved: nothing ran"):
        nobody = Registry([registry_manifests], entry_points=False)
        assert_backends_agree("LayerNormalization", **LN, registry=nobody)


def test_one_result_alone_proves_nothing() -> None:
    reg = with_stranger(answer_with(N4))
    reg.catalog.plugins.references.clear()
    with pytest.raises(AssertionError, match="no second result"):
        assert_backends_agree("LayerNormalization", **LN, backends="stranger", registry=reg)


def test_what_is_no_call_is_no_disagreement() -> None:
    with pytest.raises(ContractError, match="epsilon is -1"):
        assert_backends_agree("LayerNormalization", **LN, epsilon=-1.0, registry=NUMPY)
    with pytest.raises(ContractError, match="backends=, one or several, in place of backend="):
        assert_backends_agree("LayerNormalization", **LN, backend="numpy", registry=NUMPY)


def test_a_package_is_taken_too(webgpu: Registry, tmp_path: Path) -> None:
    handle = webgpu.load(write(tmp_path / "package"))
    report = assert_backends_agree(handle, np.ones((2, 3, 5), np.float32), times=2)
    assert {row.variant for row in report.rows} == {"one_pass", "two_passes"}
