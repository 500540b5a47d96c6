"""The one place where Kafka clients are configured and their errors get a name."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from changelog_state.config import KafkaSettings, StoreConfig
from changelog_state.errors import BrokerUnavailableError, ChangelogStateError

__all__ = ["REQUEST_TIMEOUT_SECONDS", "admin", "broker_errors", "consumer", "producer", "transactional_producer"]

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_SECONDS = 15.0
ANNOUNCE_TIMEOUT_SECONDS = 5.0
_MEBIBYTE = 1024 * 1024
_TRANSACTION_TIMEOUT_MS = 600_000
"""Below the broker's default maximum of 15 minutes; a transaction is begun only when all of it is at hand."""
_MOST_READ_AHEAD = 30_000
"""Records that are waiting in the client when its reader ends are read for nothing."""
_UNREACHABLE = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.BROKER_NOT_AVAILABLE,
    }
)


def admin(config: KafkaSettings) -> AdminClient:
    return AdminClient(_common(config, "admin"), logger=logger)


def consumer(config: KafkaSettings, *, queue_mb: int | None = None, wait_ms: int = 10) -> Consumer:
    """A read_committed consumer without a group.

    ``queue_mb``: for replays, how much it may read ahead. What the client asks for at once decides their speed.
    ``wait_ms``: how long the broker may hold a request when there is nothing new; longer for one that stays open.
    """
    settings = _common(config, "reader" if queue_mb is None else "replay") | {
        "group.id": f"{config.application}-none",  # required by the client, never joined
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "check.crcs": True,
        "fetch.wait.max.ms": wait_ms,
        "fetch.error.backoff.ms": 50,
    }
    if queue_mb is not None:
        settings |= {
            # Small, as what arrives may be many times larger once it is decompressed; it costs no speed.
            "fetch.message.max.bytes": _MEBIBYTE,
            "queued.max.messages.kbytes": queue_mb * 1024,
            "queued.min.messages": _MOST_READ_AHEAD,
            # Once enough is waiting, the client looks again after this time; by default a whole second.
            "fetch.queue.backoff.ms": 2,
        }
    return Consumer(settings, logger=logger)


def producer(config: KafkaSettings) -> Producer:
    """For single records that stand for themselves: no transactions, in order, and soon given up."""
    settings = _common(config, "announcer") | {
        "acks": "all",
        "max.in.flight.requests.per.connection": 1,
        "linger.ms": 0,
        "message.timeout.ms": int(ANNOUNCE_TIMEOUT_SECONDS * 1000),
    }
    return Producer(settings, logger=logger)


def transactional_producer(
    config: StoreConfig, transactional_id: str, largest_record_bytes: int | None = None
) -> Producer:
    """A producer whose transactions are initialized: every earlier owner of the id is fenced from now on."""
    settings = _common(config, "writer") | {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
        # Of records that do not name their partition, which are those for users' own topics: where Java puts them.
        "partitioner": "murmur2_random",
        "compression.type": "lz4",
        "linger.ms": 0,
        "message.timeout.ms": 30_000,
        # The topic's own limit, so that a record which the broker would refuse is refused here, by name.
        "message.max.bytes": largest_record_bytes or _MEBIBYTE,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 512 * 1024,
    }
    producer = Producer(settings, logger=logger)
    with broker_errors(config, f"take transactional id {transactional_id}"):
        # Finding the coordinator waits on a 500 ms timer unless a connection is there already.
        producer.list_topics(config.changelog_topic, timeout=REQUEST_TIMEOUT_SECONDS)
        producer.init_transactions(REQUEST_TIMEOUT_SECONDS)
    return producer


@contextmanager
def broker_errors(config: KafkaSettings, doing: str) -> Iterator[None]:
    """Turn the client's errors into ours, naming the broker and what was being done."""
    try:
        yield
    except KafkaException as error:
        raise translated(error, config, doing) from error


def translated(error: KafkaException, config: KafkaSettings, doing: str) -> ChangelogStateError:
    cause = error.args[0]
    if isinstance(cause, KafkaError) and cause.code() in _UNREACHABLE:
        return BrokerUnavailableError(
            f"Kafka at {config.bootstrap_servers} did not answer: could not {doing} ({cause.str()}); "
            "check that the broker is up and reachable from here, then try again: nothing is lost"
        )
    return ChangelogStateError(f"Kafka at {config.bootstrap_servers} refused to {doing}: {cause}")


def _common(config: KafkaSettings, role: str) -> dict[str, Any]:
    return {
        "client.id": f"changelog-state-{role}-{uuid.uuid4().hex[:8]}",
        "socket.timeout.ms": int(REQUEST_TIMEOUT_SECONDS * 1000),
        "socket.nagle.disable": True,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "allow.auto.create.topics": False,
        **config.kafka,
        "bootstrap.servers": config.bootstrap_servers,
    }
