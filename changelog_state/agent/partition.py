"""One partition at its agent: its phase, and every request judged under its lock."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

from changelog_state.agent.batch_desk import OpenBatch
from changelog_state.agent.claiming import Claimed, claim_partition, log_end, renew_claim, written_by_others
from changelog_state.agent.committing import clear_state, commit_batch
from changelog_state.agent.following import FollowedPartition
from changelog_state.agent.messages import StagedWorkLostError
from changelog_state.agent.phases import Phase
from changelog_state.agent.staging import StagedWork, StagingBudget
from changelog_state.changelog.record import Claim, Marker
from changelog_state.changelog.topic import Topic
from changelog_state.changelog.writer import ChangelogWriter, IndeterminateCommitError
from changelog_state.config import StoreConfig
from changelog_state.errors import (
    BatchSupersededError,
    ChangelogStateError,
    PartitionPoisonedError,
    ReplayImpossibleError,
    StaleClaimError,
    StaleEpochError,
    StoreError,
)
from changelog_state.faults import fault_point
from changelog_state.requests import RequestHeader
from changelog_state.store.directory import PartitionDirectory
from changelog_state.store.due_reading import next_due
from changelog_state.store.state_store import StateStore
from restore.bulk_pool import BulkPool
from restore.catch_up import catch_up
from restore.replay import ReplayProgress

__all__ = ["Partition", "TaskRead"]

logger = logging.getLogger(__name__)

_FLUSH_AFTER_SECONDS = 600.0
_FRESH_SECONDS = 10.0
_ASSURE_SECONDS = 30.0


class _DriverWaitingError(Exception):
    """Raised inside a read's catching up, to end it."""


class TaskRead(NamedTuple):
    state: StateStore
    marker: Marker | None
    before: bool
    """The batch is in the state already: what was before it counts."""


