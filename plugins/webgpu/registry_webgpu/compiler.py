"""What goes to the WGSL compiler and what it says: sources it survives, messages a person can use."""

from __future__ import annotations

import re

from registry.errors import BackendError, shorten

MAX_NESTING = 256
MAX_STATEMENT = 8192
MAX_CHAIN = 1024
"""``else if`` of a source: each is an ``if`` within the one before it."""

_ELSE_IF = re.compile(r"\belse\s+if\b")
_PREAMBLE = ("Validation Error", "Caused by:", "")
# naga names the module, Tint leaves the name empty.
_LINE = re.compile(r"[^\s:]*:(\d+):(\d+)")
_LOST = re.compile(r"""\bdevice( "[^"]*")?\]?( is)? lost\b""", re.I)


def check_size(source: str) -> None:
    """Refuses what overruns the compiler's stack, which ends the process: nesting, endless statements."""
    chain = len(_ELSE_IF.findall(source))
    if chain > MAX_CHAIN:
        raise BackendError(f"the source has {chain} `else if`; needed: at most {MAX_CHAIN}", backend="webgpu")
    depth = length = 0
    for line in source.splitlines():
        code = line.partition("//")[0]
        for part in re.findall(r"[(\[]|[)\]]|[;{}]|[^()\[\];{}]+", code):
            length = 0 if part in ";{}" else length + len(part)
            depth += (part in "([") - (part in ")]")
            if depth > MAX_NESTING or length > MAX_STATEMENT:
                raise BackendError(
                    f"the source nests over {MAX_NESTING} brackets, or one statement has over "
                    f"{MAX_STATEMENT} characters",
                    backend="webgpu",
                )


def essence(message: str) -> str:
    """The message without the lines before (wgpu) and after (Dawn) the cause, which name C functions."""
    lines = message.strip().splitlines()
    while lines and (lines[0].strip() in _PREAMBLE or lines[0].strip().startswith("In wgpu")):
        lines.pop(0)
    while lines and lines[-1].strip().startswith(("- While ", "at ")):
        lines.pop()
    return "\n".join(line.rstrip() for line in lines).strip() or message.strip()


def tells_of_loss(message: str) -> bool:
    """Whether an error says that the device is lost."""
    return _LOST.search(message) is not None


def with_line(message: str, source: str) -> tuple[str, int | None]:
    """The compiler's message with the source line it points at, and that line's number."""
    match = _LINE.search(message)
    if match is None:
        return message, None
    line = int(match.group(1))
    lines = source.splitlines()
    text = shorten(lines[line - 1].strip(), 160) if 0 < line <= len(lines) else ""
    return f"WGSL line {line}: `{text}`\n{message}", line
