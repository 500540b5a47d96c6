"""From what a user declares to a codec: Python types, Avro schemas, dataclasses, pydantic models, Spark types."""

from __future__ import annotations

import json
import typing
from pathlib import Path
from typing import Any

from changelog_state.errors import ConfigurationError
from changelog_state.schemas.annotations import schema_of_annotation
from changelog_state.schemas.avro_codec import AvroCodec
from changelog_state.schemas.builtin import PLAIN_TYPES, AnyCodec, PlainCodec
from changelog_state.schemas.spark_types import is_spark_type, schema_of_spark_type
from changelog_state.schemas.value_codec import Migrate, ValueCodec

__all__ = ["codec_for"]


def codec_for(declared: Any, *, name: str, migrate: Migrate | None = None) -> ValueCodec:
    """The codec of variable ``name``.

    ``declared``: None or ``typing.Any`` (any value); int, float, str, bytes, bool, list or dict; an annotation like
    ``list[int]``, ``X | None``, datetime, Decimal or an enum; a dataclass or a pydantic model; an Avro schema as
    dict, list, JSON text or name of a primitive type, or in an ``.avsc`` file; a Spark type.
    """
    if declared is None or declared is Any:
        return AnyCodec(name, migrate)
    if isinstance(declared, type) and declared in PLAIN_TYPES and typing.get_origin(declared) is None:
        return PlainCodec(declared, name, migrate)
    where = f"variable {name}"
    if is_spark_type(declared):
        return AvroCodec(*schema_of_spark_type(declared, where), name, migrate)
    if isinstance(declared, str | Path):
        return AvroCodec(_unwrapped(_schema_in(declared, where)), {}, name, migrate)
    if isinstance(declared, dict | list):
        return AvroCodec(_unwrapped(declared), {}, name, migrate)
    return AvroCodec(*schema_of_annotation(declared, where), name, migrate)


def _schema_in(declared: str | Path, where: str) -> Any:
    text = str(declared)
    from_file = isinstance(declared, Path) or text.endswith(".avsc")
    try:
        if from_file:
            text = Path(declared).read_text("utf-8")
        return json.loads(text) if from_file or text.lstrip()[:1] in ("{", "[", '"') else text
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{where} is declared by the Avro schema {str(declared)!r}, which cannot be read: {error}; give the path "
            "of an .avsc file that the driver can read, or the schema as a dict"
        ) from error


def _unwrapped(schema: Any) -> Any:
    """``{"type": {"type": "string"}}`` as its inner type. Avro takes it, fastavro does not."""
    if isinstance(schema, list):
        return [_unwrapped(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = schema.get("type")
    if isinstance(inner, list):
        return _unwrapped(inner)
    if isinstance(inner, dict):
        return _unwrapped(schema | {"type": None} | inner)
    found = {key: _unwrapped(each) if key in ("items", "values") else each for key, each in schema.items()}
    if isinstance(schema.get("fields"), list):
        found["fields"] = [_with_type(each) for each in schema["fields"]]
    return found


def _with_type(field: Any) -> Any:
    return {**field, "type": _unwrapped(field["type"])} if isinstance(field, dict) and "type" in field else field
