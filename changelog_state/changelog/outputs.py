"""Records for a topic of the user's, inside a changelog's transaction: each of them is counted when it has arrived.

Other partitions of the state write to the same topic, so offsets prove nothing here, as they do in the changelog.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from changelog_state.changelog import clients
from changelog_state.changelog.queueing import queue_batch, queue_one
from changelog_state.codec.headers import Headers
from changelog_state.config import KafkaSettings
from changelog_state.errors import OutputTopicError

__all__ = ["PURGED", "OutputChunk", "OutputWriter", "Outputs"]

PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
"""What records fail with after the transaction has failed for another reason."""
_APPEAR_SECONDS = 5.0
_LOOK_SECONDS = 0.05
_NOT_KNOWN_YET = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE})
_REFUSALS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "it does not exist; create it",
    KafkaError._UNKNOWN_TOPIC: "it does not exist; create it",
    KafkaError._UNKNOWN_PARTITION: "it has no partitions; look at the broker's log",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "it is not allowed; give the agents' user the right to write to the topic",
    KafkaError.MSG_SIZE_TOO_LARGE: "a record, or a request with many, is too large; raise its max.message.bytes",
    KafkaError.RECORD_LIST_TOO_LARGE: "a request is too large; raise its segment.bytes",
    KafkaError.INVALID_RECORD: "a record is not valid there; in a compacted topic each needs a key",
    KafkaError.POLICY_VIOLATION: "a policy of the broker forbids it",
}
"""Why a topic does not take a record, for as long as nobody does something about it."""


@dataclass(frozen=True)
class OutputChunk:
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers | None] | None = None
    """None: none of them has any."""


@dataclass(frozen=True)
class Outputs:
    topic: str
    chunks: Iterable[OutputChunk]


class OutputWriter:
    """The records of one transaction."""

    def __init__(self, config: KafkaSettings, producer: Producer, outputs: Outputs) -> None:
        self._config = config
        self._producer = producer
        self._outputs = outputs
        self.topic = outputs.topic
        self._sent = 0
        self._delivered = 0
        self.error: KafkaError | None = None
        """Of the first record that has not arrived, and will not."""

    def check_topic(self) -> None:
        """Raise if there is none. Afterwards the client knows its partitions, for which it would have to wait.

        One that was just made has a moment to become known everywhere.
        """
        deadline = time.monotonic() + _APPEAR_SECONDS
        while (error := self._topic_error()) is not None:
            if error.code() not in _NOT_KNOWN_YET or time.monotonic() > deadline:
                refused = self.refused(error)
                if refused is not None:
                    raise refused
                with clients.broker_errors(self._config, f"describe topic {self.topic}"):
                    raise KafkaException(error)
            time.sleep(_LOOK_SECONDS)

    def _topic_error(self) -> KafkaError | None:
        with clients.broker_errors(self._config, f"describe topic {self.topic}"):
            described = self._producer.list_topics(self.topic, timeout=clients.REQUEST_TIMEOUT_SECONDS)
        error: KafkaError | None = described.topics[self.topic].error
        return error

    def queue_all(self, then: Callable[[], None]) -> None:
        """Java's partitioner decides where each goes (see ``clients``). ``then`` is called after each chunk."""
        for chunk in self._outputs.chunks:
            self._queue(chunk)
            then()

    def _queue(self, chunk: OutputChunk) -> None:
        self._sent += len(chunk.keys)
        if chunk.headers is None:
            messages = [{"key": key, "value": value} for key, value in zip(chunk.keys, chunk.values, strict=True)]
            queue_batch(self._producer, self.topic, messages, on_delivery=self._note)
            return
        # NOTE: in a batch the client drops headers without a word.
        for key, value, headers in zip(chunk.keys, chunk.values, chunk.headers, strict=True):
            queue_one(self._producer, self.topic, key, value, headers or [], self._note)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._delivered += 1
        else:
            self.error = self.error or error

    @property
    def all_delivered(self) -> bool:
        return self._delivered == self._sent

    def refused(self, error: KafkaError) -> OutputTopicError | None:
        """What it means that the transaction has failed with this, if it is the topic that does not take records."""
        error = error if self.error is None or self.error.code() in PURGED else self.error
        reason = _REFUSALS.get(error.code())
        if reason is None:
            return None
        return OutputTopicError(
            f"output rows cannot be written to topic {self.topic} on {self._config.bootstrap_servers}: "
            f"{reason}. Nothing of the batch was committed in this partition ({error.str()})"
        )
