"""What goes to the WGSL compiler and what it says: sources it survives, messages a person can use."""

from __future__ import annotations

import re

from registry.errors import BackendError

MAX_NESTING = 256
MAX_STATEMENT = 8192
_LINE = re.compile(r"(?:wgsl|[^\s:]+):(\d+):(\d+)")


def check_size(source: str) -> None:
    """Refuses what overruns the compiler's stack, which ends the process: nesting, endless statements."""
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
    """wgpu's message without its preamble, which names the C function and not the cause."""
    lines = [line.strip() for line in message.strip().splitlines()]
    drop = ("Validation Error", "Caused by:", "")
    while lines and (lines[0] in drop or lines[0].startswith("In wgpu")):
        lines.pop(0)
    kept = message.strip().splitlines()[-len(lines) :] if lines else [message.strip()]
    return "\n".join(line.rstrip() for line in kept).strip()


def with_line(message: str, source: str) -> tuple[str, int | None]:
    """The compiler's message with the source line it points at, and that line's number."""
    match = _LINE.search(message)
    if match is None:
        return message, None
    line = int(match.group(1))
    lines = source.splitlines()
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return f"WGSL line {line}: `{text}`\n{message}", line
