"""A task that waits for an agent which has gone without a word is told so."""

from __future__ import annotations

import threading

from changelog_state.errors import AgentUnavailableError
from changelog_state.task.watchdog import Watchdog


def test_a_wait_for_an_agent_that_is_gone_is_ended() -> None:
    ended = threading.Event()

    def check(address: str) -> None:
        raise AgentUnavailableError(address)

    with Watchdog(check, patience_seconds=0.01).watching("one", ended.set):
        assert ended.wait(10)


def test_a_wait_for_an_agent_that_is_only_slow_goes_on() -> None:
    ended, asked = threading.Event(), threading.Semaphore(0)
    with Watchdog(lambda address: asked.release(), patience_seconds=0.01).watching("one", ended.set):
        for _ in range(3):
            assert asked.acquire(timeout=10), "it is asked again and again"
    assert not ended.is_set()


def test_a_short_wait_costs_no_question() -> None:
    asked: list[str] = []
    dog = Watchdog(asked.append, patience_seconds=0.5)
    for _ in range(100):
        with dog.watching("one", lambda: None):
            pass
    assert asked == []
    assert dog._waits == {}


def test_only_waits_for_the_lost_agent_are_ended() -> None:
    ended: list[str] = []
    gone = threading.Event()

    def check(address: str) -> None:
        if address == "gone":
            raise AgentUnavailableError(address)

    dog = Watchdog(check, patience_seconds=0.01)

    def end_gone() -> None:
        ended.append("gone")
        gone.set()

    with dog.watching("here", lambda: ended.append("here")), dog.watching("gone", end_gone):
        assert gone.wait(10)
    assert set(ended) == {"gone"}
