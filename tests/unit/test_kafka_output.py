"""What is asked for is checked against the rows before anything is done."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

import changelog_state as cs
from changelog_state.config import StoreConfig
from changelog_state.kafka_output import planned
from changelog_state.task.spec import OutputTopic

CONFIG = StoreConfig("shop", "totals", "nowhere:9092", 4)
TEXT, RAW = StringType(), BinaryType()
HEADER = StructType([StructField("key", TEXT), StructField("value", RAW)])


def schema(**columns: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


ROWS = schema(user=TEXT, total=LongType())


@pytest.mark.parametrize(
    ("given", "rows", "wanted"),
    [
        ("out", ROWS, OutputTopic("out", "json", ("user",))),
        (cs.KafkaOutput("out", key="total"), ROWS, OutputTopic("out", "json", ("total",))),
        (
            cs.KafkaOutput("out", key=["total", "user"], format="avro"),
            ROWS,
            OutputTopic("out", "avro", ("total", "user")),
        ),
        (
            cs.KafkaOutput("out", format="columns"),
            schema(value=TEXT, x=LongType()),
            OutputTopic("out", "columns", ()),
        ),
        (
            cs.KafkaOutput("out", format="columns"),
            schema(key=RAW, value=RAW, headers=ArrayType(HEADER)),
            OutputTopic("out", "columns", ("key",)),
        ),
        ("shop-totals", ROWS, OutputTopic("shop-totals", "json", ("user",))),
        ("other-totals-changelog", ROWS, OutputTopic("other-totals-changelog", "json", ("user",))),
    ],
)
def test_what_is_meant(given: Any, rows: StructType, wanted: OutputTopic) -> None:
    assert planned(given, rows, ("user",), CONFIG) == wanted


@pytest.mark.parametrize("name", ["shop-totals-changelog", "shop-other-control", "shop-agents"])
def test_topics_of_the_application_itself(name: str) -> None:
    with pytest.raises(cs.OutputTopicError, match=f"topic {name} is one that application shop keeps its state with"):
        planned(name, ROWS, ("user",), CONFIG)


@pytest.mark.parametrize(
    ("given", "rows", "message"),
    [
        (
            "out",
            schema(total=LongType()),
            r"the batch's key columns \['user'\] are not in the output rows \['total'\]",
        ),
        (cs.KafkaOutput("out", key="x"), ROWS, r"KafkaOutput\(key=\) \['x'\] are not in the output rows"),
        (cs.KafkaOutput("out", format="columns"), ROWS, "needs a column value"),
        (cs.KafkaOutput("out", format="columns"), schema(value=LongType()), r"\{'value': 'int64'\}"),
        (cs.KafkaOutput("out", format="columns"), schema(value=TEXT, key=IntegerType()), r"\{'key': 'int32'\}"),
        (cs.KafkaOutput("out", format="columns"), schema(value=TEXT, headers=ArrayType(TEXT)), "'headers': 'list"),
    ],
)
def test_rows_that_do_not_fit(given: Any, rows: StructType, message: str) -> None:
    with pytest.raises(cs.OutputTopicError, match=message):
        planned(given, rows, ("user",), CONFIG)


@pytest.mark.parametrize("form", ["json", "avro"])
def test_a_type_that_cannot_be_written(form: Any) -> None:
    rows = schema(user=TEXT, took=DayTimeIntervalType())
    with pytest.raises(cs.ConfigurationError, match="convert it"):
        planned(cs.KafkaOutput("out", format=form), rows, ("user",), CONFIG)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topic": ""}, "give the topic's name"),
        ({"format": "xml"}, "format is 'xml'; use one of 'json', 'avro', 'columns'"),
        ({"key": ()}, "give a column, or leave it out"),
        ({"key": "user", "format": "columns"}, "name the column 'key' instead"),
    ],
)
def test_settings_that_make_no_sense(settings: Any, message: str) -> None:
    with pytest.raises(cs.ConfigurationError, match=message):
        cs.KafkaOutput(**({"topic": "out"} | settings))


def test_something_else_than_a_topic() -> None:
    with pytest.raises(cs.ConfigurationError, match="output_topic is 3"):
        planned(3, ROWS, ("user",), CONFIG)  # type: ignore[arg-type]


def test_readers_can_have_the_avro_schema() -> None:
    found = json.loads(cs.KafkaOutput("shop.totals").avro_schema(ROWS))
    assert found["name"] == "shop_totals"
    assert found["fields"] == [
        {"name": "user", "type": ["null", "string"], "default": None},
        {"name": "total", "type": ["null", "long"], "default": None},
    ]
