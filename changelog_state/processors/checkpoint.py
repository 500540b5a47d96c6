"""A stopped Spark query's checkpoint, by Spark's own readers: which query, how far it came, what its state is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import ArrayType, MapType, StructType

from changelog_state.errors import ConfigurationError, InvalidInputError
from changelog_state.processors.imported import ImportedState, Kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Checkpoint", "first_line"]

_TTL: Final = "ttlExpirationMs"
_KINDS: Final[dict[str, Kind]] = {"ValueState": "value", "ListState": "list", "MapState": "map"}
_COLUMNS: Final[dict[Kind, str]] = {"value": "value", "list": "list_value", "map": "map_value"}
_TIMERS: Final = "TimerState"


@dataclass(frozen=True)
class Checkpoint:
    spark: SparkSession
    path: str
    operator_id: int
    query: str
    batch: int
    """The last one that the query has committed."""
    watermark_ms: int
    """Before that batch."""
    next_watermark_ms: int
    operator: str
    properties: dict[str, Any]

    @classmethod
    def read(cls, spark: SparkSession, path: str, operator_id: int) -> Checkpoint:
        path = path.rstrip("/")
        try:
            [query] = _json_lines(spark, f"{path}/metadata")
            operators = spark.read.format("state-metadata").load(path).collect()
            found = next((row for row in operators if row.operatorId == operator_id), None)
            if found is None:
                known = {row.operatorId: row.operatorName for row in operators}
                raise ConfigurationError(
                    f"checkpoint {path} has no stateful operator {operator_id}, only {known}; give operator_id= one "
                    "of these"
                    if known
                    else f"checkpoint {path} has no state: its query has no stateful operator, or its directory "
                    "'state' was left out of a copy; give the whole checkpoint of a stateful query"
                )
            if found.maxBatchId < 0:
                raise InvalidInputError(
                    f"the query of checkpoint {path} has not committed a batch: nothing to import"
                )
            [commit] = _json_lines(spark, f"{path}/commits/{found.maxBatchId}")
            planned, *_ = _json_lines(spark, f"{path}/offsets/{found.maxBatchId}")
        except (PySparkException, ValueError) as error:
            raise ConfigurationError(
                f"checkpoint {path} cannot be read: {first_line(error)}; give the checkpointLocation of a Spark "
                "query that was stopped"
            ) from error
        return cls(
            spark,
            path,
            operator_id,
            query["id"],
            found.maxBatchId,
            planned.get("batchWatermarkMs", 0),
            commit.get("nextBatchWatermarkMs", 0),
            found.operatorName,
            json.loads(found.operatorProperties or "{}"),
        )

    @property
    def is_transform_with_state(self) -> bool:
        return "stateVariables" in self.properties

    @property
    def by_event_time(self) -> bool:
        return str(self.properties.get("timeMode", "")).lower() == "eventtime"

    def state(self) -> DataFrame:
        """Of an operator whose state is one value per key: columns ``key`` and ``value``."""
        frame = self._frame()
        value = frame.schema["value"].dataType
        assert isinstance(value, StructType)
        return frame.select("key", F.col("value").cast(_distinct(value)).alias("value"))

    def variables(self) -> Iterator[tuple[ImportedState, DataFrame]]:
        """Of ``transformWithState``: each state with its rows, which are ``key`` and a column named after it."""
        for number, variable in enumerate(self.properties["stateVariables"]):
            name, kind = variable["stateName"], _KINDS.get(variable["stateVariableType"])
            if kind is not None:
                yield self._variable(f"s{number}", name, kind, bool(variable["ttlEnabled"]))

    def timers(self) -> DataFrame | None:
        """Columns ``key`` and ``expiration_timestamp_ms``; None: it has none."""
        if not any(each["stateVariableType"] == _TIMERS for each in self.properties["stateVariables"]):
            return None
        return self._frame(readRegisteredTimers="true")

    def _variable(self, column: str, name: str, kind: Kind, expires: bool) -> tuple[ImportedState, DataFrame]:
        frame = self._frame(stateVarName=name, flattenCollectionTypes="false")
        found = frame.schema[_COLUMNS[kind]].dataType
        values, keys = found, None
        if isinstance(found, MapType):
            values, keys = found.valueType, found.keyType
        elif isinstance(found, ArrayType):
            values = found.elementType
        assert isinstance(values, StructType), values
        schema = values["value"].dataType if expires else values
        imported = ImportedState(column, name, kind, schema, keys, expires)
        rows = F.col(_COLUMNS[kind])
        return imported, frame.select("key", (F.map_entries(rows) if kind == "map" else rows).alias(column))

    def _frame(self, **options: str) -> DataFrame:
        reader = self.spark.read.format("statestore").option("operatorId", self.operator_id)
        try:
            return reader.option("batchId", self.batch).options(**options).load(self.path)
        except PySparkException as error:
            raise ConfigurationError(
                f"Spark's reader cannot read the state of operator {self.operator_id} ({self.operator}) in "
                f"checkpoint {self.path}: {first_line(error)}; import_state() takes transformWithState, "
                "applyInPandasWithState, aggregations and deduplication; choose one of these by operator_id="
            ) from error


def _json_lines(spark: SparkSession, path: str) -> list[dict[str, Any]]:
    """A file of Spark's: the version's line is left out."""
    lines: Sequence[Any] = spark.read.text(path).collect()
    return [json.loads(line.value) for line in lines if line.value.startswith("{")]


def _distinct(value: StructType) -> StructType:
    """Partial aggregates may have one name several times."""
    found = StructType()
    for field in value.fields:
        name, number = field.name, 1
        while name in found.names:
            number += 1
            name = f"{field.name}_{number}"
        found = found.add(name, field.dataType, field.nullable)
    return found


def first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), repr(error))
