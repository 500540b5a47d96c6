"""Handing records to the client: all of them, or an error. One that it does not take would be missing unnoticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

__all__ = ["TOO_LARGE", "DeliveryReport", "RecordTooLargeError", "queue_batch", "queue_one"]

TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE})
DeliveryReport: TypeAlias = Callable[[KafkaError | None, Message], None]

_ROOM_SECONDS = 0.05
_ANY_PARTITION = -1
"""The client's partitioner decides."""


class RecordTooLargeError(Exception):
    def __init__(self, topic: str, size: int) -> None:
        super().__init__(topic, size)
        self.topic = topic
        self.size = size


def queue_batch(
    producer: Producer,
    topic: str,
    messages: list[dict[str, Any]],
    *,
    partition: int = _ANY_PARTITION,
    on_delivery: DeliveryReport | None = None,
) -> None:
    """Dicts of key, value and perhaps ``callback``. Waits for room while the client has too many of them."""
    reporting = {} if on_delivery is None else {"on_delivery": on_delivery}
    while messages:
        if producer.produce_batch(topic, messages, partition=partition, **reporting) == len(messages):
            return
        messages = [message for message in messages if "_error" in message]
        for message in messages:
            error = message.pop("_error")
            if error.code() in TOO_LARGE:
                raise RecordTooLargeError(topic, len(message["key"] or b"") + len(message["value"] or b""))
            if error.code() != KafkaError._QUEUE_FULL:
                raise KafkaException(error)
        producer.poll(_ROOM_SECONDS)


def queue_one(
    producer: Producer,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    on_delivery: DeliveryReport,
) -> None:
    while True:
        try:
            producer.produce(topic, key=key, value=value, headers=headers, on_delivery=on_delivery)
            return
        except BufferError:
            producer.poll(_ROOM_SECONDS)
        except KafkaException as error:
            if error.args[0].code() in TOO_LARGE:
                raise RecordTooLargeError(topic, len(key or b"") + len(value or b"")) from error
            raise
