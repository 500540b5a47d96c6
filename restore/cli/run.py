"""``changelog-restore run``: rebuild stores while no agent is running."""

from __future__ import annotations

import os
import sys
import time
from typing import Annotated, Any

import typer

from changelog_state.cli.options import Common, with_common_options
from changelog_state.cli.output import bytes_text, print_json, print_table, seconds_text
from changelog_state.cli.running import FAILED, exit_code_of, signals_as_ctrl_c
from changelog_state.cli.target import Target
from changelog_state.store.directory import StateDirectory
from restore.bulk_pool import BulkPool
from restore.cli.store import MemoryMb, changelog_of
from restore.progress import RestoreDisplay
from restore.run import LocalRestore, Outcome
from restore.survey import survey

__all__ = ["run"]

_COLUMNS = ("partition", "result", "why", "records", "bytes", "time", "records/s", "position")


@with_common_options
def run(
    common: Common,
    parallelism: Annotated[
        int | None, typer.Option(min=1, help="Partitions at once.", show_default="the number of cores")
    ] = None,
    memory_mb: MemoryMb = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Delete the local stores first, however good they are.")
    ] = False,
) -> None:
    """Restore partitions into the state directory, so that an agent started there has nothing left to replay.

    Refused while an agent is using the directory. Takes nothing away from agents elsewhere. Can be interrupted
    (Ctrl-C) and run again: it goes on from where it stood.

    With --json: application, store, state_dir, interrupted, seconds, records, bytes; partitions, each with partition,
    result ("done", "failed", "interrupted", "not begun"), why (as in plan; "from scratch" if so asked), start, end,
    records, bytes, seconds, records_per_second, position (of the restored store, or null), error (or null).
    """
    target = common.target()
    topic, _ = changelog_of(target)
    begun = time.monotonic()
    directory = StateDirectory(target.state_dir)
    try:
        found = survey(target.config, topic, target.partitions, target.path)
        why = {one.partition: "from scratch" if from_scratch else one.plan.need.word for one in found}
        with (
            BulkPool(memory_mb or target.restore_memory_mb) as pool,
            signals_as_ctrl_c(),
            RestoreDisplay(f"restoring {target.name}") as display,
        ):
            restore = LocalRestore(target.config, topic, directory, pool, from_scratch=from_scratch)
            outcomes = restore.run(target.partitions, parallelism or os.cpu_count() or 1, display.update)
    finally:
        directory.close()
    document = _document(target, outcomes, why, time.monotonic() - begun)
    if common.as_json:
        print_json(document)
    else:
        _print(document)
    _exit(document, outcomes, from_scratch)


def _document(target: Target, outcomes: list[Outcome], why: dict[int, str], seconds: float) -> dict[str, Any]:
    rows = [_row(outcome, why[outcome.partition]) for outcome in outcomes]
    return {
        "application": target.application,
        "store": target.store,
        "state_dir": str(target.state_dir),
        "interrupted": any(row["result"] in ("interrupted", "not begun") for row in rows),
        "seconds": round(seconds, 3),
        "records": sum(row["records"] for row in rows),
        "bytes": sum(row["bytes"] for row in rows),
        "partitions": rows,
    }


def _row(outcome: Outcome, why: str) -> dict[str, Any]:
    figures = outcome.figures
    return {
        "partition": outcome.partition,
        "result": outcome.result,
        "why": why,
        "start": figures.start if figures else None,
        "end": figures.end if figures else None,
        "records": figures.records if figures else 0,
        "bytes": figures.bytes if figures else 0,
        "seconds": round(figures.seconds, 3) if figures else 0.0,
        "records_per_second": round(figures.records_per_second) if figures else 0,
        "position": outcome.position,
        "error": None if outcome.error is None else str(outcome.error),
    }


def _print(document: dict[str, Any]) -> None:
    rows = document["partitions"]
    print_table(_COLUMNS, (_cells(row) for row in rows))
    done = sum(1 for row in rows if row["result"] == "done")
    rate = document["records"] / document["seconds"] if document["seconds"] else 0.0
    print(
        f"{done} of {len(rows)} partitions are restored in {document['state_dir']}: {document['records']:,} records, "
        f"{bytes_text(document['bytes'])} in {seconds_text(document['seconds'])} ({rate:,.0f} records/s)"
    )


def _cells(row: dict[str, Any]) -> list[object]:
    return [
        *(row[name] for name in ("partition", "result", "why", "records")),
        bytes_text(row["bytes"]),
        seconds_text(row["seconds"]),
        row["records_per_second"],
        row["position"],
    ]


def _exit(document: dict[str, Any], outcomes: list[Outcome], from_scratch: bool) -> None:
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    for outcome in failed:
        print(f"changelog-restore: partition {outcome.partition}: {outcome.error}", file=sys.stderr)
    if document["interrupted"]:
        again = "run it again without --from-scratch" if from_scratch else "run it again"
        print(f"changelog-restore: interrupted; {again} to go on from there", file=sys.stderr)
        raise typer.Exit(FAILED)
    if failed:
        raise typer.Exit(max(exit_code_of(outcome.error) for outcome in failed if outcome.error is not None))
