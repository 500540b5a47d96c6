"""The one writer of a changelog partition: fenced by its transactional id, checked before it commits."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from changelog_state.changelog import clients
from changelog_state.changelog.outputs import PURGED, Outputs, OutputWriter
from changelog_state.changelog.queueing import TOO_LARGE, RecordTooLargeError, queue_batch
from changelog_state.config import StoreConfig
from changelog_state.errors import ChangelogStateError, InvalidInputError, OutputSchemaError, ValueEncodingError
from changelog_state.faults import fault_point

__all__ = ["ChangelogWriter", "IndeterminateCommitError", "Records", "TransactionWriter"]

logger = logging.getLogger(__name__)

_COMMIT_SECONDS = 30.0
_LOOK_SECONDS = 0.1
_FENCED = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})

Records = tuple[Sequence[bytes], Sequence[bytes | None]]


class IndeterminateCommitError(ChangelogStateError):
    """The outcome of a transaction is not known here; only the changelog can tell.

    The writer must be discarded and the partition claimed again: claiming fences this writer, so that what
    is read afterwards is final. ``fenced`` says that another writer did so already.
    """

    def __init__(self, message: str, *, fenced: bool = False) -> None:
        super().__init__(message)
        self.fenced = fenced


class TransactionWriter(Protocol):
    """Whoever writes a changelog. ``memory.MemoryWriter`` is one for tests."""

    def write(
        self,
        chunks: Iterable[Records],
        last: Callable[[], tuple[bytes, bytes | None]],
        *,
        purpose: str,
        outputs: Outputs | None = None,
        patience_seconds: float | None = None,
    ) -> int: ...


class ChangelogWriter:
    """Transactions on one partition. Creating it fences every earlier writer."""

    def __init__(
        self,
        config: StoreConfig,
        topic: str,
        partition: int,
        transactional_id: str,
        largest_record_bytes: int | None = None,
    ) -> None:
        self._config = config
        self._topic = topic
        self._partition = partition
        self._checked_topics: set[str] = set()
        self._producer: Producer = clients.transactional_producer(config, transactional_id, largest_record_bytes)

    def write(
        self,
        chunks: Iterable[Records],
        last: Callable[[], tuple[bytes, bytes | None]],
        *,
        purpose: str,
        outputs: Outputs | None = None,
        patience_seconds: float | None = None,
    ) -> int:
        """Write chunks of (keys, values), ``outputs``, then ``last()``, in one transaction; returns the offset of
        the last one.

        1. Begin; queue everything. A record that the client does not take aborts the transaction.
        2. Wait for delivery. Records of one transaction are contiguous in the changelog, so the offsets of the first
           and the last one prove that all in between have arrived. Outputs are counted.
        3. Commit. Any error from here on is indeterminate.
        ``purpose`` names the fault points on the way.
        """
        patience_seconds = _COMMIT_SECONDS if patience_seconds is None else patience_seconds
        reports = _DeliveryReports()
        beside = None if outputs is None else OutputWriter(self._config, self._producer, outputs)
        if beside is not None and beside.topic not in self._checked_topics:
            beside.check_topic()
            self._checked_topics.add(beside.topic)
        expected = 0
        try:
            self._producer.begin_transaction()
            for keys, values in chunks:
                self._queue(keys, values, reports.first if expected == 0 else None)
                expected += len(keys)
                fault_point(f"{purpose}.in_transaction")
            if beside is not None:
                beside.queue_all(lambda: fault_point(f"{purpose}.in_outputs"))
            key, value = last()
            self._producer.produce(
                self._topic, key=key, value=value, partition=self._partition, on_delivery=reports.last
            )
            expected += 1
            self._await_delivery(reports, beside, patience_seconds)
            self._check_delivered(reports, expected, beside)
            fault_point(f"{purpose}.before_kafka_commit")
            self._producer.commit_transaction(patience_seconds)
        except KafkaException as error:
            raise self._failed(error, patience_seconds, reports, beside) from error
        except RecordTooLargeError as error:
            self._abort(patience_seconds)
            raise self._too_large(error) from error
        except SystemError as error:
            # NOTE: the client raises a fatal error (being fenced is one) while it calls the delivery reports, and
            # the interpreter makes this of it.
            if not isinstance(error.__cause__, KafkaException):
                self._abort(patience_seconds)
                raise
            raise self._failed(error.__cause__, patience_seconds, reports, beside) from error
        except BaseException:
            self._abort(patience_seconds)
            raise
        return reports.last_offset

    def _queue(self, keys: Sequence[bytes], values: Sequence[bytes | None], on_first_delivery: Any | None) -> None:
        messages: list[dict[str, Any]] = [
            {"key": key, "value": value} for key, value in zip(keys, values, strict=True)
        ]
        if on_first_delivery is not None and messages:
            messages[0]["callback"] = on_first_delivery
        queue_batch(self._producer, self._topic, messages, partition=self._partition)

    def _await_delivery(
        self, reports: _DeliveryReports, beside: OutputWriter | None, patience_seconds: float
    ) -> None:
        """Until nothing is under way any more, or a failure is known: the rest would be waited for in vain."""
        deadline = time.monotonic() + patience_seconds
        while self._producer.flush(min(_LOOK_SECONDS, patience_seconds)):
            failed = reports.error is not None or (beside is not None and beside.error is not None)
            if failed or time.monotonic() > deadline:
                return

    def _check_delivered(self, reports: _DeliveryReports, expected: int, beside: OutputWriter | None) -> None:
        error = reports.error or (None if beside is None else beside.error)
        if error is not None and error.code() in PURGED:
            # The transaction has failed already, so this does not commit anything: it tells the reason.
            self._producer.commit_transaction(_COMMIT_SECONDS)
        if error is not None:
            raise KafkaException(error)
        if reports.last_offset < 0 or (beside is not None and not beside.all_delivered):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        first = reports.first_offset if expected > 1 else reports.last_offset
        found = reports.last_offset - first + 1
        if first < 0 or found != expected:
            raise IndeterminateCommitError(
                f"{self._where()}: {expected} records were sent, {found} have arrived; "
                "is something else writing to this changelog?"
            )

    def _failed(
        self, error: KafkaException, patience_seconds: float, reports: _DeliveryReports, beside: OutputWriter | None
    ) -> ChangelogStateError:
        """Leave no transaction open if that can be helped, and say what happened."""
        cause = error.args[0]
        if not cause.fatal():
            self._abort(patience_seconds)
        self._checked_topics.clear()
        is_own = reports.error is not None and reports.error.code() not in PURGED
        refused = None if beside is None or is_own or cause.fatal() else beside.refused(cause)
        if refused is not None:
            return refused
        if cause.code() in TOO_LARGE:
            return self._too_large(None)
        reason = clients.translated(error, self._config, f"write a transaction to {self._where()}")
        return IndeterminateCommitError(str(reason), fenced=cause.code() in _FENCED)

    def _abort(self, patience_seconds: float) -> None:
        # Whoever claims the partition next aborts what is open, so a failure here changes nothing.
        try:
            self._producer.abort_transaction(patience_seconds)
        except KafkaException as error:
            logger.info("%s: abort failed: %s", self._where(), error)

    def _too_large(self, error: RecordTooLargeError | None) -> InvalidInputError:
        if error is not None and error.topic != self._topic:
            return OutputSchemaError(
                f"an output row of {error.size} bytes is too large for topic {error.topic}; put less into it, or "
                f"raise max.message.bytes of the topic and of changelog {self._topic}"
            )
        what = "a record" if error is None else f"a record of {error.size} bytes"
        return ValueEncodingError(
            f"{what} is too large for changelog {self._where()}; store smaller values, "
            "or raise the topic's max.message.bytes and give it in topic="
        )

    def _where(self) -> str:
        return f"{self._topic}[{self._partition}]"


class _DeliveryReports:
    """Where the first and the last record of a transaction arrived."""

    def __init__(self) -> None:
        self.first_offset = -1
        self.last_offset = -1
        self.error: KafkaError | None = None

    def first(self, error: KafkaError | None, message: Message) -> None:
        self.error = self.error or error
        if error is None:
            self.first_offset = message.offset()

    def last(self, error: KafkaError | None, message: Message) -> None:
        self.error = self.error or error
        if error is None:
            self.last_offset = message.offset()
