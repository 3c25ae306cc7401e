"""What the tests share: fresh registries, the published seed manifests as packages, and a WebGPU adapter."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import registry
import registry_cuda
import registry_manifests
import registry_numpy
import registry_webgpu
from registry import Registry
from registry.handle import Handle
from registry.packaging.loaded import Loaded

ROOT = Path(__file__).parent.parent
TEMPLATES = ROOT / "plugins/webgpu/registry_webgpu/templates"
SEEDS = Path(os.environ.get("REGISTRY_SEEDS", ROOT / "../shared/seeds"))
OPS = ("BiasAdd", "LayerNormalization", "SkipLayerNormalization")
BACKENDS = ("numpy", "webgpu", "cuda")


def load_script(name: str) -> ModuleType:
    """A file of scripts/ as a module."""
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for their names
    spec.loader.exec_module(module)
    return module


def pytest_configure() -> None:
    """What the user has measured must not change results."""
    os.environ["REGISTRY_TUNED"] = "0"
    registry.refresh()


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own settings, and packages that another test has loaded, must not change results."""
    for name in list(os.environ):
        if name.startswith("REGISTRY_") and name not in ("REGISTRY_SEEDS", "REGISTRY_TUNED"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(registry._shared.catalog, "loaded", Loaded())


@pytest.fixture
def fresh() -> Registry:
    """An isolated registry with the built-in plugins."""
    return Registry([registry_manifests, registry_numpy, registry_webgpu], entry_points=False)


@pytest.fixture(scope="session")
def shared() -> Registry:
    """One registry with the built-in plugins for tests that change no settings: devices stay open."""
    return Registry([registry_manifests, registry_numpy, registry_webgpu], entry_points=False)


@pytest.fixture(scope="session")
def every() -> Registry:
    """One registry with every built-in backend, for tests that name the one they run on."""
    plugins = [registry_manifests, registry_numpy, registry_webgpu, registry_cuda]
    return Registry(plugins, entry_points=False)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, every: Registry) -> str:
    """Each backend of ``every`` in turn, by name, where it is available."""
    name: str = request.param
    here = every.catalog.availability(name)
    if not here.available:
        pytest.skip(f"no {name}: {here.condition}: {here.found}")
    return name


@pytest.fixture(scope="session")
def webgpu(shared: Registry) -> Registry:
    """The shared registry, where a WebGPU adapter is at hand."""
    status = next(s for s in shared.backends() if s.name == "webgpu")
    if not status.available:
        pytest.skip(f"no WebGPU adapter: {status.because}: {status.found}")
    return shared


@pytest.fixture(scope="session")
def cuda() -> Registry:
    """A registry with the CUDA backend, where there is a GPU that it can use."""
    reg = Registry([registry_manifests, registry_numpy, registry_cuda], entry_points=False)
    status = next(s for s in reg.backends() if s.name == "cuda")
    if not status.available:
        pytest.skip(f"no CUDA device: {status.because}: {status.found}")
    return reg


@pytest.fixture(scope="session")
def seeds(shared: Registry, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Handle]:
    """The published manifests, unmodified, each in a package folder beside our templates."""
    if not SEEDS.is_dir():
        pytest.skip(f"no seed manifests in {SEEDS} (set REGISTRY_SEEDS)")
    handles = {}
    for name in OPS:
        folder = tmp_path_factory.mktemp(name)
        shutil.copy(SEEDS / f"{name}.manifest.json", folder / "manifest.json")
        for template in TEMPLATES.glob("*.jinja"):
            shutil.copy(template, folder)
        handles[name] = shared.load(folder)
    return handles


@pytest.fixture(scope="session")
def tint() -> Iterator[Any]:
    """A device of Dawn's null adapter: it computes nothing, but its compiler takes float16 and subgroups."""
    wgpudawn = pytest.importorskip("wgpudawn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WGPU_BACKEND_TYPE", "Null")
        try:
            adapter = wgpudawn.gpu.request_adapter_sync()
        except RuntimeError as error:
            pytest.skip(f"this Dawn has no null adapter: {error}")
    features = ["shader-f16", "subgroups"]
    yield adapter.request_device_sync(required_features=features, required_limits=dict(adapter.limits))


@pytest.fixture
def default() -> Iterator[None]:
    """The module's own registry, put back to its defaults afterwards."""
    yield
    registry.configure(backends=None, options={})
    registry.refresh()
