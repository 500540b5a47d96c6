"""Rows of a state variable as Avro single objects, and back."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.types import StructType

from changelog_state.processors.given_values import raw_row
from changelog_state.processors.read_values import values_of_row
from changelog_state.schemas.avro_codec import AvroCodec
from changelog_state.schemas.spark_types import schema_of_spark_type
from changelog_state.schemas.value_codec import WriterSchema

__all__ = ["RowCodec"]


class RowCodec(AvroCodec):
    """The schema is that of a variable declared with the same Spark type; what is given and taken is as in Spark.

    Takes tuples, and whatever else Spark takes for a row. Gives records as they are written: dates are days,
    timestamps are microseconds, decimals are digits. ``values`` makes a tuple of one.
    """

    def __init__(self, schema: StructType, name: str) -> None:
        where = f"state {name!r}"
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
