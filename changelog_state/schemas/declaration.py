"""What is recorded of a declaration: the part of a schema that decides how its bytes are read.

Defaults, aliases and documentation are left out. They count in the schema that reads, not in the one that wrote, so a
new default is no new generation. Logical types stay: Avro's fingerprint does not tell them apart, this text does.
"""

from __future__ import annotations

import json
from typing import Any, Final

import fastavro

__all__ = ["builtin_form", "builtin_kind", "written_form"]

_KEPT: Final = ("type", "name", "fields", "symbols", "items", "values", "size", "logicalType", "precision", "scale")


def written_form(schema: Any) -> str:
    return json.dumps(_stripped(fastavro.parse_schema(schema)), separators=(",", ":"))


def _stripped(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_stripped(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: schema[key] for key in _KEPT if key in schema}
    for key in ("items", "values"):
        if key in kept:
            kept[key] = _stripped(kept[key])
    if "fields" in kept:
        kept["fields"] = [{"name": each["name"], "type": _stripped(each["type"])} for each in kept["fields"]]
    return kept["type"] if len(kept) == 1 else kept


def builtin_form(kind: str) -> str:
    """Of a plain type, which is written with the built-in schema."""
    return json.dumps({"builtin": kind})


def builtin_kind(declaration: str) -> str | None:
    """The name of the plain type; None if it is a schema."""
    found = json.loads(declaration)
    return str(found["builtin"]) if isinstance(found, dict) and "builtin" in found else None
