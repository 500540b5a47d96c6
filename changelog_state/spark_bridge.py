"""The only module that touches Spark's JVM: which batch is this, which Kafka range is in which task, who executes?

Everything here reads, except ``run_on_executors``, which runs a job of its own, and the tags of jobs, which are
public API; nothing takes a lock of the streaming query. Everything else in this library is the public DataFrame
API. What is read is private API of Spark, examined in 4.0: where it is missing (Spark Connect, another version)
``query_context`` knows less, ``source_ranges`` and ``executors`` refuse, and jobs are not tagged.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError

from changelog_state.errors import ConfigurationError, SourceModeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Executor",
    "QueryContext",
    "SourceRange",
    "cancel_tagged",
    "executors",
    "is_local",
    "query_context",
    "run_on_executors",
    "source_ranges",
    "spark_of",
    "tag_jobs",
    "use_drivers_python",
    "wake_executors",
]

_log = logging.getLogger(__name__)
_logged: set[str] = set()

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_JOB_GROUP = "spark.jobGroup.id"  # A streaming query runs its jobs in a group named after its run id.


@dataclass(frozen=True)
class QueryContext:
    """What Spark knows about the micro-batch that is running. None: not known here."""

    query_id: str | None = None  # stays the same as long as the checkpoint does
    run_id: str | None = None  # another one after every restart
    offsets_hash: str | None = None  # of the sources' start and end offsets; the same on replay
    batch_time_ms: int | None = None  # Spark's batch timestamp, from its offset log; the same on replay


@dataclass(frozen=True)
class SourceRange:
    """The Kafka records that one Spark partition holds: ``from_offset`` up to, not with, ``until_offset``.

    Batch reads leave "earliest" and "latest" to their tasks: the offsets are then Kafka's -2 and -1.
    """

    spark_partition: int
    topic: str
    partition: int
    from_offset: int
    until_offset: int


def spark_of(df: DataFrame) -> SparkSession:
    """The session of this DataFrame; inside ``foreachBatch`` that is a clone made for the query."""
    return df.sparkSession


def use_drivers_python(df: DataFrame) -> None:
    """In local mode, run workers with the driver's own interpreter unless something else was asked for.

    Spark's default is whatever ``python3`` is first on the PATH: with an environment that is not activated, one
    that has neither pyarrow nor this library.
    """
    if os.environ.get("PYSPARK_PYTHON"):
        return
    try:
        context: Any = spark_of(df).sparkContext
        asked = context.getConf().get("spark.pyspark.python")
        if context.master.startswith("local") and asked is None and context.pythonExec == "python3":
            context.pythonExec = sys.executable
    except Exception as error:
        _debug_once("interpreter of the workers left as it is", error)


# --- which batch is this? --------------------------------------------------------------------------------


def query_context(df: DataFrame) -> QueryContext:
    """Query, run and offsets of the batch that this thread is in. Never raises; call it in ``foreachBatch``.

    1. The query id is a local property of the thread.
    2. The query's execution is found among the active ones of *all* sessions: the session of a micro-batch
       is a clone whose own ``streams`` does not know the query.
    3. Its execution context holds the start and end offsets of the running batch, for any kind of source:
       on a replay the ones from Spark's offset log, else the ones just written to it.
    """
    try:
        context: Any = spark_of(df).sparkContext
        query_id = context.getLocalProperty(_QUERY_ID)
        if query_id is None:
            _debug_once("not in a streaming query")
            return QueryContext()
        group = context.getLocalProperty(_JOB_GROUP)
    except Exception as error:
        _debug_once("no query id", error)
        return QueryContext()
    try:
        return _context_of_execution(df, context, query_id)
    except Exception as error:
        _debug_once("no source offsets", error)
        return QueryContext(query_id=query_id, run_id=group)


def _context_of_execution(df: DataFrame, context: Any, query_id: str) -> QueryContext:
    session: Any = spark_of(df)._jsparkSession
    uuid = context._jvm.java.util.UUID.fromString(query_id)
    execution = session.sharedState().activeStreamingQueries().get(uuid)
    run_id = str(execution.runId().toString())
    batch = execution.getLatestExecutionContext()
    # A thread that was started in an earlier batch still carries that batch's properties.
    if context.getLocalProperty(_BATCH_ID) != str(batch.batchId()):
        _debug_once("the thread is not in the query's current batch")
        return QueryContext(query_id=query_id, run_id=run_id)
    sources, metadata = execution.sources(), batch.offsetSeqMetadata()
    offsets = [
        _json_offsets(progress.toOffsetSeq(sources, metadata).offsets())
        for progress in (batch.startOffsets(), batch.endOffsets())
    ]
    return QueryContext(query_id, run_id, _hash(offsets), int(metadata.batchTimestampMs()))


def _json_offsets(offsets: Any) -> list[Any]:
    """Per source its offset, or None before its first batch."""
    options = [offsets.apply(i) for i in range(offsets.size())]
    return [None if option.isEmpty() else _canonical(option.get().json()) for option in options]


def _canonical(text: str) -> Any:
    # The JSON of an offset is a source's own business: if it is JSON, the order of its fields is not hashed.
    try:
        return json.loads(text)
    except ValueError:
        return text


def _hash(offsets: list[Any]) -> str:
    text = json.dumps(offsets, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _debug_once(what: str, error: Exception | None = None) -> None:
    if what not in _logged:
        _logged.add(what)
        _log.debug("query context: %s", what, exc_info=error)


# --- who executes? ---------------------------------------------------------------------------------------

_T = TypeVar("_T")
_FINDS_OUT_SECONDS = 10.0  # Spark's own record of its tasks is written a moment behind them.
_MOST_TASKS = 100_000


@dataclass(frozen=True)
class Executor:
    """``host`` is its name as Spark knows it: by this others reach it."""

    id: str
    host: str


def is_local(spark: SparkSession) -> bool:
    """Whether tasks run inside of the driver. ``local-cluster`` is a cluster."""
    master = str(spark.conf.get("spark.master", "local"))
    return master.startswith("local") and not master.startswith("local-cluster")


def executors(spark: SparkSession) -> tuple[Executor, ...]:
    """Those that are registered now; on a cluster that has just been asked for some, none perhaps.

    NOTE: not from the status that the UI shows: that is behind, and this is what the scheduler has.
    """
    try:
        context: Any = spark.sparkContext
        found = context._jsc.sc().env().blockManager().master().getMemoryStatus().keysIterator()
        known = []
        while found.hasNext():
            manager = found.next()
            if not manager.isDriver():
                known.append(Executor(str(manager.executorId()), str(manager.host())))
    except Py4JJavaError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"this Spark does not show its executors ({_first_line(error)}); start an agent on every worker node "
            "with `changelog-state agent --advertise host:port`, and use agents='external'"
        ) from error
    return tuple(sorted(known, key=lambda executor: (executor.host, executor.id)))


def wake_executors(spark: SparkSession) -> None:
    """Wait until there is one at least, as every job does; Spark may not even have asked for any before."""
    spark.sparkContext.parallelize([0], 1).count()


def run_on_executors(
    spark: SparkSession, where: Sequence[Executor], function: Callable[[Executor], _T]
) -> dict[Executor, _T]:
    """One task for each of these executors: what ``function`` gave, by the executor that really ran it.

    Spark takes a preferred executor for a wish: after ``spark.locality.wait`` it runs a task elsewhere rather than
    not at all. So an executor may be missing in the answer, and ``function`` must know where it is by itself:
    what it is called with is only where it should be.
    """
    from pyspark import TaskContext
    from pyspark.core.rdd import RDD
    from pyspark.serializers import UTF8Deserializer

    context: Any = spark.sparkContext
    jvm, wanted = context._jvm, list(where)
    to_seq = jvm.PythonUtils.toSeq
    # The form in which Spark writes down that an executor has a block cached.
    pinned = [
        jvm.scala.Tuple2(str(number), to_seq([f"executor_{executor.host}_{executor.id}"]))
        for number, executor in enumerate(wanted)
    ]
    of_strings = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("java.lang.String"))
    numbers = RDD(context._jsc.sc().makeRDD(to_seq(pinned), of_strings).toJavaRDD(), context, UTF8Deserializer())

    def run(rows: Iterator[str]) -> Iterator[tuple[int, int, _T]]:
        task: Any = TaskContext.get()
        for number in rows:
            yield task.stageId(), task.taskAttemptId(), function(wanted[int(number)])

    answers = numbers.mapPartitions(run).collect()
    known = {executor.id: executor for executor in (*wanted, *executors(spark))}
    ran_on = _executors_of_tasks(context, {stage for stage, _, _ in answers}, {task for _, task, _ in answers})
    return {known[ran_on[task]]: answer for _, task, answer in answers if ran_on.get(task) in known}


def _executors_of_tasks(context: Any, stages: set[int], tasks: set[int]) -> dict[int, str]:
    """By the ids of tasks that have ended, the ids of their executors."""
    status = context._jsc.sc().statusStore()
    deadline = time.monotonic() + _FINDS_OUT_SECONDS
    while True:
        found: dict[int, str] = {}
        for stage in stages:
            listed = status.taskList(stage, 0, _MOST_TASKS)
            for index in range(listed.size()):
                task = listed.apply(index)
                found[int(task.taskId())] = str(task.executorId())
        if tasks <= set(found) or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


# --- jobs that may have to be cancelled ------------------------------------------------------------------


@contextmanager
def tag_jobs(df: DataFrame, tag: str) -> Iterator[None]:
    """Jobs that this thread starts inside can be cancelled by the tag, from any thread; without a JVM they cannot."""
    context = _context_of(df)
    if context is None:
        yield
        return
    context.addJobTag(tag)
    try:
        yield
    finally:
        # The session may be gone by now, and what is raised inside is worth more than that.
        try:
            context.removeJobTag(tag)
        except Exception as error:
            _debug_once("tag left behind", error)


def cancel_tagged(df: DataFrame, tag: str) -> None:
    """Cancel the running jobs with this tag; they fail where they were started. Others go on."""
    context = _context_of(df)
    if context is not None:
        try:
            context.cancelJobsWithTag(tag)
        except Exception as error:
            _debug_once("jobs not cancelled", error)


def _context_of(df: DataFrame) -> Any:
    try:
        return spark_of(df).sparkContext
    except Exception as error:
        _debug_once("no Spark context", error)
        return None


# --- which Kafka range is in which task? -----------------------------------------------------------------

_SPARK_SQL = "org.apache.spark.sql.execution."
_RUNS_JOBS = {  # by package or class: to ask these for their RDD would run a job
    _SPARK_SQL + "adaptive.": "adaptive execution",
    _SPARK_SQL + "exchange.Broadcast": "a broadcast",
    _SPARK_SQL + "exchange.": "a shuffle",
    _SPARK_SQL + "python.AttachDistributedSequence": "a distributed index",
}
_CACHED = _SPARK_SQL + "columnar.InMemoryTableScanExec"

_ONE_TO_ONE = "org.apache.spark.OneToOneDependency"
_DEPENDENCIES = {
    "org.apache.spark.ShuffleDependency": "a shuffle",
    "org.apache.spark.RangeDependency": "a union",
}
_KAFKA_V2_PARTITION = "org.apache.spark.sql.kafka010.KafkaBatchInputPartition"
_V2_RDD = _SPARK_SQL + "datasources.v2.DataSourceRDD"
_KAFKA_V1_RDD = "org.apache.spark.sql.kafka010.KafkaSourceRDD"
_KAFKA_RANGE = re.compile(r"KafkaOffsetRange\(([a-zA-Z0-9._-]+)-(\d+),(-?\d+),(-?\d+),(?:None|Some\(.*\))\)")


def source_ranges(df: DataFrame) -> tuple[SourceRange, ...]:
    """Which topic partition's range each Spark partition of ``df`` holds, proven; or ``SourceModeError``.

    Proven is: every Spark partition holds exactly one range, all of one topic, and every topic partition is
    in at most one Spark partition. They are in no particular order; a replay need not have the same one.
    Topic partitions without new records have no Spark partition; a DataFrame without rows has none at all.

    1. Refuse physical plans that would run a job when asked for their RDD (exchanges, subqueries, AQE).
    2. Follow the RDD's dependencies, one-to-one and one only, down to Kafka's RDD.
    3. Read the ranges of its partitions.

    NOTE: the ranges of a micro-batch are fixed. A *batch* read up to "latest" is planned again by every
    action, and then may end later and in other Spark partitions.
    """
    try:
        # A new DataFrame, because a plan once made does not use what the user caches afterwards.
        execution = df.select("*")._jdf.queryExecution()
        _refuse_plans_that_run_jobs(execution.executedPlan())
        source = _source_rdd(execution.toRdd())
        ranges = () if source is None else _ranges_of(*source)
    except Py4JJavaError:
        raise
    except (Py4JError, AttributeError, TypeError) as error:
        raise SourceModeError(
            f'partitioning="source" cannot be proven: this Spark does not show the partitions of its plan '
            f'({_first_line(error)}); use partitioning="hash", or classic Spark 4.0'
        ) from error
    _check_one_range_per_topic_partition(ranges)
    return ranges


def _refuse_plans_that_run_jobs(plan: Any) -> None:
    while True:
        name = str(plan.getClass().getName())
        for prefix, what in _RUNS_JOBS.items():
            if name.startswith(prefix):
                _refuse_step(what, plan.nodeName())
        if not plan.subqueries().isEmpty():
            _refuse_step("a subquery", plan.nodeName())
        if name == _CACHED:
            plan = plan.relation().cachedPlan()
            continue
        children = plan.children()
        count = children.size()
        if count == 0:
            return
        if count > 1:
            _refuse_step(f"an operator with {count} inputs", plan.nodeName())
        plan = children.head()


def _source_rdd(rdd: Any) -> tuple[Any, str] | None:
    """Kafka's RDD below this one, with its class. None if there are no partitions at all."""
    while True:
        dependencies = rdd.dependencies()
        # One call for the number and the classes: "List(org.apache.spark.OneToOneDependency@1f2e)".
        classes = re.findall(r"([\w.$]+)@[0-9a-f]+", dependencies.toString())
        if classes == [_ONE_TO_ONE]:
            rdd = dependencies.head().rdd()
        elif classes:
            what = _DEPENDENCIES.get(classes[0], "a union, join or coalesce")
            _refuse_step(what, rdd.getClass().getSimpleName())
        else:
            break
    name = str(rdd.getClass().getName())
    if name in (_V2_RDD, _KAFKA_V1_RDD):
        return rdd, name
    if rdd.getNumPartitions() > 0:
        _refuse_source(name)
    return None


