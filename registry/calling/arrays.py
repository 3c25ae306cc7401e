"""What kind of array a value is, where it lives, and how a result comes back as the same kind.

Frameworks are recognised by the module of the value's type and reached through ``sys.modules``: a framework
that made an array is loaded already, and none is ever imported to find out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from ..dtypes import DTYPES, LONG_NAMES, numpy_dtype
from ..errors import ContractError, RegistryError

NumpyArray = np.ndarray[Any, Any]
Owner = Callable[[object], str | None]
"""Says on which device of a backend (``name:0``) a value lives, or None when no backend owns it."""

MAX_OVERLAP_WORK: Any = 10_000
_DLPACK_HOST = (1, 3)  # kDLCPU and kDLCUDAHost: memory the CPU reads


@dataclass(frozen=True)
class ArrayType:
    """What a plan needs to know of an array: its kind, shape, dtype and device (None on the host)."""

    kind: str
    shape: tuple[int, ...]
    dtype: str
    device: str | None = None


def is_pair(value: object) -> bool:
    """Whether the value is a ``(shape, dtype)`` pair standing for an array."""
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], tuple | list)
        and isinstance(value[1], str | type | np.dtype)
    )


def no_owner(value: object) -> str | None:
    """The owner function of a world without device tensors."""
    return None


def describe(value: object, name: str, owner: Owner = no_owner) -> ArrayType:
    """The kind, shape, dtype and device of an array or a ``(shape, dtype)`` pair.

    Raises:
        ContractError: the value is no array we take; says what to do instead.
    """
    if isinstance(value, np.ndarray):
        if isinstance(value, np.ma.MaskedArray):
            raise _no(name, "a masked array", "use .filled(value) or .data")
        return ArrayType("numpy", value.shape, dtype_name(value.dtype, name))
    if is_pair(value):
        return _describe_pair(value, name)
    try:
        return _describe_other(value, name, owner)
    except RegistryError:
        raise
    except Exception as error:  # whatever a stranger's object raises
        found = f"a {_type_name(value)} that cannot be read ({type(error).__name__}: {error})"
        raise _no(name, found, "pass an array") from error


def _describe_other(value: object, name: str, owner: Owner) -> ArrayType:
    device = owner(value)
    if _root(value) == "torch" and hasattr(value, "requires_grad"):
        return _describe_torch(value, name, device)
    if device is not None:
        tensor: Any = value
        return _device_type(_root(value), tuple(tensor.shape), tensor.dtype, device)
    if isinstance(value, np.generic):
        return ArrayType("numpy", (), dtype_name(value.dtype, name))
    if isinstance(value, bool | int | float | complex):
        raise _no(name, f"a Python number ({value!r})", "use numpy.asarray(value, dtype)")
    if isinstance(value, list | tuple):
        raise _no(name, f"a {type(value).__name__}", "use numpy.asarray(value, dtype)")
    if hasattr(value, "__dlpack_device__") and hasattr(value, "__dlpack__"):
        return _describe_dlpack(value, name)
    if hasattr(value, "__cuda_array_interface__"):
        raise _elsewhere(name, value)
    raise _no(name, f"a {_type_name(value)}", "pass an array")


def _type_name(value: object) -> str:
    module = "" if _root(value) == "builtins" else f"{type(value).__module__}."
    return f"{module}{type(value).__qualname__}"


def to_host(value: object) -> NumpyArray:
    """A NumPy view (or, for a foreign byte order, a copy) of a host array in native byte order."""
    if isinstance(value, np.ndarray):
        array = value if type(value) is np.ndarray else np.asarray(value)
    elif isinstance(value, np.generic):
        array = np.asarray(value)
    elif _root(value) == "torch":
        array = _torch_to_numpy(value)
    else:
        source: Any = value
        array = np.from_dlpack(source)
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    return array


def like(array: NumpyArray, value: object) -> Any:
    """A host result as the kind of array the call brought: torch for torch, DLPack libraries by DLPack."""
    root = _root(value)
    if isinstance(value, np.ndarray | np.generic) or root == "numpy":
        return array
    if root == "torch":
        torch = sys.modules["torch"]
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)
    # A library's arrays may be of its native half: jaxlib's belong to jax.
    library = sys.modules.get(root.removesuffix("lib")) or sys.modules.get(root)
    importer = getattr(library, "from_dlpack", None)
    return importer(array) if importer is not None and array.dtype.name != "bfloat16" else array


def check_out(name: str, value: object, inputs: Mapping[str, NumpyArray]) -> NumpyArray:
    """The host memory behind an ``out`` array, ready to be written.

    Raises:
        ContractError: it is not writable, overlaps itself or shares memory with an input.
    """
    if not isinstance(value, np.ndarray) and _root(value) != "torch":
        raise _no(f"out {name}", f"a {type(value).__qualname__}", "pass a NumPy array or a CPU tensor")
    array = value if isinstance(value, np.ndarray) else _torch_to_numpy(value)
    if not array.dtype.isnative:
        raise _no(f"out {name}", f"byte order of {array.dtype.str}", "use the native byte order")
    if not array.flags.writeable:
        raise _no(f"out {name}", "a read-only array", "pass a writable one")
    if _overlaps_itself(array):
        raise _no(
            f"out {name}", f"an array that overlaps itself (strides {array.strides})", "pass a plain array"
        )
    for role, source in inputs.items():
        if overlaps(array, source):
            raise _no(f"out {name}", f"memory shared with {role}", "results never overwrite inputs")
    return array


def _overlaps_itself(array: NumpyArray) -> bool:
    """Whether two elements may share memory: a dimension steps less far than all smaller ones reach."""
    if array.flags.c_contiguous:
        return False
    reach = array.dtype.itemsize
    steps = sorted((abs(s), d) for s, d in zip(array.strides, array.shape, strict=True) if d > 1)
    for step, dim in steps:
        if step < reach:
            return array.size > 0
        reach += (dim - 1) * step
    return False


def overlaps(a: NumpyArray, b: NumpyArray) -> bool:
    """Whether two arrays share memory; when that is too hard to tell, yes."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return bool(np.shares_memory(a, b, max_work=MAX_OVERLAP_WORK))
    except np.exceptions.TooHardError:
        return True


