"""``changelog-restore plan``: what would be replayed, and why."""

from __future__ import annotations

from typing import Any

from changelog_state.cli.options import Common, with_common_options
from changelog_state.cli.output import bytes_text, cell, print_json, print_table, seconds_text
from changelog_state.cli.target import Target
from restore.cli.store import agent_view, changelog_of
from restore.estimate import BYTES_PER_SECOND, RECORDS_PER_SECOND
from restore.survey import PartitionSurvey, survey

__all__ = ["plan"]

_COLUMNS = ("partition", "why", "local position", "log start", "log end", "records", "bytes", "time")


@with_common_options
def plan(common: Common) -> None:
    """Show what a restore would replay, per partition, and why. Changes nothing, here or in Kafka.

    Records and bytes are estimated from samples of the log (marked ~) unless the log is short enough to be counted;
    the time is estimated from them at an assumed rate.

    With --json: application, store, topic, state_dir, agent (id, pid … of the agent that runs here, or null); rate
    (records_per_second, bytes_per_second, source); partitions, each with partition, why ("no local store", "behind",
    "stale", "corrupt", "recreated changelog", "outside log", "foreign marker", "up to date"), explanation,
    from_scratch, local_position, log_start, log_end, replay_from, offsets, records, bytes, estimated, seconds, damage
    (or null); total with partitions (that have anything to replay), offsets, records, bytes, seconds.
    """
    target = common.target()
    topic, _ = changelog_of(target)
    found = survey(target.config, topic, target.partitions, target.path, sampling=True)
    document = _document(target, topic.name, found)
    if common.as_json:
        print_json(document)
    else:
        _print(document)


def _document(target: Target, topic: str, found: list[PartitionSurvey]) -> dict[str, Any]:
    rows = [_row(one) for one in found]
    return {
        "application": target.application,
        "store": target.store,
        "topic": topic,
        "state_dir": str(target.state_dir),
        "agent": agent_view(target)[0],
        "rate": {
            "records_per_second": RECORDS_PER_SECOND,
            "bytes_per_second": BYTES_PER_SECOND,
            "source": "assumed",
        },
        "partitions": rows,
        "total": {
            "partitions": sum(1 for row in rows if row["why"] != "up to date"),
            **{name: sum(row[name] for row in rows) for name in ("offsets", "records", "bytes")},
            "seconds": round(sum(row["seconds"] for row in rows), 3),
        },
    }


def _row(one: PartitionSurvey) -> dict[str, Any]:
    return {
        "partition": one.partition,
        "why": one.plan.need.word,
        "explanation": str(one.plan.need),
        "from_scratch": one.plan.need.from_scratch,
        "local_position": one.local.meta.position if one.local.meta is not None else None,
        "log_start": one.log.low,
        "log_end": one.log.high,
        "replay_from": one.plan.start,
        "offsets": one.plan.offsets,
        "records": one.estimate.records,
        "bytes": one.estimate.bytes,
        "estimated": not one.estimate.exact,
        "seconds": round(one.estimate.seconds, 3),
        "damage": one.local.damage,
    }


def _print(document: dict[str, Any]) -> None:
    print_table(_COLUMNS, (_cells(row) for row in document["partitions"]))
    for row in document["partitions"]:
        if row["damage"] is not None:
            print(f"partition {row['partition']}: {row['damage']}")
    total, rate = document["total"], document["rate"]
    mark = "~" if any(row["estimated"] for row in document["partitions"]) else ""
    print(
        f"to replay: {total['partitions']} of {len(document['partitions'])} partitions, {mark}{total['records']:,} "
        f"records, {mark}{bytes_text(total['bytes'])}, about {seconds_text(total['seconds'])} "
        f"at an assumed {rate['records_per_second']:,} records/s or {bytes_text(rate['bytes_per_second'])}/s"
    )
    if document["agent"] is not None:
        print(
            f"an agent is running here (pid {document['agent']['pid']}): it may hold more than it has written to "
            "disk so far, see `changelog-restore status`"
        )


def _cells(row: dict[str, Any]) -> list[str]:
    mark = "~" if row["estimated"] else ""
    return [
        *(cell(row[name]) for name in ("partition", "why", "local_position", "log_start", "log_end")),
        mark + cell(row["records"]),
        mark + bytes_text(row["bytes"]),
        seconds_text(row["seconds"]),
    ]
