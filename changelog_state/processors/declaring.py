"""What a processor declares in ``init``, and a program for it that needs no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pyspark.sql.types import StructType

from changelog_state.errors import ChangelogStateError, FunctionError
from changelog_state.processors.ddl import parse_schema
from changelog_state.processors.handle import ProcessorHandle, time_mode_of
from changelog_state.processors.program import ProcessorProgram
from changelog_state.processors.spark_frames import FrameRules
from changelog_state.state.variables import Variable
from changelog_state.task.program import pickled, unpickled

__all__ = ["declare", "is_processor", "no_processor", "program_without_spark"]

H = TypeVar("H", bound=ProcessorHandle)


def is_processor(given: Any) -> bool:
    return not isinstance(given, type) and all(hasattr(given, name) for name in ("init", "handleInputRows"))


def no_processor(given: Any) -> FunctionError:
    return FunctionError(
        f"processor is {given!r}; give an instance of a subclass of pyspark.sql.streaming.StatefulProcessor"
    )


def declare(processor: bytes, handle: H) -> H:
    """The handle, with all that a copy of the processor has declared. Raises what is wrong with it."""
    copy: Any = unpickled(processor)
    try:
        copy.init(handle)
        copy.close()
    except ChangelogStateError:
        raise
    except Exception as error:
        raise FunctionError(
            f"the processor's init() raised {type(error).__name__}: {error}; it also runs where batches are begun, "
            "to see what state there is"
        ) from error
    return handle


def program_without_spark(
    processor: Any, output_schema: str | StructType, time_mode: str, timezone: str = "UTC"
) -> tuple[ProcessorProgram, Mapping[str, Variable]]:
    """The program, and the variables that it declares."""
    mode, data = time_mode_of(time_mode), pickled(processor)
    schema = output_schema if isinstance(output_schema, StructType) else parse_schema(output_schema)
    handle = declare(data, ProcessorHandle(mode, timezone))
    return ProcessorProgram(data, schema, mode, FrameRules(timezone)), handle.variables
