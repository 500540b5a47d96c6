"""The one writer of a changelog partition: fenced by its transactional id, checked before it commits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from changelog_state.changelog import clients
from changelog_state.config import StoreConfig
from changelog_state.errors import ChangelogStateError, ValueEncodingError
from changelog_state.faults import fault_point

__all__ = ["ChangelogWriter", "IndeterminateCommitError"]

logger = logging.getLogger(__name__)

_COMMIT_SECONDS = 30.0
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE})
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
        self._producer: Producer = clients.transactional_producer(config, transactional_id, largest_record_bytes)

    def write(
        self,
        chunks: Iterable[Records],
        last: Callable[[], tuple[bytes, bytes | None]],
        *,
        purpose: str,
        patience_seconds: float | None = None,
    ) -> int:
        """Write chunks of (keys, values), then ``last()``, in one transaction; returns the last one's offset.

        1. Begin; queue everything. A record that the client does not take aborts the transaction.
        2. Wait for delivery. Records of one transaction are contiguous, so the offsets of the first and the
           last one prove that all in between have arrived.
        3. Commit. Any error from here on is indeterminate.
        ``purpose`` names the fault points on the way.
        """
        patience_seconds = _COMMIT_SECONDS if patience_seconds is None else patience_seconds
        reports = _DeliveryReports()
        expected = 0
        try:
            self._producer.begin_transaction()
            for keys, values in chunks:
                self._queue(keys, values, reports.first if expected == 0 else None)
                expected += len(keys)
                fault_point(f"{purpose}.in_transaction")
            key, value = last()
            self._producer.produce(
                self._topic, key=key, value=value, partition=self._partition, on_delivery=reports.last
            )
            expected += 1
            self._producer.flush(patience_seconds)
            self._check_delivered(reports, expected)
            fault_point(f"{purpose}.before_kafka_commit")
            self._producer.commit_transaction(patience_seconds)
        except KafkaException as error:
            raise self._failed(error, patience_seconds) from error
        except SystemError as error:
            # NOTE: the client raises a fatal error (being fenced is one) while it calls the delivery reports, and
            # the interpreter makes this of it.
            if not isinstance(error.__cause__, KafkaException):
                self._abort(patience_seconds)
                raise
            raise self._failed(error.__cause__, patience_seconds) from error
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
        while messages:
            if self._producer.produce_batch(self._topic, messages, partition=self._partition) == len(messages):
                return
            messages = [message for message in messages if "_error" in message]
            for message in messages:
                error = message.pop("_error")
                if error.code() in _TOO_LARGE:
                    raise self._too_large(len(message["key"]) + len(message["value"] or b""))
                if error.code() != KafkaError._QUEUE_FULL:
                    raise KafkaException(error)
            self._producer.poll(0.05)

    def _check_delivered(self, reports: _DeliveryReports, expected: int) -> None:
        if reports.error is not None:
            raise KafkaException(reports.error)
        if reports.last_offset < 0:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        first = reports.first_offset if expected > 1 else reports.last_offset
        found = reports.last_offset - first + 1
        if first < 0 or found != expected:
            raise IndeterminateCommitError(
                f"{self._where()}: {expected} records were sent, {found} have arrived; "
                "is something else writing to this changelog?"
            )

    def _failed(self, error: KafkaException, patience_seconds: float) -> ChangelogStateError:
        """Leave no transaction open if that can be helped, and say what happened."""
        cause = error.args[0]
        if not cause.fatal():
            self._abort(patience_seconds)
        if cause.code() in _TOO_LARGE:
            return self._too_large(None)
        reason = clients.translated(error, self._config, f"write a transaction to {self._where()}")
        return IndeterminateCommitError(str(reason), fenced=cause.code() in _FENCED)

    def _abort(self, patience_seconds: float) -> None:
        # Whoever claims the partition next aborts what is open, so a failure here changes nothing.
        try:
            self._producer.abort_transaction(patience_seconds)
        except KafkaException as error:
            logger.info("%s: abort failed: %s", self._where(), error)

    def _too_large(self, size: int | None) -> ValueEncodingError:
        what = "a record" if size is None else f"a record of {size} bytes"
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
