"""``service.transform_with_state`` and ``import_state``: Spark's own processors, and the state of its queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from changelog_state.batches.base import Batches
from changelog_state.durations import Duration
from changelog_state.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, GroupedData, SparkSession
    from pyspark.sql.streaming import StatefulProcessor
    from pyspark.sql.types import StructType

    from changelog_state.arrangement import OrderBy
    from changelog_state.kafka_output import KafkaOutput
    from changelog_state.processors.import_call import ImportSummary, TakeOver

__all__ = ["ProcessorBatches"]


class ProcessorBatches(Batches):
    def key_types(self) -> list[str] | None:
        raise NotImplementedError

    def transform_with_state(
        self,
        df: DataFrame,
        batch_id: int,
        processor: StatefulProcessor,
        *,
        key: str | Sequence[str],
        output_schema: str | StructType,
        time_mode: str = "None",
        initial_state: DataFrame | GroupedData | None = None,
        event_time: str | None = None,
        watermark_delay: Duration | None = None,
        partitioning: str = "hash",
        order_by: OrderBy = None,
        output_topic: str | KafkaOutput | None = None,
        timeout: float | None = None,
        query_id: str | None = None,
    ) -> DataFrame:
        """Run a processor that was written for ``transformWithStateInPandas``, as it is, on this store.

        ``time_mode``: "None", "ProcessingTime" or "EventTime". Event time is that of the column that the stream was
        given a watermark for (``withWatermark``), or of ``event_time``, ``watermark_delay`` behind.
        ``initial_state``: for the first batch of a new store. The other arguments are those of ``apply``;
        docs/SPARK_PROCESSORS.md says what differs from Spark.
        """
        from changelog_state.processors.call import TransformCall

        call = TransformCall.of(
            df,
            batch_id,
            processor,
            key=key,
            output_schema=output_schema,
            time_mode=time_mode,
            initial_state=initial_state,
            event_time=event_time,
            watermark_delay=watermark_delay,
            partitioning=partitioning,
            order_by=order_by,
            output_topic=output_topic,
            timeout=timeout,
            query_id=query_id,
        )
        if initial_state is not None and batch_id > 0 and self._topic is None and self.key_types() is None:
            raise ConfigurationError(
                f"initial_state is for batch 0, but the first batch of store {self._settings.config.name} is "
                f"{batch_id}; use import_state(), or begin with a new checkpoint"
            )
        return self._run(call, call.program, call.lateness)[0]

    def import_state(
        self,
        checkpoint: str,
        func: TakeOver | None = None,
        *,
        key: Mapping[str, str] | None = None,
        operator_id: int = 0,
        timeout: float | None = None,
        spark: SparkSession | None = None,
    ) -> ImportSummary:
        """Take over the state of a stopped Spark query, from its ``checkpointLocation``, into this empty store.

        It becomes the last batch of that query, which then goes on here: with a copy of the checkpoint without its
        directory ``state``, and ``transform_with_state`` in ``foreachBatch``. Running it again, before the query has
        gone on here, changes nothing; into a store that has any other state it is refused.
        ``func(key, value, state)``: for the state of other operators than ``transformWithState``, one value of
        Spark's per key; without it, each field becomes a value of its name. It may set timers. ``key``: the
        key's columns by the Spark SQL expressions that they are, such as ``{"user": "key.user", "from":
        "unix_millis(key.window.start)"}``.
        """
        from pyspark.sql import SparkSession

        from changelog_state.processors.import_call import ImportCall

        spark = spark or SparkSession.getActiveSession()
        if spark is None:
            raise ConfigurationError("import_state() needs a Spark session, and none is active; give spark=")
        call = ImportCall.of(spark, checkpoint, operator_id, func, key, timeout)
        _, batch = self._run(call, call.program, call.lateness)
        return call.summary(batch)
