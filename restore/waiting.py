"""One gate that has to wait: what it has seen of the partitions, shown, told to the listener, and put into words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from restore.claim_failures import error_of
from restore.figures import RestoreFigures
from restore.listener import RestoreListener, notify
from restore.progress import RestoreDisplay
from restore.restore_events import RestoreEvent, RestoreWatch, Sighting

__all__ = ["RestoreWait", "figures_of", "is_ready", "not_ready_text"]

Status = Mapping[str, Any]
_QUIET_SECONDS = 2.0
"""An ordinary short claim is over by then, and needs no words."""


class RestoreWait:
    """Costs nothing as long as ``saw`` is not called."""

    def __init__(self, store: str, epoch: int, listener: RestoreListener, *, show: bool) -> None:
        self._store = store
        self._epoch = epoch
        self._listener = listener
        self._show = show
        self._watch = RestoreWatch()
        self._display: RestoreDisplay | None = None
        self._owners: dict[int, str] = {}
        self.latest: dict[int, Status] = {}
        self.last_errors: dict[int, str] = {}
        """Also of failures that were followed by another attempt."""

    @property
    def begun(self) -> bool:
        return bool(self.latest)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._display is not None:
            self._display.__exit__(kind, error, trace)

    def saw(self, statuses: Iterable[Status], owners: Mapping[int, str]) -> None:
        """What agents have just answered."""
        found = {status["partition"]: status for status in statuses}
        self.latest |= found
        self._owners |= {p: owners[p] for p in found}
        self.last_errors |= {p: status["error"]["message"] for p, status in found.items() if status["error"]}
        self._tell(self._watch.observe(_sighting(status, owners[p]) for p, status in found.items()))

    def lost(self, owner: str, error: Exception) -> None:
        """An agent does not answer."""
        for p in [p for p, held_by in self._owners.items() if held_by == owner]:
            del self._owners[p]
            self.latest[p] = {**self.latest[p], "phase": f"LOST (it was {self.latest[p]['phase']})"}
            self.last_errors[p] = str(error)
        self._tell(self._watch.lose(owner))

    def _tell(self, events: Iterable[RestoreEvent]) -> None:
        for event in events:
            notify(self._listener, event)
        if self._show:
            if self._display is None:
                self._display = RestoreDisplay(f"restoring {self._store}", quiet_seconds=_QUIET_SECONDS)
            not_ready = {p for p, status in self.latest.items() if not is_ready(status, self._epoch)}
            self._display.update(self._watch.figures.values(), waiting=len(not_ready - self._watch.figures.keys()))


def is_ready(status: Status, epoch: int) -> bool:
    return bool(status["phase"] == "ACTIVE" and status["epoch"] == epoch)


def figures_of(status: Status) -> RestoreFigures | None:
    """Of the latest restore, which may be over."""
    if status["restore"] is None:
        return None
    return RestoreFigures.of(status["partition"], status["phase"], status["restore"])


def not_ready_text(
    store: str,
    limit_seconds: float,
    partitions: Iterable[int],
    latest: Mapping[int, Status],
    last_errors: Mapping[int, str],
    unavailable: Exception | None = None,
    tables: Iterable[str] = (),
) -> str:
    """What a gate says that gives up: each partition and what it waits for; ``tables``: that in words already."""
    others = None if unavailable is None else str(unavailable)
    waiting = [_waiting_text(p, latest.get(p), last_errors.get(p, others)) for p in partitions]
    waiting += tables
    return (
        f"store {store} was not ready within {limit_seconds:g} s: "
        + "; ".join(waiting)
        + ". No event of the batch was processed, and a retry goes on from where the restore stands; "
        "raise restore_timeout_seconds (or apply's timeout) if it only needs more time"
    )


def _waiting_text(partition: int, status: Status | None, last_error: str | None) -> str:
    if status is None:
        text = f"partition {partition}: no agent has answered for it"
    else:
        # A partition that is closed may have figures of a restore that was over long ago.
        restore = status["restore"] if status["phase"] not in ("CLOSED", "FOLLOWING", "ACTIVE") else None
        text = f"partition {partition} is {status['phase']} at position {_known(status['position'])}"
        text += f" of end offset {_known(restore['end'] if restore else None)}"
    return text + (f", last error: {last_error}" if last_error else "")


def _known(offset: int | None) -> str:
    return "unknown" if offset is None else str(offset)


def _sighting(status: Status, owner: str) -> Sighting:
    error = error_of(status["error"]) if status["error"] else None
    return Sighting(status["partition"], owner, status["phase"], figures_of(status), error)
