"""Keyed state for Spark ``foreachBatch``: local RocksDB stores, a compacted Kafka changelog, exactly once."""

from changelog_state._version import __version__
from changelog_state.errors import *  # noqa: F403
from changelog_state.errors import __all__ as _errors
from changelog_state.service import StateService
from changelog_state.state.handle import State
from restore.listener import RestoreListener

__all__ = ["RestoreListener", "State", "StateService", "__version__", *_errors]
