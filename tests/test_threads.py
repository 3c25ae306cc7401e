"""Eight threads of two hundred calls each, of several ops, shapes and dtypes, while settings change."""

from __future__ import annotations

from pathlib import Path

import pytest
from crowd import CALLS, THREADS, crowd

import registry_manifests
import registry_numpy
import registry_webgpu
from registry import Registry


@pytest.mark.parametrize(
    ("backend", "dtypes", "disturbances"),
    [("numpy", ("float32", "float16", "float64"), 40), ("webgpu", ("float32", "bfloat16"), 4)],
)
def test_a_crowd(
    webgpu: Registry,
    backend: str,
    dtypes: tuple[str, ...],
    disturbances: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REGISTRY_TUNED", "1")
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path))
    reg = Registry([registry_manifests, registry_numpy, registry_webgpu], entry_points=False)
    found = crowd(reg, backend, dtypes, on_device=backend == "webgpu", disturbances=disturbances)
    assert found >= THREADS * CALLS
    assert len(list((tmp_path / "tuned").rglob("*.json"))) > len(dtypes)
    assert not list((tmp_path / "tuned").rglob(".draft*"))
