"""Rows of a state variable as Avro single objects, and back."""

from __future__ import annotations

import json
from typing import Any, cast

from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

from changelog_state.errors import ConfigurationError
from changelog_state.processors.given_values import raw_row
from changelog_state.processors.read_values import values_of_row
from changelog_state.schemas.avro_codec import AvroCodec
from changelog_state.schemas.spark_types import schema_of_spark_type
from changelog_state.schemas.tree import is_name
from changelog_state.schemas.value_codec import WriterSchema

__all__ = ["RowCodec", "as_strings"]


class RowCodec(AvroCodec):
    """The schema is that of a variable declared with the same Spark type; what is given and taken is as in Spark.

    Takes tuples, and whatever else Spark takes for a row. Gives records as they are written: dates are days,
    timestamps are microseconds, decimals are digits. ``values`` makes a tuple of one.
    """

    def __init__(self, schema: StructType, name: str) -> None:
        where = f"state {name!r}"
        _check_names(schema, where)
        super().__init__(*schema_of_spark_type(schema, where), name)
        assert self.schema_json is not None
        self.schema = schema
        self.values = values_of_row(schema)
        self._raw = raw_row(schema, where)
        # The same bytes and the same fingerprint; the conversions are Spark's, not Avro's.
        self._plain = AvroCodec(_without_logical_types(json.loads(self.schema_json)), {}, name)

    def encode(self, value: Any) -> bytes:
        return self._plain.encode(self._raw(value))

    def decode(self, data: bytes, writer_schema: WriterSchema) -> Any:
        return self._plain.decode(data, lambda fingerprint: _plain_json(writer_schema(fingerprint)))

    def __reduce__(self) -> tuple[Any, ...]:
        return RowCodec, (self.schema, self.name)


def as_strings(data_type: StructType) -> StructType:
    """Strings of limited length are strings."""
    return cast(StructType, _as_strings(data_type))


def _as_strings(data_type: DataType) -> DataType:
    match data_type:
        case CharType() | VarcharType():
            return StringType()
        case StructType():
            return StructType(
                [
                    StructField(each.name, _as_strings(each.dataType), each.nullable, each.metadata)
                    for each in data_type.fields
                ]
            )
        case ArrayType():
            return ArrayType(_as_strings(data_type.elementType), data_type.containsNull)
        case MapType():
            return MapType(
                _as_strings(data_type.keyType), _as_strings(data_type.valueType), data_type.valueContainsNull
            )
    return data_type


def _check_names(data_type: DataType, where: str) -> None:
    match data_type:
        case StructType():
            for each in data_type.fields:
                if "." in each.name or not is_name(each.name):
                    raise ConfigurationError(
                        f"field {each.name!r} of {where} has a name that Avro does not take; use letters, digits and "
                        "_, and no digit first"
                    )
                _check_names(each.dataType, f"{each.name} of {where}")
        case ArrayType():
            _check_names(data_type.elementType, where)
        case MapType():
            _check_names(data_type.valueType, where)


def _plain_json(schema_json: str) -> str:
    return json.dumps(_without_logical_types(json.loads(schema_json)))


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: value for name, value in schema.items() if name not in ("logicalType", "precision", "scale")}
    for name in ("type", "items", "values"):
        if name in found:
            found[name] = _without_logical_types(found[name])
    if "fields" in found:
        found["fields"] = [{**field, "type": _without_logical_types(field["type"])} for field in found["fields"]]
    return found
