"""``restore``: records per second into an empty directory after a node was lost, for 1 and for 4 partitions.

Each system restores as many records of the same size from a changelog of its own, every time with a new process and
an empty state directory. They take turns, round by round, so that what else happens on the machine meets all of them.
"""

from __future__ import annotations

import shutil
import uuid
from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from benchmarks.bare_consumer import CONSUMER_SETTINGS, count_records
from benchmarks.child import UnavailableError, run_child
from benchmarks.kafka_streams import KafkaStreams
from benchmarks.our_restore import COMMAND
from benchmarks.quix import Quix
from benchmarks.restore_data import KEY_BYTES, VALUE_BYTES, our_changelog
from benchmarks.results import Report, Result
from benchmarks.session import Bench

__all__ = ["Size", "measure", "run"]

PARTITION_COUNTS = (1, 4)
AIMS = {"bare-consumer": 0.7, "kafka-streams": 1.3, "quix": 8.0}
"""How many times as fast as each peer ours is to be."""


@dataclass(frozen=True)
class Size:
    records: int
    rounds: int


_RATE = "_records_per_s"
FULL = Size(records=2_000_000, rounds=3)
QUICK = Size(records=500_000, rounds=1)


def run(bench: Bench, report: Report) -> None:
    measure(bench, report, QUICK if bench.quick else FULL)


def measure(bench: Bench, report: Report, size: Size) -> None:
    systems = _prepared(bench, report, size)
    runs: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for number in range(1, size.rounds + 1):
        for partitions in PARTITION_COUNTS:
            report.say(f"round {number} of {size.rounds}, {_variant(partitions)}")
            # In turn from both ends, so that none is always the last.
            for system in systems if number % 2 else reversed(systems):
                found = system.restore(size.records, partitions)
                if found["keys"] != size.records:
                    raise RuntimeError(f"{system.name} has restored {found['keys']} keys of {size.records}")
                runs[system.name, partitions].append(found)
                report.say(f"{system.name}: {size.records / found['seconds']:,.0f} records/s")
    for partitions in PARTITION_COUNTS:
        for system in systems:
            report.add(_result(system, size, partitions, runs[system.name, partitions]))
    for partitions in PARTITION_COUNTS:
        ours, *others = (median(run["seconds"] for run in runs[system.name, partitions]) for system in systems)
        for system, seconds in zip(systems[1:], others, strict=True):
            aim, ratio = AIMS[system.name], seconds / ours
            report.note(
                f"{_variant(partitions)}: ours is {ratio:.2f} times as fast as {system.name}"
                f" (aim: {aim:g}, {'reached' if ratio >= aim else 'not reached'})"
            )


class System(Protocol):
    name: str

    def prepare(self, records: int, partitions: int) -> None:
        """Fill its changelog. Raises UnavailableError if it cannot be set up here."""

    def restore(self, records: int, partitions: int) -> dict[str, Any]:
        """Once: ``seconds``, ``keys`` that were found afterwards, and whatever else is worth keeping."""

    def params(self, partitions: int) -> dict[str, Any]: ...


class Ours:
    name = "ours"

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def prepare(self, records: int, partitions: int) -> None:
        our_changelog(self._bench, records, partitions)

    def restore(self, records: int, partitions: int) -> dict[str, Any]:
        changelog = our_changelog(self._bench, records, partitions)
        state_dir = self._bench.directory / f"restore-{uuid.uuid4().hex[:6]}"
        settings = {
            "config": changelog.config.to_json(),
            "state_dir": str(state_dir),
            "count": True,
            "kill": False,
        }
        try:
            found = run_child(COMMAND, settings)
        finally:
            shutil.rmtree(state_dir, ignore_errors=True)
        if not found["last_batch_replayable"]:
            raise RuntimeError("the last batch cannot be replayed on the restored store")
        return found

    def params(self, partitions: int) -> dict[str, Any]:
        return {}


class BareConsumer:
    """Reads our changelog and keeps nothing. Also with two processes, and with the garbage collector off."""

    name = "bare-consumer"

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def prepare(self, records: int, partitions: int) -> None:
        our_changelog(self._bench, records, partitions)

    def restore(self, records: int, partitions: int) -> dict[str, Any]:
        one = self._count(records, partitions)
        two = self._count(records, partitions, processes=2)
        without_gc = self._count(records, partitions, collect_garbage=False)
        return {
            "seconds": one,
            "keys": records,
            f"two_processes{_RATE}": round(records / two),
            f"gc_off{_RATE}": round(records / without_gc),
        }

    def _count(self, records: int, partitions: int, **variant: Any) -> float:
        topic = our_changelog(self._bench, records, partitions).config.changelog_topic
        count, seconds = count_records(self._bench.bootstrap_servers, topic, partitions, **variant)
        # Markers, claims and schemas are read too.
        if not records <= count <= records * 1.01 + 100:
            raise RuntimeError(f"the bare consumer has read {count} records of {records}")
        return seconds

    def params(self, partitions: int) -> dict[str, Any]:
        return {"consumer": CONSUMER_SETTINGS}


def _prepared(bench: Bench, report: Report, size: Size) -> list[System]:
    """The systems that can run here, each with its changelogs written; ours comes first."""
    systems: list[System] = []
    for system in (Ours(bench), BareConsumer(bench), KafkaStreams(bench), Quix(bench)):
        report.say(f"{system.name}: writing {size.records:,} records, once for each number of partitions")
        try:
            for partitions in PARTITION_COUNTS:
                system.prepare(size.records, partitions)
        except UnavailableError as error:
            report.note(f"{system.name} was left out: {error}")
        else:
            systems.append(system)
    return systems


def _result(system: System, size: Size, partitions: int, runs: list[dict[str, Any]]) -> Result:
    seconds = [run["seconds"] for run in runs]
    more = {name: [run[name] for run in runs] for name in runs[0] if name not in ("seconds", "keys")}
    params = {
        "variant": _variant(partitions),
        "partitions": partitions,
        "records": size.records,
        "key_bytes": KEY_BYTES,
        "value_bytes": VALUE_BYTES,
        "seconds": [round(one, 3) for one in seconds],
        **more,
        **system.params(partitions),
    }
    shown = {"median, s": f"{median(seconds):.2f}", "rounds": str(len(runs))}
    for name, rates in more.items():
        if name.endswith(_RATE):
            shown[name.removesuffix(_RATE).replace("_", " ")] = f"{median(rates):,.0f}"
    return Result(system.name, size.records / median(seconds), "records/s", params, shown)


def _variant(partitions: int) -> str:
    return f"{partitions} partition{'s' if partitions > 1 else ''}"
