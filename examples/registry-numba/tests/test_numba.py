"""The backend, installed: chosen, explained, exact where it is hard. Its conformance is in the addopts."""

from __future__ import annotations

import numpy as np
import pytest
from registry_numba.backend import OPS

import registry

X = np.random.default_rng(0).standard_normal((6, 40)).astype(np.float32)
ROW = X[0].copy()
CALLS = {
    "ai.onnx::LayerNormalization": {"X": X, "Scale": ROW, "B": ROW},
    "ai.onnx::RMSNormalization": {"X": X, "scale": ROW},
    "ai.onnx::SimplifiedLayerNormalization": {"X": X, "scale": ROW},
    "com.microsoft::SkipLayerNormalization": {"input": X, "skip": X, "gamma": ROW, "beta": ROW, "bias": ROW},
    "com.microsoft::SkipSimplifiedLayerNormalization": {"input": X, "skip": X, "gamma": ROW},
}


def test_every_op_has_a_call() -> None:
    assert CALLS.keys() == OPS.keys()


@pytest.mark.parametrize("op", CALLS)
def test_it_is_chosen_before_numpy_and_agrees(op: str) -> None:
    decision = registry.explain(op, **CALLS[op], backend=["numba", "numpy"])
    assert (decision.backend, decision.variant) == ("numba", "fused")
    report = registry.compare(op, **CALLS[op], backend="numba")
    assert report.ok, report


def test_numpy_takes_what_it_leaves() -> None:
    half, scales = X.astype(np.float16), X + 1
    for tensors, found in (
        ({"X": half, "Scale": half[0]}, "f16"),
        ({"X": X, "Scale": scales}, "Scale [6, 40]"),
    ):
        decision = registry.explain("LayerNormalization", **tensors, backend=["numba", "numpy"])
        assert decision.backend == "numpy"
        assert [row.found for row in decision.candidates if row.backend == "numba"] == [found]


def test_statistics_alone() -> None:
    call = CALLS["com.microsoft::SkipLayerNormalization"]
    mean, inverse = registry.run(
        "SkipLayerNormalization", **call, outputs=("mean", "inv_std_var"), backend="numba"
    )
    rows = (X + X + ROW).astype(np.float64)
    np.testing.assert_allclose(mean[:, 0], rows.mean(-1), atol=1e-6)
    np.testing.assert_allclose(inverse[:, 0], rows.std(-1) ** -1, rtol=1e-6)


def test_a_mean_far_from_zero() -> None:
    x = (10_000 + 0.001 * np.random.default_rng(1).standard_normal((4, 768))).astype(np.float32)
    report = registry.compare("LayerNormalization", X=x, Scale=np.ones(768, np.float32), backend="numba")
    assert report.ok, report
