"""From CUDA C++ to machine code by NVRTC, once per source and architecture. No device is needed."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from registry import BackendError
from registry.files import cache_folder, write_whole

OPTIONS = ("--std=c++17",)
_PLACE = re.compile(r"\((\d+)\): (?:catastrophic )?error: (.*)")


@lru_cache(maxsize=512)
def compile_source(source: str, capability: tuple[int, int]) -> bytes:
    """Machine code for a compute capability; PTX for one that is newer than the compiler.

    Raises:
        BackendError: it does not compile; says the line.
    """
    from cupy_backends.cuda.libs import nvrtc

    architecture = 10 * capability[0] + capability[1]
    known = sorted(nvrtc.getSupportedArchs())
    exact = architecture in known
    if not exact:
        older = [item for item in known if item < architecture]
        if not older:
            needed = f"{known[0] / 10:.1f} or newer, or an older CUDA toolkit"
            raise BackendError(
                f"compute capability {architecture / 10:.1f}; needed: {needed}", backend="cuda"
            )
        architecture = older[-1]
    target = f"--gpu-architecture={'sm' if exact else 'compute'}_{architecture}"
    file = _cache_file(source, target, nvrtc.getVersion())
    with suppress(OSError):
        return file.read_bytes()
    code = run_nvrtc(source, (target, *OPTIONS), exact)[0]
    with suppress(OSError):  # a folder that cannot be written is no reason to fail
        write_whole(file, code, private=True)
    return code


def run_nvrtc(source: str, options: tuple[str, ...], machine_code: bool = True) -> tuple[bytes, str]:
    """What NVRTC makes of a source, machine code or PTX, and what it says.

    Raises:
        BackendError: it does not compile; says the line.
    """
    from cupy_backends.cuda.libs import nvrtc

    program = nvrtc.createProgram(source, "kernel.cu", (), ())
    try:
        try:
            nvrtc.compileProgram(program, options)
        except nvrtc.NVRTCError:
            log = nvrtc.getProgramLog(program)
            found = _PLACE.search(log)
            line = int(found[1]) if found else None
            message = f"line {line}: {found[2]}" if found else log or "the compiler says nothing"
            raise BackendError(f"does not compile: {message}", backend="cuda", line=line) from None
        result = nvrtc.getCUBIN(program) if machine_code else nvrtc.getPTX(program)
        code = result.encode() if isinstance(result, str) else bytes(result)
        return code, nvrtc.getProgramLog(program)
    finally:
        nvrtc.destroyProgram(program)


def _cache_file(source: str, target: str, version: tuple[int, int]) -> Path:
    digest = hashlib.sha256("\0".join((source, target, *OPTIONS, str(version))).encode()).hexdigest()
    return cache_folder() / "cuda" / f"{digest}.cubin"
