"""``changelog-restore verify``: prove that local stores are what the changelog says."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from changelog_state.cli.options import Common, with_common_options
from changelog_state.cli.output import print_json, print_table
from changelog_state.cli.running import DIFFERENCE
from changelog_state.cli.target import Target
from changelog_state.codec.keys import KeyCodec
from restore.bulk_pool import BulkPool
from restore.cli.store import MemoryMb, changelog_of, refuse_without_stores
from restore.comparison import Difference, Side
from restore.entries import decode_record, kind_name
from restore.progress import RestoreDisplay, RestoreFigures
from restore.verify import Verdict, verify_partition

__all__ = ["verify"]

_COLUMNS = (
    "partition",
    "result",
    "position",
    "values",
    "in changelog",
    "differences",
    "undecided",
    "digest",
    "of changelog",
)


@with_common_options
def verify(
    common: Common,
    most_differences: Annotated[int, typer.Option(min=0, help="Show at most so many, per partition.")] = 10,
    memory_mb: MemoryMb = None,
) -> None:
    """Prove that each local store equals the changelog folded up to its position. Exit code 3 if one does not.

    Changes nothing, here or in Kafka. The fold is made in a temporary directory (set TMPDIR to choose which disk)
    and needs about as much room as the store itself. While an agent is running, what it has written to disk is
    verified. If the log goes on behind a store's position, compaction may have removed what the store rightly has of
    the keys it goes on with; such differences prove nothing and are counted as undecided.

    With --json: application, store, state_dir, equal (of all); partitions, each with partition, result ("equal",
    "different", "corrupt", "not comparable", "no local store"), reason, position; in_store and in_changelog (records,
    values, digest; null if not compared), differences, undecided, first_differences (kind, key, name, problem
    ("changed", "missing", "extra"), store and changelog: the two values, null where there is none).
    """
    target = common.target()
    refuse_without_stores(target)
    topic, identity = changelog_of(target)
    codec = KeyCodec(tuple(identity.key_types)) if identity is not None else None
    verdicts = []
    with (
        BulkPool(memory_mb or target.restore_memory_mb) as pool,
        _quiet_fold(),
        RestoreDisplay(f"reading the changelog of {target.name}") as display,
    ):
        for partition in target.partitions:
            verdicts.append(
                verify_partition(
                    target.config,
                    topic,
                    partition,
                    target.path(partition),
                    most_differences,
                    lambda done, p=partition: display.update([RestoreFigures.of(p, "READING", done)]),  # type: ignore[misc]
                    pool,
                )
            )
    document = _document(target, codec, verdicts)
    if common.as_json:
        print_json(document)
    else:
        _print(document)
    if not document["equal"]:
        raise typer.Exit(DIFFERENCE)


@contextmanager
def _quiet_fold() -> Iterator[None]:
    """What the temporary fold cannot do (replay its last batch, for one) is no news about the store."""
    log = logging.getLogger("restore")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _document(target: Target, codec: KeyCodec | None, verdicts: list[Verdict]) -> dict[str, Any]:
    return {
        "application": target.application,
        "store": target.store,
        "state_dir": str(target.state_dir),
        "equal": not any(verdict.result.proven_wrong for verdict in verdicts),
        "partitions": [_row(verdict, codec) for verdict in verdicts],
    }


def _row(verdict: Verdict, codec: KeyCodec | None) -> dict[str, Any]:
    comparison = verdict.comparison
    return {
        "partition": verdict.partition,
        "result": str(verdict.result),
        "reason": verdict.reason,
        "position": verdict.position,
        "in_store": _side(comparison.store) if comparison else None,
        "in_changelog": _side(comparison.changelog) if comparison else None,
        "differences": comparison.differences if comparison else None,
        "undecided": comparison.undecided if comparison else None,
        "first_differences": [_difference(found, codec) for found in comparison.first] if comparison else [],
    }


def _side(side: Side) -> dict[str, Any]:
    return {"records": side.records, "values": side.values, "digest": side.digest}


def _difference(found: Difference, codec: KeyCodec | None) -> dict[str, Any]:
    mine, theirs = (decode_record(codec, found.record_key, data) for data in (found.store, found.changelog))
    return {
        "kind": kind_name(found.record_key),
        "key": mine["key"],
        "name": mine["name"],
        "problem": found.problem,
        "store": mine["value"],
        "changelog": theirs["value"],
    }


def _print(document: dict[str, Any]) -> None:
    print_table(_COLUMNS, (_cells(row) for row in document["partitions"]))
    for row in document["partitions"]:
        if row["reason"]:
            print(f"partition {row['partition']}: {row['reason']}")
        for found in row["first_differences"]:
            name = f" {found['name']!r}" if found["name"] is not None else ""
            print(
                f"partition {row['partition']}: {found['kind']} {found['key']!r}{name} is {found['problem']}: "
                f"{_has('store', found, 'missing')}, {_has('changelog', found, 'extra')}"
            )
        hidden = (row["differences"] or 0) - len(row["first_differences"])
        if hidden:
            print(f"partition {row['partition']}: and {hidden:,} more differences")
    if document["equal"]:
        print("no difference found")
    else:
        print("rebuild what differs with `changelog-restore run --from-scratch --partitions …`, its agent stopped")


def _has(side: str, found: dict[str, Any], absent: str) -> str:
    return f"the {side} has " + ("nothing" if found["problem"] == absent else repr(found[side]))


def _cells(row: dict[str, Any]) -> list[object]:
    mine, theirs = row["in_store"], row["in_changelog"]
    return [
        row["partition"],
        row["result"],
        row["position"],
        mine and mine["values"],
        theirs and theirs["values"],
        row["differences"],
        row["undecided"],
        mine and mine["digest"][:12],
        theirs and theirs["digest"][:12],
    ]
