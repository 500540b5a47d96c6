"""Each event once, although its producer sends some twice: docs/guide/deduplication.md.

What was seen is remembered for an hour of event time, one record per event, and then forgotten by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from local import Place, expect, run

import changelog_state as cs

EVENTS = "device string, id string, at timestamp"
RESULT = "device string, id string"


def first_seen(device: str, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
    for row in rows:
        if row["id"] not in state.seen:
            state.seen[row["id"]] = True
            yield {"device": device, "id": row["id"]}


def main(place: Place) -> None:
    service = cs.StateService(
        application=place.application,
        store="seen",
        bootstrap_servers=place.bootstrap_servers,
        partitions=2,
        state_dir=place.directory / "state",
        state=[cs.Map("seen", str, bool, ttl=cs.Ttl("1 hour", clock="event"))],
    )
    passed: list[tuple[str, str]] = []

    def on_batch(df: Any, batch_id: int) -> None:
        once = service.apply(df, batch_id, first_seen, key="device", schema=RESULT, event_time="at")
        passed.extend((row["device"], row["id"]) for row in once.collect())

    def events(*given: tuple[str, str, str]) -> None:
        place.send("events", ({"device": d, "id": i, "at": f"2024-05-01T{at}:00Z"} for d, i, at in given))
        place.process(place.stream("events", EVENTS), on_batch)

    with service:
        events(("d1", "a", "12:00"), ("d1", "a", "12:00"), ("d2", "a", "12:01"))
        events(("d1", "a", "12:02"), ("d1", "b", "12:03"))
        expect(sorted(passed), [("d1", "a"), ("d1", "b"), ("d2", "a")])
        events(("d1", "c", "14:00"))
        events(("d2", "b", "14:01"))
        expect(sorted(service.get("d1", "seen")), ["c"])
        expect(len(passed), 5)


if __name__ == "__main__":
    run(main)
