"""The driver's failure detector: who is lost is noticed, and nobody waits for it any longer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from changelog_state.errors import AgentUnavailableError
from restore.agent_watch import AgentWatch
from tests.support.polling import until


class FakeAgent:
    def __init__(self, address: str) -> None:
        self.address = address
        self.there = True
        self.asked = 0

    def answer(self) -> dict[str, Any]:
        self.asked += 1
        if not self.there:
            raise AgentUnavailableError(f"{self.address} does not answer")
        return {"agent": {"id": self.address}, "partitions": []}


@pytest.fixture
def watch() -> Iterator[AgentWatch]:
    made = AgentWatch(lambda agent: agent.answer(), interval_seconds=0.01)  # type: ignore[attr-defined]
    yield made
    made.close()


def test_only_those_that_answer_are_returned(watch: AgentWatch) -> None:
    here, gone = FakeAgent("here"), FakeAgent("gone")
    gone.there = False
    assert set(watch.look([here, gone])) == {"here"}  # type: ignore[list-item]
    assert set(watch.pulses()) == {"here"}
    assert watch.lost_among(["here"]) is None
    assert "gone" in str(watch.lost_among(["here", "gone"]))


def test_none_at_all_is_an_error_that_says_why(watch: AgentWatch) -> None:
    gone = FakeAgent("gone")
    gone.there = False
    with pytest.raises(AgentUnavailableError, match="gone does not answer"):
        watch.look([gone])  # type: ignore[list-item]
    with pytest.raises(AgentUnavailableError, match="there is no agent"):
        AgentWatch(lambda agent: {}).look([])


def test_a_call_ends_when_its_agent_is_lost(watch: AgentWatch) -> None:
    """Though the call itself would hang for ever."""
    agent = FakeAgent("one")
    watch.look([agent])  # type: ignore[list-item]
    begun, never = threading.Event(), threading.Event()

    def hang(_: Any) -> None:
        begun.set()
        never.wait()

    future = watch.begin("one", hang)
    begun.wait()
    agent.there = False
    with pytest.raises(AgentUnavailableError, match="one does not answer"):
        watch.result("one", future)
    never.set()


def test_what_a_call_raises_is_raised(watch: AgentWatch) -> None:
    watch.look([FakeAgent("one")])  # type: ignore[list-item]

    def fail(_: Any) -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        watch.call("one", fail)
    assert watch.call("one", lambda agent: agent.address) == "one"
    with pytest.raises(AgentUnavailableError, match="not known"):
        watch.call("two", lambda agent: agent.address)


def test_listeners_hear_of_a_loss_as_long_as_it_lasts(watch: AgentWatch) -> None:
    agent = FakeAgent("one")
    watch.look([agent])  # type: ignore[list-item]
    told: list[str] = []
    watch.on_loss("key", lambda address, error: told.append(address))
    agent.there = False
    until(lambda: len(told) >= 2, "told more than once: the first time there may have been nothing to end")
    agent.there = True
    until(lambda: "one" in watch.pulses(), "it is back")
    watch.on_loss("key", None)
    told.clear()
    agent.there = False
    until(lambda: watch.lost_among(["one"]), "lost again")
    assert told == []


def test_one_that_is_known_to_be_lost_is_not_waited_for(watch: AgentWatch) -> None:
    one, two = FakeAgent("one"), FakeAgent("two")
    watch.look([one, two])  # type: ignore[list-item]
    two.there = False
    until(lambda: watch.lost_among(["two"]), "lost")
    watch._closed.set()  # so that only the look asks
    until(lambda: not [t for t in threading.enumerate() if t.name == "agent-watch" and t.is_alive()], "all quiet")
    asked = two.asked
    assert set(watch.look([one, two])) == {"one"}  # type: ignore[list-item]
    assert two.asked == asked


def test_an_agent_that_was_started_anew_is_asked_at_once(watch: AgentWatch) -> None:
    """At the address of one that is lost: it is another one."""
    old = FakeAgent("one")
    watch.look([old])  # type: ignore[list-item]
    old.there = False
    until(lambda: watch.lost_among(["one"]), "lost")
    new = FakeAgent("one")
    assert set(watch.look([new])) == {"one"}  # type: ignore[list-item]
    asked = old.asked
    until(lambda: new.asked > 3, "the new one is watched")
    assert old.asked <= asked + 1, "the old one is not"


def test_the_last_words_of_one_that_was_forgotten_do_not_count() -> None:
    asked, go_on = threading.Event(), threading.Event()
    agent = FakeAgent("one")

    def pulse(_: Any) -> dict[str, Any]:
        if asked.is_set():
            go_on.wait()
        return agent.answer()

    watch = AgentWatch(pulse, interval_seconds=0.01)
    watch.look([agent])  # type: ignore[list-item]
    asked.set()
    until(lambda: [t for t in threading.enumerate() if t.name == "agent-watch"], "its watcher is at work")
    watch.forget("one")
    go_on.set()
    until(lambda: not [t for t in threading.enumerate() if t.name == "agent-watch"], "its watcher has ended")
    assert watch.pulses() == {}
    watch.close()


def test_who_is_forgotten_is_asked_no_more(watch: AgentWatch) -> None:
    agent = FakeAgent("one")
    watch.look([agent])  # type: ignore[list-item]
    watch.forget("one")
    assert watch.watched() == set()
    assert watch.pulses() == {}
