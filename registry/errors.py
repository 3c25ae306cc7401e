"""The kinds of error a user can meet. Most keep their facts as attributes, so that nobody parses text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .deciding.decision import Decision


class RegistryError(Exception):
    """The root of every error raised on purpose by this library."""


class ContractError(RegistryError, ValueError):
    """A call breaks the op's contract: a name, presence, shape, dtype, attribute or array kind. Or an
    argument of a function, an option, an environment variable or a command is wrong, such as a file that
    cannot be written, or needs an extra that is not installed.

    Attributes: ``op`` (the op's id or None), ``argument`` (the offending name or None). A call that breaks
    the contract is refused before any backend is touched.
    """

    def __init__(self, message: str, *, op: str | None = None, argument: str | None = None):
        super().__init__(message)
        self.op = op
        self.argument = argument


class NoPlanError(RegistryError):
    """No candidate accepts the request, or none of those that do could be prepared. ``decision`` holds every
    candidate with its reason."""

    def __init__(self, message: str, *, decision: Decision | None = None):
        super().__init__(message)
        self.decision = decision


class ManifestError(RegistryError):
    """A manifest is wrong. ``file`` names it, ``path`` the place in it (``$.variants[0].when[1]``)."""

    def __init__(self, message: str, *, file: str | None = None, path: str | None = None):
        where = ", ".join(part for part in (file, f"at {path}" if path else None) if part)
        super().__init__(f"{where}: {message}" if where else message)
        self.message = message
        self.file = file
        self.path = path


class PackageError(RegistryError):
    """A package or a bundle is incomplete, reaches outside itself or does not match its digests; or a package
    cannot be fetched, is not trusted, or not what the lock says."""


class PluginError(RegistryError):
    """A plugin is broken or clashes with another. ``plugin`` and ``distribution`` name the culprit."""

    def __init__(self, message: str, *, plugin: str | None = None, distribution: str | None = None):
        super().__init__(message)
        self.plugin = plugin
        self.distribution = distribution


class BackendError(RegistryError):
    """A backend failed while preparing or running.

    Attributes: ``op``, ``backend``, ``variant``, ``line`` (the line of the rendered source the compiler
    complains about, or None), ``lost`` (True when the device is gone and a new one is needed).
    """

    def __init__(
        self,
        message: str,
        *,
        op: str | None = None,
        backend: str | None = None,
        variant: str | None = None,
        line: int | None = None,
        lost: bool = False,
    ):
        where = " ".join(part for part in (op, backend, variant) if part)
        super().__init__(f"{where}: {message}" if where else message)
        self.message = message
        self.op = op
        self.backend = backend
        self.variant = variant
        self.line = line
        self.lost = lost


def as_backend_error(error: Exception, *, op: str, backend: str, variant: str) -> BackendError:
    """The error of a backend with op, backend and variant filled in; another exception as its cause."""
    if isinstance(error, BackendError):
        if error.op is not None:
            return error
        made = BackendError(
            error.message, op=op, backend=backend, variant=variant, line=error.line, lost=error.lost
        )
    else:
        said = f"{type(error).__name__}: {error}".removesuffix(": ")
        made = BackendError(said, op=op, backend=backend, variant=variant)
    made.__cause__ = error
    return made


@contextmanager
def blaming(backend: str, doing: str) -> Iterator[None]:
    """Within it, whatever a backend raises but our own errors is a BackendError that says who did what."""
    try:
        yield
    except RegistryError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise BackendError(f"{doing} failed: {said}", backend=backend) from error


class RegistryWarning(UserWarning):
    """Something worth saying once: an automatic choice fell back, a plugin did not load."""


def suggestion(name: str, known: Sequence[str]) -> str:
    """``" (did you mean 'X'?)"`` when a known name is close to the one given, else an empty string.

    Only names of up to 64 characters are compared: it takes the square of their length.
    """
    known = [candidate for candidate in known if len(candidate) <= 64]
    if len(name) > 64:
        return ""
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    if not close:
        folded = {candidate.casefold(): candidate for candidate in known}
        close = [folded[name.casefold()]] if name.casefold() in folded else []
    return f" (did you mean {close[0]!r}?)" if close else ""


def first_line(error: BaseException) -> str:
    """What an exception says, in a line; its type where it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def typed_line(error: BaseException) -> str:
    """``ValueError: what it says``, in a line; its type alone where it says nothing."""
    said = str(error).splitlines()
    return f"{type(error).__name__}: {said[0]}" if said else type(error).__name__


def shorten(text: str, width: int) -> str:
    """The text, cut to ``width`` characters with an ellipsis at its end."""
    return text if len(text) <= width else text[: width - 3] + "..."
