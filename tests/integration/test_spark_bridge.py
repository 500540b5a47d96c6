"""What ``spark_bridge`` reads from real queries: the batch's identity, and the proof for source mode."""

from __future__ import annotations

import dataclasses
import json
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from py4j.protocol import Py4JJavaError
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from changelog_state.broker import EmbeddedBroker
from changelog_state.errors import ConfigurationError, SourceModeError
from changelog_state.spark_bridge import (
    QueryContext,
    SourceRange,
    cancel_tagged,
    executors,
    is_local,
    query_context,
    source_ranges,
    spark_of,
    tag_jobs,
)
from tests.support.polling import until

pytestmark = pytest.mark.spark
kafka = pytest.mark.kafka


@pytest.fixture(scope="module")
def fill(broker: EmbeddedBroker) -> Callable[..., None]:
    """``fill(topic, {partition: records}, partitions=n)``: make the topic if need be, and add records."""

    def fill_topic(topic: str, records: dict[int, int], partitions: int | None = None) -> None:
        if partitions is not None:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for partition, count in records.items():
            for i in range(count):
                producer.produce(topic, key=f"k{i}", value=str(i), partition=partition)
        assert producer.flush(30) == 0

    return fill_topic


@pytest.fixture(scope="module")
def reader(spark: SparkSession, broker: EmbeddedBroker) -> Callable[..., Any]:
    """A streaming or batch reader of the Kafka source, from the earliest offset."""

    def read(topics: str, *, batch: bool = False, **options: object) -> DataFrame:
        source: Any = spark.read if batch else spark.readStream
        return (
            source.format("kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("subscribe", topics)
            .option("startingOffsets", "earliest")
            .options(**options)
            .load()
        )

    return read


def run_batches(
    stream: DataFrame, checkpoint: Path, function: Callable[[DataFrame, int], None]
) -> BaseException | None:
    """Run all that is available, and give the query's error."""
    writer = stream.writeStream.foreachBatch(function).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(60)
    except Exception as error:
        return error
    finally:
        query.stop()
    return None


def in_a_batch(stream: DataFrame, checkpoint: Path, function: Callable[[DataFrame], Any]) -> list[Any]:
    """What ``function(df)`` gives, or raises, in every micro-batch."""
    results: list[Any] = []

    def on_batch(df: DataFrame, batch_id: int) -> None:
        try:
            results.append(function(df))
        except BaseException as error:  # A failed assertion too: py4j would wait for ever for its answer.
            results.append(error)

    assert run_batches(stream, checkpoint, on_batch) is None
    return results


def jobs_run_by(spark: SparkSession, function: Callable[[], object]) -> int:
    """How many Spark jobs ``function`` starts."""
    context: Any = spark.sparkContext
    group = f"jobs-{threading.get_ident()}-{id(function)}"
    context.setJobGroup(group, "counted")
    try:
        function()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    context._jsc.sc().listenerBus().waitUntilEmpty()
    return len(context.statusTracker().getJobIdsForGroup(group))


# --- query_context ---------------------------------------------------------------------------------------


def test_outside_of_a_query_nothing_is_known(spark: SparkSession) -> None:
    assert query_context(spark.range(1)) == QueryContext(None, None, None)


def test_without_a_jvm_nothing_is_known() -> None:
    class Connect:
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"[JVM_ATTRIBUTE_NOT_SUPPORTED] {name}")

    assert query_context(Connect()) == QueryContext(None, None, None)  # type: ignore[arg-type]


def counting(spark: SparkSession) -> DataFrame:
    """A source without Kafka that gives a batch at every trigger, the same rows on replay."""
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()


def first_batches(stream: DataFrame, checkpoint: Path, count: int, fail_at: int | None = None) -> list[Any]:
    """``(batch_id, QueryContext)`` of ``count`` batches; batch ``fail_at`` fails."""
    seen: list[Any] = []
    done = threading.Event()

    def on_batch(df: DataFrame, batch_id: int) -> None:
        if done.is_set():
            raise RuntimeError("enough")
        seen.append((batch_id, query_context(df)))
        if len(seen) == count:
            done.set()
        if batch_id == fail_at:
            done.set()
            raise RuntimeError("as the test wants it")

    query = stream.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(checkpoint)).start()
    try:
        assert done.wait(60)
    finally:
        query.stop()
    return seen


