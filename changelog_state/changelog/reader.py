"""Reading one partition: forwards in bulk, or its last few records."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from changelog_state.changelog import clients
from changelog_state.config import KafkaSettings
from changelog_state.errors import BrokerUnavailableError, ChangelogStateError

__all__ = ["ChangelogReader", "PositionOutsideLogError"]

_FIRST_WINDOW = 64
_FIRST_READ = 100
_MOST_READ = 5_000
_STALLED_SECONDS = 30.0
_SETTLE_SECONDS = 0.1
_MORE_SECONDS = 0.005
_LEADER_SECONDS = 0.05
_NO_LEADER = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})


class PositionOutsideLogError(ChangelogStateError):
    """The log no longer begins before the position that is read from: whoever plans again sees that."""


class ChangelogReader:
    """Committed records of one partition. A context manager; not for several threads."""

    def __init__(
        self, config: KafkaSettings, topic: str, partition: int, *, queue_mb: int | None = None, wait_ms: int = 10
    ) -> None:
        self._config = config
        self._topic = topic
        self._partition = partition
        self._consumer: Consumer = clients.consumer(config, queue_mb=queue_mb, wait_ms=wait_ms)
        self._was_assigned = False

    def __enter__(self) -> ChangelogReader:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def exists(self, timeout_seconds: float = clients.REQUEST_TIMEOUT_SECONDS) -> bool:
        """Whether there is such a topic. It is not made by asking."""
        with clients.broker_errors(self._config, f"describe topic {self._topic}"):
            found = self._consumer.list_topics(self._topic, timeout=timeout_seconds)
        return bool(found.topics[self._topic].partitions)

    def bounds(self, timeout_seconds: float = clients.REQUEST_TIMEOUT_SECONDS) -> tuple[int, int]:
        """The log's first offset, and the offset up to which transactions are decided.

        A partition whose leader is not known yet, as of a topic that was just made, has a moment to get one.
        """
        deadline = time.monotonic() + timeout_seconds
        with clients.broker_errors(self._config, f"read the offsets of {self._where()}"):
            while True:
                try:
                    low, high = self._consumer.get_watermark_offsets(
                        TopicPartition(self._topic, self._partition), timeout=timeout_seconds
                    )
                    return low, high
                except KafkaException as error:
                    if error.args[0].code() not in _NO_LEADER or time.monotonic() > deadline:
                        raise
                    time.sleep(_LEADER_SECONDS)

    def seek(self, offset: int) -> None:
        """Read from here on. The offset must be in the log (see ``bounds``)."""
        self._consumer.assign([TopicPartition(self._topic, self._partition, offset)])
        self._moved = time.monotonic()
        self._last_position = offset
        # NOTE: the client takes an assignment over in another thread, and may until then tell the position of the
        # one before. It is believed from the first record on, or after a while if there is none.
        self._believe_from = self._moved + (_SETTLE_SECONDS if self._was_assigned else 0.0)
        self._was_assigned = True

    def rest(self) -> None:
        """Ask the broker for nothing more until the next ``seek``."""
        self._consumer.unassign()

    def position(self) -> int:
        """The next offset to be read; passes gaps and transaction markers."""
        if time.monotonic() < self._believe_from:
            return self._last_position
        found = self._consumer.position([TopicPartition(self._topic, self._partition)])[0].offset
        return max(int(found), self._last_position)

    def read(self, most: int, timeout_seconds: float = 0.005) -> list[Message]:
        """Up to ``most`` records; none if nothing arrives in time. A silent broker is an error after a while.

        The client waits for all of ``most``, so the time-out is what reading the last few records of a log costs.
        """
        with clients.broker_errors(self._config, f"read {self._where()}"):
            messages: list[Message] = self._consumer.consume(most, timeout_seconds)
        return self._taken(messages)

    def await_records(self, most: int, timeout_seconds: float) -> list[Message]:
        """Like ``read`` for whoever is at the end: returns soon after the first record has come."""
        with clients.broker_errors(self._config, f"read {self._where()}"):
            first = self._consumer.poll(timeout_seconds)
            messages = [] if first is None else [first, *self._consumer.consume(most, _MORE_SECONDS)]
        return self._taken(messages)

    def _taken(self, messages: list[Message]) -> list[Message]:
        if any(map(Message.error, messages)):
            messages = self._without_errors(messages)
        if messages:
            self._last_position = messages[-1].offset() + 1
            self._moved = time.monotonic()
            self._believe_from = 0.0
        elif self.position() > self._last_position:
            self._last_position = self.position()
            self._moved = time.monotonic()
        return messages

    def stretches(self, start: int, end: int, most_bytes: int) -> Iterator[list[Message]]:
        """All records of [start, end), in lists of about ``most_bytes`` at the most; none is empty."""
        self.seek(start)
        most = _FIRST_READ
        while self.position() < end:
            messages = self.read(most)
            if not messages:
                self.check_progress()
                continue
            average = sum(map(len, messages)) // len(messages) + 1
            most = max(1, min(_MOST_READ, 4 * most, most_bytes // average))
            if messages[-1].offset() >= end:
                messages = messages[: bisect_left(messages, end, key=Message.offset)]
            if messages:
                yield messages

    def _without_errors(self, messages: list[Message]) -> list[Message]:
        """What the client reports between records: raised, unless it mends that by itself."""
        for message in messages:
            error = message.error()
            if error is None:
                continue
            if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                raise PositionOutsideLogError(
                    f"{self._where()} lost its beginning while it was read ({error.str()}); try again: the store "
                    "is then rebuilt from what there is"
                )
            if not error.retriable() and error.code() not in (
                KafkaError._TRANSPORT,
                KafkaError._ALL_BROKERS_DOWN,
            ):
                with clients.broker_errors(self._config, f"read {self._where()}"):
                    raise KafkaException(error)
        return [message for message in messages if message.error() is None]

    def check_progress(self) -> None:
        """For callers that know there is more to read."""
        if time.monotonic() - self._moved > _STALLED_SECONDS:
            raise BrokerUnavailableError(
                f"nothing came from {self._where()} on {self._config.bootstrap_servers} for "
                f"{_STALLED_SECONDS:.0f} s, at offset {self._last_position}; check the broker"
            )

    def find_last(
        self, wanted: Callable[[Message], bool], end: int | None = None, most_offsets: int | None = None
    ) -> Message | None:
        """The last record below ``end`` that is wanted, looked for backwards in growing windows.

        ``most_offsets``: how far to look; without it, to the log's beginning.
        """
        low, high = self.bounds()
        end = high if end is None else end
        low = low if most_offsets is None else max(low, end - most_offsets)
        window = _FIRST_WINDOW
        upper = end
        while upper > low:
            lower = max(low, upper - window)
            found = self._last_within(lower, upper, wanted)
            if found is not None:
                return found
            upper = lower
            window *= 8
        return None

    def record_at(self, offset: int, end: int) -> Message | None:
        """The first record at or behind ``offset`` and below ``end``."""
        first: list[Message] = []
        self._each_within(offset, end, lambda message: first.append(message) or True)  # type: ignore[func-returns-value]
        return first[0] if first else None

    def _last_within(self, lower: int, upper: int, wanted: Callable[[Message], bool]) -> Message | None:
        last: list[Any] = [None]

        def look(message: Message) -> bool:
            if wanted(message):
                last[0] = message
            return False

        self._each_within(lower, upper, look)
        return last[0]

    def _each_within(self, lower: int, upper: int, visit: Callable[[Message], bool]) -> None:
        """Visit records of [lower, upper) until one visit returns true."""
        self.seek(lower)
        while self.position() < upper:
            for message in self.read(10_000):
                if message.offset() >= upper or visit(message):
                    return
            self.check_progress()

    def _where(self) -> str:
        return f"{self._topic}[{self._partition}]"
