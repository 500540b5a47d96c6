"""``StateTester`` itself: the arguments it takes, what it makes of output rows, tables that are given."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StructType

import changelog_state as cs
from changelog_state.testing import StateTester

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


class Looking(StatefulProcessor):
    table: Any = None

    def init(self, handle: Any) -> None:
        self.seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        yield pd.DataFrame({"what": [str(None if self.table is None else self.table.get(key[0]))]})


def giving(*rows: Any) -> Any:
    return lambda key, its_rows, state: rows


# -- output rows ------------------------------------------------------------------------------------------


def test_rows_are_what_the_schema_makes_of_them() -> None:
    schema = (
        "k string, n long, x double, d decimal(5,2), at timestamp, tags array<int>, by map<string, struct<a: int>>"
    )
    row = {"d": Decimal("1.5"), "k": "a", "x": 1, "at": NOON, "tags": (1, None), "by": {"b": {"a": 1}}}
    kit = StateTester(giving(row, {}), key="k", schema=schema)
    first, second = kit.batch([{"k": "a"}])
    assert list(first) == list(second) == ["k", "n", "x", "d", "at", "tags", "by"]
    assert first == {**row, "n": None, "x": 1.0, "d": Decimal("1.50"), "tags": [1, None]}
    assert (type(first["x"]), set(second.values())) == (float, {None})
    assert kit.replay() == kit.outputs == [first, second]


@pytest.mark.parametrize("schema", ["n long", StructType().add("n", LongType())])
@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"n": 1.5}, "output field 'n' is 1.5 .float., but the schema says int64"),
        ({"n": 1, "m": 1}, r"output row has fields \['m'\] that are not in schema= \['n'\]"),
        ("n", "output row is a str"),
    ],
)
def test_rows_that_do_not_fit_are_refused_as_in_a_task(schema: Any, row: Any, problem: str) -> None:
    with pytest.raises(cs.OutputSchemaError, match=problem):
        StateTester(giving(row), key="k", schema=schema).batch([{"k": "a"}])


def test_a_schema_that_means_nothing() -> None:
    with pytest.raises(cs.ConfigurationError, match="^schema 'n lung' has 'lung' where"):
        StateTester(giving(), key="k", schema="n lung")


def test_rows_that_are_late_are_beside_the_schema() -> None:
    def count(key: Any, window: Any, rows: Any, state: Any) -> Iterator[dict[str, Any]]:
        yield {"n": len(rows)}

    kit = StateTester.apply_windows(
        count, window=cs.Tumbling("1 minute"), key="k", event_time="at", late="side_output", schema="n double"
    )
    kit.batch([{"k": "a", "at": NOON}])
    kit.batch([{"k": "a", "at": NOON.replace(hour=10)}, {"k": "b", "at": NOON}])
    assert kit.outputs == [{"n": 1.0}, {"n": 1.0}]
    assert [row["k"] for row in kit.late] == ["a"]


def test_rows_of_a_map_have_a_schema_too() -> None:
    kit = StateTester.stateful_map(lambda key, value, state: ({"n": 1}, None), key="k", schema="n double")
    assert [type(row["n"]) for row in kit.batch([{"k": "a"}])] == [float]


def test_a_schema_needs_neither_a_session_nor_a_jvm() -> None:
    program = (
        "from changelog_state.testing import StateTester\n"
        "StateTester(lambda key, rows, state: [{'n': 1}], key='k', schema='n long').batch([{'k': 'a'}])\n"
        "from pyspark import SparkContext\n"
        "assert SparkContext._gateway is None\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# -- arguments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [{"output_schema": "n long"}, {"time_mode": "EventTime"}, {"initial_state": [{"k": "a"}]}]
)
def test_what_is_for_processors_only(given: dict[str, Any]) -> None:
    with pytest.raises(cs.ConfigurationError, match=f"^{next(iter(given))}= is for processors, and this is none"):
        StateTester(giving(), key="k", **given)


def test_an_output_schema_is_not_ignored_for_programs_either() -> None:
    with pytest.raises(cs.ConfigurationError, match="output_schema= is for processors"):
        StateTester.stateful_map(lambda key, value, state: (None, None), key="k", output_schema="n long")


@pytest.mark.parametrize("given", [{"schema": "n long"}, {"on_timer": giving()}])
def test_what_is_for_functions_only(given: dict[str, Any]) -> None:
    with pytest.raises(cs.ConfigurationError, match=f"^{next(iter(given))}= is for functions, .* output_schema="):
        StateTester(Looking(), key="k", output_schema="what string", **given)


def test_a_processor_is_an_instance() -> None:
    with pytest.raises(cs.FunctionError, match=r"processor is <class .*Looking.*; give an instance of a subclass of"):
        StateTester(Looking, key="k", output_schema="what string")
    kit = StateTester(Looking(), key="k", output_schema="what string")
    with pytest.raises(cs.FunctionError, match="give an instance"):
        kit.declare(Looking)  # type: ignore[arg-type]


def test_event_time_needs_a_column() -> None:
    with pytest.raises(cs.ConfigurationError, match="event time needs a column: give event_time="):
        StateTester(Looking(), key="k", output_schema="what string", time_mode="EventTime")


# -- global tables ----------------------------------------------------------------------------------------

PRODUCTS = cs.GlobalTable("products", topic="products")
TOTALS = cs.GlobalTable("totals", store="totals")


def test_functions_look_into_what_is_given() -> None:
    def look(key: str, rows: Any, state: cs.State) -> Iterator[dict[str, Any]]:
        product = PRODUCTS.get(key, default={"tags": []})
        product["tags"].append(key)
        yield {"product": product, "total": TOTALS.get(key, "total"), "all": TOTALS.get_many(["a", "b"])}

    given = {PRODUCTS: {"a": {"tags": ["x"]}}, TOTALS: {"a": {"total": 5}}}
    kit = StateTester(look, key="k", global_tables=given)
    everything = {"a": {"total": 5}}
    first = [
        {"product": {"tags": ["x", "a"]}, "total": 5, "all": everything},
        {"product": {"tags": ["b"]}, "total": None, "all": everything},
    ]
    assert kit.batch([{"k": "a"}, {"k": "b"}]) == first
    assert kit.replay() == first  # what a function does to a value is nobody else's
    with pytest.raises(cs.ConfigurationError, match="products is not connected here"):
        PRODUCTS.get("a")


def test_processors_look_into_them_too() -> None:
    processor = Looking()
    processor.table = PRODUCTS
    kit = StateTester(processor, key="k", output_schema="what string", global_tables={PRODUCTS: {"a": 5}})
    assert kit.batch([{"k": "a"}, {"k": "b"}]) == [{"what": "5"}, {"what": "None"}]


def test_tables_are_used_as_what_they_are() -> None:
    kit = StateTester(lambda *_: PRODUCTS.get("a", "name"), key="k", global_tables={PRODUCTS: {"a": {"name": 1}}})
    with pytest.raises(cs.InvalidInputError, match="follows a plain topic, whose values have no names"):
        kit.batch([{"k": "a"}])
    with pytest.raises(cs.ConfigurationError, match="totals follows a store, but its value of key 'a' is 5; give"):
        StateTester(giving(), key="k", global_tables={TOTALS: {"a": 5}})
    kit = StateTester(lambda *_: TOTALS.get("a"), key="k", global_tables={PRODUCTS: {}})
    with pytest.raises(cs.ConfigurationError, match="totals is not among the service's tables"):
        kit.batch([{"k": "a"}])


def test_a_replay_that_changes_what_the_first_run_did_not() -> None:
    calls: list[str] = []

    def count_calls(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        calls.append(key)
        if len(calls) > 1:
            state.set("n", len(calls))

    kit = StateTester(count_calls, key="key")
    kit.batch([{"key": "a"}])
    with pytest.raises(cs.InvalidInputError, match="replaying batch 0 has computed other changes"):
        kit.replay()
    assert kit.state() == {}