def _ranges_of(rdd: Any, rdd_class: str) -> tuple[SourceRange, ...]:
    ranges = []
    for index, partition in enumerate(rdd.partitions()):
        if rdd_class == _V2_RDD:
            inputs = partition.inputPartitions()
            if (count := inputs.size()) != 1:
                _refuse_step(f"a group of {count} source partitions", f"Spark partition {index}")
            partition = inputs.head()
            # All partitions of one scan are of one class.
            if index == 0 and (name := partition.getClass().getName()) != _KAFKA_V2_PARTITION:
                _refuse_source(name)
        text = str(partition.offsetRange().toString())
        match = _KAFKA_RANGE.fullmatch(text)
        if match is None:
            raise TypeError(f"{text} is not an offset range as Spark 4.0 writes it")
        topic, *numbers = match.groups()
        ranges.append(SourceRange(index, topic, *map(int, numbers)))
    return tuple(ranges)


def _check_one_range_per_topic_partition(ranges: tuple[SourceRange, ...]) -> None:
    topics = sorted({r.topic for r in ranges})
    if len(topics) > 1:
        raise SourceModeError(
            f'partitioning="source" needs one topic, but the rows come from {len(topics)}: '
            f'{", ".join(topics)}; use one query and one store per topic, or partitioning="hash"'
        )
    holders: dict[int, list[int]] = {}
    for r in ranges:
        holders.setdefault(r.partition, []).append(r.spark_partition)
    for partition, spark_partitions in sorted(holders.items()):
        if len(spark_partitions) > 1:
            raise SourceModeError(
                f"the records of {topics[0]}-{partition} are split over the Spark partitions "
                f"{', '.join(map(str, spark_partitions))}; remove minPartitions and maxRecordsPerPartition "
                f'from the options of the Kafka source, or use partitioning="hash"'
            )


def _refuse_step(what: str, where: str) -> NoReturn:
    raise SourceModeError(
        f'partitioning="source" needs rows straight from the Kafka source, but there is {what} on their way '
        f"({where}); do that after apply (before it, select, where, withColumn and Python functions are "
        f'fine), or use partitioning="hash"'
    )


def _refuse_source(name: str) -> NoReturn:
    raise SourceModeError(
        f'partitioning="source" needs rows straight from the Kafka source, but they come from {name}; '
        f'use partitioning="hash"'
    )
