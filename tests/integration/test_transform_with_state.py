"""The same processor over the same rows in Spark's operator and in ours: outputs, state, hand-over."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

import changelog_state as cs
from changelog_state.processors.ddl import parse_schema
from changelog_state.processors.declaring import program_without_spark
from changelog_state.testing import StateTester
from tests.support.processors import (
    COLUMNS,
    INITIAL,
    KEY,
    LIST,
    OUTPUT,
    TIMES,
    VALUE,
    Counter,
    Probe,
    initial_rows,
    random_rows,
    said,
)
from tests.support.spark_operator import OperatorRun, run_operator, settings, write_input

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ZONE = {"spark.sql.session.timeZone": "America/New_York"}
BATCHES = 4


@pytest.fixture(scope="module")
def runs(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Spark's operator, once per time mode."""
    made: dict[str, OperatorRun] = {}

    def transformed(mode: str, stream: Any) -> Any:
        if mode == "EventTime":
            grouped = stream.withWatermark("at", "10 minutes").groupBy(*KEY)
            return grouped.transformWithStateInPandas(Probe(mode), OUTPUT, "update", mode)
        initial = spark.createDataFrame(initial_rows(), INITIAL).groupBy(*KEY)
        return stream.groupBy(*KEY).transformWithStateInPandas(Probe(mode), OUTPUT, "update", mode, initial)

    def run(mode: str) -> OperatorRun:
        if mode not in made:
            directory = tmp_path_factory.mktemp("operator") / mode
            with settings(spark, ZONE):
                made[mode] = run_operator(
                    spark, directory, rows_of(mode)[:BATCHES], COLUMNS, lambda stream: transformed(mode, stream)
                )
        return made[mode]

    return run


def rows_of(mode: str) -> list[list[dict[str, Any]]]:
    """One batch more than Spark's operator gets."""
    return random_rows(sum(map(ord, mode)), BATCHES + 1, 40)


def in_memory(mode: str, started_ms: int) -> StateTester:
    program, _ = program_without_spark(Probe(mode), OUTPUT, mode, ZONE["spark.sql.session.timeZone"])
    times: dict[str, Any] = {"initial_state": initial_rows()}
    if mode == "EventTime":
        times = {"event_time": "at", "watermark_delay": "10 minutes"}
    return StateTester(program, key=KEY, now=datetime.fromtimestamp(started_ms / 1000, UTC), **times)


def in_order(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows)


@pytest.mark.parametrize("mode", ["ProcessingTime", "EventTime"])
def test_outputs_are_the_same(runs: Any, mode: str) -> None:
    theirs = runs(mode)
    ours = in_memory(mode, theirs.times_ms[0])
    for number, rows in enumerate(rows_of(mode)[:BATCHES]):
        ours.advance(timedelta(milliseconds=theirs.times_ms[number] - ours.now.timestamp() * 1000))
        if mode == "EventTime":
            assert (0 if ours.watermark is None else ours.watermark.timestamp() * 1000) == theirs.watermarks_ms[
                number
            ]
        assert in_order(ours.batch(rows)) == theirs.outputs[number]
    assert sum("timer " in row["said"] for row in ours.outputs) > 10


def test_a_stopped_query_goes_on_here(spark: Any, runs: Any, make_service: Any, tmp_path: Path) -> None:
    mode = "EventTime"
    stopped, batches = runs(mode), rows_of(mode)
    ours = in_memory(mode, stopped.times_ms[0])
    service = make_service(partitions=2)
    with settings(spark, ZONE):
        imported = service.import_state(str(stopped.checkpoint), spark=spark)
        # Spark may have begun a batch without rows, for timers.
        for rows in [*batches[:BATCHES], *([[]] * BATCHES)][: imported.batch + 1]:
            ours.batch(rows)
        expected = ours.state()
        assert said(dict(service.scan())) == said(expected)  # as text: nan is not equal to itself
        assert imported.states["value"] == sum("value" in state for state in expected.values()) > 0
        assert imported.states["entries"] == sum(len(state.get("entries", ())) for state in expected.values()) > 0
        assert imported.timers == sum(len(ours.timers(key)) for key in expected) > 0
        assert imported.watermark_ms == ours.watermark.timestamp() * 1000
        # Once more: nothing to be done.
        assert service.import_state(str(stopped.checkpoint), spark=spark) == imported

        # Its checkpoint without Spark's state is that of a query which goes on where it stopped.
        shutil.copytree(stopped.checkpoint, tmp_path / "checkpoint", ignore=shutil.ignore_patterns("state"))
        write_input(stopped.input, batches[BATCHES:], first=BATCHES)
        found: list[dict[str, Any]] = []
        expected_rows: list[dict[str, Any]] = []

        def on_batch(df: Any, batch_id: int) -> None:
            result = service.transform_with_state(
                df, batch_id, Probe(mode), key=KEY, output_schema=OUTPUT, time_mode=mode
            )
            found.extend(row.asDict() for row in result.collect())
            # A batch without rows that Spark has planned before it was stopped is replayed here.
            expected_rows.extend(ours.batch([] if df.isEmpty() else batches[BATCHES]))

        stream = spark.readStream.schema(COLUMNS).json(str(stopped.input)).withWatermark("at", "10 minutes")
        writer = stream.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
    assert in_order(found) == in_order(expected_rows)
    assert any("timer " in row["said"] for row in found)
    assert said(dict(service.scan())) == said(ours.state())