def test_a_replayed_batch_has_the_same_hash_and_another_run_id(spark: SparkSession, tmp_path: Path) -> None:
    before = first_batches(counting(spark), tmp_path, 3, fail_at=1)
    after = first_batches(counting(spark), tmp_path, 3)

    assert [n for n, _ in before] == [0, 1]
    assert after[0][0] == 1
    failed, replayed, following = before[1][1], after[0][1], after[1][1]
    assert replayed.offsets_hash == failed.offsets_hash
    assert replayed.batch_time_ms == failed.batch_time_ms
    assert replayed.query_id == failed.query_id
    assert replayed.run_id != failed.run_id
    hashes = [before[0][1].offsets_hash, failed.offsets_hash, following.offsets_hash]
    assert None not in hashes
    assert len(set(hashes)) == 3
    assert following.run_id == replayed.run_id


def test_the_first_batch_is_recognized_too(spark: SparkSession, tmp_path: Path) -> None:
    [(_, failed)] = first_batches(counting(spark), tmp_path, 1, fail_at=0)
    (n, replayed), *_ = first_batches(counting(spark), tmp_path, 1)
    assert n == 0
    assert replayed.offsets_hash == failed.offsets_hash is not None


def test_another_checkpoint_is_another_query(spark: SparkSession, tmp_path: Path) -> None:
    [(_, one)] = first_batches(counting(spark), tmp_path / "one", 1)
    [(_, two)] = first_batches(counting(spark), tmp_path / "two", 1)
    assert one.query_id != two.query_id


def test_two_queries_at_once_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    seen: dict[str, QueryContext] = {}
    both = threading.Barrier(2, timeout=60)

    def on_batch(name: str) -> Callable[[DataFrame, int], None]:
        def function(df: DataFrame, batch_id: int) -> None:
            if name not in seen:
                both.wait()
                seen[name] = query_context(df)
                both.wait()

        return function

    queries = [
        counting(spark)
        .writeStream.foreachBatch(on_batch(name))
        .option("checkpointLocation", str(tmp_path / name))
        .start()
        for name in ("a", "b")
    ]
    try:
        deadline = threading.Event()
        while len(seen) < 2 and not deadline.wait(0.1):
            assert all(query.isActive for query in queries)
        assert [seen["a"].query_id, seen["b"].query_id] == [query.id for query in queries]
        assert [seen["a"].run_id, seen["b"].run_id] == [query.runId for query in queries]
    finally:
        for query in queries:
            query.stop()


def test_a_union_of_sources_is_hashed_as_a_whole(spark: SparkSession, tmp_path: Path) -> None:
    stream = counting(spark).union(counting(spark))
    before = first_batches(stream, tmp_path, 2, fail_at=1)
    after = first_batches(counting(spark).union(counting(spark)), tmp_path, 1)
    assert after[0][1].offsets_hash == before[1][1].offsets_hash is not None


def test_a_thread_of_an_earlier_batch_gets_no_hash(spark: SparkSession, tmp_path: Path) -> None:
    """Local properties stay with a thread; the offsets of a later batch are not the ones it asks for."""

    def on_batch(df: DataFrame) -> QueryContext:
        context = spark_of(df).sparkContext
        batch = context.getLocalProperty("streaming.sql.batchId")
        context.setLocalProperty("streaming.sql.batchId", str(int(batch) - 1))
        try:
            return query_context(df)
        finally:
            context.setLocalProperty("streaming.sql.batchId", batch)

    [found, *_] = in_a_batch(counting(spark), tmp_path, on_batch)
    assert found.query_id is not None
    assert found.run_id is not None
    assert found.offsets_hash is None


def test_it_does_not_raise_when_spark_has_changed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(*_: object) -> None:
        raise AttributeError("activeStreamingQueries")

    monkeypatch.setattr("changelog_state.spark_bridge._context_of_execution", changed)
    [(_, found), *_] = first_batches(counting(spark), tmp_path, 1)
    monkeypatch.undo()
    [(_, known), *_] = first_batches(counting(spark), tmp_path, 1)
    assert found.query_id == known.query_id
    assert found.run_id is not None
    assert found.offsets_hash is None


