"""Spark's own stateful operators, doing the same: a running count per user."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame

__all__ = ["COUNT_SCHEMA", "PEERS", "missing_requirement"]

COUNT_SCHEMA = "user_id string, total long"

# The functions and classes that run in workers are local ones: cloudpickle sends them by value then.


def jvm_aggregation(events: DataFrame) -> DataFrame:
    return events.groupBy("user_id").count()


def apply_in_pandas_with_state(events: DataFrame) -> DataFrame:
    import pandas as pd

    def count(key: tuple[str], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        [total] = state.get if state.exists else (0,)
        total += sum(len(frame) for frame in frames)
        state.update((total,))
        yield pd.DataFrame({"user_id": [key[0]], "total": [total]})

    return events.groupBy("user_id").applyInPandasWithState(count, COUNT_SCHEMA, "total long", "update", "NoTimeout")


def transform_with_state_in_pandas(events: DataFrame) -> DataFrame:
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Count(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self._total = handle.getValueState("total", "total long")

        def handleInputRows(  # noqa: N802 (Spark's name)
            self, key: tuple[str], rows: Iterator[pd.DataFrame], timer_values: Any
        ) -> Iterator[pd.DataFrame]:
            stored = self._total.get()
            total = (stored[0] if stored is not None else 0) + sum(len(frame) for frame in rows)
            self._total.update((total,))
            yield pd.DataFrame({"user_id": [key[0]], "total": [total]})

        def close(self) -> None:
            pass

    return events.groupBy("user_id").transformWithStateInPandas(
        Count(), outputStructType=COUNT_SCHEMA, outputMode="Update", timeMode="None"
    )


PEERS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "spark-jvm-agg": jvm_aggregation,
    "spark-apply-pandas": apply_in_pandas_with_state,
    "spark-tws-pandas": transform_with_state_in_pandas,
}


def missing_requirement(system: str) -> str | None:
    """The package that this peer needs and that is not installed."""
    if system == "spark-tws-pandas":
        try:
            found = importlib.util.find_spec("google.protobuf")
        except ModuleNotFoundError:
            found = None
        return None if found is not None else "protobuf"
    return None
