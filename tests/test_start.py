"""What is loaded at the start: little by `import registry`, what it needs by a first call."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

BACKEND_LIBRARIES = ("wgpu", "wgpudawn", "cupy", "torch")
LATER = ("yaml", "jinja2", "msgspec", "ml_dtypes", "rich", "click", "hypothesis")
PLUGINS = ("registry_manifests", "registry_numpy", "registry_cuda", "registry_webgpu")

FIRST_CALL = """
import numpy, registry
x = numpy.ones((8, 768), numpy.float32)
registry.run("LayerNormalization", X=x, Scale=x[0], backend="numpy")
"""


def loaded(code: str, *names: str) -> list[str]:
    """Which of the packages a process has after it ran the code."""
    tail = f"\nimport sys\nprint(*(name for name in {names!r} if name in sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code + tail],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    return done.stdout.split()


def test_the_library_loads_no_plugin_and_no_library_it_needs_later() -> None:
    # Strangers' plugins come in through registry.plugins, as ours do.
    assert loaded("import registry", *BACKEND_LIBRARIES, *LATER, *PLUGINS, "registry.plugins") == []
    assert loaded("import registry", "registry.api", "numpy") == ["registry.api", "numpy"]


def test_a_call_on_numpy_loads_no_other_backends_library() -> None:
    others = ("rich", "click", "hypothesis", "registry.freezing")
    assert loaded(FIRST_CALL, *BACKEND_LIBRARIES, *others) == []
    assert loaded(FIRST_CALL, *PLUGINS) == list(PLUGINS)


@pytest.mark.parametrize("call", ["registry.ops()", "registry.op('BiasAdd')"])
def test_plugins_are_loaded_when_they_are_asked_for(call: str) -> None:
    assert loaded(f"import registry; {call}", *BACKEND_LIBRARIES) == []
    assert loaded(f"import registry; {call}", *PLUGINS) == list(PLUGINS)


def test_no_module_takes_the_place_of_a_public_name() -> None:
    """An import of a submodule sets an attribute of the package: over a function of that name."""
    code = (
        "import pkgutil, importlib, registry\n"
        "before = {name: getattr(registry, name) for name in registry.__all__}\n"
        "for found in pkgutil.walk_packages(registry.__path__, 'registry.'):\n"
        "    if '__main__' not in found.name and 'pytest' not in found.name:\n"
        "        importlib.import_module(found.name)\n"
        "assert before == {name: getattr(registry, name) for name in registry.__all__}\n"
    )
    assert loaded(code, "registry.opinfo") == ["registry.opinfo"]
