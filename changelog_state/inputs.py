"""Several inputs of one query as one DataFrame, with a column that tells from which one a row is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from changelog_state.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

__all__ = ["input_columns", "union_inputs"]

_METADATA = "changelog_state.inputs"


def union_inputs(
    inputs: Mapping[str, DataFrame] | None = None, /, *, tag: str = "input", **named: DataFrame
) -> DataFrame:
    """All rows of several DataFrames, streaming ones too: ``union_inputs(orders=orders, payments=payments)``.

    It has a column ``input`` (``tag=`` calls it otherwise) with the name of the input, and the columns of all inputs:
    those of one name are one column, and must have one type; what an input does not have is null in its rows. Inputs
    whose names cannot be keywords are given as a dict.
    """
    from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

    frames = {**(inputs or {}), **named}
    if len(frames) < 2 or len(frames) != len(inputs or {}) + len(named):
        raise ConfigurationError(
            f"union_inputs has {len(frames)} inputs with names of their own: {sorted(frames)}; give two or more, as "
            "in union_inputs(orders=orders, payments=payments)"
        )
    types = _merged_types(frames, tag)
    metadata = {_METADATA: {name: list(frame.columns) for name, frame in frames.items()}}
    parts = [
        frame.select(
            F.lit(name).alias(tag, metadata=metadata),
            *(
                F.col(_quoted(column)) if column in frame.columns else F.lit(None).cast(kind).alias(column)
                for column, kind in types.items()
            ),
        )
        for name, frame in frames.items()
    ]
    union = parts[0]
    for part in parts[1:]:
        union = union.union(part)
    return union


def input_columns(df: DataFrame, tag: str, names: Sequence[str]) -> list[list[str]]:
    """The columns that each of these inputs has; those that came after the union, all have.

    Spark takes what the union has noted on the tag through filters and the like. Without that, all have all.
    """
    known: Mapping[str, Sequence[str]] = {}
    if tag in df.columns:
        known = df.schema[tag].metadata.get(_METADATA, {})
    missing = [name for name in names if known and name not in known]
    if tag not in df.columns or missing:
        what = f"has inputs {sorted(known)}, not {missing}" if missing else f"has no column {tag!r}"
        raise ConfigurationError(f"the DataFrame {what}; make it with union_inputs(), and name two of its inputs")
    of_some = {column for columns in known.values() for column in columns}
    others = [column for column in df.columns if column != tag]
    return [[each for each in others if each in known.get(name, others) or each not in of_some] for name in names]


def _merged_types(frames: Mapping[str, DataFrame], tag: str) -> dict[str, DataType]:
    """The type of each column, in the order in which they are met."""
    types: dict[str, tuple[DataType, str, str]] = {}
    spelled: dict[str, tuple[str, str]] = {tag.lower(): (tag, "")}
    for name, frame in frames.items():
        if len(set(frame.columns)) < len(frame.columns):
            raise ConfigurationError(f"input {name!r} has several columns of one name: {frame.columns}; rename them")
        for (column, kind), field in zip(frame.dtypes, frame.schema, strict=True):
            other, whose = spelled.setdefault(column.lower(), (column, name))
            if not whose:
                raise ConfigurationError(
                    f"input {name!r} has a column {column!r}, which is what the column with the inputs' names is "
                    "called; rename it, or call that one otherwise with tag="
                )
            if other != column:
                raise ConfigurationError(
                    f"column {column!r} of input {name!r} is called {other!r} in {whose!r}; give both the same name, "
                    "or different ones"
                )
            _, known, first = types.setdefault(column, (field.dataType, kind, name))
            if known != kind:
                raise ConfigurationError(
                    f"column {column!r} is of type {known} in input {first!r}, but of type {kind} in {name!r}; cast "
                    "one of them, or rename it"
                )
    return {column: kind for column, (kind, _, _) in types.items()}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
