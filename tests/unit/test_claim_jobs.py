"""Claims are begun once, in few threads, and a newer driver's follows an older one's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import wait

import pytest

from changelog_state.agent.claim_jobs import ClaimJobs

WAIT_SECONDS = 10.0


@pytest.fixture
def jobs() -> Iterator[ClaimJobs]:
    made = ClaimJobs(2)
    yield made
    made.stop()
    made.join()


class Held:
    """A claim that does not end before it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.release = threading.Event()
        self.runs = 0

    def __call__(self) -> None:
        self.runs += 1
        self.begun.set()
        assert self.release.wait(WAIT_SECONDS)


def test_a_claim_that_is_asked_for_again_is_not_begun_again(jobs: ClaimJobs) -> None:
    held = Held()
    first = jobs.submit("p0", 1, held)
    assert all(jobs.submit("p0", 1, held) is first for _ in range(10))
    for number in range(1, 9):  # the other thread is free for all of them
        jobs.submit(f"p{number}", 1, lambda: None).result(WAIT_SECONDS)
    assert jobs.is_pending("p0", 1)
    held.release.set()
    first.result(WAIT_SECONDS)
    assert held.runs == 1
    assert not jobs.is_pending("p0")
    again = jobs.submit("p0", 1, held)
    assert again is not first, "after it has ended it may be asked for again"
    again.result(WAIT_SECONDS)


def test_newer_drivers_wait_without_a_thread_and_the_newest_goes_on(jobs: ClaimJobs) -> None:
    held, ran = Held(), []
    first = jobs.submit("p", 1, held)
    skipped = jobs.submit("p", 2, lambda: ran.append(2))
    last = jobs.submit("p", 3, lambda: ran.append(3))
    assert jobs.submit("p", 3, lambda: ran.append(3)) is last
    assert skipped.cancelled()
    assert [jobs.is_pending("p", epoch) for epoch in (1, 2, 3)] == [True, False, True]
    jobs.submit("q", 1, lambda: None).result(WAIT_SECONDS)
    held.release.set()
    wait([first, last], timeout=WAIT_SECONDS)
    assert ran == [3]


def test_a_claim_that_raises_is_over(jobs: ClaimJobs) -> None:
    held = Held()

    def fail() -> None:
        held()
        raise ValueError("disk full")

    failing = jobs.submit("p", 1, fail)
    following = jobs.submit("p", 2, lambda: None)
    held.release.set()
    with pytest.raises(ValueError, match="disk full"):
        failing.result(WAIT_SECONDS)
    following.result(WAIT_SECONDS)
    assert not jobs.is_pending("p")


def test_stopping_begins_nothing_more(jobs: ClaimJobs) -> None:
    held, ran = Held(), []
    jobs.submit("p", 1, held)
    assert held.begun.wait(WAIT_SECONDS)
    jobs.submit("p", 2, lambda: ran.append(2))
    jobs.stop()
    held.release.set()
    jobs.join()
    assert ran == []
