"""Spark's types as Avro schemas. They are told by the names of their classes: pyspark need not be imported."""

from __future__ import annotations

from typing import Any, Final

from changelog_state.errors import ConfigurationError
from changelog_state.schemas.bindings import ROW, Binding

__all__ = ["is_spark_type", "schema_of_spark_type"]

_SIMPLE: Final[dict[str, Any]] = {
    "StringType": "string",
    "VarcharType": "string",
    "CharType": "string",
    "BinaryType": "bytes",
    "BooleanType": "boolean",
    "ByteType": "int",
    "ShortType": "int",
    "IntegerType": "int",
    "LongType": "long",
    "FloatType": "float",
    "DoubleType": "double",
    "NullType": "null",
    "DateType": {"type": "int", "logicalType": "date"},
    "TimestampType": {"type": "long", "logicalType": "timestamp-micros"},
    "TimestampNTZType": {"type": "long", "logicalType": "local-timestamp-micros"},
}


def is_spark_type(declared: Any) -> bool:
    cls = declared if isinstance(declared, type) else type(declared)
    return cls.__module__ == "pyspark.sql.types" and cls.__name__ != "Row"


def schema_of_spark_type(declared: Any, where: str) -> tuple[Any, dict[str, Binding]]:
    """The schema, and what says of its records that they may be given as rows or tuples."""
    bindings: dict[str, Binding] = {}
    return _schema(declared, where, "Row", bindings), bindings


def _schema(kind: Any, where: str, record: str, bindings: dict[str, Binding]) -> Any:
    if isinstance(kind, type):
        raise ConfigurationError(
            f"{where} is declared as Spark's class {kind.__name__}; give an instance of it, {kind.__name__}(...)"
        )
    name = type(kind).__name__
    if name == "StructType":
        bindings[record] = ROW
        return {"type": "record", "name": record, "fields": [_field(each, where, record, bindings) for each in kind]}
    if name == "ArrayType":
        items = _schema(kind.elementType, f"an item of {where}", f"{record}.item", bindings)
        return {"type": "array", "items": _nullable(items, kind.containsNull)}
    if name == "MapType" and type(kind.keyType).__name__ == "StringType":
        values = _schema(kind.valueType, f"a value of {where}", f"{record}.value", bindings)
        return {"type": "map", "values": _nullable(values, kind.valueContainsNull)}
    if name == "DecimalType":
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if name not in _SIMPLE:
        raise ConfigurationError(
            f"{where} is of Spark's type {kind.simpleString()}, for which there is no Avro type; use "
            f"{', '.join(_SIMPLE)}, DecimalType, ArrayType, StructType or a MapType whose keys are strings"
        )
    found = _SIMPLE[name]
    return dict(found) if isinstance(found, dict) else found


def _field(field: Any, where: str, record: str, bindings: dict[str, Binding]) -> dict[str, Any]:
    kind = _schema(field.dataType, f"{where}.{field.name}", f"{record}.{field.name}", bindings)
    found: dict[str, Any] = {"name": field.name, "type": _nullable(kind, field.nullable)}
    metadata = field.metadata or {}
    if "aliases" in metadata:
        found["aliases"] = list(metadata["aliases"])
    if "default" in metadata:
        found["default"] = metadata["default"]
        if isinstance(found["type"], list) and found["default"] is not None:
            found["type"].reverse()  # Avro wants the branch of a default to be the first one
    elif field.nullable and kind != "null":
        found["default"] = None
    return found


def _nullable(kind: Any, nullable: bool) -> Any:
    return ["null", kind] if nullable and kind != "null" else kind
