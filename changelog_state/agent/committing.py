"""What an owner writes: a batch, or the end of all state; into the changelog first, then into the local store."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from changelog_state.agent.staging import StagedWork
from changelog_state.changelog.record import Marker
from changelog_state.changelog.writer import Records, TransactionWriter
from changelog_state.codec.kinds import DATA, MARKER, SCHEMA, TIMER
from changelog_state.errors import PartitionPoisonedError
from changelog_state.faults import fault_point
from changelog_state.requests import RequestHeader
from changelog_state.store.base import next_prefix
from changelog_state.store.state_store import Chunk, StateStore

__all__ = ["MOST_LISTED_NAMES", "clear_state", "commit_batch"]

MOST_LISTED_NAMES = 16
"""Up to here a key is read by asking for each name; beyond it by scanning what the key has."""
_CLEAR_CHUNK = 5_000


def commit_batch(
    writer: TransactionWriter, state: StateStore, header: RequestHeader, work: StagedWork, known: Marker | None
) -> Marker:
    """
    1. One Kafka transaction: every mutation, the records for a topic, then the marker, which holds the digest of
       what the mutations replace. A batch that mutates nothing here, but has records for a topic, has a marker too.
    2. One local write (or several, position last). If it fails, the log has more than the store.
    """
    meta = state.meta
    assert meta is not None
    begin = meta.position
    fault_point("commit.before_transaction")
    in_memory = None if work.spilled else list(work.chunks())

    def chunks() -> Iterable[Chunk]:
        return work.chunks() if in_memory is None else in_memory

    # Made before the transaction: its time is then not later than the batch's records.
    marker = Marker(
        query=header.query,
        batch=header.batch,
        epoch=header.epoch,
        begin=begin,
        records=work.records,
        mutations=work.digest(),
        images=work.images_digest(),
        names=_names(known, work.names),
        time_ms=int(time.time() * 1000),
    )
    encoded = marker.encode()
    schemas = _new_schemas(state, work)
    records: Iterable[Records] = ((chunk.keys, chunk.values) for chunk in chunks())
    if schemas:
        records = itertools.chain([(list(schemas), list(schemas.values()))], records)
    offset = writer.write(records, lambda: (MARKER, encoded), purpose="commit", outputs=work.records_for_topic())
    meta = replace(
        meta,
        position=offset + 1,
        marker_offset=offset,
        images_begin=begin,
        images_complete=True,
        caught_up_ms=marker.time_ms,
    )
    try:
        fault_point("commit.after_kafka_commit")
        state.commit(chunks(), encoded, meta, schemas)
    except Exception as error:  # whatever it is: from here on the log knows more than this store
        raise PartitionPoisonedError(
            f"store {header.application}/{header.store} partition {header.partition}: batch {header.batch} is in the "
            f"changelog, but the local write failed ({error}); the partition is claimed again"
        ) from error
    return marker


def _new_schemas(state: StateStore, work: StagedWork) -> dict[bytes, bytes]:
    """The records of those schemas that this changelog does not have yet."""
    keys = [SCHEMA + fingerprint for fingerprint in sorted(work.schemas)]
    known = state.read(keys)
    return {key: work.schemas[key[1:]] for key, found in zip(keys, known, strict=True) if found is None}


def clear_state(writer: TransactionWriter, state: StateStore) -> int:
    """Delete everything, in the changelog and here, in one transaction; returns how many records."""
    meta = state.meta
    assert meta is not None
    cleared = 0

    def tombstones() -> Iterator[tuple[list[bytes], list[bytes | None]]]:
        nonlocal cleared
        keys: list[bytes] = []
        for key in (key for kind in (DATA, TIMER) for key in state.store.scan_keys(kind, next_prefix(kind))):
            keys.append(key)
            if len(keys) == _CLEAR_CHUNK:
                cleared += len(keys)
                yield keys, [None] * len(keys)
                keys = []
        if keys:
            cleared += len(keys)
            yield keys, [None] * len(keys)

    offset = writer.write(tombstones(), lambda: (MARKER, None), purpose="clear")
    state.clear(replace(meta, position=offset + 1, marker_offset=None, images_begin=None, images_complete=False))
    return cleared


def _names(known: Marker | None, added: frozenset[str]) -> list[str] | None:
    """Every name in the partition; None if there are too many to list."""
    before = known.names if known is not None else []
    if before is None:
        return None
    names = sorted({*before, *added})
    return names if len(names) <= MOST_LISTED_NAMES else None
