"""Running totals that also count what comes late, and say so: docs/guide/late-totals.md.

Purchases come out of order. Those from before the watermark update the totals like others, but their rows are marked.
In the end the totals are those of all purchases together, whatever the order in which they came.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from local import Place, expect, run

import changelog_state as cs

EVENTS = "user string, at timestamp, amount long"
RESULT = "user string, total long, late boolean"


def add(user: str, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
    state.total += sum(row["amount"] for row in rows)
    yield {"user": user, "total": state.total, "late": False}


def add_late(user: str, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
    state.total += sum(row["amount"] for row in rows)
    yield {"user": user, "total": state.total, "late": True}


def main(place: Place) -> None:
    service = cs.StateService(
        application=place.application,
        store="late-totals",
        bootstrap_servers=place.bootstrap_servers,
        partitions=2,
        state_dir=place.directory / "state",
        state=[cs.Value("total", int, default=0)],
    )
    last: dict[str, int] = {}
    corrections = 0

    def on_batch(df: Any, batch_id: int) -> None:
        nonlocal corrections
        totals = service.apply(
            df,
            batch_id,
            add,
            key="user",
            schema=RESULT,
            event_time="at",
            watermark_delay="5 minutes",
            late=add_late,
        )
        for row in sorted(totals.collect(), key=lambda row: row["late"]):
            last[row["user"]] = row["total"]
            corrections += row["late"]

    rng, truth = random.Random(1), Counter[str]()
    with service:
        for hour in range(3):
            purchases = [
                {
                    "user": rng.choice(["ann", "bob", "eve"]),
                    # One in four is from an hour before.
                    "at": f"2024-05-01T{12 + hour - (rng.random() < 0.25):02}:{rng.randrange(60):02}:00Z",
                    "amount": rng.randint(1, 50),
                }
                for _ in range(60)
            ]
            for purchase in purchases:
                truth[purchase["user"]] += purchase["amount"]
            place.send("purchases", purchases)
            place.process(place.stream("purchases", EVENTS), on_batch)
        expect(last, dict(truth))
        expect({user: values["total"] for user, values in service.scan()}, dict(sorted(truth.items())))
        if not corrections or not service.metrics()["late_rows"]:
            raise SystemExit("nothing has come late")


if __name__ == "__main__":
    run(main)
