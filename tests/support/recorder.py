"""A listener that remembers what it was told."""

from __future__ import annotations

import changelog_state as cs
from restore.figures import RestoreFigures


class Recorder(cs.RestoreListener):
    def __init__(self) -> None:
        self.events: list[tuple[str, RestoreFigures]] = []
        self.errors: list[Exception] = []

    def kinds(self, partition: int = 0) -> list[str]:
        """Without ``batch``, of which there may be any number."""
        return [kind for kind, figures in self.events if figures.partition == partition and kind != "batch"]

    def of(self, kind: str, partition: int = 0) -> list[RestoreFigures]:
        return [figures for told, figures in self.events if (told, figures.partition) == (kind, partition)]

    def on_restore_start(self, figures: RestoreFigures) -> None:
        self.events.append(("start", figures))

    def on_batch(self, figures: RestoreFigures) -> None:
        self.events.append(("batch", figures))

    def on_end(self, figures: RestoreFigures) -> None:
        self.events.append(("end", figures))

    def on_suspended(self, figures: RestoreFigures) -> None:
        self.events.append(("suspended", figures))

    def on_failed(self, figures: RestoreFigures, error: Exception) -> None:
        self.events.append(("failed", figures))
        self.errors.append(error)
