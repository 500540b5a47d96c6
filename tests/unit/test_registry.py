"""What an agent remembers of a store between the drivers that use it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from changelog_state.agent.phases import Phase
from changelog_state.agent.registry import AgentSettings, Registry
from changelog_state.config import StoreConfig
from changelog_state.errors import StaleClaimError

CONFIG = StoreConfig("app", "store", "old:9092", 2)
TOPIC: Any = None
"""Nobody gets as far as asking for it."""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    made = Registry(AgentSettings(tmp_path, cache_mb=8, write_buffers_mb=8))
    yield made
    made.close()


def test_a_driver_that_comes_back_with_another_kafka_is_heard(registry: Registry) -> None:
    first = registry._host(CONFIG)
    assert registry._host(replace(CONFIG, topic={"segment.ms": 1})) is first, "its Kafka is the same"
    moved = registry._host(replace(CONFIG, bootstrap_servers="new:9092"))
    assert moved.config.bootstrap_servers == "new:9092"
    assert moved.partitions[0] is not first.partitions[0]
    with pytest.raises(StaleClaimError, match="another one"):
        first.partitions[0].read(TOPIC, [b"d"])


def test_what_is_in_use_keeps_its_kafka(registry: Registry) -> None:
    host = registry._host(CONFIG)
    host.partitions[1]._phase = Phase.RESTORING
    assert registry._host(replace(CONFIG, bootstrap_servers="new:9092")) is host
    host.partitions[1]._phase = Phase.CLOSED
