"""``reopen``: milliseconds until an intact store of 2,000,000 keys is ready again, in a new process.

The store is restored once and closed. Then it is opened again and again, by the same call as a restore: it opens
the database, compares its position with the changelog and finds nothing to replay. And the same after a kill -9: new
batches have come and the process that held them only in memory has been killed, so they are replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.child import run_child
from benchmarks.our_restore import COMMAND
from benchmarks.restore_data import KEY_BYTES, VALUE_BYTES, OurChangelog, new_changelog
from benchmarks.results import Report, Result
from benchmarks.session import Bench

__all__ = ["Size", "measure", "run"]

AIM_MS = 1_000
_NEW_BATCHES = 4
_NEW_BATCH_RECORDS = 5_000


@dataclass(frozen=True)
class Size:
    records: int
    times: int


FULL = Size(records=2_000_000, times=7)
QUICK = Size(records=500_000, times=3)


def run(bench: Bench, report: Report) -> None:
    measure(bench, report, QUICK if bench.quick else FULL)


def measure(bench: Bench, report: Report, size: Size) -> None:
    report.say(f"writing and restoring {size.records:,} records")
    changelog = new_changelog(bench, size.records, 1)
    state_dir = bench.directory / "reopen"
    first = _open(changelog, state_dir)
    if first["replayed"] < size.records:
        raise RuntimeError(f"{first['replayed']} records were restored of {size.records}")
    intact = [_open(changelog, state_dir) for _ in range(size.times)]
    if any(found["replayed"] for found in intact):
        raise RuntimeError("a store that was closed cleanly had records left to replay")
    killed = [_open_after_kill(changelog, state_dir, size, number) for number in range(size.times)]
    _check(changelog, state_dir, size.records + size.times * _NEW_BATCHES * _NEW_BATCH_RECORDS)
    milliseconds = [found["seconds"] * 1000 for found in intact]
    killed_milliseconds = [found["seconds"] * 1000 for found in killed]
    params: dict[str, Any] = {
        "variant": "closed",
        "records": size.records,
        "partitions": 1,
        "key_bytes": KEY_BYTES,
        "value_bytes": VALUE_BYTES,
        "ms": [round(one, 1) for one in milliseconds],
        "killed_ms": [round(one, 1) for one in killed_milliseconds],
        "killed_median_ms": round(median(killed_milliseconds), 1),
        "killed_replayed_records": [found["replayed"] for found in killed],
        "new_records": _NEW_BATCHES * _NEW_BATCH_RECORDS,
        "restore_seconds": round(first["seconds"], 3),
    }
    value = median(milliseconds)
    shown = {
        "slowest": f"{max(milliseconds):.0f}",
        "after kill -9": f"{median(killed_milliseconds):.0f}",
        "replayed then": f"{median(params['killed_replayed_records']):,.0f}",
    }
    report.add(Result("ours", value, "ms", params, shown))
    report.note(f"re-opening takes {value:.0f} ms (aim: below {AIM_MS:,}, {'' if value < AIM_MS else 'not '}reached)")


def _open(changelog: OurChangelog, state_dir: Path, *, count: bool = False, kill: bool = False) -> dict[str, Any]:
    settings = {"config": changelog.config.to_json(), "state_dir": str(state_dir), "count": count, "kill": kill}
    return run_child(COMMAND, settings, killed=kill)


def _open_after_kill(changelog: OurChangelog, state_dir: Path, size: Size, number: int) -> dict[str, Any]:
    """New batches are written, a process takes them in and is killed; the next one's opening is measured."""
    begin = size.records + number * _NEW_BATCHES * _NEW_BATCH_RECORDS
    for batch in range(_NEW_BATCHES):
        first = begin + batch * _NEW_BATCH_RECORDS
        changelog.write(0, list(range(first, first + _NEW_BATCH_RECORDS)))
    _open(changelog, state_dir, kill=True)
    return _open(changelog, state_dir)


def _check(changelog: OurChangelog, state_dir: Path, keys: int) -> None:
    found = _open(changelog, state_dir, count=True)["keys"]
    if found != keys:
        raise RuntimeError(f"the store holds {found} keys, expected {keys}")
