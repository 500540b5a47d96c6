"""How far the query has come, by its checkpoint: Spark's own record of what is done."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["last_committed_batch", "offsets_of_batch"]


def last_committed_batch(checkpoint: Path) -> int | None:
    """The newest batch in the commit log, None if there is none yet."""
    try:
        return max(
            (int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit()), default=None
        )
    except FileNotFoundError:
        return None


def offsets_of_batch(checkpoint: Path, batch: int, topic: str) -> dict[int, int]:
    """Where a batch ends, per partition of the topic.

    The file has a version, the batch's own metadata, and then a line per source.
    """
    *_, source = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    return {int(partition): int(offset) for partition, offset in json.loads(source)[topic].items()}
