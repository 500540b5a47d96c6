"""Which records a replica applies together."""

from __future__ import annotations

from confluent_kafka import Message

from restore.hot_replica import _held_bytes, whole_transactions


class Record:
    def __init__(self, key: bytes, value: bytes = b"") -> None:
        self._key, self._value = key, value

    def key(self) -> bytes:
        return self._key

    def __len__(self) -> int:
        return len(self._value)


def records(keys: str) -> list[Record]:
    return [Record(key.encode()) for key in keys]


def split(pending: str, new: str) -> tuple[list[str], str]:
    complete, rest = whole_transactions(records(pending), records(new))  # type: ignore[arg-type]
    return [b"".join(r.key() for r in one).decode() for one in complete], b"".join(r.key() for r in rest).decode()


def test_a_marker_or_a_claim_ends_a_transaction() -> None:
    assert split("", "ddm") == (["ddm"], "")
    assert split("", "ssc") == (["ssc"], "")
    assert split("", "ddmdcd") == (["ddm", "dc"], "d")
    assert split("", "dd") == ([], "dd")
    assert split("", "") == ([], "")


def test_what_was_left_belongs_to_the_first_one() -> None:
    assert split("dd", "dmdm") == (["dddm", "dm"], "")
    assert split("dd", "d") == ([], "ddd")
    assert split("d", "m") == (["dm"], "")


def test_a_deletion_takes_memory_too() -> None:
    deletions = [Message(topic="t", key=b"key", value=None) for _ in range(10)]
    assert _held_bytes(deletions) > 10 * 100
