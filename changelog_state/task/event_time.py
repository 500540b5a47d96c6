"""When rows happened: how far event time has come, and which of them are late."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.errors import InvalidInputError
from changelog_state.task.spec import EventTime

if TYPE_CHECKING:
    from changelog_state.task.partition_task import Counts

__all__ = ["EventTimes", "event_times_ms"]


class EventTimes:
    def __init__(self, event_time: EventTime | None, watermark_ms: int | None, counts: Counts) -> None:
        self._event_time = event_time
        self._watermark_ms = watermark_ms
        self._counts = counts

    def accepted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Without the late rows, if they are to be left out; late is what was before the watermark."""
        if self._event_time is None:
            return batch
        times = event_times_ms(batch, self._event_time.column)
        latest = pc.max(times).as_py()
        known = self._counts.max_event_ms
        if latest is not None:
            self._counts.max_event_ms = latest if known is None else max(known, latest)
        if self._watermark_ms is None or self._event_time.late == "judged":
            return batch
        late = pc.less(times, self._watermark_ms)
        self._counts.late_rows += pc.sum(late).as_py() or 0
        return batch.filter(pc.invert(late)) if self._event_time.late == "drop" else batch


def event_times_ms(batch: pa.RecordBatch, column: str) -> pa.Array:
    """Milliseconds since 1970, rounded down."""
    values = batch.column(column)
    if not pa.types.is_timestamp(values.type):
        raise InvalidInputError(f"event time {column!r} is of type {values.type}; cast the column to timestamp")
    if values.null_count:
        raise InvalidInputError(
            f"event time {column!r} is null in {values.null_count} rows; filter them out, or give them a time"
        )
    micros = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    # Division of integers goes towards zero, and there is a time before 1970.
    return pc.divide(pc.subtract(micros, pc.if_else(pc.less(micros, 0), 999, 0)), 1000)