@kafka
def test_kafka_offsets_are_the_hash(reader: Any, fill: Any, tmp_path: Path, spark: SparkSession) -> None:
    fill("hashed", {0: 3, 1: 2}, partitions=2)
    seen: list[QueryContext] = []

    def failing(df: DataFrame, batch_id: int) -> None:
        seen.append(query_context(df))
        raise RuntimeError("as the test wants it")

    def working(df: DataFrame, batch_id: int) -> None:
        seen.append(query_context(df))

    assert run_batches(reader("hashed"), tmp_path, failing) is not None
    fill("hashed", {0: 1})  # It is not in the offsets that Spark has already written down.
    assert run_batches(reader("hashed"), tmp_path, working) is None

    failed, replayed, following = seen
    assert replayed.offsets_hash == failed.offsets_hash is not None
    assert following.offsets_hash not in (None, failed.offsets_hash)


# --- source_ranges: proven -------------------------------------------------------------------------------


def upper(text: str) -> str:
    return text.upper()


def identity(batches: Any) -> Any:
    yield from batches


@kafka
def test_each_spark_partition_is_one_topic_partition(
    reader: Any, fill: Any, tmp_path: Path, spark: SparkSession
) -> None:
    """The proof and what tasks really see agree, empty topic partitions included."""
    fill("plain", {0: 3, 2: 5, 5: 1}, partitions=6)

    def on_batch(df: DataFrame) -> Any:
        rows = df.select(F.spark_partition_id(), "topic", "partition", "offset").collect()
        seen = {(s, t, p): [r[3] for r in rows if r[:3] == (s, t, p)] for s, t, p, _ in rows}
        really = {SourceRange(*key, min(o), max(o) + 1) for key, o in seen.items()}
        return source_ranges(df), really

    [(ranges, really)] = in_a_batch(reader("plain"), tmp_path, on_batch)
    assert set(ranges) == really
    assert [r.spark_partition for r in ranges] == [0, 1, 2]
    assert {(r.partition, r.from_offset, r.until_offset) for r in ranges} == {(0, 0, 3), (2, 0, 5), (5, 0, 1)}

    fill("plain", {3: 2})
    [(ranges, really)] = in_a_batch(reader("plain"), tmp_path, on_batch)
    assert ranges == (SourceRange(0, "plain", 3, 0, 2),)
    assert set(ranges) == really


ALLOWED: dict[str, Callable[[DataFrame], DataFrame]] = {
    "itself": lambda df: df,
    "select": lambda df: df.select("key", F.col("value").cast("string")),
    "where": lambda df: df.where("offset % 2 = 0"),
    "withColumn": lambda df: df.withColumn("n", F.length("value")),
    "explode": lambda df: df.select("partition", F.explode(F.split(F.col("value").cast("string"), ""))),
    "python udf": lambda df: df.select(F.udf(upper)(F.col("key").cast("string"))),
    "mapInArrow": lambda df: df.mapInArrow(identity, df.schema),
    "sortWithinPartitions": lambda df: df.sortWithinPartitions("key"),
    "rdd": lambda df: df.rdd.map(lambda row: (row.partition,)).toDF("partition int"),
    "persist": lambda df: df.persist().where("offset >= 0"),
}


@kafka
@pytest.mark.parametrize("name", ALLOWED)
def test_row_by_row_steps_are_allowed(name: str, reader: Any, fill: Any, tmp_path: Path, spark: SparkSession) -> None:
    topic = f"allowed-{name.replace(' ', '-')}"
    fill(topic, {0: 2, 1: 2, 3: 2}, partitions=4)

    # Before foreachBatch (a part of the streaming plan) where it is possible there, and inside of it.
    def on_batch(df: DataFrame) -> Any:
        transformed = ALLOWED[name](df)
        try:
            return source_ranges(transformed)
        finally:
            df.unpersist()

    results = in_a_batch(reader(topic), tmp_path / "inside", on_batch)
    if name in ("select", "where", "withColumn", "explode", "python udf", "mapInArrow"):
        results += in_a_batch(ALLOWED[name](reader(topic)), tmp_path / "before", source_ranges)
    for ranges in results:
        assert [r.spark_partition for r in ranges] == [0, 1, 2]
        assert {(r.topic, r.partition, r.until_offset) for r in ranges} == {(topic, p, 2) for p in (0, 1, 3)}


