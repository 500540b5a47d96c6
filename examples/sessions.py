"""Sessions with timeouts: docs/guide/sessions.md.

A visit goes on as long as a user's clicks are less than half an hour apart. When it is over it comes out once, and
its state is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from local import Place, expect, run

import changelog_state as cs

EVENTS = "user string, at timestamp, page string"
RESULT = "user string, minutes long, pages array<string>"


def click(user: str, window: cs.Window, rows: list[dict[str, Any]], state: Any) -> None:
    state.list("pages").extend(row["page"] for row in rows)


def joined(user: str, state: Any, other: Any) -> None:
    state.list("pages").extend(other.list("pages"))


def visit_is_over(user: str, window: cs.Window, state: Any) -> Iterator[dict[str, Any]]:
    minutes = (window.end_ms - window.start_ms) // 60_000 - 30
    yield {"user": user, "minutes": minutes, "pages": list(state.list("pages"))}


def main(place: Place) -> None:
    service = cs.StateService(
        application=place.application,
        store="visits",
        bootstrap_servers=place.bootstrap_servers,
        partitions=2,
        state_dir=place.directory / "state",
    )
    visits: list[tuple[Any, ...]] = []

    def on_batch(df: Any, batch_id: int) -> None:
        over = service.apply_windows(
            df,
            batch_id,
            click,
            window=cs.Session("30 minutes", merge=joined),
            emit="close",
            on_close=visit_is_over,
            key="user",
            schema=RESULT,
            event_time="at",
            order_by="at",
        )
        visits.extend((row["user"], row["minutes"], row["pages"]) for row in over.collect())

    def clicks(*given: tuple[str, str, str]) -> None:
        place.send("clicks", ({"user": u, "at": f"2024-05-01T{at}:00Z", "page": page} for u, at, page in given))
        place.process(place.stream("clicks", EVENTS), on_batch)

    with service:
        clicks(("ann", "12:00", "/"), ("ann", "12:20", "/tea"), ("bob", "12:10", "/"))
        clicks(("ann", "12:45", "/buy"))
        expect(visits, [])
        clicks(("eve", "14:00", "/"))
        # The watermark is one batch behind: only now does it say 14:00.
        clicks(("eve", "14:01", "/cups"))
        expect(sorted(visits), [("ann", 45, ["/", "/tea", "/buy"]), ("bob", 0, ["/"])])
        expect([key[0] for key, _ in service.scan()], ["eve"])


if __name__ == "__main__":
    run(main)
