"""What a store's list of files was when it was closed.

RocksDB takes a list that was cut short for one that a crash cut short, and opens an older state without a word.
That is no loss, as the changelog has the rest; but a store that was closed and has shrunk since is damaged, and
someone should hear of it. A process that is killed leaves no seal: a crash may cut what it likes.
"""

from __future__ import annotations

from pathlib import Path

from changelog_state.errors import CorruptStoreError

__all__ = ["break_seal", "check_seal", "write_seal"]


def write_seal(database: Path) -> None:
    """After closing."""
    manifest = database / (database / "CURRENT").read_text().strip()
    _seal(database).write_text(f"{manifest.name} {manifest.stat().st_size}")


def check_seal(database: Path) -> None:
    """Looks only."""
    try:
        name, _, size = _seal(database).read_text().partition(" ")
        found = (database / name).stat().st_size
    except FileNotFoundError:
        return  # not closed, or replaced since
    if found < int(size):
        raise CorruptStoreError(
            f"local store is damaged: {database} ({name} has {found} bytes, but had {size} when the store was closed)"
        )


def break_seal(database: Path) -> None:
    """Before opening."""
    _seal(database).unlink(missing_ok=True)


def _seal(database: Path) -> Path:
    return database.with_name(f"{database.name}.seal")
