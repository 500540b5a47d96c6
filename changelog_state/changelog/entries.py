"""What the records of a log are in a local store."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Message

from changelog_state.codec.kinds import DATA
from changelog_state.config import LogSettings

__all__ = ["entries_of", "size_of_records"]


def entries_of(log: LogSettings, messages: Sequence[Message]) -> dict[bytes, bytes | None]:
    """The latest value per key; None deletes. What has no key stands for nothing, and is left out."""
    if not log.raw_keys:
        return dict(zip(map(Message.key, messages), map(Message.value, messages), strict=True))
    return {DATA + message.key(): message.value() for message in messages if message.key() is not None}


def size_of_records(messages: Sequence[Message]) -> int:
    """Bytes of keys and values."""
    return sum(map(len, messages)) + sum(map(len, filter(None, map(Message.key, messages))))
