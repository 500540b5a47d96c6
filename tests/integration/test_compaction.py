"""What the log's compaction leaves, and what can be done with it."""

from __future__ import annotations

from typing import Any

import pytest

from changelog_state.broker import EmbeddedBroker
from changelog_state.codec.kinds import DATA
from changelog_state.config import StoreConfig
from changelog_state.errors import (
    ReplayImpossibleError,
)
from changelog_state.requests import RequestHeader
from tests.support.driver import (
    Attempt,
    Event,
    Model,
    identity_of,
)
from tests.support.polling import until
from tests.support.protocol import FIRST, SECOND, WAIT_SECONDS, committed

pytestmark = pytest.mark.kafka


def test_compaction_is_never_silently_different(
    make_agent: Any, make_driver: Any, broker: EmbeddedBroker, application: str
) -> None:
    """The values from before the last batch are compacted away: the rebuilt state is right, its replay is refused."""
    config = StoreConfig(
        application,
        "compacted",
        broker.bootstrap_servers,
        1,
        topic={
            "min.compaction.lag.ms": 0,
            "segment.bytes": 1024 * 1024,
            "min.cleanable.dirty.ratio": 0.001,
            "max.compaction.lag.ms": 200,
        },
    )
    first, second = make_agent("first"), make_agent("second")
    driver = make_driver(first, config=config)
    model = Model()
    events: list[Event] = [(f"k{number}", number) for number in range(200)]
    assert driver.run(0, events) == model.run(events)
    last = [(key, 1_000) for key, _ in events]
    assert driver.run(1, last) == model.run(last)
    [status] = first.client.status(config)
    assert status["replayable"]
    # The active segment is never compacted. A claim rolls it, once its oldest record is old enough.
    epoch = driver.epoch

    def first_values_are_gone() -> bool:
        nonlocal driver
        if driver.epoch - epoch < 40:
            driver.close()
            driver = make_driver(first, config=config)
            driver.gate(1)
        records = [message for message in committed(config) if message.key()[:1] == DATA]
        return len(records) == len(events)

    until(first_values_are_gone, "the cleaner has removed batch 0's values", 60)
    heir = make_driver(second, config=config)
    [status] = second.client.claim(config, identity_of(config), heir.epoch, [0], WAIT_SECONDS)
    assert (status["phase"], status["last_batch"], status["replayable"]) == ("ACTIVE", 1, False)
    with pytest.raises(ReplayImpossibleError, match="compacted away"):
        heir.gate(1)
    # The gate judges for everyone, but no owner may answer with values that it knows to be wrong.
    owners, _ = heir.coordinator.open_gate("q", 1, "token")
    header = RequestHeader(application, "compacted", 0, heir.epoch, owners[0].claim, "q", 1, "token")
    with pytest.raises(ReplayImpossibleError):
        Attempt(owners[0], header, last, heir.function).get()
    assert heir.dump(second.client) == model.entries
    assert heir.run(2, last) == model.run(last), "the next batch is none of its business"


def test_a_rebuilt_store_replays_while_the_log_has_what_it_needs(make_agent: Any, make_driver: Any) -> None:
    first, second = make_agent("first"), make_agent("second")
    driver = make_driver(first)
    model = Model()
    assert driver.run(0, FIRST) == model.run(FIRST)
    expected = model.run(SECOND)
    assert driver.run(1, SECOND) == expected
    assert make_driver(second).run(1, SECOND) == expected
    # And again on the first, whose own images are as good.
    assert make_driver(first).run(1, SECOND) == expected
