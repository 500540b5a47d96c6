"""The types of what is aggregated: Spark's, and how they are kept."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import types as spark

from changelog_state.aggregation.avro import types as avro
from changelog_state.errors import ConfigurationError

__all__ = ["FIELD_NAME", "Value", "value_of"]

FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What Avro takes for the name of a field."""

_SIMPLE: dict[type[spark.DataType], avro.AvroType] = {
    spark.ByteType: avro.LONG,
    spark.ShortType: avro.LONG,
    spark.IntegerType: avro.LONG,
    spark.LongType: avro.LONG,
    spark.BooleanType: avro.BOOLEAN,
    spark.FloatType: avro.FLOAT,
    spark.DoubleType: avro.DOUBLE,
    spark.StringType: avro.STRING,
    spark.BinaryType: avro.BYTES,
    spark.DateType: avro.DATE,
    spark.TimestampType: avro.TIMESTAMP,
    spark.TimestampNTZType: avro.LOCAL_TIMESTAMP,
}
_BINARY_COLLATION = "UTF8_BINARY"
_KEPT_NAMES: dict[avro.AvroType, str] = {
    avro.LONG: "long",
    avro.BOOLEAN: "boolean",
    avro.FLOAT: "float",
    avro.DOUBLE: "double",
    avro.STRING: "string",
    avro.BYTES: "binary",
    avro.DATE: "date",
    avro.TIMESTAMP: "timestamp",
    avro.LOCAL_TIMESTAMP: "timestamp_ntz",
}


@dataclass(frozen=True)
class Value:
    """One input of an aggregate."""

    spark: spark.DataType
    kept: str
    """The type that it is kept as, in our words: integers of any width are the same here."""
    avro: avro.AvroType

    @property
    def is_whole(self) -> bool:
        return self.avro == avro.LONG

    @property
    def is_small(self) -> bool:
        """Whether so many of them as anyone has can be added as doubles without rounding."""
        return isinstance(self.spark, (spark.ByteType, spark.ShortType, spark.IntegerType))

    @property
    def is_real(self) -> bool:
        return self.avro in (avro.FLOAT, avro.DOUBLE)

    @property
    def is_decimal(self) -> bool:
        return isinstance(self.avro, avro.Decimal)

    @property
    def is_number(self) -> bool:
        return self.is_whole or self.is_real or self.is_decimal

    @property
    def is_simple(self) -> bool:
        return not isinstance(self.avro, avro.Record)

    @property
    def arrow(self) -> pa.DataType:
        return self.avro.arrow


def value_of(kind: spark.DataType, path: str, label: str) -> Value:
    """``path``: names the types that Avro wants names for. ``label``: what the value is, for errors."""
    if isinstance(kind, spark.DecimalType):
        found: avro.AvroType = avro.Decimal(f"{path}.decimal", kind.precision, kind.scale)
        return Value(kind, kind.simpleString(), found)
    if isinstance(kind, spark.StructType):
        return _record(kind, path, label)
    if isinstance(kind, (spark.CharType, spark.VarcharType)):
        kind = spark.StringType()
    if isinstance(kind, spark.StringType) and kind.collation != _BINARY_COLLATION:
        raise ConfigurationError(
            f"{label} has the collation {kind.collation}, in which order and equality are not those of the bytes; "
            f"use {_BINARY_COLLATION}"
        )
    for known, found in _SIMPLE.items():
        if isinstance(kind, known):
            return Value(kind, _KEPT_NAMES[found], found)
    raise ConfigurationError(
        f"{label} is of type {kind.simpleString()}, which cannot be aggregated; take fields or elements out of it, "
        "or cast it to a number, string, binary, boolean, date, timestamp or a struct of these"
    )


def _record(kind: spark.StructType, path: str, label: str) -> Value:
    values = []
    for field in kind.fields:
        if FIELD_NAME.fullmatch(field.name) is None:
            raise ConfigurationError(
                f"{label} has a field {field.name!r}, which Avro does not take for a name; rename it to letters, "
                "digits and underscores"
            )
        values.append(value_of(field.dataType, f"{path}.{field.name}", f"{label}, field {field.name!r},"))
    names = [field.name for field in kind.fields]
    fields = tuple(avro.Field(name, avro.Nullable(value.avro)) for name, value in zip(names, values, strict=True))
    kept = ",".join(f"{name}:{value.kept}" for name, value in zip(names, values, strict=True))
    return Value(kind, f"struct<{kept}>", avro.Record(path, fields))
