"""What a local store knows about itself, in one small value written together with the data it describes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from changelog_state.codec.kinds import META
from changelog_state.config import FORMAT_VERSION
from changelog_state.errors import ChangelogMismatchError

__all__ = ["META_KEY", "StoreMeta"]

META_KEY = META + b"meta"


@dataclass(frozen=True)
class StoreMeta:
    topic_id: str
    """Kafka's id of the changelog topic: a recreated topic has another one."""
    position: int
    """The next changelog offset this store has to read."""
    marker_offset: int | None = None
    """Where the stored marker stands in the changelog."""
    images_begin: int | None = None
    """The begin of the batch that the before-images belong to."""
    images_complete: bool = False
    """The images are proven to be those of the stored marker's batch, so it can be replayed."""
    caught_up_ms: int = 0
    """When the store last held everything that was in the changelog."""
    format: int = FORMAT_VERSION

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> StoreMeta:
        """Refuses what a newer version of this library wrote, before its fields surprise anyone."""
        fields = json.loads(data)
        if fields["format"] > FORMAT_VERSION:
            raise ChangelogMismatchError(
                f"local store has format {fields['format']}, this library knows up to {FORMAT_VERSION}; "
                "upgrade it here"
            )
        return cls(**fields)
