"""The CUDA backend: claims the ops it has kernels for, whole."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from registry import Availability, Backend, Claim, Executable, Op, Refusal, RenderedPass, Request

from . import libraries
from .devices import Profile, open_profile, parse_profile, probe
from .kernel import Kernel
from .launch import on_device
from .problem import NORMALIZATIONS, PARTS, read_problem
from .tensor import as_cupy, device_name, to_host
from .variants import FLAT, ROWS, VARIANTS


class CudaBackend(Backend):
    """Runs CUDA C++ through CuPy, on arrays of CuPy, torch and whatever shares its device memory.

    Options (``registry.configure(options={"cuda": ...})``): ``device``: the index of a device, or a part of
    its name.
    """

    name = "cuda"
    priority = 200
    option_names = ("device",)

    def probe(self, options: Mapping[str, Any]) -> Availability:
        """Imports CuPy, when it is installed, and asks the driver."""
        return probe(_part(options))

    def imagine(self, profile: Mapping[str, Any]) -> Availability:
        """A device by its computeCapability ([major, minor]), multiProcessorCount and name."""
        return parse_profile(profile).availability({"device": "described by the caller"})

    def claims(self, op: Op) -> Sequence[Claim | Refusal]:
        """``rows_registers``, ``rows_split``, ``rows_block`` by length and number of rows; ``bias_add``."""
        if op.package is not None:
            return []
        if op.id not in PARTS:
            return [Refusal("the op is built in", op.id, ", ".join(PARTS))]
        return ROWS if op.id in NORMALIZATIONS else FLAT

    def prepare(self, request: Request, claim: Claim, options: Mapping[str, Any]) -> Executable:
        """Renders, compiles and loads."""
        return Kernel(read_problem(request), VARIANTS[claim.variant], open_profile(_part(options)))

    def render(self, request: Request, claim: Claim, availability: Availability) -> tuple[RenderedPass, ...]:
        """The source of every launch, without touching the device."""
        profile = availability.record
        assert isinstance(profile, Profile)
        problem, variant = read_problem(request), VARIANTS[claim.variant]
        kernel = variant.kernel(problem)
        source = kernel.source()
        uniforms = {
            "rows": problem.rows,
            "first_row": 0,
            "skip_rows": problem.skip_rows,
            "pieces": variant.pieces(problem, problem.rows, profile.multiprocessors),
            "epsilon": problem.epsilon,
        }
        return tuple(
            RenderedPass(
                id=item.function,
                shader=kernel.template,
                language="cuda",
                source=source,
                constants=kernel.constants,
                inputs={},
                declarations=f"__launch_bounds__({item.threads}) void {item.function}(const Tensors all)",
                uniforms=uniforms,
                dispatch=(item.grid, 1, 1),
            )
            for item in variant.launches(problem, problem.rows, profile.multiprocessors)
        )

    def scratch_bytes(self, request: Request, claim: Claim, availability: Availability) -> int | None:
        """The measures of the segments of rows that several blocks share."""
        problem = read_problem(request)
        return VARIANTS[claim.variant].scratch_bytes(problem, problem.rows)

    def reader(self, kind: type) -> Callable[[Any], Hashable] | None:
        """CuPy's arrays and ours go by shape, dtype and device."""
        return libraries.reader(kind)

    def owns(self, array: object) -> bool:
        """Whether the array lies in the memory of a CUDA device."""
        return libraries.device_of(array) is not None

    def location(self, tensor: Any) -> str:
        """``cuda:0``."""
        index = libraries.device_of(tensor)
        assert index is not None
        return device_name(index)

    def place(self, array: np.ndarray[Any, Any], options: Mapping[str, Any]) -> Any:
        """Copies a host array to the device: a CuPy array, or for bfloat16 a `Tensor`."""
        made = self.empty(array.shape, array.dtype.name, options)
        _fill(made, array)
        return made

    def empty(self, shape: tuple[int, ...], dtype: str, options: Mapping[str, Any]) -> Any:
        """A tensor of undefined contents on the device: a CuPy array, or for bfloat16 a `Tensor`."""
        return libraries.allocate_on(_index(options), shape, dtype)

    def beside(self, tensor: Any, shape: tuple[int, ...], dtype: str, options: Mapping[str, Any]) -> Any:
        """A tensor of undefined contents, of the kind and on the device of another one."""
        return libraries.library_of(tensor).beside(tensor, shape, dtype)

    def deliver(self, array: np.ndarray[Any, Any], tensor: Any, options: Mapping[str, Any]) -> Any:
        """Copies a host array to the device of a tensor, as its kind."""
        made = libraries.library_of(tensor).beside(tensor, array.shape, array.dtype.name)
        _fill(made, array)
        return made

    def remarks(self, tensors: Mapping[str, Any]) -> Iterable[str]:
        """Which tensors are copied, for the kernels read dense ones."""
        gaps = [role for role, tensor in tensors.items() if libraries.library_of(tensor).gaps(tensor)]
        return [f"copies {', '.join(gaps)} on the device first, to be dense"] if gaps else []

    def host(self, tensor: Any) -> np.ndarray[Any, Any]:
        """Copies a device tensor to the host."""
        return to_host(tensor)

    def wait(self, options: Mapping[str, Any]) -> None:
        """Returns when the device has done everything, on all streams."""
        from cupy.cuda import runtime

        with on_device(_index(options)):
            runtime.deviceSynchronize()

    def copier(self, nbytes: int, options: Mapping[str, Any]) -> Callable[[], None]:
        """A copy by the driver, on CuPy's current stream."""
        import cupy
        from cupy.cuda import get_current_stream

        index = _index(options)
        with on_device(index):
            numbers = cupy.random.standard_normal(2**20, np.float32)  # memory is quicker with zeros
            source = cupy.resize(numbers, max(1, nbytes // 8))
            target = cupy.empty_like(source)

        def copy() -> None:
            with on_device(index):
                target.data.copy_from_device_async(source.data, source.nbytes, get_current_stream())

        return copy

    def overlaps(self, one: Any, other: Any) -> bool:
        """Whether the bytes between the first and the last of two tensors have any in common."""
        return libraries.overlaps(one, other)


def _fill(tensor: Any, array: np.ndarray[Any, Any]) -> None:
    target = as_cupy(tensor)
    with on_device(target.device.id):
        # Not ascontiguousarray, which makes a row of a scalar.
        target.set(np.asarray(array, order="C").view(target.dtype))


def _part(options: Mapping[str, Any]) -> str | None:
    device = options.get("device")
    return None if device is None else str(device)


def _index(options: Mapping[str, Any]) -> int:
    from cupy.cuda import runtime

    part = _part(options)
    if part is None:
        return int(runtime.getDevice())
    if part.isdecimal() and int(part) < runtime.getDeviceCount():
        return int(part)
    index = open_profile(part).index
    assert index is not None
    return index
