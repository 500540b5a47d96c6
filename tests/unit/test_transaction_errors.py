"""Who is to blame when a transaction with output rows fails: the topic that did not take a record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from changelog_state.changelog import clients
from changelog_state.changelog.outputs import OutputChunk, Outputs
from changelog_state.changelog.writer import ChangelogWriter, IndeterminateCommitError
from changelog_state.config import StoreConfig
from changelog_state.errors import ChangelogStateError, OutputTopicError, ValueEncodingError

CHANGELOG, OUTPUT = "changelog", "out"


class RefusingProducer:
    """Takes every record, and reports the error of its topic."""

    def __init__(self, errors: dict[str, int]) -> None:
        self._errors = errors
        self._queued: list[tuple[str, Callable[[Any, Any], None] | None]] = []
        self.calls: list[str] = []

    def begin_transaction(self) -> None:
        self.calls.append("begin")

    def produce_batch(
        self, topic: str, messages: Sequence[dict[str, Any]], partition: int = -1, on_delivery: Any = None
    ) -> int:
        self._queued += [(topic, each.get("callback") or on_delivery) for each in messages]
        return len(messages)

    def produce(self, topic: str, *, on_delivery: Any, **record: Any) -> None:
        self._queued.append((topic, on_delivery))

    def flush(self, seconds: float) -> int:
        for topic, report in self._queued:
            if report is not None:
                code = self._errors.get(topic)
                report(None if code is None else KafkaError(code), SimpleNamespace(offset=lambda: 0))
        self._queued.clear()
        return 0

    def commit_transaction(self, seconds: float) -> None:
        """Only to tell why records were dropped."""
        raise KafkaException(KafkaError(KafkaError._STATE))

    def abort_transaction(self, seconds: float) -> None:
        self.calls.append("abort")

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None)})


def failure(monkeypatch: pytest.MonkeyPatch, errors: dict[str, int]) -> ChangelogStateError:
    producer = RefusingProducer(errors)
    monkeypatch.setattr(clients, "transactional_producer", lambda *_: producer)
    writer = ChangelogWriter(StoreConfig("app", "store", "broker:1", 1), CHANGELOG, 0, "id")
    outputs = Outputs(OUTPUT, [OutputChunk([b"k"], [b"v"])])
    with pytest.raises(ChangelogStateError) as raised:
        writer.write([([b"a"], [b"1"])], lambda: (b"marker", b"x"), purpose="commit", outputs=outputs)
    assert producer.calls == ["begin", "abort"]
    return raised.value


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, IndeterminateCommitError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, IndeterminateCommitError),
        (KafkaError.MSG_SIZE_TOO_LARGE, ValueEncodingError),
    ],
)
def test_a_topic_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch, code: int, kind: type) -> None:
    of_changelog = failure(monkeypatch, {CHANGELOG: code})
    assert isinstance(of_changelog, kind)
    assert CHANGELOG in str(of_changelog)
    of_output = failure(monkeypatch, {OUTPUT: code, CHANGELOG: KafkaError._PURGE_INFLIGHT})
    assert isinstance(of_output, OutputTopicError)
    assert f"cannot be written to topic {OUTPUT}" in str(of_output)
