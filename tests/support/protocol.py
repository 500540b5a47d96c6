"""What the tests of the protocol share."""

from __future__ import annotations

from typing import Any

from changelog_state.changelog.reader import ChangelogReader
from changelog_state.codec.kinds import MARKER
from changelog_state.config import StoreConfig
from restore.coordinator import Ticket
from tests.support.driver import (
    Event,
    Gate,
    LocalAgent,
)

FIRST: list[Event] = [("a", 1), ("b", 2), ("c", 3), ("gone", 4)]
SECOND: list[Event] = [("a", 10), ("b", 20), ("new", 5), ("gone", None)]
WAIT_SECONDS = 20.0


def send_commit(agent: LocalAgent, gate: Gate, ticket: Ticket) -> dict[str, Any]:
    """One COMMIT, without what the driver makes of its failure."""
    return agent.client.commit(gate.headers[0], ticket.stage_id, bytes.fromhex(ticket.digest))


def markers(config: StoreConfig, partition: int = 0) -> list[int]:
    """Offsets of the committed markers."""
    return [message.offset() for message in committed(config, partition) if message.key() == MARKER]


def committed(config: StoreConfig, partition: int = 0) -> list[Any]:
    with ChangelogReader(config, config.changelog_topic, partition) as reader:
        low, high = reader.bounds()
        reader.seek(low)
        found: list[Any] = []
        while reader.position() < high:
            found += reader.read(10_000)
            reader.check_progress()
    return found
