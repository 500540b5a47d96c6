"""Which partitions a command is about: ``0-3,7``."""

from __future__ import annotations

import re

from changelog_state.errors import ConfigurationError

__all__ = ["parse_partitions"]

_PART = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")


def parse_partitions(text: str | None, count: int) -> list[int]:
    """The numbers named, in order and once each; all of them if nothing is named."""
    if text is None:
        return list(range(count))
    chosen: set[int] = set()
    for part in text.split(","):
        matched = _PART.fullmatch(part)
        if matched is None:
            raise ConfigurationError(f"partitions are given as {text!r}; use numbers and ranges, like 0-3,7")
        first, last = int(matched[1]), int(matched[2] or matched[1])
        if first > last:
            raise ConfigurationError(f"partitions {part.strip()!r} go downwards; write {last}-{first}")
        if last >= count:
            raise ConfigurationError(f"there is no partition {last}; this store has 0 to {count - 1}")
        chosen.update(range(first, last + 1))
    return sorted(chosen)
