"""``apply(output_topic=…)`` from a stream to a consumer, with a kill in between; formats, and what is refused."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor

import changelog_state as cs
from changelog_state.codec.avro import SingleObjectCodec
from changelog_state.codec.partitioner import kafka_partition
from changelog_state.faults import arm
from tests.support.output_topic import OutputTopic
from tests.support.stream import SCHEMA, Input, Job, count

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_a_stream_whose_agent_and_driver_die(
    spark: Any, broker: Any, make_service: Any, faults: Path, tmp_path: Path
) -> None:
    """The agent dies within a transaction, the query fails when some owners have committed and others not."""
    users = [f"user-{random.Random(7 * n).randrange(40)}" for n in range(500)]
    source, topic = Input(broker.bootstrap_servers), OutputTopic(broker.bootstrap_servers)
    source.send(users)
    job = Job(spark, source, tmp_path / "checkpoint", output_topic=topic.name)
    dies = {0: ("commit.before_kafka_commit", "kill 2"), 1: ("driver.commit_one", "raise 3")}

    def arm_it(batch: int) -> None:
        point, action = dies.pop(batch, (None, ""))
        if point:
            arm(faults, point, action)

    job.before_apply = arm_it
    with pytest.raises(PySparkException):
        job.run(make_service())
    service = make_service()
    job.run(service)
    assert sorted(path.name for path in faults.glob("*.fired")) == [
        "commit.before_kafka_commit.fired",
        "driver.commit_one.fired",
    ]
    job.check(service, users)
    totals: Counter[str] = Counter()
    expected: dict[str, list[int]] = defaultdict(list)
    for batch in sorted(job.truth):
        totals.update(job.truth[batch])
        for user in job.truth[batch]:
            expected[user].append(totals[user])
    found: dict[str, list[int]] = defaultdict(list)
    for message in topic.messages():
        row = json.loads(message.value())
        assert message.key() == row["user_id"].encode()
        assert message.partition() == kafka_partition(message.key(), topic.partitions)
        found[row["user_id"]].append(row["total"])
    assert found == expected
    assert service.last_batch is not None
    assert service.last_batch.outputs == len(job.truth[max(job.truth)])


def test_formats_and_metrics(spark: Any, broker: Any, make_service: Any) -> None:
    service = make_service()
    users = spark.createDataFrame([("a",), ("b",), ("a",)], "user_id string")
    avro = cs.KafkaOutput(OutputTopic(broker.bootstrap_servers).name, key=["user_id", "total"], format="avro")

    def as_told(key: str, rows: Any, state: cs.State) -> Any:
        for row in count(key, rows, state):
            yield {"key": key.upper(), "value": bytes([row["total"]]), "headers": [{"key": "of", "value": b"x"}]}

    service.apply(users, 0, count, key="user_id", schema=SCHEMA, output_topic=avro)
    columns = OutputTopic(broker.bootstrap_servers)
    told = "key string, value binary, headers array<struct<key: string, value: binary>>"
    rows = service.apply(
        users, 1, as_told, key="user_id", schema=told, output_topic=cs.KafkaOutput(columns.name, format="columns")
    )
    assert rows.count() == 2
    service.apply(users.where(F.lit(False)), 2, count, key="user_id", schema=SCHEMA, output_topic=avro)
    assert [(m.key(), m.value(), m.headers()) for m in sorted(columns.messages(), key=lambda m: m.key())] == [
        (b"A", b"\4", [("of", b"x")]),
        (b"B", b"\2", [("of", b"x")]),
    ]
    codec = SingleObjectCodec(json.loads(avro.avro_schema(SCHEMA)))
    topic = OutputTopic.existing(broker.bootstrap_servers, avro.topic)
    assert {message.key(): codec.decode(message.value()) for message in topic.messages()} == {
        b'{"user_id":"a","total":2}': {"user_id": "a", "total": 2},
        b'{"user_id":"b","total":1}': {"user_id": "b", "total": 1},
    }
    assert service.metrics()["outputs"] == 4


class Count(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 (Spark's own names)
        n = sum(len(frame) for frame in rows) + (self.total.get()[0] if self.total.exists() else 0)
        self.total.update((n,))
        yield pd.DataFrame({"user_id": [key[0]], "total": [n]})

    def close(self) -> None:
        pass


def test_every_kind_of_batch(spark: Any, broker: Any, make_service: Any) -> None:
    at = datetime(2024, 5, 1)
    users = spark.createDataFrame([("a", at), ("b", at), ("a", at)], "user_id string, at timestamp_ntz")
    later = spark.createDataFrame([("a", at + timedelta(hours=1))], users.schema)
    settings: dict[str, Any] = {"key": "user_id", "order_by": "at"}

    def in_window(key: str, window: Any, rows: list[Any], state: cs.State) -> Any:
        yield {"user_id": key, "total": len(rows)}

    def counted(user: str, row: Any, before: int) -> Any:
        return {"user_id": user, "total": before + 1}, before + 1

    def windows(service: cs.StateService, df: Any, batch: int, **given: Any) -> Any:
        window = cs.Tumbling("1 minute")
        given |= {"window": window, "event_time": "at", "late": "side_output", "schema": SCHEMA}
        return service.apply_windows(df, batch, in_window, **given)

    kinds: dict[str, tuple[Any, list[tuple[str, int]]]] = {
        "aggregate": (
            lambda service, df, batch, **given: service.aggregate(df, batch, aggs={"total": cs.count()}, **given),
            [("a", 2), ("b", 1), ("a", 3), ("a", 5), ("b", 2)],
        ),
        "processor": (
            lambda service, df, batch, **given: service.transform_with_state(
                df, batch, Count(), output_schema=SCHEMA, **given
            ),
            [("a", 2), ("b", 1), ("a", 3), ("a", 5), ("b", 2)],
        ),
        "map": (
            lambda service, df, batch, **given: service.stateful_map(
                df, batch, counted, schema=SCHEMA, initial=0, **given
            ),
            [("a", 1), ("a", 2), ("b", 1), ("a", 3), ("a", 4), ("a", 5), ("b", 2)],
        ),
        # In the third batch all rows are late, and put aside: they are no rows for the topic.
        "windows": (windows, [("a", 2), ("b", 1), ("a", 1)]),
    }
    for kind, (run, expected) in kinds.items():
        service, topic = make_service(store=kind, partitions=2), OutputTopic(broker.bootstrap_servers)
        for batch, df in enumerate([users, later, users]):
            result = run(service, df, batch, **settings, output_topic=topic.name)
        if kind == "windows":
            assert [frame.count() for frame in result] == [0, 3]
        rows = [json.loads(value) for _, value in topic.rows()]
        assert sorted((row["user_id"], row["total"]) for row in rows) == sorted(expected), kind


def test_what_is_refused_before_anything_is_committed(spark: Any, broker: Any, make_service: Any) -> None:
    service = make_service()
    users = spark.createDataFrame([("a",), ("b",)], "user_id string")

    def run(output_topic: Any, function: Any = count, **settings: Any) -> None:
        service.apply(
            users, 0, function, **({"key": "user_id", "schema": SCHEMA} | settings), output_topic=output_topic
        )

    def long(key: str, rows: Any, state: cs.State) -> Any:
        state.set("total", 1)
        yield {"user_id": key, "text": "x" * 2_000_000 if key == "b" else ""}

    def without_key(key: str, rows: Any, state: cs.State) -> Any:
        state.set("total", 1)
        yield {"total": 1}

    def values_only(key: str, rows: Any, state: cs.State) -> Any:
        yield {"value": "x"}

    topic = OutputTopic(broker.bootstrap_servers)
    small = OutputTopic(broker.bootstrap_servers, max_message_bytes="500000")
    with pytest.raises(cs.OutputTopicError, match="topic no-such-topic does not exist .* create it"):
        run("no-such-topic")
    with pytest.raises(cs.OutputTopicError, match="takes requests of up to 500000 bytes"):
        run(small.name)
    with pytest.raises(cs.OutputTopicError, match="keeps its state with"):
        run(service._config.changelog_topic)
    with pytest.raises(cs.OutputTopicError, match=r"key columns \['user_id'\] are not in the output rows"):
        run(topic.name, schema="total long")
    with pytest.raises(cs.OutputSchemaError, match=r"an output row takes 20000\d\d bytes, .* key b'b'"):
        run(topic.name, long, schema="user_id string, text string")
    with pytest.raises(cs.OutputSchemaError, match="column 'user_id' is null in 1 of 1 rows"):
        run(topic.name, without_key)
    compacted = OutputTopic(broker.bootstrap_servers, cleanup_policy="compact")
    with pytest.raises(cs.OutputSchemaError, match="has no key for topic .* the rows have no column 'key'"):
        run(cs.KafkaOutput(compacted.name, format="columns"), values_only, schema="value string")
    assert list(service.scan()) == []
    run(topic.name)
    assert sorted(topic.rows()) == [
        ("a", '{"user_id":"a","total":1}'),
        ("b", '{"user_id":"b","total":1}'),
    ]
