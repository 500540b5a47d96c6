"""Each mistake: a clear error, nothing lost, and the next batch works."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import changelog_state as cs
from tests.support.stream import SCHEMA, count

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def service(spark: Any, make_service: Any) -> cs.StateService:
    made: cs.StateService = make_service()
    made.apply(frame_of(spark), 0, count, key="user_id", schema=SCHEMA)
    return made


def frame_of(spark: Any) -> Any:
    return spark.createDataFrame([("a",), ("b",), ("c",)], "user_id string")


def refused(
    service: cs.StateService,
    spark: Any,
    error: type[Exception],
    match: str,
    function: Callable[..., Any] = count,
    frame: Any = None,
    **options: Any,
) -> None:
    settings = {"key": "user_id", "schema": SCHEMA} | options
    with pytest.raises(error, match=match) as raised:
        service.apply(frame if frame is not None else frame_of(spark), 1, function, **settings)
    assert isinstance(raised.value, cs.ChangelogStateError)
    assert dict(service.scan()) == {user: {"total": 1} for user in "abc"}, "something was committed"
    again = service.apply(frame_of(spark), 1, count, key="user_id", schema=SCHEMA)
    assert {row.user_id: row.total for row in again.collect()} == {"a": 2, "b": 2, "c": 2}


def test_a_function_that_cannot_be_pickled(service: Any, spark: Any) -> None:
    lock = threading.Lock()
    refused(service, spark, cs.FunctionError, "cannot be sent.*lock", lambda key, rows, state: lock.locked())


def test_a_function_that_raises(service: Any, spark: Any) -> None:
    def fails(key: str, rows: Any, state: cs.State) -> Any:
        state.set("total", 99)
        yield {"user_id": key, "total": 1 // (key != "b")}

    refused(service, spark, cs.FunctionError, "ZeroDivisionError for key 'b' in batch 1", fails)


def test_a_function_that_returns_something_else(service: Any, spark: Any) -> None:
    refused(
        service,
        spark,
        cs.FunctionError,
        "which is not rows; yield dicts .*key '[abc]' in batch 1",
        lambda key, rows, state: 5,
    )


def test_a_missing_key_column(service: Any, spark: Any) -> None:
    refused(service, spark, cs.InvalidKeyError, "nope.*user_id", key="nope")


def test_null_keys(service: Any, spark: Any) -> None:
    nulls = spark.createDataFrame([("a",), (None,)], "user_id string")
    refused(service, spark, cs.InvalidKeyError, "'user_id' is null in 1 rows of batch 1", frame=nulls)


def test_a_key_type_that_cannot_be_a_key(service: Any, spark: Any) -> None:
    doubles = spark.createDataFrame([(1.5,)], "user_id double")
    refused(service, spark, cs.InvalidKeyError, "double.*cast", frame=doubles)


def test_a_value_that_cannot_be_encoded(service: Any, spark: Any) -> None:
    def stores_a_set(key: str, rows: Any, state: cs.State) -> None:
        state.set("total", {"x": [1, {2, 3}]})

    refused(service, spark, cs.ValueEncodingError, r"\['x'\]\[1\].*set.*key '[abc]' in batch 1", stores_a_set)


def test_a_record_that_is_too_large(service: Any, spark: Any) -> None:
    def stores_too_much(key: str, rows: Any, state: cs.State) -> None:
        state.set("total", b"x" * (17 * 1024 * 1024))

    refused(service, spark, cs.ValueEncodingError, r"max.message.bytes.*for key '[abc]'", stores_too_much)


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ({"user_id": "x", "total": "many"}, "'total' is 'many'.*int64"),
        ({"user_id": "x", "totl": 1}, r"\['totl'\].*not in schema"),
        (("x", 1), "is a tuple.*yield dicts"),
    ],
)
def test_an_output_row_that_does_not_fit(row: Any, match: str, service: Any, spark: Any) -> None:
    refused(service, spark, cs.OutputSchemaError, match, lambda key, rows, state: [row])


def test_a_schema_that_is_none(service: Any, spark: Any) -> None:
    refused(service, spark, cs.OutputSchemaError, "not a Spark schema", schema="user_id strin, total")


def test_a_wrong_partitioning(service: Any, spark: Any) -> None:
    refused(service, spark, cs.ConfigurationError, "'range'.*'hash', 'source'", partitioning="range")


def test_source_mode_without_a_source(service: Any, spark: Any) -> None:
    refused(service, spark, cs.SourceModeError, "Kafka source", partitioning="source")


def test_another_key_type_than_the_store_was_made_with(service: Any, spark: Any) -> None:
    numbers = spark.createDataFrame([(1,)], "user_id long")
    refused(service, spark, cs.ChangelogMismatchError, "key_types.*string.*long", frame=numbers)


def test_a_negative_batch_id(service: Any, spark: Any) -> None:
    with pytest.raises(cs.InvalidInputError, match="foreachBatch"):
        service.apply(frame_of(spark), -1, count, key="user_id", schema=SCHEMA)


def test_a_state_dir_that_is_not_writable(spark: Any, make_service: Any, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    bad = make_service(state_dir=blocked / "state")
    with pytest.raises(cs.StateDirectoryError, match=str(blocked)):
        bad.apply(frame_of(spark), 0, count, key="user_id", schema=SCHEMA)


def test_a_state_dir_that_another_agent_uses(spark: Any, make_service: Any, tmp_path: Path) -> None:
    from changelog_state.store.directory import StateDirectory

    held = StateDirectory(tmp_path / "state")
    try:
        with pytest.raises(cs.StateDirectoryError, match=rf"used by another agent.*process {os.getpid()}"):
            make_service().apply(frame_of(spark), 0, count, key="user_id", schema=SCHEMA)
    finally:
        held.close()


def test_a_changelog_with_another_partition_count(service: Any, spark: Any, make_service: Any) -> None:
    other = make_service(partitions=5)
    with pytest.raises(cs.ChangelogMismatchError, match="has 4 partitions.*partitions=5.*use partitions=4"):
        other.apply(frame_of(spark), 1, count, key="user_id", schema=SCHEMA)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"application": "no spaces"}, "application"),
        ({"store": ".."}, "store"),
        ({"partitions": 0}, "partitions"),
        ({"bootstrap_servers": ""}, "bootstrap_servers"),
        ({"kafka": {"transactional.id": "x"}}, "transactional.id"),
        ({"agents": "many"}, "agents"),
        ({"on_new_query": "maybe"}, "on_new_query"),
        ({"standby_replicas": -1}, "standby_replicas"),
        ({"restore_memory_mb": 0}, "restore_memory_mb"),
        ({"restore_memory_mb": "512"}, "restore_memory_mb"),
        ({"restore_listener": print}, "subclass of RestoreListener"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], match: str, make_service: Any) -> None:
    with pytest.raises(cs.ConfigurationError, match=match):
        make_service(**settings)
