"""Whether a query seems to be using a store, judged by the control topic."""

from __future__ import annotations

import time

from changelog_state.changelog import clients
from changelog_state.changelog.control import FAREWELL_KEY
from changelog_state.changelog.reader import ChangelogReader
from changelog_state.config import StoreConfig

__all__ = ["has_control_topic", "seconds_since_control"]


def has_control_topic(config: StoreConfig) -> bool:
    with clients.broker_errors(config, f"describe topic {config.control_topic}"):
        found = clients.admin(config).list_topics(config.control_topic, timeout=clients.REQUEST_TIMEOUT_SECONDS)
    return bool(found.topics[config.control_topic].partitions)


def seconds_since_control(config: StoreConfig) -> float | None:
    """The age of the newest control record: every driver writes one when it comes, and one per batch.

    None if there is none, or the driver has said farewell.
    """
    with ChangelogReader(config, config.control_topic, 0) as reader:
        newest = reader.find_last(lambda message: True)
    if newest is None or newest.key() == FAREWELL_KEY:
        return None
    return float(time.time() - newest.timestamp()[1] / 1000)
