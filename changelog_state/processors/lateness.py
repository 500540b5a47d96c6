"""Which rows Spark's operator leaves out as late: those up to the watermark before the *previous* batch, included.

One batch behind, so that several operators of one query can follow each other. Before there is a watermark it is 0:
a row of 1970 or earlier is late in the first batches.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.processors.initial import is_input
from changelog_state.task.partition_task import PartitionTask

__all__ = ["on_time"]


def on_time(task: PartitionTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Late are those that were left out; the task has counted what is before the latest watermark."""
    spec = task.spec
    for batch in batches:
        if spec.event_time is None:
            yield batch
            continue
        times = batch.column(spec.event_time.column)
        micros = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
        if spec.watermark_ms is not None:
            task.counts.late_rows -= _number(pc.less(micros, spec.watermark_ms * 1000))
        late_ms = max(0, spec.late_watermark_ms or 0)
        late = pc.and_(pc.less_equal(micros, late_ms * 1000), is_input(batch))
        task.counts.late_rows += _number(late)
        yield batch.filter(pc.invert(late))


def _number(flags: pa.Array) -> int:
    return pc.sum(flags).as_py() or 0
