"""Rows that tasks have found too late, on their way out beside the others: in one more column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import StructField, StructType, TimestampType

from changelog_state.errors import ConfigurationError
from changelog_state.task.spec import LATE_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["late_field", "split_late"]

_WINDOW = StructType([StructField("start", TimestampType()), StructField("end", TimestampType())])


def late_field(df: DataFrame) -> StructField:
    """For rows of ``df`` as they are, and the window."""
    if "window" in df.columns:
        raise ConfigurationError(
            "late='side_output' says in a column 'window' for which window a row was too late, but the DataFrame has "
            "one of this name already; rename it"
        )
    late = StructType([*df.schema.fields, StructField("window", _WINDOW)])
    return StructField(LATE_COLUMN, late)


def split_late(rows: DataFrame) -> tuple[DataFrame, DataFrame]:
    late = F.col(LATE_COLUMN)
    return rows.where(late.isNull()).drop(late), rows.where(late.isNotNull()).select(f"{LATE_COLUMN}.*")
