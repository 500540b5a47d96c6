"""One task attempt at its partition's owner: reads and STAGEs, then a SEAL. A cut stream stages nothing."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from changelog_state.agent.key_reading import read_due, read_keys, read_records, scan_ranges
from changelog_state.agent.messages import ANSWER_SCHEMA
from changelog_state.agent.partition import Partition, TaskRead
from changelog_state.agent.staging import StagedWork
from changelog_state.faults import fault_point
from changelog_state.requests import RequestHeader

__all__ = ["serve_task"]


def serve_task(partition: Partition, header: RequestHeader, reader: Any, writer: Any) -> None:
    writer.begin(ANSWER_SCHEMA)
    work: StagedWork | None = None
    try:
        for chunk in reader:
            message = json.loads(chunk.app_metadata.to_pybytes())
            verb = message["verb"]
            if verb == "get":
                with partition.reading(header) as read:
                    found = read_keys(read.state, read.marker, chunk.data.column(0).to_pylist(), before=read.before)
                writer.write_with_metadata(found.to_arrow(), json.dumps(found.names).encode())
            elif verb in _READS:
                with partition.reading(header) as read:
                    answer = _READS[verb](read, message, chunk.data)
                writer.write_with_metadata(answer, b"")
            elif verb == "stage":
                work = work or partition.begin_stage(header)
                work.append(chunk.data)
            elif verb == "output":
                work = work or partition.begin_stage(header)
                work.append_outputs(message["topic"], chunk.data)
            elif verb == "seal":
                work = work or partition.begin_stage(header)
                work.schemas = {bytes.fromhex(name): schema.encode() for name, schema in message["schemas"].items()}
                fault_point("stage.before_seal")
                partition.seal_stage(header, work, frozenset(message["names"]))
                fault_point("stage.after_seal")
                writer.write_metadata(json.dumps(_sealed(work)).encode())
            else:
                raise flight.FlightServerError(f"unknown verb {verb!r}")
    finally:
        if work is not None and not work.sealed:
            work.discard()


def _sealed(work: StagedWork) -> dict[str, Any]:
    return {
        "stage_id": work.stage_id,
        "digest": work.digest().hex(),
        "records": work.records,
        "outputs": work.outputs,
    }


def _read(read: TaskRead, message: dict[str, Any], asked: pa.RecordBatch) -> pa.RecordBatch:
    return read_records(read.state, asked.column(0).to_pylist(), before=read.before)


def _scan(read: TaskRead, message: dict[str, Any], asked: pa.RecordBatch) -> pa.RecordBatch:
    ranges = zip(asked.column(0).to_pylist(), asked.column(1).to_pylist(), strict=True)
    return scan_ranges(read.state, ranges, message["limit"], before=read.before)


def _due(read: TaskRead, message: dict[str, Any], asked: pa.RecordBatch) -> pa.RecordBatch:
    return read_due(
        read.state,
        message["now_ms"],
        message["watermark_ms"],
        message["most_timers"],
        message["most_expired"],
        before=read.before,
    )


_READS = {"read": _read, "scan": _scan, "due": _due}
