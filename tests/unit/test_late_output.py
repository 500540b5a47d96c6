"""Late rows leave a task beside its output rows, but are none: they do not go to the rows' topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from changelog_state.task.partition_task import PartitionTask
from changelog_state.task.spec import LATE_COLUMN, TICKET_COLUMN, BatchSpec, OutputTopic


def test_late_rows_do_not_go_to_the_topic() -> None:
    late = pa.struct([("k", pa.string())])
    schema = pa.schema([("k", pa.string()), (LATE_COLUMN, late), (TICKET_COLUMN, pa.binary())])
    topic = OutputTopic("totals", "json", ("k",), 1_000)
    spec = BatchSpec(0, b"", ("k",), ("k",), ("string",), schema, 0, 1_000, output_topic=topic)
    sent: list[Any] = []
    session = SimpleNamespace(output=lambda name, keys, values, headers: sent.extend(values.to_pylist()))
    task = PartitionTask(spec, lambda: session, is_due=False)  # type: ignore[arg-type, return-value]
    batch = task.output.to_arrow([{"k": "a"}, {LATE_COLUMN: {"k": "too late"}}, {"k": "b"}])
    [given] = task.produced(iter([batch]))
    assert given.equals(batch)
    assert sent == [b'{"k":"a"}', b'{"k":"b"}']
