"""StateService: what ``foreachBatch`` calls, and how everyone else reads the state."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from changelog_state.batches.aggregates import AggregateBatches
from changelog_state.batches.functions import FunctionBatches
from changelog_state.batches.joins import JoinBatches
from changelog_state.batches.processors import ProcessorBatches
from changelog_state.calls import Call, Lateness
from changelog_state.changelog.record import StoreIdentity
from changelog_state.changelog.topic import Topic, ensure_topics, lookup_topic
from changelog_state.codec.keys import KeyCodec
from changelog_state.config import DEFAULT_RESTORE_MEMORY_MB, default_state_dir
from changelog_state.durations import Duration
from changelog_state.errors import (
    BatchAlreadyAppliedError,
    BatchRunningError,
    ConfigurationError,
    FencedError,
    InvalidInputError,
    SourceModeError,
    UnavailableError,
)
from changelog_state.faults import fault_point
from changelog_state.fleet import Fleet
from changelog_state.kafka_output import OutputTopics, planned
from changelog_state.metrics import BatchSummary, Metrics
from changelog_state.reading import Reading, StateReader, recorded_identity
from changelog_state.routes import Routes
from changelog_state.service_tables import ServiceTables
from changelog_state.settings import ServiceSettings
from changelog_state.state.ttl import Ttl
from changelog_state.state.variables import Variable, declared_types
from changelog_state.tables.table import GlobalTable
from restore.coordinator import Coordinator
from restore.gate import NewQueryPolicy, UnreplayablePolicy
from restore.listener import RestoreListener
from restore.replica_lag import LagLimits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from changelog_state.task.program import Program

__all__ = ["StateService"]

logger = logging.getLogger(__name__)

_OUTSIDE_A_QUERY = "no-query"


class StateService(FunctionBatches, AggregateBatches, JoinBatches, ProcessorBatches):
    """Keyed state of one store. Can be made at module level; pickles as its settings only.

    ``state``: declarations (``Value``, ``List``, ``Map``) of what functions reach as attributes of their state.
    ``ttl``: how long values live for which nothing else is said: a duration, or a ``Ttl``.
    ``migration``: values that were written with an earlier schema of a variable are written anew when they are next
    touched ("lazy"), or all of them by the first batch ("eager").
    ``on_new_query``: what to do when the state belongs to another query, usually because the checkpoint was
    deleted: ``"refuse"``, ``"continue"`` with the state as it is, or ``"clear"`` it.
    ``on_unreplayable``: what to do when a batch must be replayed on a rebuilt store and compaction has removed
    the values from before it: ``"refuse"``, or ``"skip"`` its output rows (the state is right in both cases).
    ``restore_timeout_seconds``: how long a batch waits for partitions that are restored before it fails.
    ``restore_memory_mb``: what an agent may use for restoring.
    ``restore_listener``: told about restores that a batch waits for; it stays in this process.
    ``show_progress``: whether they are shown on stderr, if they take longer than a moment.
    ``standby_replicas``: how many other hosts keep each partition hot, to take it over at once.
    ``replica_lag_seconds``, ``replica_lag_records``: beyond which a replica or a global table is warned of.
    ``global_tables``: reference data that every agent follows in full, for look-ups in functions.
    """

    def __init__(
        self,
        application: str,
        store: str,
        bootstrap_servers: str,
        partitions: int,
        state_dir: str | Path | None = None,
        standby_replicas: int = 0,
        kafka: Mapping[str, Any] | None = None,
        topic: Mapping[str, Any] | None = None,
        agents: str = "auto",
        *,
        state: Sequence[Variable] = (),
        ttl: Duration | Ttl | None = None,
        migration: Literal["lazy", "eager"] = "lazy",
        on_new_query: NewQueryPolicy = "refuse",
        on_unreplayable: UnreplayablePolicy = "refuse",
        restore_timeout_seconds: float = 1800.0,
        restore_memory_mb: int = DEFAULT_RESTORE_MEMORY_MB,
        restore_listener: RestoreListener | None = None,
        show_progress: bool = True,
        replica_lag_seconds: float = 60.0,
        replica_lag_records: int = 100_000,
        global_tables: Sequence[GlobalTable] = (),
    ) -> None:
        given = ServiceSettings(
            application=application,
            store=store,
            bootstrap_servers=bootstrap_servers,
            partitions=partitions,
            state_dir=None if state_dir is None else str(state_dir),
            standby_replicas=standby_replicas,
            kafka=dict(kafka or {}),
            topic=dict(topic or {}),
            agents=agents,
            state=tuple(state),
            ttl=ttl,
            migration=migration,
            on_new_query=on_new_query,
            on_unreplayable=on_unreplayable,
            restore_timeout_seconds=restore_timeout_seconds,
            restore_memory_mb=restore_memory_mb,
            show_progress=show_progress,
            replica_lag_seconds=replica_lag_seconds,
            replica_lag_records=replica_lag_records,
            global_tables=tuple(global_tables),
        )
        self._settings = given
        self._config = given.config
        if restore_listener is not None and not isinstance(restore_listener, RestoreListener):
            raise ConfigurationError(
                f"restore_listener is {restore_listener!r}; give an instance of a subclass of RestoreListener"
            )
        self._restore_listener = restore_listener
        self._fleet = Fleet(
            self._config,
            None if state_dir is None else Path(state_dir),
            default_state_dir(),
            start=agents == "auto",
        )
        self._routes = Routes(self._config, self._fleet.needed)
        self._tables = ServiceTables(self._config, tuple(global_tables), self._fleet.needed, restore_timeout_seconds)
        self._lock = threading.Lock()
        self._coordinator: Coordinator | None = None
        self._topic: Topic | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._declared: dict[str, tuple[str, str | None]] = {}
        self._applied: tuple[str, str, int] | None = None
        self._rewritten = False
        self._results: tuple[DataFrame, ...] = ()
        self._metrics = Metrics()
        self._source_topic: str | None = None
        self._output_topics = OutputTopics(self._config)

    def __reduce__(self) -> tuple[Callable[..., StateService], tuple[dict[str, Any]]]:
        return _from_settings, (self._settings.as_given(),)

    def __repr__(self) -> str:
        return f"StateService({self._config.name!r} on {self._config.bootstrap_servers!r})"

    # -- inside foreachBatch -----------------------------------------------------------------------------

    def _run(self, call: Call, program: Program, lateness: Lateness | None = None) -> tuple[DataFrame, BatchSummary]:
        """What all kinds of batches have in common: one program, run once over the call's rows."""
        from changelog_state import spark_bridge
        from changelog_state.arrangement import key_codec
        from changelog_state.batch_run import BatchRun, Work, output_schema
        from changelog_state.task.program import pickled

        lateness = lateness or Lateness()
        df, batch_id = call.df, call.batch_id
        codec = KeyCodec((*key_codec(df, call.key_columns).types, *call.more_key_types))
        lateness.check(df)
        work = Work(
            pickled(program),
            output_schema(call.schema, call.more_fields),
            self._settings.variables if call.variables is None else call.variables,
            self._settings.lifetime if call.variables is None else None,
            call.event_time(lateness),
            lateness.delay_ms,
            call.watermark_ms,
        )
        if self._settings.migration == "eager" and not self._rewritten and program.rewrites:
            work = replace(work, rewrite=True)
        if call.output_topic is not None:
            work = replace(work, output_topic=planned(call.output_topic, call.schema, call.record_key, self._config))
        if not self._lock.acquire(blocking=False):
            raise BatchRunningError(
                f"store {self._config.name} is in use by another call of apply() or clear(); one at a time"
            )
        try:
            spark_bridge.use_drivers_python(df)
            arranging = self._aside().submit(call.arranged, self._config.partitions)
            context = spark_bridge.query_context(df)
            query = call.query_id or context.query_id or _OUTSIDE_A_QUERY
            applied = (query, context.run_id or "", batch_id)
            if context.run_id is not None and applied == self._applied:
                raise BatchAlreadyAppliedError(
                    f"apply() has already succeeded on store {self._config.name} in batch {batch_id} of query "
                    f"{query}; use another store for a second state in the same batch"
                )
            arranged = arranging.result()
            if arranged.topic is not None:
                self._check_source(arranged.topic)
            identity = StoreIdentity.of(self._config, call.partitioner, codec.describe())
            if self._applied is not None and self._applied[0] != query:
                self._abdicate()  # an epoch of its own tells what was taken over from what comes later
            declares = {**self._settings.variables, **call.declares}
            coordinator = self._reigning(identity, declares, spark_bridge.spark_of(df))
            assert self._topic is not None
            if work.output_topic is not None:
                fitted = self._output_topics.fitted(work.output_topic, self._topic)
                work = replace(work, output_topic=fitted)
            run = BatchRun(
                config=self._config,
                coordinator=coordinator,
                arranged=arranged,
                query=query,
                batch=batch_id,
                offsets_hash=context.offsets_hash,
                work=work,
                key_columns=call.key_columns,
                largest_record_bytes=self._topic.largest_record_bytes,
                on_new_query=self._settings.on_new_query,
                into_empty=call.into_empty,
                on_unreplayable=self._settings.on_unreplayable,
                timeout_seconds=call.timeout,
                aside=self._aside(),
                tables=self._tables.requests,
            )
            try:
                outcome = run.run()
            except InvalidInputError:
                raise
            except BaseException:
                # What is known of agents and epoch may be stale: the next batch starts by asking.
                self._abdicate()
                self._output_topics.forget()
                raise
            self._keep(outcome.materialized)
            fault_point("driver.before_return")
            self._applied = applied
            # Where the batch was there already, what a replay has rewritten was thrown away.
            self._rewritten = self._rewritten or (work.rewrite and not outcome.replayed)
            summary = BatchSummary.of(outcome.record, outcome.tickets)
            self._metrics.note(summary)
            return outcome.rows, summary
        finally:
            self._lock.release()

    @property
    def last_batch(self) -> BatchSummary | None:
        """What the last batch of this process was and did: its time, watermark, late rows, timers."""
        return self._metrics.last

    def metrics(self) -> dict[str, int]:
        """Rows, late rows, timers, expired values and changes of all batches of this process so far."""
        return self._metrics.totals()

    def _aside(self) -> Executor:
        """One thread that stays: Spark's driver keeps a connection to the JVM for each."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="changelog-state-aside")
        return self._executor

    def _check_source(self, topic: str) -> None:
        """A store follows one topic: with two sources in a query, a batch may well have rows of one only."""
        if self._source_topic is None:
            StateReader.check_source_topic(self._config, topic)
            self._source_topic = topic
        elif topic != self._source_topic:
            raise SourceModeError(
                f"store {self._config.name} follows topic {self._source_topic}, but this batch comes from {topic}; "
                "use one store per topic, or partitioning='hash'"
            )

    def _keep(self, results: Sequence[DataFrame]) -> None:
        """Hold on to this batch's rows; those of the previous one are freed, and nobody needs to wait for it."""
        previous, self._results = self._results, tuple(results)
        for result in previous:
            self._aside().submit(_free, result)

    def _free_results(self) -> None:
        for result in self._results:
            _free(result)
        self._results = ()

    # -- reads -------------------------------------------------------------------------------------------

    def get(self, key: Any, name: str, default: Any = None, *, stale_ok: bool = False) -> Any:
        """One value of one key, as committed; ``default`` if there is none.

        ``stale_ok``: a replica may answer, which is nearer or still there; ``read`` also tells how old it may be.
        """
        return self.read(key, name, default, stale_ok=stale_ok).value

    def read(self, key: Any, name: str, default: Any = None, *, stale_ok: bool = False) -> Reading:
        """Like ``get``, with who answered and the lag that it was answered at."""
        return self._reader().read(key, name, default, stale_ok=stale_ok)

    def get_all(self, key: Any, *, stale_ok: bool = False) -> dict[str, Any]:
        """All names and values of one key."""
        return self._reader().get_all(key, stale_ok=stale_ok)

    def scan(
        self,
        prefix: Any = None,
        start: Any = None,
        end: Any = None,
        limit: int | None = None,
        *,
        partitions: Sequence[int] | None = None,
        stale_ok: bool = False,
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Keys with their values, in order of the keys: of a prefix, or of [start, end); of some partitions only."""
        return self._reader().scan(prefix, start, end, limit, partitions, stale_ok=stale_ok)

    def key_types(self) -> list[str] | None:
        """The types of the key's columns; None while the store has never been written."""
        identity = recorded_identity(self._config)
        return None if identity is None else identity.key_types

    def status(self) -> dict[str, Any]:
        """Partitions, agents and global tables as they are; starts nothing, changes nothing."""
        reader = StateReader(self._config, Routes(self._config, self._fleet.known))
        return reader.status(self._lag_limits(), self._tables.configs)

    def _reader(self) -> StateReader:
        return StateReader(self._config, self._routes, self._settings.variables)

    def _lag_limits(self) -> LagLimits:
        limits = LagLimits(self._settings.replica_lag_seconds, self._settings.replica_lag_records)
        topic = self._topic or lookup_topic(self._config)
        return limits if topic is None else replace(limits, delete_retention_ms=topic.delete_retention_ms)

    # -- life --------------------------------------------------------------------------------------------

    def clear(self) -> int:
        """Delete all state, here and in the changelog; returns how many values. Not while a batch is running."""
        if not self._lock.acquire(blocking=False):
            raise BatchRunningError(f"store {self._config.name} cannot be cleared while a batch is running")
        try:
            reader = self._reader()
            identity = reader.identity()
            if identity is None:
                return 0
            reader.refuse_if_running()
            coordinator = self._reigning(identity, {})  # what is stored may be of any type
            try:
                cleared = coordinator.clear()
            finally:
                self._abdicate()
            self._applied = None
            return cleared
        finally:
            self._lock.release()

    def close(self) -> None:
        """Free what is held; stop the agent if this service started it."""
        with self._lock:
            self._free_results()
            self._say_farewell()
            self._abdicate()
            if self._executor is not None:
                self._executor.shutdown()
                self._executor = None
            self._fleet.close()

    def __enter__(self) -> StateService:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -- inside ------------------------------------------------------------------------------------------

    def _reigning(
        self,
        identity: StoreIdentity,
        declares: Mapping[str, Variable],
        spark: SparkSession | None = None,
    ) -> Coordinator:
        """The coordinator of this driver; taking the epoch the first time.

        ``declares``: the variables, which have to agree with what the store has before the epoch is taken.
        """
        declared = declared_types(declares)
        is_new = any(self._declared.get(each.name) != each.recorded for each in declared)
        if self._coordinator is not None and (self._coordinator.identity != identity or is_new):
            self._abdicate()
        if self._coordinator is None:
            self._topic = ensure_topics(self._config)
            self._coordinator = Coordinator(
                self._config,
                identity,
                lambda: self._fleet.needed(spark),
                self._settings.restore_timeout_seconds,
                standby_replicas=self._settings.standby_replicas,
                lag_limits=self._lag_limits(),
                discover=self._fleet.known,
                restore_memory_mb=self._settings.restore_memory_mb,
                listener=self._restore_listener,
                show_progress=self._settings.show_progress,
                tables=tuple(self._tables.configs.values()),
                declared=declared,
            )
            self._declared = {each.name: each.recorded for each in declared}
        return self._coordinator

    def _say_farewell(self) -> None:
        if self._coordinator is not None:
            try:
                self._coordinator.control.say_farewell()
            except (FencedError, UnavailableError) as error:
                logger.info("no farewell was said: %s", error)  # another driver rules, or nobody is listening

    def _abdicate(self) -> None:
        if self._coordinator is not None:
            self._coordinator.close()
            self._coordinator = None


def _from_settings(settings: dict[str, Any]) -> StateService:
    return StateService(**settings)


def _free(result: DataFrame) -> None:
    from py4j.protocol import Py4JError

    # The session may be gone already, and its cache with it.
    with contextlib.suppress(Py4JError, ConnectionError):
        result.unpersist()
