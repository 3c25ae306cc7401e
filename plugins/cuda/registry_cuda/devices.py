"""What there is to run on: CuPy, the driver and the devices, or the reason why not."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from types import MappingProxyType
from typing import Any

from registry import Availability, BackendError, ContractError
from registry.errors import suggestion

INSTALL = "pip install 'kernel-registry[cuda13]' (or [cuda12], as the driver's CUDA version is)"
WHEELS = ("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x")
OLDEST = (7, 0)
_KEYS = ("computeCapability", "multiProcessorCount", "name")


@dataclass(frozen=True)
class Profile:
    """What kernels are chosen and rendered by."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    index: int | None = None

    def availability(self, details: Mapping[str, Any]) -> Availability:
        """The device as available."""
        device = {"computeCapability": list(self.capability), "multiProcessorCount": self.multiprocessors}
        return Availability(
            True, name=self.name, device=MappingProxyType(device), details=details, record=self
        )


def obstacle() -> Availability | None:
    """The reason why no CUDA device can be used, or None. Imports CuPy when it is installed."""
    if importlib.util.find_spec("cupy") is None:
        return _no("cupy is installed", "not found", INSTALL)
    wheels = [name for name in WHEELS if _installed(name)]
    if len(wheels) > 1:
        return _no("one CuPy is installed", ", ".join(wheels), "pip uninstall all of them, then " + INSTALL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what CuPy has to say about its setup is said below
            from cupy.cuda import runtime
            from cupy_backends.cuda.libs import nvrtc
    except (Exception, SystemExit) as error:  # an import of CuPy can fail in any way
        return _no("cupy imports", _first_line(error), "a CuPy for the driver's CUDA version")
    try:
        count = runtime.getDeviceCount()
    except Exception as error:  # no driver, or one that is too old
        return _no("the driver answers", _first_line(error), "an NVIDIA GPU and its driver")
    if count == 0:
        return _no("there is a device", "none", "an NVIDIA GPU (is CUDA_VISIBLE_DEVICES empty?)")
    try:
        nvrtc.getVersion()
    except Exception as error:  # the library is missing
        return _no("NVRTC loads", _first_line(error), "the CUDA toolkit, or pip install 'cupy-cuda13x[ctk]'")
    return None


def probe(part: str | None) -> Availability:
    """How a device, by index or part of its name (None: CuPy's current one), stands."""
    against = obstacle()
    if against is not None:
        return against
    import cupy
    from cupy.cuda import runtime
    from cupy_backends.cuda.libs import nvrtc

    try:
        profile = open_profile(part)
    except BackendError as error:
        return _no("the device is there", error.message, "the index or a part of the name of a device")
    if profile.capability < OLDEST:
        found = ".".join(map(str, profile.capability))
        return _no("compute capability", f"{profile.name}: {found}", ".".join(map(str, OLDEST)) + " or newer")
    driver = runtime.driverGetVersion()
    compiler = nvrtc.getVersion()
    details = {
        "device": profile.name,
        "compute capability": ".".join(map(str, profile.capability)),
        "multiprocessors": profile.multiprocessors,
        "driver's CUDA version": f"{driver // 1000}.{driver % 1000 // 10}",
        "library": f"CuPy {cupy.__version__}",
        "compiler": f"NVRTC {compiler[0]}.{compiler[1]}",
    }
    return profile.availability(MappingProxyType(details))


def open_profile(part: str | None) -> Profile:
    """The profile of a device by index or part of its name; None is CuPy's current one.

    Raises:
        BackendError: there is no such device; lists what there is.
    """
    from cupy.cuda import runtime

    if part is None:
        return _profile(runtime.getDevice())
    names = [_profile(index).name for index in range(runtime.getDeviceCount())]
    for index, name in enumerate(names):
        if part == str(index) or (not part.isdecimal() and part.lower() in name.lower()):
            return _profile(index)
    listed = ", ".join(f"{index}: {name}" for index, name in enumerate(names))
    raise BackendError(f"no device {part!r}; devices: {listed}", backend="cuda")


def _profile(index: int) -> Profile:
    from cupy.cuda import runtime

    found = runtime.getDeviceProperties(index)
    name = found["name"]
    return Profile(
        name=name.decode() if isinstance(name, bytes) else str(name),
        capability=(found["major"], found["minor"]),
        multiprocessors=found["multiProcessorCount"],
        index=index,
    )


def parse_profile(data: Any) -> Profile:
    """A device described by a caller: ``computeCapability`` as [major, minor], ``multiProcessorCount``
    (default 1) and ``name``.

    Raises:
        ContractError: an unknown key or a value of the wrong kind.
    """
    if not isinstance(data, Mapping):
        raise ContractError(f"profile['cuda'] is {data!r}; needed: a mapping with {', '.join(_KEYS)}")
    for key in data:
        if key not in _KEYS:
            hint = suggestion(str(key), _KEYS)
            raise ContractError(f"profile['cuda']: unknown key {key!r}{hint}; keys: {', '.join(_KEYS)}")
    capability = data.get("computeCapability")
    if not isinstance(capability, list | tuple) or [type(part) for part in capability] != [int, int]:
        needed = "two integers such as [9, 0]"
        raise ContractError(f"profile['cuda']['computeCapability'] is {capability!r}; needed: {needed}")
    if tuple(capability) < OLDEST:
        needed = f"at least {list(OLDEST)}"
        raise ContractError(f"profile['cuda']['computeCapability'] is {capability!r}; needed: {needed}")
    count = data.get("multiProcessorCount", 1)
    if type(count) is not int or count < 1:
        raise ContractError(f"profile['cuda']['multiProcessorCount'] is {count!r}; needed: at least 1")
    name = data.get("name", "described device")
    return Profile(str(name), (capability[0], capability[1]), count)


def _installed(wheel: str) -> bool:
    try:
        metadata.version(wheel)
    except metadata.PackageNotFoundError:
        return False
    return True


def _no(condition: str, found: str, needed: str) -> Availability:
    return Availability(False, condition, found, needed)


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip(" =")]
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__
