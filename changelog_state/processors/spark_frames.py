"""Arrow to pandas and back by Spark's own rules. The only module that uses pyspark's private code for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.pandas.serializers import ArrowStreamPandasUDFSerializer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FrameRules", "SparkFrames"]


@dataclass(frozen=True)
class FrameRules:
    """What a Spark session says of frames; as Spark has it if nothing is said."""

    timezone: str = "UTC"
    checks_overflow: bool = False
    by_name: bool = True
    """Output columns are matched by their names, if these are strings; else by position."""

    @classmethod
    def of(cls, spark: SparkSession) -> FrameRules:
        def is_on(name: str, default: str) -> bool:
            return str(spark.conf.get(name, default)).lower() == "true"

        return cls(
            str(spark.conf.get("spark.sql.session.timeZone")),
            is_on("spark.sql.execution.pandas.convertToArrowArraySafely", "false"),
            is_on("spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName", "true"),
        )


class SparkFrames:
    def __init__(self, rules: FrameRules) -> None:
        self._serializer: Any = ArrowStreamPandasUDFSerializer(rules.timezone, rules.checks_overflow, rules.by_name)

    def column(self, values: pa.Array, name: str) -> pd.Series[Any]:
        # A chunked array has a name for the series, and is what Spark converts.
        column = pa.table([values], names=[name]).column(0)
        found: pd.Series[Any] = self._serializer.arrow_to_pandas(column)
        return found.rename(name)

    def arrow(self, frame: pd.DataFrame, schema: pa.StructType) -> list[pa.Array]:
        """The columns of a processor's output. Raises what Spark would raise."""
        [struct] = self._serializer._create_batch((frame, schema)).columns
        return struct.flatten()  # type: ignore[no-any-return]
