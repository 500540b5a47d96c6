"""Records for a topic and the changes of their batch are committed together, once: on the owner's code, in memory."""

from __future__ import annotations

import pyarrow as pa
import pytest

from changelog_state.codec.kinds import DATA
from changelog_state.testing.partition import MemoryPartition

Rows = list[tuple[bytes, bytes]]


def run(partition: MemoryPartition, batch: int, rows: Rows, changes: dict[bytes, bytes]) -> bool:
    """One execution of a batch; whether it did what the first one did."""
    session = partition.session(batch)
    if changes:
        keys = sorted(changes)
        session.stage(keys, [changes[key] for key in keys], session.read(keys))
    columns = [pa.array(column, pa.binary()) for column in (*zip(*rows, strict=True), [None] * len(rows))]
    session.output("out", *columns)
    sealed = session.seal([])
    assert (sealed["records"], sealed["outputs"]) == (len(changes), len(rows))
    return partition.commit(batch, session.work)


def produced(partition: MemoryPartition) -> Rows:
    return [(key or b"", value or b"") for _, key, value, _ in partition.log.outputs]


CHANGES = {DATA + b"a\0n": b"1"}


@pytest.mark.parametrize("changes", [CHANGES, {}], ids=["with changes", "records only"])
@pytest.mark.parametrize("afterwards", ["go on", "restart", "restore"])
def test_once_whatever_happens(afterwards: str, changes: dict[bytes, bytes]) -> None:
    partition = MemoryPartition()
    rows: Rows = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]
    assert run(partition, 0, rows, changes)
    if afterwards != "go on":
        getattr(partition, afterwards)()
    assert partition.has(0), "a batch with records has a marker, also if it changes nothing"
    assert run(partition, 0, rows, changes), "a replay that does the same"
    assert produced(partition) == rows
    assert run(partition, 1, [(b"c", b"4")], {})
    assert produced(partition) == [*rows, (b"c", b"4")]


def test_a_replay_with_other_records_is_noticed() -> None:
    partition = MemoryPartition()
    run(partition, 0, [(b"a", b"1")], CHANGES)
    assert not run(partition, 0, [(b"a", b"2")], CHANGES)
    assert produced(partition) == [(b"a", b"1")], "the first ones stand"
