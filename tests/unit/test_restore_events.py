"""What a listener hears, from looks at partitions that may miss things in between."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from restore.figures import RestoreFigures
from restore.listener import RestoreListener, notify
from restore.restore_events import RestoreEvent, RestoreWatch, Sighting
from tests.support.recorder import Recorder

BROKEN = ValueError("disk full")


def figures(position: int, start: int = 0, end: int = 100) -> RestoreFigures:
    return RestoreFigures(0, "RESTORING", "behind", start, position, end, position - start, 0, 1.0)


def see(phase: str, found: RestoreFigures | None = None, owner: str = "one", error: Any = None) -> Sighting:
    return Sighting(0, owner, phase, found and replace(found, phase=phase), error)


def heard(*looks: Sighting) -> list[tuple[str, int]]:
    watch = RestoreWatch()
    return [(event.kind, event.figures.position) for look in looks for event in watch.observe([look])]


OLD = figures(40, end=40)


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        pytest.param([see("ACTIVE", OLD)], [], id="ready at the first look"),
        pytest.param([see("ACTIVE", OLD), see("ACTIVE", OLD)], [], id="claimed anew without a restore"),
        pytest.param(
            [
                see("CLOSED"),
                see("RESTORING"),
                see("RESTORING", figures(0)),
                see("RESTORING", figures(0)),
                see("RESTORING", figures(50)),
                see("ACTIVE", figures(100)),
                see("ACTIVE", figures(100)),
            ],
            [("start", 0), ("batch", 50), ("end", 100)],
            id="a restore from beginning to end",
        ),
        pytest.param(
            [see("CLOSED", OLD), see("ACTIVE", figures(100, start=40))],
            [("start", 100), ("end", 100)],
            id="one that took place between two looks",
        ),
        pytest.param(
            [see("RESTORING", figures(50)), see("ACTIVE", figures(100))],
            [("start", 50), ("end", 100)],
            id="under way at the first look",
        ),
        pytest.param(
            [see("CLOSED", OLD), see("RESTORING", OLD), see("RESTORING", figures(50))],
            [("start", 50)],
            id="figures of an earlier restore are no news",
        ),
        pytest.param(
            [see("RESTORING", figures(50)), see("CLOSED", figures(50)), see("RESTORING", figures(60, 50, 101))],
            [("start", 50), ("suspended", 50), ("start", 60)],
            id="given up and begun again",
        ),
        pytest.param(
            [see("RESTORING", figures(50)), see("RESTORING", figures(60, 50, 101))],
            [("start", 50), ("suspended", 50), ("start", 60)],
            id="given up and begun again between two looks",
        ),
        pytest.param(
            [see("RESTORING", figures(50)), see("RESTORING"), see("RESTORING", figures(60, 50, 101))],
            [("start", 50), ("suspended", 50), ("start", 60)],
            id="begun again, no figures yet",
        ),
        pytest.param(
            [see("RESTORING", figures(50)), see("ACTIVE", figures(101, 50, 101))],
            [("start", 50), ("suspended", 50), ("start", 101), ("end", 101)],
            id="begun again and ended between two looks",
        ),
        pytest.param(
            [see("RESTORING", figures(50)), see("CLOSED", owner="two"), see("RESTORING", figures(0), owner="two")],
            [("start", 50), ("suspended", 50), ("start", 0)],
            id="moved to another agent",
        ),
        pytest.param(
            [see("RESTORING", figures(50)), see("FAILED", figures(60), error=BROKEN), see("FAILED", figures(60))],
            [("start", 50), ("failed", 60)],
            id="failed, told once",
        ),
        pytest.param(
            [see("FAILED", OLD, error=BROKEN), see("FAILED", OLD, error=BROKEN)],
            [],
            id="failed before this driver came",
        ),
        pytest.param([see("CLOSED"), see("FAILED", error=BROKEN)], [("failed", 0)], id="failed before it began"),
        pytest.param(
            [
                see("RESTORING", figures(50)),
                see("FAILED", figures(50), error=BROKEN),
                see("FAILED", figures(70, 50, 101), error=BROKEN),
                see("ACTIVE", figures(102, 70, 102)),
            ],
            [("start", 50), ("failed", 50), ("start", 70), ("failed", 70), ("start", 102), ("end", 102)],
            id="failed twice, then not",
        ),
    ],
)
def test_events(looks: list[Sighting], expected: list[tuple[str, int]]) -> None:
    assert heard(*looks) == expected


def test_a_lost_agent_suspends_what_it_restored_and_nothing_else() -> None:
    watch = RestoreWatch()
    watch.observe([see("RESTORING", figures(50)), Sighting(1, "two", "RESTORING", replace(figures(7), partition=1))])
    watch.observe([Sighting(2, "one", "ACTIVE", replace(figures(100), partition=2))])
    assert watch.lose("one") == [RestoreEvent("suspended", figures(50))]
    assert watch.lose("one") == []
    assert watch.figures[0].position == 50, "shown as it stood until it goes on"
    [again] = watch.observe([see("RESTORING", figures(50, start=50, end=101), owner="three")])
    assert (again.kind, again.figures.start) == ("start", 50)
    assert watch.lose("two")[0].figures.partition == 1


def test_the_reason_of_a_failure_is_handed_on() -> None:
    watch = RestoreWatch()
    watch.observe([see("RESTORING", figures(50))])
    [event] = watch.observe([see("FAILED", figures(50), error=BROKEN)])
    assert event.error is BROKEN


def test_every_event_has_a_method() -> None:
    recorder = Recorder()
    for kind in ("start", "batch", "end", "suspended"):
        notify(recorder, RestoreEvent(kind, figures(1)))  # type: ignore[arg-type]
    notify(recorder, RestoreEvent("failed", figures(1), BROKEN))
    assert recorder.events == [(kind, figures(1)) for kind in ("start", "batch", "end", "suspended", "failed")]
    assert recorder.errors == [BROKEN]


def test_a_listener_without_methods_of_its_own_hears_nothing() -> None:
    for kind in ("start", "batch", "end", "suspended", "failed"):
        notify(RestoreListener(), RestoreEvent(kind, figures(1), BROKEN))  # type: ignore[arg-type]


def test_a_listener_that_raises_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    class Clumsy(RestoreListener):
        def on_batch(self, figures: RestoreFigures) -> None:
            raise BROKEN

    with caplog.at_level(logging.ERROR):
        notify(Clumsy(), RestoreEvent("batch", figures(1)))
    [record] = caplog.records
    assert "batch of partition 0" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[1] is BROKEN
