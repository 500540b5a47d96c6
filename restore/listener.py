"""What a program can be told while the driver waits for a restore."""

from __future__ import annotations

import logging

from restore.figures import RestoreFigures
from restore.restore_events import RestoreEvent

__all__ = ["RestoreListener", "notify"]

logger = logging.getLogger(__name__)


class RestoreListener:
    """Override what you need; ``figures`` has ``partition``, ``position``, ``end``, ``records``, ``eta_seconds`` …

    Called in the driver, in the thread that waits, about twice a second at most: be quick. What a listener raises is
    logged, and does not fail the batch.
    """

    def on_restore_start(self, figures: RestoreFigures) -> None:
        """A partition is being restored, from ``figures.start`` on."""

    def on_batch(self, figures: RestoreFigures) -> None:
        """More of it has been restored."""

    def on_end(self, figures: RestoreFigures) -> None:
        """The partition is restored."""

    def on_suspended(self, figures: RestoreFigures) -> None:
        """Its agent was lost, or gave it up, in the middle. Another start follows, or the deadline does."""

    def on_failed(self, figures: RestoreFigures, error: Exception) -> None:
        """The restore failed. It is tried again if that may help."""


def notify(listener: RestoreListener, event: RestoreEvent) -> None:
    try:
        match event.kind:
            case "start":
                listener.on_restore_start(event.figures)
            case "batch":
                listener.on_batch(event.figures)
            case "end":
                listener.on_end(event.figures)
            case "suspended":
                listener.on_suspended(event.figures)
            case "failed":
                assert event.error is not None
                listener.on_failed(event.figures, event.error)
    except Exception:
        logger.exception("the restore listener failed at %s of partition %d", event.kind, event.figures.partition)