def test_initial_state_begins_a_store(spark: Any, make_service: Any) -> None:
    initial = spark.createDataFrame([(5, "a"), (7, "z"), (1, "a")], "start long, k string")
    options: dict[str, Any] = {"key": "k", "output_schema": "k string, n long"}

    def run(batch: int, *keys: str, service: cs.StateService, **more: Any) -> list[tuple[Any, ...]]:
        frame = spark.createDataFrame([(key,) for key in keys], "k string")
        result = service.transform_with_state(frame, batch, Counter(), **options | more)
        return sorted(tuple(row) for row in result.collect())

    service = make_service(partitions=2)
    first = run(0, "a", "b", "a", service=service, initial_state=initial)
    assert first == [("a", 8), ("b", 1)]
    # Another driver replays the batch.
    again = make_service(partitions=2)
    assert run(0, "a", "b", "a", service=again, initial_state=initial.groupBy("k")) == first
    assert run(1, "a", "z", service=again, initial_state=initial) == [("a", 9), ("z", 8)]
    assert dict(again.scan()) == {"a": {"count": {"n": 9}}, "b": {"count": {"n": 1}}, "z": {"count": {"n": 8}}}

    other = make_service(store="other", partitions=2)
    with pytest.raises(cs.ConfigurationError, match=r"first batch of store .* is 3; use import_state"):
        run(3, "a", service=other, initial_state=initial)
    with pytest.raises(cs.InvalidKeyError, match=r"key columns .*bigint.*, but the rows have .*string"):
        run(0, "a", service=other, initial_state=initial.selectExpr("start as k", "start"))
    with pytest.raises(cs.ConfigurationError, match="event time needs a column"):
        run(0, "a", service=other, time_mode="EventTime")
    with pytest.raises(cs.FunctionError, match="give an instance of a subclass"):
        other.transform_with_state(initial, 0, Counter, **options)  # type: ignore[arg-type]
    with pytest.raises(cs.SchemaEvolutionError, match="count"):
        again.transform_with_state(initial, 2, Retyped(), **options)


class Retyped(Counter):
    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n string")


def test_state_of_other_operators(spark: Any, make_service: Any, tmp_path: Path) -> None:
    """What a built-in aggregation has kept, with its windows as keys."""
    write_input(tmp_path / "input", [[{"k": "a", "n": 5, "at": f"2024-01-01T00:0{n}:00Z"} for n in range(3)]])
    stream = spark.readStream.schema("k string, n long, at timestamp").json(str(tmp_path / "input"))
    windows = stream.groupBy("k", F.window("at", "2 minutes")).agg(F.count("*").alias("n"), F.sum("n"), F.avg("n"))
    with settings(spark, {"spark.sql.shuffle.partitions": 1}):
        writer = windows.writeStream.outputMode("complete").format("memory").queryName("windows")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination()
    key = {"k": "key.k", "begin": "unix_seconds(key.window.start)"}
    service = make_service(partitions=1)
    imported = service.import_state(str(tmp_path / "checkpoint"), key=key, spark=spark)
    assert (imported.batch, dict(imported.states)) == (0, {"stateStoreSave": 2})
    begin = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp())
    assert dict(service.scan()) == {
        ("a", begin): {"count": 2, "sum": 10, "sum_2": 10.0, "count_2": 2},
        ("a", begin + 120): {"count": 1, "sum": 5, "sum_2": 5.0, "count_2": 1},
    }

    def take_over(key: Any, value: dict[str, Any], state: cs.State) -> None:
        state.set("mean", value["sum_2"] / value["count_2"])

    other = make_service(store="means", partitions=1)
    other.import_state(str(tmp_path / "checkpoint"), take_over, key=key, spark=spark)
    assert other.get(("a", begin), "mean") == 5.0
    with pytest.raises(cs.ConfigurationError, match="no stateful operator 3"):
        other.import_state(str(tmp_path / "checkpoint"), operator_id=3, spark=spark)
    with pytest.raises(cs.ConfigurationError, match="cannot be read"):
        other.import_state(str(tmp_path / "nothing"), spark=spark)


def test_words_mean_what_they_mean_to_spark(spark: Any) -> None:
    texts = [VALUE, LIST, TIMES, COLUMNS, "a INT NOT NULL COMMENT 'x y', `b c` array<struct<d:decimal(5),e:real>>"]
    texts += ["a tinyint, b smallint, c bigint, d numeric(3,1), e timestamp_ltz, f timestamp_ntz, g dec, h integer"]
    for text in texts:
        assert parse_schema(text) == StructType.fromDDL(text)
