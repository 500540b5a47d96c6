"""A schema as users write it."""

from __future__ import annotations

from functools import lru_cache

from pyspark.sql.types import StructType

from changelog_state.errors import OutputSchemaError

__all__ = ["user_schema"]


def user_schema(schema: str | StructType) -> StructType:
    if isinstance(schema, StructType):
        return schema
    try:
        parsed = _parsed(schema)
    except Exception as error:
        raise OutputSchemaError(
            f"schema {schema!r} is not a Spark schema: {_first_line(error)}; "
            "write it like 'user_id string, total long'"
        ) from error
    if not isinstance(parsed, StructType):
        raise OutputSchemaError(f"schema {schema!r} cannot be used; write it like 'user_id string, total long'")
    return parsed


@lru_cache(maxsize=64)
def _parsed(schema: str) -> StructType:
    """Parsing happens in the JVM, and every batch has the same schema."""
    return StructType.fromDDL(schema)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else repr(error)
