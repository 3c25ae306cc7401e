"""The JSON Schema of manifests, with which editors complete and check them."""

from __future__ import annotations

from typing import Any

import msgspec

from ..manifest import Manifest
from .families import KEYS


def json_schema() -> dict[str, Any]:
    """The schema of a manifest as written: families of variants and ``$comment`` keys included.

    Inside a family a text ``{name}`` may stand for any value, so its variants are not checked.
    """
    schema = msgspec.json.schema(Manifest)
    definitions = schema["$defs"]
    comment = {"type": "string", "description": "Ignored."}
    for definition in definitions.values():
        if definition.get("additionalProperties") is False:
            definition["properties"]["$comment"] = comment
    records = {"type": "array", "items": {"type": "object"}}
    kinds = {"axes": {"type": "object"}, "description": {"type": "string"}}
    definitions["Family"] = {
        "title": "Family",
        "description": "Variants written once and expanded for each case.",
        "type": "object",
        "properties": {"$comment": comment, **{key: kinds.get(key, records) for key in KEYS}},
        "required": ["variants"],
        "additionalProperties": False,
    }
    definitions["Manifest"]["properties"]["$schema"] = {"type": "string"}
    definitions["Manifest"]["properties"]["variants"]["items"] = {
        "anyOf": [{"$ref": "#/$defs/Variant"}, {"$ref": "#/$defs/Family"}]
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
