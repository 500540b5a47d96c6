"""One partition at its agent: its phase, and every request judged under its lock."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from changelog_state.agent.claiming import Claimed, claim_partition, renew_claim, written_by_others
from changelog_state.agent.committing import clear_state, commit_batch
from changelog_state.agent.key_reading import FoundValues, read_keys
from changelog_state.agent.messages import StagedWorkLostError
from changelog_state.agent.phases import Phase, check_move
from changelog_state.agent.staging import StagedWork, StagingBudget
from changelog_state.changelog.record import Claim, Marker
from changelog_state.changelog.topic import Topic
from changelog_state.changelog.writer import ChangelogWriter, IndeterminateCommitError
from changelog_state.config import StoreConfig
from changelog_state.errors import (
    BatchSupersededError,
    ChangelogStateError,
    CorruptStoreError,
    PartitionPoisonedError,
    ReplayImpossibleError,
    StaleClaimError,
    StaleEpochError,
    StoreError,
)
from changelog_state.faults import fault_point
from changelog_state.requests import RequestHeader
from changelog_state.store.directory import PartitionDirectory
from changelog_state.store.state_store import StateStore
from restore.bulk_pool import BulkPool
from restore.catch_up import catch_up
from restore.replay import ReplayProgress

__all__ = ["OpenBatch", "Partition"]

logger = logging.getLogger(__name__)

_FLUSH_AFTER_SECONDS = 600.0


@dataclass(frozen=True)
class OpenBatch:
    """What the driver's gate announced: only requests with this token are served."""

    query: str
    batch: int
    epoch: int
    token: str
    driver_pid: int


class _DriverWaitingError(Exception):
    """Raised inside a read's catching up, to end it."""


