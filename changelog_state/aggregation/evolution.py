"""State that was written by an earlier call of ``aggregate``, maybe with other aggregates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from changelog_state.aggregation.avro import types
from changelog_state.aggregation.avro.record_codec import RecordCodec
from changelog_state.aggregation.plan import DEFINITION, NAMESPACE, Plan
from changelog_state.errors import ConfigurationError

__all__ = ["earlier_codec", "refuse_changed"]

_NUMBERS: dict[str, types.AvroType] = {
    "date": types.DATE,
    "timestamp-micros": types.TIMESTAMP,
    "local-timestamp-micros": types.LOCAL_TIMESTAMP,
}
_PLAIN: dict[str, types.AvroType] = {
    "long": types.LONG,
    "boolean": types.BOOLEAN,
    "float": types.FLOAT,
    "double": types.DOUBLE,
    "string": types.STRING,
    "bytes": types.BYTES,
}


def earlier_codec(schema_json: str) -> RecordCodec:
    """Reads what was written with this schema, which is one of ours."""
    schema = json.loads(schema_json)
    record = _type(schema) if _is_ours(schema) else None
    if not isinstance(record, types.Record):
        raise ConfigurationError(
            f"state was not written by aggregate(), but with the schema {schema_json}; "
            "keep the aggregates under another name"
        )
    return RecordCodec(record)


def refuse_changed(record: types.Record, plan: Plan) -> None:
    """Aggregates may come and go, but what one name stands for stays."""
    stored = {field.name: dict(field.attributes)[DEFINITION] for field in record.fields}
    for name, function in plan.functions.items():
        if name in stored and stored[name] != function.definition:
            raise ConfigurationError(
                f"aggregate {name!r} is kept as {stored[name]!r}, but is now asked for as {function.definition!r}; "
                "give it another name, or clear the store"
            )


def _is_ours(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("name", "").startswith(f"{NAMESPACE}.")


def _type(schema: Any) -> types.AvroType:
    """The type that has this schema, among those that we write."""
    if isinstance(schema, list):
        return types.Nullable(_type(schema[1]))
    if isinstance(schema, str):
        return _PLAIN[schema]
    if schema["type"] == "record":
        return types.Record(schema["name"], tuple(map(_field, schema["fields"])))
    if schema["type"] == "array":
        return types.Array(_type(schema["items"]))
    if schema["type"] == "fixed":
        return types.Decimal(schema["name"], schema["precision"], schema["scale"])
    return _NUMBERS[schema["logicalType"]]


def _field(schema: Mapping[str, Any]) -> types.Field:
    attributes = tuple((name, schema[name]) for name in (DEFINITION,) if name in schema)
    return types.Field(schema["name"], _type(schema["type"]), attributes)
