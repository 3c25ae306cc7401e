"""Loads manifests: a file to a checked ``Op``. Imports yaml and msgspec, so import it lazily."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

import msgspec

from ..errors import ManifestError, shorten, suggestion
from ..manifest import Manifest
from ..opinfo import Op
from .documents import MAX_BYTES, Format, read_document, step
from .families import expand_families

Dialect = Literal["1.0", "2.1"]
Document = TypeVar("Document")
Steps = list[str | int | None]  # None: a key that msgspec does not tell

_FORMATS: dict[str, Format] = {".yaml": "yaml", ".yml": "yaml", ".json": "json"}
_WHERE = re.compile(r" - at (?:`key` in )?`\$([^`]*)`\Z")
_STEP = re.compile(r"\[(\d+)\]|(\[\.\.\.\])|\.([^.\[]+)")
_FIELD = re.compile(r"Object (?:contains unknown|missing required) field `(.*)`")
_VARIANT = re.compile(r"\$\.variants\[(\d+)\]")


def load_manifest(path: Path, *, check: bool = True) -> Op:
    """The op of a manifest file, YAML or JSON by its suffix.

    ``check=False`` is for a file that is known to be right: what goes beyond the types of its fields, the
    names in its expressions for one, is then not looked at, which takes most of the time.

    Raises:
        ManifestError: unreadable or wrong; has the file and the place in it.
    """
    file = str(path)
    if path.suffix not in _FORMATS:
        allowed = ", ".join(_FORMATS)
        raise ManifestError(f"found suffix {path.suffix!r}; needed: one of {allowed}", file=file)
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ManifestError(f"more than {MAX_BYTES} bytes; needed: a smaller file", file=file)
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"cannot be read: {error}", file=file) from error
    return Op(parse_manifest(text, file, _FORMATS[path.suffix], check=check), file)


def parse_manifest(text: str, file: str, format: Format, *, check: bool = True) -> Manifest:
    """The manifest in a text of dialect 1.0 with our extensions; ``file`` names its source in errors;
    ``check`` as for ``load_manifest``.

    Raises:
        ManifestError: as ``parse_package_manifest``.
    """
    return _parse(text, file, format, "1.0", check)[0]


def parse_package_manifest(text: str, file: str, dialect: Dialect | None) -> tuple[Manifest, Dialect]:
    """The manifest in a package's JSON, and its dialect, which its form tells if None is given.

    Raises:
        ManifestError: malformed text, unknown or missing keys, values of a wrong type, a manifest
            that contradicts itself. The path is that of the document as written, with families.
    """
    return _parse(text, file, "json", dialect)


def _parse(
    text: str, file: str, format: Format, dialect: Dialect | None, check: bool = True
) -> tuple[Manifest, Dialect]:
    origins: list[str] = []
    variants: list[Any] = []
    places: Mapping[str, str] = {}
    try:
        document = read_document(text, format)
        if not isinstance(document, dict):
            raise ManifestError(f"found {_shown(document)}; needed: a map of keys", path="$")
        document.pop("$schema", None)
        if isinstance(document.get("variants"), list):
            variants, origins = expand_families(document["variants"])
            document["variants"] = variants
            _name_variants(variants)
        dialect = dialect or _dialect(document)
        if dialect == "1.0":
            manifest = _convert(document, Manifest)
        else:
            from .dialect_2_1 import NewManifest
            from .translation import translate

            translation = translate(_convert(document, NewManifest))
            manifest, places = translation.manifest, translation.places
        if check:
            from .checks import check_manifest

            check_manifest(manifest)
    except ManifestError as error:
        path = next((places[at] + rest for at, rest in _prefixes(error.path) if at in places), error.path)
        place = _as_written(path, variants, origins)
        raise ManifestError(error.message, file=file, path=place) from error
    return manifest, dialect


def _prefixes(path: str | None) -> Iterator[tuple[str, str]]:
    """A path cut between its steps into a beginning and the rest, the longest beginning first."""
    for match in reversed(list(re.finditer(r"(?=[.\[])|\Z", path or ""))):
        yield (path or "")[: match.start()], (path or "")[match.start() :]


def _dialect(document: Mapping[str, Any]) -> Dialect:
    """Dialect 2.1 has ports by name, dialect 1.0 has a list of them."""
    return "2.1" if isinstance(document.get("inputs"), dict) else "1.0"


def _name_variants(variants: list[Any]) -> None:
    """Gives variants and passes without an id the id the dialect says."""
    for index, variant in enumerate(variants):
        if isinstance(variant, dict):
            variant.setdefault("id", f"variant_{index}")
            passes = variant.get("passes")
            for number, item in enumerate(passes if isinstance(passes, list) else []):
                if isinstance(item, dict):
                    item.setdefault("id", f"pass_{number}")


def _as_written(path: str | None, variants: list[Any], origins: list[str]) -> str | None:
    match = _VARIANT.match(path or "")
    if path is None or match is None or (index := int(match[1])) >= len(origins):
        return path
    origin = origins[index]
    if origin.count(".") == 1:  # written out, but families before it may have moved it
        return origin + path[match.end() :]
    variant = variants[index]
    name = variant.get("id") if isinstance(variant, dict) else None
    return f"{origin}{path[match.end() :]} (variant {name!r})"


def _convert(document: dict[str, Any], kind: type[Document]) -> Document:
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        _refuse(document, kind, str(error))


def _refuse(document: dict[str, Any], whole: type, message: str) -> NoReturn:
    match = _WHERE.search(message)
    steps: Steps = [
        int(found[1]) if found[1] else None if found[2] else found[3]
        for found in _STEP.finditer(match[1] if match else "")
    ]
    try:
        steps = _pin(document, whole, message, steps)
        value = _at(document, steps)
    except (LookupError, TypeError, AttributeError):  # a key that reads like a path
        raise ManifestError(message) from None
    path = "$"
    for item in steps:
        path = step(path, "" if item is None else item)
    kind = _type_at(msgspec.inspect.type_info(whole), steps)
    what = message[: match.start()] if match else message
    if (field := _FIELD.fullmatch(what)) and isinstance(kind, msgspec.inspect.StructType):
        names = [item.encode_name for item in kind.fields]
        if "missing" in what:
            found = ", ".join(value) if isinstance(value, dict) and value else "no keys"
            reason = f"the key {field[1]!r} is missing; found: {found}"
        else:
            hint = suggestion(field[1], names)
            reason = f"unknown key {field[1]!r}{hint}; allowed: {', '.join(names)}"
            path = step(path, field[1])
    elif isinstance(kind, msgspec.inspect.LiteralType):
        allowed = ", ".join(repr(item) for item in kind.values)
        hint = suggestion(value, [str(v) for v in kind.values]) if isinstance(value, str) else ""
        reason = f"found {_shown(value)}{hint}; allowed: {allowed}"
    else:
        expected = what.removeprefix("Expected ").split(", got")[0]
        if expected == "`str`":
            expected = "text, in quotes"
        reason = f"found {_shown(value)}; needed: {expected}"
    raise ManifestError(reason, path=path)


def _pin(document: Any, whole: type, message: str, steps: Steps) -> Steps:
    """Finds the keys msgspec does not tell: the one which, left alone, gives the same error."""
    for position, item in enumerate(steps):
        if item is not None:
            continue
        document = copy.deepcopy(document)
        entries = _at(document, steps[:position])
        for key, value in list(entries.items()):
            entries.clear()
            entries[key] = value
            try:
                msgspec.convert(document, whole)
            except msgspec.ValidationError as error:
                if str(error) == message:
                    steps = [*steps[:position], key, *steps[position + 1 :]]
                    break
    return steps


def _at(document: Any, steps: Steps) -> Any:
    for item in steps:
        document = document[item]
    return document


def _type_at(kind: msgspec.inspect.Type, steps: Steps) -> msgspec.inspect.Type | None:
    """The type of a place in the document; of a union, the member that the steps can enter."""
    for item in steps:
        choices = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
        for choice in choices:
            if isinstance(choice, msgspec.inspect.StructType):
                found = {field.encode_name: field.type for field in choice.fields}.get(str(item))
            elif isinstance(choice, msgspec.inspect.DictType):
                found = choice.value_type
            elif isinstance(choice, msgspec.inspect.ListType) and isinstance(item, int):
                found = choice.item_type
            else:
                continue
            if found is None:
                return None
            kind = found
            break
        else:
            return None
    return kind


def _shown(value: Any) -> str:
    return shorten(json.dumps(value, ensure_ascii=False), 80)