@kafka
@pytest.mark.parametrize("v1", ["", "kafka"], ids=["data source v2", "data source v1"])
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_batch_reads_are_proven_too(v1: str, adaptive: str, reader: Any, fill: Any, spark: SparkSession) -> None:
    topic = f"batch-{adaptive}-{v1}"
    fill(topic, {0: 2, 2: 4}, partitions=3)
    settings = {"spark.sql.sources.useV1SourceList": v1, "spark.sql.adaptive.enabled": adaptive}
    earlier = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        df = reader(topic, batch=True).where("offset >= 0")
        really = {tuple(row) for row in df.select(F.spark_partition_id(), "partition").collect()}
        ranges = source_ranges(df)
        # A batch read leaves "earliest" (-2) and "latest" (-1) to the tasks, so it has empty partitions too.
        assert {(r.topic, r.from_offset, r.until_offset) for r in ranges} == {(topic, -2, -1)}
        assert {r.partition for r in ranges} == {0, 1, 2}
        assert really < {(r.spark_partition, r.partition) for r in ranges}

        ending = json.dumps({topic: {"0": 1, "1": 0, "2": 4}})
        ranges = source_ranges(reader(topic, batch=True, endingOffsets=ending))
        assert {(r.partition, r.until_offset) for r in ranges} >= {(0, 1), (2, 4)}
    finally:
        for name, value in earlier.items():
            spark.conf.set(name, value)


@kafka
def test_no_rows_are_no_ranges(reader: Any, fill: Any, tmp_path: Path, spark: SparkSession) -> None:
    fill("nothing", {0: 2}, partitions=1)
    assert in_a_batch(reader("nothing"), tmp_path, lambda df: source_ranges(df.where("false"))) == [()]


@kafka
def test_it_runs_no_job_and_leaves_the_dataframe_alone(
    reader: Any, fill: Any, tmp_path: Path, spark: SparkSession
) -> None:
    fill("quiet", {0: 2, 1: 3}, partitions=2)

    def on_batch(df: DataFrame) -> Any:
        jobs = jobs_run_by(spark, lambda: source_ranges(df))
        df.persist()
        plan = df._jdf.queryExecution().executedPlan().toString()
        df.unpersist()
        return jobs, "InMemoryTableScan" in plan

    assert in_a_batch(reader("quiet"), tmp_path, on_batch) == [(0, True)]


# --- source_ranges: refused ------------------------------------------------------------------------------


REFUSED: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "repartition": (lambda df: df.repartition(2, "key"), "a shuffle"),
    "range": (lambda df: df.repartitionByRange(2, "key"), "a shuffle"),
    "groupBy": (lambda df: df.groupBy("key").count(), "a shuffle"),
    "sort": (lambda df: df.sort("key"), "a shuffle"),
    "coalesce": (lambda df: df.coalesce(1), "coalesce"),
    "union": (lambda df: df.union(df), "2 inputs"),
    "broadcast join": (lambda df: df.join(F.broadcast(spark_of(df).range(3)), F.col("id") == 0), "2 inputs"),
    "subquery": (
        lambda df: spark_of(df).sql("select * from {df} where offset >= (select min(id) from range(3))", df=df),
        "a subquery",
    ),
    "rdd union": (lambda df: df.rdd.union(df.rdd).map(lambda r: (r.key,)).toDF("k binary"), "a union"),
    "rdd shuffle": (lambda df: df.rdd.map(lambda r: (r.key,)).repartition(2).toDF("k binary"), ""),
    "shuffle below a cache": (lambda df: df.repartition(2).persist(), "a shuffle"),
    "other source": (lambda df: spark_of(df).range(3).toDF("n"), "come from"),
    "local rows": (lambda df: spark_of(df).createDataFrame([(1,)], "n int"), "come from"),
}


@kafka
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_proven_is_refused(
    name: str, reader: Any, fill: Any, tmp_path: Path, spark: SparkSession
) -> None:
    transform, reason = REFUSED[name]
    topic = f"refused-{name.replace(' ', '-')}"
    fill(topic, {0: 2, 1: 2}, partitions=2)

    def on_batch(df: DataFrame) -> Any:
        refused = transform(df)
        answers: list[object] = []

        def ask() -> None:
            try:
                answers.append(source_ranges(refused))
            except SourceModeError as error:
                answers.append(str(error))

        jobs = jobs_run_by(spark, ask)
        refused.unpersist()
        return jobs, answers[0]

    [(jobs, message)] = in_a_batch(reader(topic), tmp_path, on_batch)
    assert isinstance(message, str), message
    assert reason in message
    assert 'partitioning="hash"' in message
    assert jobs == 0


@kafka
def test_a_shuffle_in_the_streaming_part_is_refused(
    reader: Any, fill: Any, tmp_path: Path, spark: SparkSession
) -> None:
    fill("early-shuffle", {0: 2, 1: 2}, partitions=2)
    [error] = in_a_batch(reader("early-shuffle").repartition(2, "key"), tmp_path, source_ranges)
    assert isinstance(error, SourceModeError)
    assert "a shuffle" in str(error)


