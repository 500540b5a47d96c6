"""What holds for a changelog, be it Kafka's or the one in memory that ``StateTester`` writes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from changelog_state.changelog.memory import MemoryChangelog
from changelog_state.changelog.reader import ChangelogReader
from changelog_state.changelog.topic import ensure_topics
from changelog_state.changelog.writer import ChangelogWriter, IndeterminateCommitError
from changelog_state.config import StoreConfig

Found = list[tuple[int, bytes, bytes | None]]


class Log(Protocol):
    def writer(self) -> Any: ...

    def read(self, start: int) -> Found: ...


class InMemory:
    def __init__(self) -> None:
        self._log = MemoryChangelog()
        self.writer: Callable[[], Any] = self._log.writer

    def read(self, start: int) -> Found:
        return [(one.offset(), one.key(), one.value()) for one in self._log.read(start)]


class InKafka:
    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        ensure_topics(config)

    def writer(self) -> ChangelogWriter:
        return ChangelogWriter(self._config, self._config.changelog_topic, 0, self._config.transactional_id(0))

    def read(self, start: int) -> Found:
        with ChangelogReader(self._config, self._config.changelog_topic, 0) as reader:
            _, high = reader.bounds()
            if start >= high:
                return []
            found = [message for messages in reader.stretches(start, high, 1_000_000) for message in messages]
        return [(one.offset(), one.key(), one.value()) for one in found]


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def log(request: pytest.FixtureRequest) -> Log:
    if request.param == "memory":
        return InMemory()
    broker, application = request.getfixturevalue("broker"), request.getfixturevalue("application")
    return InKafka(StoreConfig(application, "contract", broker.bootstrap_servers, 1))


def write(writer: Any, *pairs: tuple[bytes, bytes | None]) -> int:
    *chunk, last = pairs
    chunks = [([key], [value]) for key, value in chunk]
    return int(writer.write(chunks, lambda: last, purpose="contract"))


def test_records_come_back_in_order_with_their_offsets(log: Log) -> None:
    writer = log.writer()
    assert log.read(0) == []
    assert write(writer, (b"a", b"1"), (b"b", None), (b"m", b"first")) == 2
    last = write(writer, (b"a", b"2"), (b"m", b"second"))
    found = log.read(0)
    assert found[:3] == [(0, b"a", b"1"), (1, b"b", None), (2, b"m", b"first")]
    assert [(key, value) for _, key, value in found[3:]] == [(b"a", b"2"), (b"m", b"second")]
    offsets = [offset for offset, _, _ in found]
    assert offsets[-1] == last
    assert offsets[3] > 3, "what ends a transaction takes an offset, too"
    assert offsets[4] == offsets[3] + 1, "records of a transaction are contiguous"
    assert log.read(offsets[3]) == found[3:]
    assert log.read(last + 1) == []


def test_a_transaction_that_fails_leaves_nothing(log: Log) -> None:
    writer = log.writer()
    write(writer, (b"m", b"1"))

    def fails() -> Any:
        yield [b"lost"], [b"x"]
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        writer.write(fails(), lambda: (b"m", b"2"), purpose="contract")
    write(writer, (b"m", b"3"))
    assert [(key, value) for _, key, value in log.read(0)] == [(b"m", b"1"), (b"m", b"3")]


def test_a_new_writer_fences_the_one_before(log: Log) -> None:
    old = log.writer()
    write(old, (b"m", b"old"))
    new = log.writer()
    with pytest.raises(IndeterminateCommitError) as refused:
        write(old, (b"x", b"1"), (b"m", b"too late"))
    assert refused.value.fenced
    write(new, (b"m", b"new"))
    assert [(key, value) for _, key, value in log.read(0)] == [(b"m", b"old"), (b"m", b"new")]