def dtype_name(dtype: Any, name: str) -> str:
    """The logical name of a NumPy dtype (or of anything ``numpy.dtype`` accepts).

    Raises:
        ContractError: the registry has no such element type.
    """
    if isinstance(dtype, str) and (full := LONG_NAMES.get(dtype, dtype)) in DTYPES:
        return full  # "f16" is ours, and not NumPy's float of 16 bytes
    if isinstance(dtype, np.dtype) and (known := _known_name(dtype)) is not None:
        return known
    try:
        resolved = np.dtype(dtype)
    except TypeError:
        raise _no(name, f"dtype {dtype!r}", "one of " + ", ".join(DTYPES)) from None
    if resolved.name not in DTYPES or resolved.fields is not None:
        raise _no(name, f"dtype {resolved}", "convert with .astype to one of " + ", ".join(DTYPES))
    return str(resolved.name)


@cache
def _known_name(dtype: np.dtype[Any]) -> str | None:
    """NumPy makes a dtype's name anew each time it is asked, which costs more than all else here."""
    return str(dtype.name) if dtype.name in DTYPES and dtype.fields is None else None


def _describe_pair(value: Any, name: str) -> ArrayType:
    shape, dtype = value
    if not all(isinstance(dim, int | np.integer) and not isinstance(dim, bool) and dim >= 0 for dim in shape):
        needed = "dimensions are integers of at least 0 (or names, for infer alone)"
        raise _no(name, f"shape {tuple(shape)}", needed)
    dims = tuple(dim if isinstance(dim, int) else int(dim) for dim in shape)  # an int may carry a name
    return ArrayType("pair", dims, dtype_name(dtype, name))


@lru_cache(maxsize=4096)
def _device_type(kind: str, shape: tuple[int, ...], dtype: Any, device: str) -> ArrayType:
    return ArrayType(kind, shape, dtype_name(dtype, "tensor"), device)


def _describe_torch(value: Any, name: str, device: str | None) -> ArrayType:
    if value.requires_grad:
        raise _no(name, "a tensor that needs grad", "pass tensor.detach(): nothing here has a gradient")
    if str(value.layout) != "torch.strided":
        raise _no(name, f"layout {value.layout}", "pass a dense tensor (.to_dense())")
    if value.device.type != "cpu" and device is None:
        raise _elsewhere(name, value)
    dtype = dtype_name(str(value.dtype).removeprefix("torch."), name)
    return ArrayType("torch", tuple(value.shape), dtype, device)


def _describe_dlpack(value: Any, name: str) -> ArrayType:
    try:
        host = int(value.__dlpack_device__()[0]) in _DLPACK_HOST
        view = np.from_dlpack(value) if host else None
    except Exception as error:  # whatever another library raises here
        raise _no(name, f"an array NumPy cannot import by DLPack ({error})", "convert it to NumPy") from error
    if view is None:
        raise _elsewhere(name, value)
    return ArrayType(_root(value), view.shape, dtype_name(view.dtype, name))


def _torch_to_numpy(value: Any) -> NumpyArray:
    torch = sys.modules["torch"]
    plain = value.resolve_neg() if value.is_neg() else value
    if plain.dtype == torch.bfloat16:
        array: NumpyArray = plain.view(torch.int16).numpy()
        return array.view(numpy_dtype("bfloat16"))
    result: NumpyArray = plain.numpy()
    return result


def _root(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _elsewhere(name: str, value: object) -> ContractError:
    return _no(
        name,
        f"a {type(value).__module__}.{type(value).__qualname__} in device memory",
        "no loaded backend takes it there; copy it to the host first (.cpu(), .get())",
    )


def _no(name: str, found: str, needed: str) -> ContractError:
    return ContractError(f"{name} is {found}; {needed}", argument=name)