class Partition(FollowedPartition):
    def __init__(
        self,
        config: StoreConfig,
        number: int,
        directory: PartitionDirectory,
        budget: StagingBudget,
        pool: BulkPool,
        is_driver_alive: Callable[[str], bool],
    ) -> None:
        super().__init__(config, number, directory, budget, pool)
        self._is_driver_alive = is_driver_alive
        self._stopping = False
        self._reading = False
        self._drivers_waiting: set[object] = set()
        self._next_due: dict[str, int | None] = {}
        self._proven = 0.0
        """When it was last certain that nobody else is the owner, by the monotonic clock."""

    # -- ownership ---------------------------------------------------------------------------------------

    def adopt_epoch(self, epoch: int) -> None:
        """A newer driver: whatever was staged or open for an older one is gone."""
        with self._locked_by_driver():
            self.refuse_if_older(epoch)
            if epoch > self._epoch:
                self._epoch = epoch
                self._desk.clear()

    def claim(self, topic: Topic, claim: Claim, above: int | None = None) -> None:
        """Become ACTIVE for the claim's epoch, restoring first what is missing.

        ``above``: the highest claim that the driver knows of. Whoever holds a lower one was replaced, maybe without
        having noticed it, and must prove itself again.
        """
        with self._claiming:
            self._stop_tail()
            self._claim(topic, claim, above)

    def _claim(self, topic: Topic, claim: Claim, above: int | None) -> None:
        with self._locked_by_driver():
            if self._retired:
                raise StaleClaimError(
                    f"store {self.config.name} was recreated; partition {self.number} is another one"
                )
            self.adopt_epoch(claim.epoch)
            if self._phase is Phase.ACTIVE and self._claimed is not None:
                if self._claimed.epoch == claim.epoch and (above is None or self._claimed.claim >= above):
                    return  # asked again while the first request was being served
                try:
                    self._activate(renew_claim(self._claimed, claim))
                    return
                except (IndeterminateCommitError, StoreError) as error:
                    self._fail(error)
            if self._phase is Phase.FAILED:
                self._move(Phase.CLOSED)
            opened, self._state = self._state, None
            self._progress = None  # before the phase changes: status() takes no lock
            self._move(Phase.RESTORING)
            self._last_error = None
        try:
            claimed = claim_partition(
                self.config, topic, self.number, self._directory, opened, claim, self._note_progress, self._pool
            )
        except Exception as error:
            with self._lock:
                if opened is not None:
                    self._state = opened  # so that it is closed, and can be opened again
                self._fail(error)
            raise
        with self._lock:
            if claim.epoch < self._epoch:
                self._state = claimed.state
                self._give_up()
                raise StaleEpochError(
                    f"store {self.config.name} partition {self.number}: a driver with epoch {self._epoch} took "
                    f"over while epoch {claim.epoch} was being restored"
                )
            self._move(Phase.ACTIVE)
            self._activate(claimed)

    def release(self) -> None:
        """Give the partition up; what is on disk stays. A restore under way stops at its next chunk."""
        self._stopping = True
        with self._claiming:
            self._stopping = False
            self._let_go()

    def retire(self) -> None:
        """The store was recreated: this object is of the old one, and must not come to life again."""
        self._retired = True
        self.release()

    def _activate(self, claimed: Claimed) -> None:
        self._marker = Marker.decode(claimed.state.marker) if claimed.state.marker is not None else None
        self._state = claimed.state
        self._claimed = claimed
        self._proven = time.monotonic()
        self._dirty_since = self._dirty_since or self._proven
        self._note_disk_position(claimed.state)

    # -- a batch -----------------------------------------------------------------------------------------

    def open_batch(self, batch: OpenBatch) -> bool:
        """Announce a batch. False if this partition is not ready for the driver's epoch."""
        with self._lock:
            ready = self._phase is Phase.ACTIVE and self._claimed is not None
            if not ready or self._claimed.epoch != batch.epoch:  # type: ignore[union-attr]
                return False
            self._desk.open(batch)
            try:
                self._next_due = next_due(self._claimed.state)  # type: ignore[union-attr]
            except StoreError as error:
                self._fail(error)
                return False
            return True

    def close_batch(self, token: str) -> None:
        """The driver is through with the batch; its result may still be recomputed until the next one."""
        with self._locked_by_driver():
            self._desk.close(token)

    @contextmanager
    def reading(self, header: RequestHeader) -> Iterator[TaskRead]:
        """The state before the header's batch, under the lock."""
        with self._lock, self._failing_with_its_store():
            replaying = self._judge(header)
            assert self._state is not None
            assert self._state.meta is not None
            if replaying and not self._state.meta.images_complete:
                raise ReplayImpossibleError(
                    f"store {self.config.name} partition {self.number}: the values from before batch {header.batch} "
                    "were compacted away"
                )
            yield TaskRead(self._state, self._marker, replaying)

    def begin_stage(self, header: RequestHeader) -> StagedWork:
        with self._lock:
            self._judge(header)
            return self._desk.begin_stage()

    def seal_stage(self, header: RequestHeader, work: StagedWork, names: frozenset[str]) -> None:
        """The attempt has handed in everything. Kept until COMMIT, or until its batch is gone."""
        with self._lock:
            try:
                replaying = self._judge(header)
            except ChangelogStateError:
                work.discard()
                raise
            work.seal(names)
            if replaying:
                work.discard()  # its digest is in the ticket; there is nothing to write
            else:
                self._desk.keep(work)

    def commit(self, header: RequestHeader, stage_id: str | None, mutations: bytes) -> dict[str, Any]:
        """The driver says that every task of the batch has succeeded.

        Marker = this batch already: nothing is written; the digests tell whether the function repeated itself.
        Else what was staged is committed. If the outcome is not known, or the local write fails, the partition is
        closed: the log tells the next claim what happened.
        """
        with self._lock:
            if self._judge(header):
                assert self._marker is not None
                return {"replayed": True, "same": self._marker.mutations == mutations}
            if stage_id is None:
                return {"replayed": False, "records": 0}
            work = self._desk.staged(stage_id)
            if work is None:
                raise StagedWorkLostError(
                    f"store {self.config.name} partition {self.number}: staged work {stage_id} is gone; "
                    "the batch runs again"
                )
            writer, state = self._owned()
            try:
                self._marker = commit_batch(writer, state, header, work, self._marker)
            except PartitionPoisonedError as error:
                self._fail(error.__cause__ if isinstance(error.__cause__, Exception) else error)
                raise
            except (IndeterminateCommitError, StoreError) as error:
                self._fail(error)
                raise
            finally:
                self._desk.drop_staged()
            self._proven = time.monotonic()
            self._dirty_since = self._dirty_since or self._proven
            fault_point("commit.after_local_write")
            return {"replayed": False, "records": work.records}

    def clear(self, header_epoch: int) -> int:
        """Delete everything, in the changelog and here, in one transaction; returns how many records."""
        with self._lock:
            if self._phase is not Phase.ACTIVE or header_epoch != self._epoch:
                raise StaleClaimError(f"store {self.config.name} partition {self.number} is not owned here")
            writer, state = self._owned()
            self._desk.clear()
            try:
                cleared = clear_state(writer, state)
            except (IndeterminateCommitError, StoreError) as error:
                self._fail(error)
                raise
            self._marker = None
            return cleared

    # -- reads and status --------------------------------------------------------------------------------

    def read(self, topic: Topic, record_keys: list[bytes], *, stale_ok: bool = False) -> list[bytes | None]:
        with self._readable(topic, stale_ok) as state:
            return state.read(record_keys)

    def scan(
        self, topic: Topic, start: bytes, end: bytes | None, limit: int, *, stale_ok: bool = False
    ) -> list[tuple[bytes, bytes]]:
        with self._readable(topic, stale_ok) as state:
            return list(islice(state.store.scan(start, end), limit))

    @contextmanager
    def _readable(self, topic: Topic, stale_ok: bool) -> Iterator[StateStore]:
        """The store, under the lock: the owner's as it is, a replica's at least as new as the log is now.

        ``stale_ok``: a replica's as it is.
        """
        tail = self._tail
        if tail is not None and not stale_ok and not tail.reach(log_end(self.config, self.number), _FRESH_SECONDS):
            raise StaleClaimError(
                f"store {self.config.name} partition {self.number} is followed here, but was not up to date within "
                f"{_FRESH_SECONDS:.0f} s; read again later, or with stale_ok=True"
            )
        with self._lock, self._failing_with_its_store():
            if self._tail is not None and self._state is None:
                raise StaleClaimError(f"store {self.config.name} partition {self.number} is being restored")
            yield self._state if self._tail is not None and self._state else self._up_to_date(topic)

    def _up_to_date(self, topic: Topic) -> StateStore:
        """The owner answers at once; anyone else first catches up with what is committed."""
        if self._phase is Phase.ACTIVE and self._state is not None:
            return self._state
        if self._retired:
            raise StaleClaimError(f"store {self.config.name} was recreated; partition {self.number} is another one")
        if self._phase is Phase.RESTORING:
            raise StaleClaimError(f"store {self.config.name} partition {self.number} is being restored")
        if self._phase is Phase.FAILED:
            self._move(Phase.CLOSED)
        if self._phase is Phase.CLOSED:
            self._move(Phase.FOLLOWING)
        opened, self._state = self._state, None
        self._reading = True
        try:
            self._state = catch_up(
                self.config, topic, self.number, self._directory, opened, None, self._note_progress, pool=self._pool
            ).state
        except _DriverWaitingError:
            self._give_up()
            raise StaleClaimError(
                f"store {self.config.name} partition {self.number} is being restored for a driver; read again later"
            ) from None
        except Exception as error:
            self._fail(error)
            raise
        finally:
            self._reading = False
        self._marker = Marker.decode(self._state.marker) if self._state.marker is not None else None
        return self._state

    @property
    def is_in_use(self) -> bool:
        """Whether it holds anything, or is about to."""
        return self._state is not None or self._phase in (Phase.ACTIVE, Phase.RESTORING, Phase.FOLLOWING)

    @property
    def is_owned(self) -> bool:
        return self._phase in (Phase.ACTIVE, Phase.RESTORING)

    def lag(self) -> dict[str, Any]:
        """How far behind the log an answer may be: an owner's never is, by its own knowledge."""
        tail = self._tail
        followed = tail.describe() if tail is not None else None
        known = followed or {"lag_records": 0, "lag_seconds": 0.0}
        return {"phase": str(self._phase), "lag_records": known["lag_records"], "lag_seconds": known["lag_seconds"]}

    def status(self) -> dict[str, Any]:
        """Answers without waiting for a commit or a restore that is under way."""
        state = self._state
        meta = state.meta if state is not None else None
        claimed, marker, progress, tail = self._claimed, self._marker, self._progress, self._tail
        batch = self._desk.batch
        followed = tail.describe() if tail is not None else None
        if tail is not None and state is not None and state.marker is not None:
            marker = Marker.decode(state.marker)
        return {
            "partition": self.number,
            "phase": str(self._phase),
            "epoch": claimed.epoch if claimed is not None else None,
            "claim": claimed.claim if claimed is not None else None,
            "position": meta.position if meta else (progress.position if progress else None),
            "disk_position": self._disk_position,
            "last_batch": marker.batch if marker else None,
            "marker": None
            if marker is None
            else {"query": marker.query, "batch": marker.batch, "epoch": marker.epoch},
            "replayable": bool(meta and meta.images_complete),
            "next_due": self._next_due,
            "restore": vars(progress) if progress else None,
            "follower": followed,
            "tailing": tail is not None,
            "batch_running": batch is not None and self._desk.running and self._is_driver_alive(batch.driver),
            "batch_open": None if batch is None else {"query": batch.query, "batch": batch.batch},
            "error": self._last_error,
        }

    def maintain(self, now: float) -> None:
        """Keep what a crash would cost small: flush, and note that nothing was missed."""
        self._notice_if_replaced(now)
        with self._lock:
            if self._phase is not Phase.ACTIVE or self._state is None or self._dirty_since is None:
                return
            if now - self._dirty_since < _FLUSH_AFTER_SECONDS:
                return
            try:
                if now - self._proven < _ASSURE_SECONDS:
                    # The catch-up time goes on only while this is the owner; one that was replaced may not know it.
                    self._state.update_meta(caught_up_ms=int(time.time() * 1000))
                self._state.store.flush()
            except StoreError as error:
                self._fail(error)
                return
            self._dirty_since = now

    def _notice_if_replaced(self, now: float) -> None:
        """An owner that was cut off while another one took over is not told by anybody. The log tells it."""
        claimed = self._claimed
        if claimed is None or claimed.state.meta is None or now - self._proven < _ASSURE_SECONDS:
            return
        position = claimed.state.meta.position
        try:
            replaced = written_by_others(self.config, self.number, position)
        except ChangelogStateError as error:
            logger.info("%s partition %d: ownership not confirmed: %s", self.config.name, self.number, error)
            return
        with self._lock:
            if self._claimed is not claimed or claimed.state.meta.position != position:
                return  # things have moved on meanwhile
            if replaced:
                text = f"store {self.config.name} partition {self.number} was taken by another agent"
                self._fail(StaleClaimError(text))
            else:
                self._proven = now

    # -- inside ------------------------------------------------------------------------------------------

    def _judge(self, header: RequestHeader) -> bool:
        """Whether the header's batch is in the state already. Raises if it must not be served at all."""
        self.refuse_if_older(header.epoch)
        where = f"store {self.config.name} partition {self.number}"
        if self._phase is not Phase.ACTIVE or self._claimed is None or self._claimed.claim != header.claim:
            raise StaleClaimError(f"{where} is not owned here under claim {header.claim} (it is {self._phase})")
        batch = self._desk.batch
        if batch is None or batch.token != header.token:
            raise BatchSupersededError(
                f"{where}: batch {header.batch} would have to be recomputed, but "
                + (f"batch {batch.batch} has begun since" if batch else "no batch is open")
                + "; write the result of apply() inside its own batch"
            )
        marker = self._marker
        return marker is not None and marker.query == header.query and marker.batch == header.batch

    def _owned(self) -> tuple[ChangelogWriter, StateStore]:
        if self._claimed is None:
            raise StaleClaimError(f"store {self.config.name} partition {self.number} is not owned here")
        return self._claimed.writer, self._claimed.state

    def _note_progress(self, progress: ReplayProgress) -> None:
        self._progress = progress
        if self._reading and self._drivers_waiting:
            raise _DriverWaitingError
        if self._stopping:
            raise StaleClaimError(f"store {self.config.name} partition {self.number} was released")

    @contextmanager
    def _locked_by_driver(self) -> Iterator[None]:
        """The lock, for a driver: a read that is catching up under it ends at its next step, and leaves the rest."""
        waiting = object()
        self._drivers_waiting.add(waiting)
        with self._lock:
            self._drivers_waiting.discard(waiting)
            yield
