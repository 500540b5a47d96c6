"""Whether a store was made from this log: its marker must be the record at the marker's offset."""

from __future__ import annotations

from changelog_state.changelog.reader import ChangelogReader
from changelog_state.codec.kinds import MARKER
from changelog_state.store.meta import StoreMeta

__all__ = ["marker_stands"]


def marker_stands(reader: ChangelogReader, meta: StoreMeta | None, marker: bytes | None, high: int) -> bool:
    """Compaction may have removed the record, a rival never changes it."""
    offset = meta.marker_offset if meta else None
    if offset is None:
        return True
    low, _ = reader.bounds()
    message = reader.record_at(max(offset, low), high)
    if message is None or message.offset() != offset:
        return True
    return bool(message.key() == MARKER and message.value() == marker)