@kafka
def test_adaptive_execution_is_not_asked_for_its_rdd(reader: Any, fill: Any, spark: SparkSession) -> None:
    fill("adaptive", {0: 2, 1: 2}, partitions=2)
    df = reader("adaptive", batch=True).repartition(2, "key")

    def ask() -> None:
        with pytest.raises(SourceModeError, match="adaptive execution"):
            source_ranges(df)

    assert jobs_run_by(spark, ask) == 0


@kafka
def test_a_split_topic_partition_is_refused(reader: Any, fill: Any, tmp_path: Path, spark: SparkSession) -> None:
    fill("split", {0: 20, 1: 1}, partitions=2)
    [error] = in_a_batch(reader("split", minPartitions=6), tmp_path, source_ranges)
    assert isinstance(error, SourceModeError)
    assert re.search(r"records of split-0 are split over the Spark partitions \d, \d", str(error))
    assert "minPartitions" in str(error)


@kafka
def test_several_topics_are_refused(reader: Any, fill: Any, tmp_path: Path, spark: SparkSession) -> None:
    fill("one", {0: 1}, partitions=1)
    fill("two", {0: 1}, partitions=1)
    [error] = in_a_batch(reader("one,two"), tmp_path, source_ranges)
    assert isinstance(error, SourceModeError)
    assert "2: one, two" in str(error)


def test_another_streaming_source_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    [error, *_] = in_a_batch(counting(spark), tmp_path, source_ranges)
    assert isinstance(error, SourceModeError)
    assert "RatePerMicroBatchStreamInputPartition" in str(error)


def test_without_a_jvm_source_mode_is_refused() -> None:
    class Connect:
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"[JVM_ATTRIBUTE_NOT_SUPPORTED] {name}")

    with pytest.raises(SourceModeError, match=r"JVM_ATTRIBUTE_NOT_SUPPORTED.*partitioning=\"hash\""):
        source_ranges(Connect())  # type: ignore[arg-type]


# --- who executes, and what can be cancelled -------------------------------------------------------------


def test_a_local_session_has_no_executors(spark: SparkSession) -> None:
    assert is_local(spark)
    assert executors(spark) == ()


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[2]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://h:7077", False),
        ("yarn", False),
    ],
)
def test_what_is_local(master: str, local: bool) -> None:
    class Session:
        conf: ClassVar = {"spark.master": master}

    assert is_local(Session()) is local  # type: ignore[arg-type]


def test_only_jobs_with_the_tag_are_cancelled(spark: SparkSession, tmp_path: Path) -> None:
    def wait_for(name: str) -> Callable[[Any], None]:
        file = str(tmp_path / name)

        def wait(rows: Any) -> None:
            (Path(file).with_suffix(".running")).touch()
            while not Path(file).exists():
                time.sleep(0.01)

        return wait

    def job(name: str) -> None:
        with tag_jobs(spark.range(1), name):
            spark.sparkContext.parallelize([0], 1).foreachPartition(wait_for(name))

    with ThreadPoolExecutor(2) as threads:
        jobs = {name: threads.submit(inheritable_thread_target(spark)(job), name) for name in ("mine", "other")}
        try:
            for name in jobs:
                until((tmp_path / f"{name}.running").exists, f"{name} is running")
            cancel_tagged(spark.range(1), "mine")
            with pytest.raises(Py4JJavaError, match=r"cancelled .*tag|tag .*cancelled"):
                jobs["mine"].result(30)
            assert not jobs["other"].done()
        finally:
            for name in jobs:
                (tmp_path / name).touch()
        jobs["other"].result(30)
    assert spark.range(3).count() == 3, "the tag is gone with its block"
    cancel_tagged(spark.range(1), "nobody has it")


def test_without_a_jvm_nothing_is_tagged_and_no_executor_is_known() -> None:
    class Connect:
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"[JVM_ATTRIBUTE_NOT_SUPPORTED] {name}")

    with tag_jobs(Connect(), "mine"):  # type: ignore[arg-type]
        cancel_tagged(Connect(), "mine")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"JVM_ATTRIBUTE_NOT_SUPPORTED.*agents='external'"):
        executors(Connect())  # type: ignore[arg-type]


def test_values_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SourceRange(0, "t", 0, 0, 1).topic = "u"  # type: ignore[misc]
