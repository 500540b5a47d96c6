"""The records that all systems restore: so many distinct keys, in the same order for each of them.

Keys come in random order over the whole topic and ascending within each batch, as our writer sends them. A record
is 14 bytes of key and 100 bytes of value, in the form that its system would have written.
"""

from __future__ import annotations

import functools
import random
import time
import uuid
from collections.abc import Iterator
from hashlib import blake2b

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.session import Bench
from changelog_state.changelog.record import Claim, Marker, schema_records
from changelog_state.changelog.topic import Topic, ensure_topics
from changelog_state.changelog.writer import ChangelogWriter
from changelog_state.codec.avro import encode_value
from changelog_state.codec.digest import PairDigest
from changelog_state.codec.keys import KeyCodec, record_key
from changelog_state.codec.kinds import CLAIM, DATA, MARKER
from changelog_state.config import FORMAT_VERSION, StoreConfig

__all__ = [
    "KEY_BYTES",
    "KEY_CODEC",
    "VALUE_BYTES",
    "OurChangelog",
    "batches",
    "create_topic",
    "key_of",
    "new_changelog",
    "our_changelog",
    "producer",
    "text",
    "value_of",
]

KEY_BYTES = 14
VALUE_BYTES = 100

_BATCH_RECORDS = 50_000
_LAST_BATCH_RECORDS = 1_000
KEY_CODEC = KeyCodec(("string",))
_STATE_NAME = "n"
_FILLER = "a text such as many values of one store have in common ".ljust(120, ".")


def batches(records: int, partitions: int, partition: int) -> Iterator[list[int]]:
    """The record numbers of one partition, batch by batch. The last batch is small, as its images are rebuilt.

    Partitions are of equal size; where a partitioner would have put a key makes no difference to a restore.
    """
    mine = _shuffled(records)[partition::partitions]
    last = max(len(mine) - _LAST_BATCH_RECORDS, 0)
    for begin in range(0, last, _BATCH_RECORDS):
        yield sorted(mine[begin : min(begin + _BATCH_RECORDS, last)])
    yield sorted(mine[last:])


def text(number: int, length: int) -> str:
    """A value's text: half of it differs from record to record and does not compress."""
    different = blake2b(number.to_bytes(8, "big"), digest_size=18).hexdigest()
    return f"{number:012d}:{different}:{_FILLER}"[:length]


def key_of(number: int) -> bytes:
    """In our format, as its value is."""
    return record_key(DATA, KEY_CODEC.encode(f"key{number:08d}"), _STATE_NAME)


def value_of(number: int) -> bytes:
    return encode_value(text(number, _VALUE_TEXT_LENGTH))


@functools.lru_cache(maxsize=1)
def _shuffled(records: int) -> list[int]:
    numbers = list(range(records))
    random.Random(records).shuffle(numbers)
    return numbers


class OurChangelog:
    """A changelog as our agents write it: claimed, then one transaction per batch, each with its marker."""

    def __init__(self, config: StoreConfig) -> None:
        self.config = config
        self.topic: Topic = ensure_topics(config)
        self._writers: dict[int, ChangelogWriter] = {}
        self._position: dict[int, int] = {}
        self._batch: dict[int, int] = {}

    def write(self, partition: int, numbers: list[int]) -> None:
        """One batch of keys that were not there before."""
        writer = self._claimed(partition)
        keys = [key_of(number) for number in numbers]
        values = [value_of(number) for number in numbers]
        if any(len(key) != KEY_BYTES for key in keys) or any(len(value) != VALUE_BYTES for value in values):
            raise AssertionError(f"records are not of {KEY_BYTES} and {VALUE_BYTES} bytes")
        mutations, images = PairDigest(), PairDigest()
        mutations.update(keys, values)
        images.update(keys, [None] * len(keys))
        marker = Marker(
            query="bench",
            batch=self._batch[partition],
            epoch=1,
            begin=self._position[partition],
            records=len(keys),
            mutations=mutations.digest(),
            images=images.digest(),
            names=[_STATE_NAME],
            time_ms=_now_ms(),
        )
        offset = writer.write([(keys, values)], lambda: (MARKER, marker.encode()), purpose="bench")
        self._position[partition] = offset + 1
        self._batch[partition] += 1

    def _claimed(self, partition: int) -> ChangelogWriter:
        if partition not in self._writers:
            config = self.config
            writer = ChangelogWriter(
                config,
                config.changelog_topic,
                partition,
                config.transactional_id(partition),
                self.topic.largest_record_bytes,
            )
            claim = Claim(
                epoch=1,
                agent="bench",
                incarnation=uuid.uuid4().hex,
                time_ms=_now_ms(),
                application=config.application,
                store=config.store,
                partitions=config.partitions,
                partitioner="spark",
                key_types=KEY_CODEC.describe(),
                format=FORMAT_VERSION,
            )
            keys, values = map(list, zip(*schema_records(), strict=True))
            offset = writer.write([(keys, values)], lambda: (CLAIM, claim.encode()), purpose="bench")
            self._writers[partition], self._position[partition], self._batch[partition] = writer, offset + 1, 0
        return self._writers[partition]


@functools.cache
def our_changelog(bench: Bench, records: int, partitions: int) -> OurChangelog:
    """Written once, and never written to again."""
    return new_changelog(bench, records, partitions)


def new_changelog(bench: Bench, records: int, partitions: int) -> OurChangelog:
    name = f"restore-{partitions}-{uuid.uuid4().hex[:6]}"
    changelog = OurChangelog(StoreConfig("bench", name, bench.bootstrap_servers, partitions))
    for partition in range(partitions):
        for numbers in batches(records, partitions, partition):
            changelog.write(partition, numbers)
    return changelog


def create_topic(bench: Bench, name: str, partitions: int, **settings: str) -> None:
    """A topic of another system. In settings a ``_`` stands for a dot."""
    admin = AdminClient({"bootstrap.servers": bench.bootstrap_servers, "log_level": 4})
    config = {setting.replace("_", "."): value for setting, value in settings.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)


def producer(bench: Bench) -> Producer:
    """For the changelogs of other systems; batches and compression as ours."""
    return Producer(
        {
            "bootstrap.servers": bench.bootstrap_servers,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 2,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 512 * 1024,
        }
    )


def _now_ms() -> int:
    return int(time.time() * 1000)


_VALUE_TEXT_LENGTH = VALUE_BYTES - (len(encode_value("x" * 64)) - 64)
