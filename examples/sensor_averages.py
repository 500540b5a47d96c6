"""Averages per sensor, and sensors that are forgotten once they have been silent: docs/guide/sensor-averages.md.

A sensor's readings are kept for ten minutes of event time. What is older expires, entry by entry; a sensor without
readings leaves nothing behind, in the store and in the changelog.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from local import Place, expect, run

import changelog_state as cs

EVENTS = "sensor string, at timestamp, celsius double"
RESULT = "sensor string, readings long, average double"


def average(sensor: str, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
    for row in rows:
        state.readings[row["at"].timestamp()] = row["celsius"]
    values = list(state.readings.values())
    yield {"sensor": sensor, "readings": len(values), "average": round(sum(values) / len(values), 2)}


def main(place: Place) -> None:
    service = cs.StateService(
        application=place.application,
        store="sensors",
        bootstrap_servers=place.bootstrap_servers,
        partitions=2,
        state_dir=place.directory / "state",
        state=[cs.Map("readings", float, float, ttl=cs.Ttl("10 minutes", clock="event"))],
    )
    results: list[tuple[Any, ...]] = []

    def on_batch(df: Any, batch_id: int) -> None:
        averages = service.apply(df, batch_id, average, key="sensor", schema=RESULT, event_time="at")
        results.extend(sorted(tuple(row) for row in averages.collect()))

    def readings(*given: tuple[str, str, float]) -> None:
        place.send("readings", ({"sensor": s, "at": f"2024-05-01T{at}Z", "celsius": c} for s, at, c in given))
        place.process(place.stream("readings", EVENTS), on_batch)

    with service:
        readings(("roof", "12:00:00", 20.0), ("roof", "12:04:00", 22.0), ("cellar", "12:01:00", 11.0))
        readings(("roof", "12:14:30", 27.0))
        # By now it is 12:14:30: what the first batch has told is too old, of the cellar that is everything.
        readings(("roof", "12:15:00", 29.0))
        expect(results, [("cellar", 1, 11.0), ("roof", 2, 21.0), ("roof", 3, 23.0), ("roof", 2, 28.0)])
        expect([sensor for sensor, _ in service.scan()], ["roof"])
        if service.metrics()["expired"] == 0:
            raise SystemExit("nothing has been removed")


if __name__ == "__main__":
    run(main)
