"""Which batch is this? Rolled back, deleted and shared checkpoints; cut input; split sources."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

import changelog_state as cs
from changelog_state.faults import arm
from tests.support.stream import SCHEMA, Input, Job, count

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

USERS = [f"user-{n * 31 % 97}" for n in range(800)]


@pytest.fixture
def source(broker: Any) -> Input:
    made = Input(broker.bootstrap_servers)
    made.send(USERS)
    return made


@pytest.fixture
def job(spark: Any, source: Input, tmp_path: Path) -> Job:
    return Job(spark, source, tmp_path / "checkpoint", rows_per_batch=300)


def test_a_rolled_back_checkpoint_is_refused(job: Job, source: Input, make_service: Any, tmp_path: Path) -> None:
    service = make_service()
    job.run(service)
    shutil.copytree(job.checkpoint, tmp_path / "backup")
    source.send(USERS)
    job.run(service)
    shutil.rmtree(job.checkpoint)
    (tmp_path / "backup").rename(job.checkpoint)
    source.send(USERS)
    before = dict(service.scan())
    with pytest.raises(PySparkException, match="CheckpointRolledBackError.*has seen batch"):
        job.run(make_service())
    assert dict(service.scan()) == before


def test_a_deleted_checkpoint_is_refused(job: Job, make_service: Any) -> None:
    service = make_service()
    job.run(service)
    shutil.rmtree(job.checkpoint)
    before = dict(service.scan())
    with pytest.raises(PySparkException, match="NewQueryError.*on_new_query='continue'"):
        job.run(make_service())
    assert dict(service.scan()) == before


def test_a_deleted_checkpoint_with_only_some_partitions_marked(
    spark: Any, make_service: Any, broker: Any, tmp_path: Path
) -> None:
    source = Input(broker.bootstrap_servers)
    source.send(["only-one"])
    job = Job(spark, source, tmp_path / "checkpoint")
    service = make_service()
    job.run(service)
    assert [p["last_batch"] for p in service.status()["partitions"]].count(None) == 3
    shutil.rmtree(job.checkpoint)
    source.send(USERS)
    with pytest.raises(PySparkException, match="NewQueryError"):
        job.run(make_service())
    assert dict(service.scan()) == {"only-one": {"total": 1}}


def test_a_new_query_may_continue(job: Job, make_service: Any) -> None:
    job.run(make_service())
    shutil.rmtree(job.checkpoint)
    totals = {user: 2 * USERS.count(user) for user in set(USERS)}

    def fail_once(batch: int) -> None:
        if batch == 1 and len(job.outputs[1]) == 2:
            raise RuntimeError("the sink failed")

    job.after_sink = fail_once
    with pytest.raises(PySparkException):
        job.run(make_service(on_new_query="continue"))
    job.after_sink = lambda batch: None
    service = make_service(on_new_query="continue")  # and its own replay is not a new query again
    job.run(service)
    assert {key: values["total"] for key, values in service.scan()} == totals
    assert job.outputs[1][1] == job.outputs[1][2]


def test_two_queries_of_one_driver(spark: Any, make_service: Any) -> None:
    """The second takes the store over; a replay of a batch of its own goes by that batch's record, like any other."""
    service = make_service(on_new_query="continue")

    def run(query: str, batch: int, *rows: tuple[str, int]) -> list[Any]:
        frame = spark.createDataFrame(rows, "user_id string, at long").selectExpr(
            "user_id", "timestamp_seconds(at) AS at"
        )
        options: dict[str, Any] = {"event_time": "at", "late": "drop", "query_id": query}
        return service.apply(frame, batch, count, key="user_id", schema=SCHEMA, **options).collect()

    run("first", 0, *((f"user-{number}", 1) for number in range(20)))
    run("second", 0, ("b", 40))
    found = run("second", 1, ("b", 50), ("b", 100))
    told = service.last_batch
    assert found == [("b", 3)]
    assert run("second", 1, ("b", 50), ("b", 100)) == found, "nothing is late that was not"
    assert service.last_batch.batch_time_ms == told.batch_time_ms
    with pytest.raises(cs.CheckpointRolledBackError):
        run("second", 0, ("b", 40))


