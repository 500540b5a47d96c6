"""State schemas in words, without Spark's parser. That both agree is in test_transform_with_state.py."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from changelog_state.errors import ConfigurationError
from changelog_state.processors.ddl import parse_schema


def test_nested_types() -> None:
    inner = StructType([StructField("a", LongType(), False), StructField("b", DecimalType(10, 0))])
    assert parse_schema(
        "`a b` BIGINT, m: map<string, array<int>>, s struct<a: long NOT NULL, b decimal>"
    ) == StructType(
        [
            StructField("a b", LongType()),
            StructField("m", MapType(StringType(), ArrayType(IntegerType()))),
            StructField("s", inner),
        ]
    )


def test_sizes_comments_and_nulls() -> None:
    found = parse_schema("d DECIMAL(12, 3) NOT NULL COMMENT 'of the till', t timestamp_ntz")
    assert found["d"].dataType == DecimalType(12, 3)
    assert not found["d"].nullable
    assert found["d"].metadata == {"comment": "of the till"}
    assert found["t"] == StructField("t", TimestampNTZType())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no fields"),
        ("int", "'its end' where one of"),
        ("a int,", "'its end' where a field's name"),
        ("a int b int", "'b' where ',' should be"),
        ("a array<int", "'its end' where '>' should be"),
        ("a wrong", "'wrong' where one of"),
        ("a decimal(x)", "'x' where a number of digits"),
        ("a int comment b", "'b' where the text of a comment"),
        ("a int; b int", "';', which has no meaning"),
    ],
)
def test_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        parse_schema(text)
