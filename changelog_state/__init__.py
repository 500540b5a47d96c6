"""Keyed state for Spark ``foreachBatch``: local RocksDB stores, a compacted Kafka changelog, exactly once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from changelog_state._version import __version__
from changelog_state.errors import *  # noqa: F403
from changelog_state.errors import __all__ as _errors

if TYPE_CHECKING:
    from changelog_state.service import StateService
    from changelog_state.state.handle import State
    from changelog_state.tables.table import GlobalTable
    from restore.figures import RestoreFigures
    from restore.listener import RestoreListener

__all__ = ["GlobalTable", "RestoreFigures", "RestoreListener", "State", "StateService", "__version__", *_errors]

# Imported when first asked for: the lower layers are imported through this package too, by processes that need
# little of it and want it soon.
_HOMES = {
    "GlobalTable": "changelog_state.tables.table",
    "RestoreFigures": "restore.figures",
    "RestoreListener": "restore.listener",
    "State": "changelog_state.state.handle",
    "StateService": "changelog_state.service",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(_HOMES[name]), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