class Partition:
    def __init__(
        self,
        config: StoreConfig,
        number: int,
        directory: PartitionDirectory,
        budget: StagingBudget,
        pool: BulkPool,
    ) -> None:
        self.config = config
        self.number = number
        self._directory = directory
        self._budget = budget
        self._pool = pool
        self._lock = threading.RLock()
        self._claiming = threading.Lock()
        self._stopping = False
        self._retired = False
        self._reading = False
        self._drivers_waiting: set[object] = set()
        self._phase = Phase.CLOSED
        self._epoch = 0
        self._claimed: Claimed | None = None
        self._state: StateStore | None = None
        self._marker: Marker | None = None
        self._open: OpenBatch | None = None
        self._running = False
        self._staged: dict[str, StagedWork] = {}
        self._progress: ReplayProgress | None = None
        self._last_error: dict[str, str] | None = None
        self._dirty_since: float | None = None

    # -- ownership ---------------------------------------------------------------------------------------

    def adopt_epoch(self, epoch: int) -> None:
        """A newer driver: whatever was staged or open for an older one is gone."""
        with self._locked_by_driver():
            if epoch < self._epoch:
                raise StaleEpochError(
                    f"store {self.config.name} partition {self.number}: a driver with epoch {self._epoch} has "
                    f"taken over from epoch {epoch}; the older driver must stop"
                )
            if epoch > self._epoch:
                self._epoch = epoch
                self._drop_batch()

    def claim(self, topic: Topic, claim: Claim) -> None:
        """Become ACTIVE for the claim's epoch, restoring first what is missing."""
        with self._claiming:
            self._claim(topic, claim)

    def _claim(self, topic: Topic, claim: Claim) -> None:
        with self._locked_by_driver():
            if self._retired:
                raise StaleClaimError(
                    f"store {self.config.name} was recreated; partition {self.number} is another one"
                )
            self.adopt_epoch(claim.epoch)
            if self._phase is Phase.ACTIVE and self._claimed is not None:
                if self._claimed.epoch == claim.epoch:
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
        with self._claiming, self._lock:
            self._stopping = False
            if self._phase in (Phase.ACTIVE, Phase.FOLLOWING):
                self._give_up()

    def retire(self) -> None:
        """The store was recreated: this object is of the old one, and must not come to life again."""
        self._retired = True
        self.release()

    def _give_up(self) -> None:
        """CLOSED, also if closing fails: what was not flushed is in the changelog."""
        try:
            self._close_store()
        except StoreError as error:
            logger.error("%s partition %d: %s", self.config.name, self.number, error)
        self._move(Phase.CLOSED)

    def _activate(self, claimed: Claimed) -> None:
        self._marker = Marker.decode(claimed.state.marker) if claimed.state.marker is not None else None
        self._state = claimed.state
        self._claimed = claimed
        self._dirty_since = self._dirty_since or time.monotonic()

    # -- a batch -----------------------------------------------------------------------------------------

    def open_batch(self, batch: OpenBatch) -> bool:
        """Announce a batch. False if this partition is not ready for the driver's epoch."""
        with self._lock:
            ready = self._phase is Phase.ACTIVE and self._claimed is not None
            if not ready or self._claimed.epoch != batch.epoch:  # type: ignore[union-attr]
                return False
            self._drop_batch()
            self._open, self._running = batch, True
            return True

    def close_batch(self, token: str) -> None:
        """The driver is through with the batch; its result may still be recomputed until the next one."""
        with self._lock:
            if self._open is not None and self._open.token == token:
                self._running = False
                self._drop_staged()

    def get(self, header: RequestHeader, keys: list[bytes]) -> FoundValues:
        """Values of these keys before the header's batch."""
        with self._lock, self._failing_with_its_store():
            replaying = self._judge(header)
            assert self._state is not None
            assert self._state.meta is not None
            if replaying and not self._state.meta.images_complete:
                raise ReplayImpossibleError(
                    f"store {self.config.name} partition {self.number}: the values from before batch {header.batch} "
                    "were compacted away"
                )
            return read_keys(self._state, self._marker, keys, before=replaying)

    def begin_stage(self, header: RequestHeader) -> StagedWork:
        with self._lock:
            self._judge(header)
            return StagedWork(self._budget)

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
                self._staged[work.stage_id] = work

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
            work = self._staged.get(stage_id)
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
                self._drop_staged()
            self._dirty_since = self._dirty_since or time.monotonic()
            fault_point("commit.after_local_write")
            return {"replayed": False, "records": work.records}

    def clear(self, header_epoch: int) -> int:
        """Delete everything, in the changelog and here, in one transaction; returns how many records."""
        with self._lock:
            if self._phase is not Phase.ACTIVE or header_epoch != self._epoch:
                raise StaleClaimError(f"store {self.config.name} partition {self.number} is not owned here")
            writer, state = self._owned()
            self._drop_batch()
            try:
                cleared = clear_state(writer, state)
            except (IndeterminateCommitError, StoreError) as error:
                self._fail(error)
                raise
            self._marker = None
            return cleared

    # -- reads and status --------------------------------------------------------------------------------

    def read(self, topic: Topic, record_keys: list[bytes]) -> list[bytes | None]:
        with self._lock, self._failing_with_its_store():
            return self._readable(topic).read(record_keys)

    def scan(self, topic: Topic, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, bytes]]:
        with self._lock, self._failing_with_its_store():
            found = []
            for entry in self._readable(topic).store.scan(start, end):
                found.append(entry)
                if len(found) >= limit:
                    break
            return found

    def _readable(self, topic: Topic) -> StateStore:
        """The owner answers at once; anyone else first catches up with what is committed."""
        if self._phase is Phase.ACTIVE and self._state is not None:
            return self._state
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

    def status(self) -> dict[str, Any]:
        """Answers without waiting for a commit or a restore that is under way."""
        meta = self._state.meta if self._state is not None else None
        claimed, marker, progress, batch = self._claimed, self._marker, self._progress, self._open
        return {
            "partition": self.number,
            "phase": str(self._phase),
            "epoch": claimed.epoch if claimed is not None else None,
            "claim": claimed.claim if claimed is not None else None,
            "position": meta.position if meta else (progress.position if progress else None),
            "last_batch": marker.batch if marker else None,
            "marker": None
            if marker is None
            else {"query": marker.query, "batch": marker.batch, "epoch": marker.epoch},
            "replayable": bool(meta and meta.images_complete),
            "restore": vars(progress) if progress else None,
            "batch_running": batch is not None and self._running and _alive(batch.driver_pid),
            "batch_open": None if batch is None else {"query": batch.query, "batch": batch.batch},
            "error": self._last_error,
        }

    def maintain(self, now: float) -> None:
        """Keep what a crash would cost small: flush, and note that nothing was missed."""
        with self._lock:
            if self._phase is not Phase.ACTIVE or self._state is None or self._dirty_since is None:
                return
            if now - self._dirty_since < _FLUSH_AFTER_SECONDS:
                return
            try:
                self._note_nothing_missed(self._state)
                self._state.store.flush()
            except (StoreError, StaleClaimError) as error:
                self._fail(error)
                return
            self._dirty_since = now

    def _note_nothing_missed(self, state: StateStore) -> None:
        """The catch-up time goes on only while this is the owner; one that was replaced may not know it."""
        assert state.meta is not None
        now_ms = int(time.time() * 1000)
        try:
            replaced = written_by_others(self.config, self.number, state.meta.position)
        except ChangelogStateError as error:
            logger.info("%s partition %d: catch-up time not renewed: %s", self.config.name, self.number, error)
            return
        if replaced:
            raise StaleClaimError(f"store {self.config.name} partition {self.number} was taken by another agent")
        state.update_meta(caught_up_ms=now_ms)

    # -- inside ------------------------------------------------------------------------------------------

    def _judge(self, header: RequestHeader) -> bool:
        """Whether the header's batch is in the state already. Raises if it must not be served at all."""
        where = f"store {self.config.name} partition {self.number}"
        if header.epoch < self._epoch:
            raise StaleEpochError(
                f"{where}: a driver with epoch {self._epoch} has taken over from epoch {header.epoch}; "
                "the older driver must stop"
            )
        if self._phase is not Phase.ACTIVE or self._claimed is None or self._claimed.claim != header.claim:
            raise StaleClaimError(f"{where} is not owned here under claim {header.claim} (it is {self._phase})")
        if self._open is None or self._open.token != header.token:
            raise BatchSupersededError(
                f"{where}: batch {header.batch} would have to be recomputed, but "
                + (f"batch {self._open.batch} has begun since" if self._open else "no batch is open")
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

    @contextmanager
    def _failing_with_its_store(self) -> Iterator[None]:
        """A store that cannot be read is closed, so that the next claim mends it."""
        try:
            yield
        except StoreError as error:
            if self._phase is not Phase.FAILED:
                self._fail(error)
            raise

    def _move(self, phase: Phase) -> None:
        self._phase = check_move(self._phase, phase)

    def _fail(self, error: Exception) -> None:
        """Close after something went wrong; the reason stays visible until the next claim."""
        self._last_error = {"class": type(error).__name__, "message": str(error)}
        logger.error("%s partition %d failed: %s: %s", self.config.name, self.number, *self._last_error.values())
        try:
            self._close_store()
        except StoreError as close_error:
            logger.error("%s partition %d: closing failed too: %s", self.config.name, self.number, close_error)
        self._move(Phase.FAILED)
        if isinstance(error, CorruptStoreError) and self._directory.exists():
            moved = self._directory.move_aside("corrupt")
            logger.error("%s partition %d: moved to %s", self.config.name, self.number, moved)

    def _close_store(self) -> None:
        self._drop_batch()
        state, self._state = self._state, None
        self._claimed = None
        self._marker = None
        self._dirty_since = None
        if state is not None:
            state.store.close()

    def _drop_batch(self) -> None:
        self._open, self._running = None, False
        self._drop_staged()

    def _drop_staged(self) -> None:
        for work in self._staged.values():
            work.discard()
        self._staged.clear()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
