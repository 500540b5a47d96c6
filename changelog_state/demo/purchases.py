"""The input: random purchases, and the totals that anyone can compute from the topic alone."""

from __future__ import annotations

import json
import random
import threading
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from changelog_state.demo.check import Total
from changelog_state.demo.settings import DemoFailedError

__all__ = ["PurchaseProducer", "create_input_topic", "end_offsets", "totals_of_topic"]

_TICK_SECONDS = 0.02
_REQUEST_SECONDS = 30.0
_SILENCE_SECONDS = 30.0
_DEAREST_CENTS = 20_000
_TRICKLE = 0.05
"""Of the rate: enough for every batch to have something to do, however long a recovery takes."""
_NO_LOG = {"log_level": 0}  # a client that outlives the broker by a moment would complain on standard error


def create_input_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Make the topic, unless it is there."""
    admin = AdminClient(_NO_LOG | {"bootstrap.servers": bootstrap_servers})
    try:
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(_REQUEST_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


class PurchaseProducer:
    """A thread that buys at random: ``events`` at an even rate, then a trickle until it is told to finish."""

    def __init__(self, bootstrap_servers: str, topic: str, *, events: int, seconds: float, users: int) -> None:
        self.sent = 0
        self.rate = events / seconds
        self._events = events
        self._users = users
        self._topic = topic
        self._producer = Producer(
            _NO_LOG | {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 20}
        )
        self._finishing = threading.Event()
        self._cancelled = False
        self._error: str | None = None
        self.started_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="purchases", daemon=True)
        self._thread.start()

    def check(self) -> None:
        if self._error is not None:
            raise DemoFailedError(f"the producer of purchases failed: {self._error}")

    def has_sent_all(self) -> bool:
        return self.sent >= self._events

    def finish(self) -> None:
        """Stop buying. From here on the topic does not change."""
        self._finishing.set()
        self._thread.join()
        self.check()

    def cancel(self) -> None:
        """Stop at once; what is under way may be lost."""
        self._cancelled = True
        self._finishing.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._finishing.wait(_TICK_SECONDS):
                self._buy(max(0, self._due(time.monotonic() - self.started_at) - self.sent))
            if not self._cancelled:
                self._buy(max(0, self._events - self.sent))
                if left := self._producer.flush(_REQUEST_SECONDS):
                    raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT, f"{left} purchases were not taken"))
        except (KafkaException, BufferError) as error:
            self._error = str(error)
        finally:
            self._producer.purge()

    def _due(self, elapsed_seconds: float) -> int:
        regular = elapsed_seconds * self.rate
        return int(min(regular, self._events) + max(0.0, regular - self._events) * _TRICKLE)

    def _buy(self, count: int) -> None:
        for _ in range(count):
            user = f"user-{random.randrange(self._users):05d}"
            purchase = {"user_id": user, "cents": random.randint(1, _DEAREST_CENTS)}
            self._produce(user, json.dumps(purchase))
            self.sent += 1
        self._producer.poll(0)

    def _produce(self, key: str, value: str) -> None:
        while not self._cancelled:
            try:
                self._producer.produce(self._topic, key=key, value=value, on_delivery=self._delivered)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and not self._cancelled:
            self._error = self._error or str(error)


def totals_of_topic(bootstrap_servers: str, topic: str) -> dict[str, Total]:
    """Every purchase in the topic, added up per user: a plain consumer, and nothing of this library."""
    consumer = _consumer(bootstrap_servers)
    try:
        ends = _ends(consumer, topic)
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in ends])
        remaining = sum(ends.values())  # nothing is ever removed from this topic, so it begins at 0
        totals: dict[str, Total] = {}
        deadline = time.monotonic() + _SILENCE_SECONDS
        while remaining:
            messages = consumer.consume(min(remaining, 10_000), 1.0)
            if messages:
                deadline = time.monotonic() + _SILENCE_SECONDS
            elif time.monotonic() > deadline:
                raise DemoFailedError(f"topic {topic} has {remaining} more records, but Kafka does not give them")
            for message in messages:
                _add(totals, message)
            remaining -= len(messages)
        return totals
    finally:
        consumer.close()


def end_offsets(bootstrap_servers: str, topic: str) -> dict[int, int]:
    """Where the topic ends now, per partition."""
    consumer = _consumer(bootstrap_servers)
    try:
        return _ends(consumer, topic)
    finally:
        consumer.close()


def _consumer(bootstrap_servers: str) -> Consumer:
    return Consumer(
        _NO_LOG | {"bootstrap.servers": bootstrap_servers, "group.id": "demo-check", "enable.auto.commit": False}
    )


def _ends(consumer: Consumer, topic: str) -> dict[int, int]:
    partitions = list(consumer.list_topics(topic, timeout=_REQUEST_SECONDS).topics[topic].partitions)
    return {p: _end(consumer, topic, p) for p in partitions}


def _end(consumer: Consumer, topic: str, partition: int) -> int:
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_REQUEST_SECONDS)
    return int(end)


def _add(totals: dict[str, Total], message: Message) -> None:
    if message.error() is not None:
        raise KafkaException(message.error())
    purchase: dict[str, Any] = json.loads(message.value())
    before = totals.get(purchase["user_id"], Total(0, 0))
    totals[purchase["user_id"]] = Total(before.cents + purchase["cents"], before.purchases + 1)
