"""Which batch is this? Decided over all partitions together, before any event is processed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from changelog_state.changelog.record import BatchRecord
from changelog_state.errors import (
    BatchRefusedError,
    CheckpointRolledBackError,
    NewQueryError,
    OffsetsChangedError,
    ReplayImpossibleError,
)

__all__ = ["MarkerView", "NewQueryPolicy", "UnreplayablePolicy", "Verdict", "judge_batch"]

NewQueryPolicy = Literal["refuse", "continue", "clear"]
UnreplayablePolicy = Literal["refuse", "skip"]


@dataclass(frozen=True)
class MarkerView:
    partition: int
    query: str
    batch: int
    epoch: int
    replayable: bool

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> MarkerView | None:
        marker = status["marker"]
        if marker is None:
            return None
        return cls(status["partition"], marker["query"], marker["batch"], marker["epoch"], status["replayable"])


@dataclass(frozen=True)
class Verdict:
    known: BatchRecord | None
    """The record that an earlier execution of this batch left; a replay goes by it."""
    replayed: frozenset[int]
    """Partitions that have this batch already."""
    skipped: frozenset[int]
    """Of those: their before-images are gone; the operator said to go on without their rows."""
    adopted_epoch: int | None
    clear_first: bool


def judge_batch(
    *,
    store: str,
    query: str,
    batch: int,
    epoch: int,
    offsets_hash: str | None,
    markers: Iterable[MarkerView],
    record: BatchRecord | None,
    on_new_query: NewQueryPolicy,
    on_unreplayable: UnreplayablePolicy,
    into_empty: bool = False,
) -> Verdict:
    """
    0. Into an empty store only, if the batch is an import: anything but this very batch is in its way.
    1. Anything written by another query since this one took over: refused, or taken over as told.
    2. Anything ahead of this batch: the checkpoint was rolled back.
    3. This batch with other offsets: the source was changed under it.
    4. Markers equal to this batch: a replay, which needs their before-images.
    """
    markers = list(markers)
    if into_empty:
        _refuse_others(store, query, batch, markers, record)
    adopted = record.adopted_epoch if record is not None and record.query == query else None
    foreign = [m for m in markers if m.query != query and (adopted is None or m.epoch >= adopted)]
    strange_record = record is not None and record.query != query
    if foreign or strange_record:
        if on_new_query == "refuse":
            other = foreign[0].query if foreign else record.query  # type: ignore[union-attr]
            raise NewQueryError(
                f"store {store} holds the state of query {other}, but query {query} asks for batch {batch}; "
                "was the checkpoint deleted? Restore the checkpoint, or say on_new_query='continue' to take the "
                "state over, or on_new_query='clear' to start empty"
            )
        return Verdict(None, frozenset(), frozenset(), epoch, clear_first=on_new_query == "clear")
    own = [m for m in markers if m.query == query]
    ahead = max([m.batch for m in own] + ([record.batch] if record is not None else []), default=-1)
    if ahead > batch:
        raise CheckpointRolledBackError(
            f"store {store} has seen batch {ahead} of query {query}, but Spark asks for batch {batch}; was the "
            "checkpoint restored from a backup? Bring back the newest checkpoint, or start a new one with "
            "on_new_query='continue' or 'clear'"
        )
    known = record if record is not None and record.batch == batch else None
    if known is not None and None not in (known.offsets_hash, offsets_hash) and known.offsets_hash != offsets_hash:
        raise OffsetsChangedError(
            f"store {store} knows batch {batch} of query {query} with other source offsets "
            f"({known.offsets_hash} then, {offsets_hash} now); do not edit or share a checkpoint: "
            "bring back the original one, or start a new one with on_new_query='continue' or 'clear'"
        )
    replayed = frozenset(m.partition for m in own if m.batch == batch)
    lost = frozenset(m.partition for m in own if m.batch == batch and not m.replayable)
    if lost and on_unreplayable == "refuse":
        raise ReplayImpossibleError(
            f"store {store}: batch {batch} must be replayed, but in partitions {sorted(lost)} the values from "
            "before it were compacted away; their state is right, only the batch's output rows cannot be made "
            "again. Say on_unreplayable='skip' to go on without those rows (raise min.compaction.lag.ms to keep "
            "them longer)"
        )
    return Verdict(known, replayed, lost, adopted, clear_first=False)


def _refuse_others(
    store: str, query: str, batch: int, markers: Iterable[MarkerView], record: BatchRecord | None
) -> None:
    found = {(marker.query, marker.batch) for marker in markers}
    if record is not None:
        found.add((record.query, record.batch))
    others = sorted(found - {(query, batch)})
    if not others:
        return
    newest = max((number for owner, number in others if owner == query), default=-1)
    if newest > batch and all(owner == query for owner, _ in others):
        raise BatchRefusedError(
            f"store {store} has batch {newest} of query {query}, whose state as of batch {batch} is to be imported: "
            "the query already goes on here, and nothing is left to import. If what is here was a trial, clear() "
            "the store, then import again"
        )
    has = ", ".join(f"batch {number} of query {owner}" for owner, number in others)
    raise BatchRefusedError(
        f"store {store} is not empty: it has {has}, and batch {batch} of query {query} is to be imported; state is "
        "imported into an empty store only. clear() it, or use another store, then import again"
    )