def test_a_new_query_may_start_empty(job: Job, make_service: Any) -> None:
    job.run(make_service())
    shutil.rmtree(job.checkpoint)
    job.outputs.clear()
    job.truth.clear()
    service = make_service(on_new_query="clear")
    job.run(service)
    job.check(service, USERS)


def test_a_second_apply_on_one_store_in_a_batch_is_refused(
    spark: Any, source: Input, make_service: Any, tmp_path: Path
) -> None:
    service = make_service()

    def twice(df: Any, batch: int) -> None:
        frame = df.withColumn("user_id", F.col("key").cast("string"))
        service.apply(frame, batch, count, key="user_id", schema=SCHEMA)
        service.apply(frame, batch, count, key="user_id", schema=SCHEMA)

    with pytest.raises(PySparkException, match="BatchAlreadyAppliedError.*another store"):
        start(source.frame(spark), twice, tmp_path).awaitTermination(60)
    assert {key: v["total"] for key, v in service.scan()} == {user: USERS.count(user) for user in set(USERS)}


def start(frame: Any, on_batch: Any, tmp_path: Path) -> Any:
    checkpoint = str(tmp_path / "other-checkpoint")
    writer = frame.writeStream.foreachBatch(on_batch).option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start()


def source_mode(service: cs.StateService) -> Any:
    def on_batch(df: Any, batch: int) -> None:
        frame = df.withColumn("user_id", F.col("key").cast("string"))
        service.apply(frame, batch, count, key="user_id", schema=SCHEMA, partitioning="source")

    return on_batch


def test_split_source_partitions_are_refused(spark: Any, source: Input, make_service: Any, tmp_path: Path) -> None:
    service = make_service()
    query = start(source.frame(spark, minPartitions=9), source_mode(service), tmp_path)
    with pytest.raises(PySparkException, match="SourceModeError.*minPartitions"):
        query.awaitTermination(60)
    assert list(service.scan()) == []


def test_a_union_of_topics_is_refused(
    spark: Any, source: Input, broker: Any, make_service: Any, tmp_path: Path
) -> None:
    other = Input(broker.bootstrap_servers)
    other.send(USERS)
    service = make_service()
    union = source.frame(spark).union(other.frame(spark))
    with pytest.raises(PySparkException, match="SourceModeError"):
        start(union, source_mode(service), tmp_path).awaitTermination(60)
    assert list(service.scan()) == []


def test_source_mode_needs_as_many_partitions_as_the_topic(
    spark: Any, source: Input, make_service: Any, tmp_path: Path
) -> None:
    service = make_service(partitions=8)
    with pytest.raises(PySparkException, match="SourceModeError.*4 partitions.*has 8"):
        start(source.frame(spark), source_mode(service), tmp_path).awaitTermination(60)


def test_a_query_stopped_in_the_middle_of_a_batch(job: Job, make_service: Any, faults: Path) -> None:
    """Spark ends a cancelled task's input normally: the function cannot tell. Every row counts once all the same."""
    arm(faults, "task.before_stage", "hold")
    query = job.start(make_service())
    wait_for(faults / "task.before_stage.held")
    query.stop()
    (faults / "task.before_stage.held").unlink()
    service = make_service()
    job.run(service)
    job.check(service, USERS)


def test_an_upstream_error_in_the_middle_of_a_batch(
    spark: Any, source: Input, make_service: Any, tmp_path: Path, faults: Path
) -> None:
    job = Job(spark, source, tmp_path / "checkpoint", rows_per_batch=300, function=count)
    failing = F.udf(lambda offset: offset if offset != 70 else 1 // 0, "long")
    service = make_service()

    def broken(df: Any, batch: int) -> None:
        frame = df.withColumn("user_id", F.col("key").cast("string")).withColumn("n", failing("offset"))
        service.apply(frame, batch, count, key="user_id", schema=SCHEMA)

    frame = source.frame(spark, maxOffsetsPerTrigger=300)
    writer = frame.writeStream.foreachBatch(broken).option("checkpointLocation", str(job.checkpoint))
    with pytest.raises(PySparkException, match="ZeroDivisionError"):
        writer.trigger(availableNow=True).start().awaitTermination(60)
    assert list(service.scan()) == []
    job.run(make_service())
    job.check(service, USERS)


def wait_for(path: Path) -> None:
    import time

    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)
