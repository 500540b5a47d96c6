"""Spark's types as declarations: given as rows, tuples or dicts, back as dicts."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql import types as t

from changelog_state.errors import ConfigurationError, ValueEncodingError
from changelog_state.schemas.declared import codec_for
from changelog_state.schemas.evolution import check_evolution

LINE = t.StructType([t.StructField("sku", t.StringType(), False), t.StructField("n", t.IntegerType())])
ORDER = t.StructType(
    [
        t.StructField("id", t.LongType(), False),
        t.StructField("lines", t.ArrayType(LINE, containsNull=False)),
        t.StructField("at", t.TimestampType()),
    ]
)
AT = datetime(2020, 1, 1, tzinfo=UTC)
VALUE = {"id": 1, "lines": [{"sku": "a", "n": 2}], "at": AT}


def no_schema(fingerprint: bytes) -> str:
    raise AssertionError(f"nobody should ask for schema {fingerprint.hex()}")


@pytest.mark.parametrize(
    "value",
    [
        VALUE,
        Row(id=1, lines=[Row(sku="a", n=2)], at=AT),
        Row(at=AT, lines=[{"sku": "a", "n": 2}], id=1),
        (1, [("a", 2)], AT),
    ],
)
def test_a_struct_is_given_in_many_ways_and_comes_back_as_a_dict(value: Any) -> None:
    codec = codec_for(ORDER, name="order")
    for each in (codec, pickle.loads(pickle.dumps(codec))):
        assert each.decode(each.encode(value), no_schema) == VALUE


def test_the_schema_of_a_struct() -> None:
    assert json.loads(codec_for(ORDER, name="order").schema_json or "") == {
        "type": "record",
        "name": "Row",
        "fields": [
            {"name": "id", "type": "long"},
            {
                "name": "lines",
                "type": [
                    "null",
                    {
                        "type": "array",
                        "items": {
                            "type": "record",
                            "name": "Row.lines.item",
                            "fields": [
                                {"name": "sku", "type": "string"},
                                {"name": "n", "type": ["null", "int"], "default": None},
                            ],
                        },
                    },
                ],
                "default": None,
            },
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
        ],
    }


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (t.StringType(), "a"),
        (t.BinaryType(), b"a"),
        (t.BooleanType(), True),
        (t.ByteType(), -1),
        (t.ShortType(), 300),
        (t.IntegerType(), 2**31 - 1),
        (t.LongType(), 2**63 - 1),
        (t.FloatType(), 0.5),
        (t.DoubleType(), 0.1),
        (t.NullType(), None),
        (t.DateType(), date(2020, 1, 1)),
        (t.TimestampNTZType(), datetime(2020, 1, 1)),
        (t.DecimalType(10, 2), Decimal("1.25")),
        (t.MapType(t.StringType(), LINE), {"x": {"sku": "a", "n": None}, "y": None}),
        (t.ArrayType(t.ArrayType(t.LongType())), [[1, None], None]),
    ],
)
def test_every_type(kind: t.DataType, value: Any) -> None:
    codec = codec_for(kind, name="v")
    assert codec.decode(codec.encode(value), no_schema) == value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ((1, []), "variable order does not take this value: order is"),
        ({"lines": []}, "order has no id"),
        (Row(id=1, other=2), "order has 'other', which record Row does not declare"),
        ({"id": 1, "lines": [{"sku": None}]}, r"order.lines\[0\].sku is None"),
        ({"id": 1, "lines": [None]}, r"order.lines\[0\] is None"),
    ],
)
def test_what_does_not_fit(value: Any, message: str) -> None:
    with pytest.raises(ValueEncodingError, match=message):
        codec_for(ORDER, name="order").encode(value)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (t.MapType(t.LongType(), t.LongType()), "variable v is of Spark's type map<bigint,bigint>"),
        (t.DayTimeIntervalType(), "variable v is of Spark's type interval"),
        (t.LongType, "variable v is declared as Spark's class LongType; give an instance of it"),
        (t.StructType, "variable v is declared as Spark's class StructType; give an instance of it"),
        (Row(a=1), "variable v is declared as Row.a=1., for which there is no Avro type"),
        (t.StructType([t.StructField("a b", t.LongType())]), "'a b' is not a name"),
    ],
)
def test_types_without_an_avro_type(kind: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        codec_for(kind, name="v")


def test_a_struct_evolves_and_its_fields_know_aliases_and_defaults() -> None:
    newer = t.StructType(
        [
            t.StructField("order_id", t.LongType(), False, {"aliases": ["id"]}),
            t.StructField("lines", t.ArrayType(LINE, containsNull=False)),
            t.StructField("note", t.StringType()),
            t.StructField("channel", t.StringType(), True, {"default": "web"}),
        ]
    )
    old, new = codec_for(ORDER, name="order"), codec_for(newer, name="order")
    check_evolution("order", new, [old.declaration])
    assert new.decode(old.encode(VALUE), lambda _: old.schema_json or "") == {
        "order_id": 1,
        "lines": [{"sku": "a", "n": 2}],
        "note": None,
        "channel": "web",
    }
