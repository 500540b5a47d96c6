"""``python -m benchmarks.merging [NAME]``: what Python's part of ``aggregate`` costs, without Spark or a store.

For 200,000 keys that all have state: decode it, merge it with the partials of a batch, encode it, finish the results.
With a name of the table, also a profile.
"""

from __future__ import annotations

import argparse
import cProfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as spark
from rich.console import Console
from rich.table import Table

import changelog_state as cs
from changelog_state.aggregation.key_columns import encode_key_columns
from changelog_state.aggregation.merging import TaskAggregation
from changelog_state.aggregation.plan import Plan, plan_of
from changelog_state.codec.keys import KeyCodec

KEYS = 200_000
ITEMS = 3
"""In the list of each key and batch."""
ROUNDS = 5
LONG, DOUBLE, TEXT, TIME = spark.LongType(), spark.DoubleType(), spark.StringType(), spark.TimestampType()
CASES: dict[str, dict[str, tuple[Any, ...]]] = {
    "count": {"n": (cs.count(),)},
    "sum of long": {"s": (cs.sum("x"), LONG)},
    "count, sum, min, max": {
        "n": (cs.count(),),
        "s": (cs.sum("x"), DOUBLE),
        "a": (cs.min("x"), DOUBLE),
        "b": (cs.max("x"), DOUBLE),
    },
    "mean, variance": {"m": (cs.mean("x"), DOUBLE), "v": (cs.variance("x"), DOUBLE)},
    "max of string": {"m": (cs.max("x"), TEXT)},
    "last by timestamp": {"l": (cs.last("x", by="at"), DOUBLE, TIME)},
    "collect 10": {"c": (cs.collect("x", 10), DOUBLE)},
    "top 10 by timestamp": {"t": (cs.top("x", 10, by="at"), DOUBLE, TIME)},
    "approx_distinct": {"d": (cs.approx_distinct("x"), LONG)},
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.merging", description=__doc__)
    parser.add_argument("name", nargs="?", choices=list(CASES))
    name = parser.parse_args().name
    table = Table("aggregates", "ms", "bytes stored per key", title=f"{KEYS:,} keys")
    for each in CASES if name is None else [name]:
        milliseconds, size = measure(*_case(each))
        table.add_row(each, f"{milliseconds:.1f}", f"{size:.0f}")
    keys = pa.array([f"user-{number:08d}" for number in range(KEYS)])
    milliseconds = _fastest(lambda: encode_key_columns(KeyCodec(("string",)), [keys]))
    table.add_row("(encoding string keys)", f"{milliseconds:.1f}", "")
    Console().print(table)
    if name is not None:
        task, partials = _case(name)
        stored = task.merge(pa.nulls(KEYS, pa.binary()), partials, str).values
        cProfile.runctx("task.merge(stored, partials, str)", globals(), locals(), sort="tottime")


def measure(task: TaskAggregation, partials: list[pa.Array]) -> tuple[float, float]:
    """The fastest of some merges, each with the state that the one before has left; and its size."""
    stored = task.merge(pa.nulls(KEYS, pa.binary()), partials, str).values

    def merge() -> None:
        nonlocal stored
        stored = task.merge(stored, partials, str).values

    return _fastest(merge), stored.nbytes / KEYS


def _fastest(work: Callable[[], object]) -> float:
    """Milliseconds."""
    seconds = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return 1000 * min(seconds)


def _case(name: str) -> tuple[TaskAggregation, list[pa.Array]]:
    plan: Plan = plan_of(
        {each: aggregate for each, (aggregate, *_) in CASES[name].items()},
        {each: types for each, (_, *types) in CASES[name].items()},
    )
    random = np.random.default_rng(1)
    kinds = [kind for function in plan.functions.values() for kind in function.partial_types]
    return TaskAggregation(plan, lambda fingerprint: None), [_made(kind, KEYS, random) for kind in kinds]


def _made(kind: pa.DataType, count: int, random: np.random.Generator) -> pa.Array:
    if pa.types.is_list(kind):
        offsets = np.arange(0, count * ITEMS + 1, ITEMS, dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), _made(kind.value_type, count * ITEMS, random))
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([_made(each.type, count, random) for each in kind], fields=list(kind))
    if pa.types.is_string(kind):
        return pa.array([f"value-{number}" for number in random.integers(0, 1_000, count)])
    if pa.types.is_floating(kind):
        return pa.array(random.random(count))
    if kind == pa.int32():  # entries of sketches: 512 registers, and ranks
        return pa.array((random.integers(0, 512, count) << 6 | random.integers(1, 6, count)).astype(np.int32))
    if pa.types.is_timestamp(kind):
        return pa.array(random.integers(0, 10**15, count)).cast(pa.timestamp("us")).cast(kind)
    return pa.array(random.integers(1, 5, count))


if __name__ == "__main__":
    main()
