"""What is done with a partition's rows: made by the driver, pickled, run by its tasks."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

import pyarrow as pa
from pyspark import cloudpickle

from changelog_state.errors import FunctionError
from changelog_state.task.partition_task import PartitionTask

__all__ = ["Program", "pickled", "unpickled"]


class Program(Protocol):
    rewrites: ClassVar[bool]
    """Whether it writes values of earlier generations anew, if it is told to."""

    def run(self, task: PartitionTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Go through all rows, sorted by key, and what is due; stage all changes, give out all output rows."""


def pickled(program: Any) -> bytes:
    try:
        return cloudpickle.dumps(program)  # type: ignore[no-any-return]
    except Exception as error:
        raise FunctionError(
            f"the function cannot be sent to Spark's workers: {error}; do not refer to sockets, locks, open files, "
            "Spark sessions or clients in it: make them inside the function"
        ) from error


def unpickled(program: bytes) -> Program:
    try:
        return pickle.loads(program)  # type: ignore[no-any-return]
    except Exception as error:
        raise FunctionError(
            f"the function cannot be loaded in Spark's worker: {type(error).__name__}: {error}; install the module "
            "it comes from on the workers, or add it with sparkContext.addPyFile()"
        ) from error
