"""Keyed state for Spark ``foreachBatch``: local RocksDB stores, a compacted Kafka changelog, exactly once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from changelog_state._version import __version__
from changelog_state.errors import *  # noqa: F403
from changelog_state.errors import __all__ as _errors

if TYPE_CHECKING:
    from changelog_state.aggregation.functions.adding import mean, sum
    from changelog_state.aggregation.functions.base import Aggregate
    from changelog_state.aggregation.functions.collecting import collect, top
    from changelog_state.aggregation.functions.counting import count
    from changelog_state.aggregation.functions.distinct import approx_distinct
    from changelog_state.aggregation.functions.extremes import max, min
    from changelog_state.aggregation.functions.moments import stddev, variance
    from changelog_state.aggregation.functions.picking import first, last
    from changelog_state.inputs import union_inputs
    from changelog_state.kafka_output import KafkaOutput
    from changelog_state.metrics import BatchSummary
    from changelog_state.schemas.classes import aliased
    from changelog_state.service import StateService
    from changelog_state.state.handle import State
    from changelog_state.state.ttl import Ttl
    from changelog_state.state.variables import List, Map, Value
    from changelog_state.tables.table import GlobalTable
    from changelog_state.windows import Hopping, Session, Sliding, Tumbling, Window
    from restore.figures import RestoreFigures
    from restore.listener import RestoreListener

__all__ = [
    "Aggregate",
    "BatchSummary",
    "GlobalTable",
    "KafkaOutput",
    "Hopping",
    "List",
    "Map",
    "RestoreFigures",
    "RestoreListener",
    "Session",
    "Sliding",
    "State",
    "StateService",
    "Ttl",
    "Tumbling",
    "Value",
    "Window",
    "__version__",
    "aliased",
    "approx_distinct",
    "collect",
    "count",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "stddev",
    "sum",
    "top",
    "variance",
    "union_inputs",
    *_errors,
]

# Imported when first asked for: the lower layers are imported through this package too, by processes that need
# little of it and want it soon.
_HOMES = {
    "Aggregate": "changelog_state.aggregation.functions.base",
    "BatchSummary": "changelog_state.metrics",
    "GlobalTable": "changelog_state.tables.table",
    "KafkaOutput": "changelog_state.kafka_output",
    "Hopping": "changelog_state.windows",
    "List": "changelog_state.state.variables",
    "Map": "changelog_state.state.variables",
    "RestoreFigures": "restore.figures",
    "RestoreListener": "restore.listener",
    "Session": "changelog_state.windows",
    "Sliding": "changelog_state.windows",
    "State": "changelog_state.state.handle",
    "StateService": "changelog_state.service",
    "Ttl": "changelog_state.state.ttl",
    "Tumbling": "changelog_state.windows",
    "Value": "changelog_state.state.variables",
    "aliased": "changelog_state.schemas.classes",
    "approx_distinct": "changelog_state.aggregation.functions.distinct",
    "collect": "changelog_state.aggregation.functions.collecting",
    "count": "changelog_state.aggregation.functions.counting",
    "first": "changelog_state.aggregation.functions.picking",
    "last": "changelog_state.aggregation.functions.picking",
    "max": "changelog_state.aggregation.functions.extremes",
    "mean": "changelog_state.aggregation.functions.adding",
    "min": "changelog_state.aggregation.functions.extremes",
    "stddev": "changelog_state.aggregation.functions.moments",
    "sum": "changelog_state.aggregation.functions.adding",
    "top": "changelog_state.aggregation.functions.collecting",
    "variance": "changelog_state.aggregation.functions.moments",
    "Window": "changelog_state.windows",
    "union_inputs": "changelog_state.inputs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(_HOMES[name]), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
