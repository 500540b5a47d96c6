"""A processor that does what its rows say, and says what it sees: for Spark's operator and ours alike."""

# ruff: noqa: N802, N803 (Spark's own names)
from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql.streaming import StatefulProcessor

__all__ = ["COLUMNS", "INITIAL", "KEY", "OUTPUT", "Counter", "Probe", "initial_rows", "random_rows", "said"]

KEY = ["k", "j"]
COLUMNS = "k string, j long, n long, op string, a long, x double, s string, flag boolean, at timestamp"
OUTPUT = "k string, j long, n long, said string"
TTL_MS = 1_500

VALUE = (
    "n long, i int, x double, f float, s string, flag boolean, d decimal(12,3), at timestamp, day date, raw binary, "
    "tags array<string>, inner struct<a: int, b: array<double>>, props map<string, long>"
)
LIST = "n long, x double, s string"
TIMES = "at timestamp, d decimal(8,2), b boolean"


def said(value: Any) -> str:
    """With the types, all the way down."""
    kind = type(value).__name__
    if isinstance(value, dict):
        return f"{kind}{{{', '.join(sorted(f'{said(key)}: {said(each)}' for key, each in value.items()))}}}"
    if isinstance(value, (list, tuple)):
        names = getattr(value, "__fields__", "")
        return f"{kind}{names}({', '.join(said(each) for each in value)})"
    return f"{kind}:{value!r}"


class Probe(StatefulProcessor):
    """Each row is an operation. The frame, the key and every answer are put out as text."""

    def __init__(self, mode: str) -> None:
        self._mode = mode

    def init(self, handle: Any) -> None:
        ttl = TTL_MS if self._mode == "ProcessingTime" else None
        self.handle = handle
        self.value = handle.getValueState("value", VALUE)
        self.numbers = handle.getListState("numbers", LIST)
        self.times = handle.getListState("times", TIMES)
        self.entries = handle.getMapState("entries", "s string, n long", "x double, at timestamp")
        self.plain = handle.getMapState("plain", "n long", "s string")
        self.fired = handle.getValueState("fired", "n int")
        self.short = handle.getValueState("short", "n long", ttl)
        self.short_list = handle.getListState("short_list", "n long", ttl)
        self.short_map = handle.getMapState("short_map", "s string", "n long", ttl)

    def handleInitialState(self, key: Any, initialState: pd.DataFrame, timerValues: Any) -> None:
        types = {name: str(kind) for name, kind in initialState.dtypes.items()}
        self.plain.updateValue((-1,), (said((key, types, self._times(timerValues))),))
        for n, s in zip(initialState["n"], initialState["s"], strict=True):
            self.plain.updateValue((int(n),), (s,))
        self.short.update((len(initialState),))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        [frame] = list(rows)
        frame = frame.sort_values("n").reset_index(drop=True)
        times = self._times(timerValues)
        types = {name: str(kind) for name, kind in frame.dtypes.items()}
        yield self._out(key, int(frame["n"][0]), "frame", (key, times, types, frame.to_dict("list")))
        base = max(times[0], 0)
        for row in frame.itertuples(index=False):
            answer = getattr(self, "_" + row.op)(row, base)
            yield self._out(key, row.n, row.op, answer)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        at = expiredTimerInfo.getExpiryTimeInMs()
        times = self._times(timerValues)
        fired = (self.fired.get() or (0,))[0] + 1
        self.fired.update((fired,))
        if fired % 3 == 0:
            self.handle.registerTimer(at)  # which is deleted when this returns
            self.handle.registerTimer(at - 1)  # for the next batch
        if fired % 5 == 0:
            self.handle.deleteTimer(at + 10)
        self.plain.updateValue((at % 7,), (str(at),))
        yield self._out(key, -1, "timer", (key, at, fired, times, sorted(self.handle.listTimers())))

    def _times(self, values: Any) -> tuple[int, ...]:
        """By event time, batch time is another one in each run."""
        watermark_ms = values.getCurrentWatermarkInMs()
        return (watermark_ms,) if self._mode == "EventTime" else (values.getCurrentProcessingTimeInMs(), watermark_ms)

    @staticmethod
    def _out(key: Any, n: int, what: str, answer: Any) -> pd.DataFrame:
        return pd.DataFrame({"k": [key[0]], "j": [int(key[1])], "n": [int(n)], "said": [f"{what} {said(answer)}"]})

    # -- operations: (row, the time that timers are set from) ---------------------------------------------

    def _value_update(self, row: Any, base: int) -> Any:
        a = 0 if pd.isna(row.a) else int(row.a)
        at = datetime(2024, 3, 1, 12, 0, 0, 123456) + timedelta(minutes=a % 5_000)
        text = row.s if isinstance(row.s, str) else None
        simple = (a, a % 100, row.x, 0.1 * a, text, bool(a % 2), Decimal(a % 9_999) / 7)
        times = (at, date(2024, 1, 1) + timedelta(a % 90), f"{a}".encode())
        nested = (["t", text], (a % 9, [row.x, 1.5]), {"p": a, "q": None})
        self.value.update((*simple, *times, *nested) if a % 4 else (None,) * 13)
        return self.value.get()

    def _value_get(self, row: Any, base: int) -> Any:
        return self.value.exists(), self.value.get()

    def _value_clear(self, row: Any, base: int) -> Any:
        self.value.clear()
        return self.value.exists()

    def _list_append(self, row: Any, base: int) -> Any:
        self.numbers.appendValue((None if pd.isna(row.a) else int(row.a), row.x, row.s))
        self.times.appendValue((datetime(2024, 1, 2) + timedelta(hours=int(row.n)), Decimal("1.005"), row.n % 3 == 0))
        return list(self.numbers.get()), list(self.times.get())

    def _list_put(self, row: Any, base: int) -> Any:
        rows = [(int(row.n) + each, 0.5 * each, "put") for each in range(3)]
        frame = pd.DataFrame(rows, columns=["n", "x", "s"])
        given = (rows, frame[["s", "n", "x"]], frame.to_dict("list"), np.array(rows, dtype=object))
        self.numbers.put(given[row.n % 4])
        self.numbers.appendList([(1, 2.5, "list")])
        return self.numbers.exists(), list(self.numbers.get())

    def _list_clear(self, row: Any, base: int) -> Any:
        self.numbers.clear()
        return self.numbers.exists(), list(self.numbers.get())

    def _map_update(self, row: Any, base: int) -> Any:
        key = row.s, int(row.n) % 4
        self.entries.updateValue(key, (row.x, datetime(2024, 5, 5, int(row.n) % 24)))
        self.plain.updateValue((int(row.n) % 300,), (None if row.n % 5 == 0 else f"s{row.n}",))
        return self.entries.getValue(key), self.entries.containsKey(key), self.entries.exists()

    def _map_remove(self, row: Any, base: int) -> Any:
        key = row.s, int(row.n) % 4
        self.entries.removeKey(key)
        return self.entries.getValue(key), self.entries.containsKey(key)

    def _map_all(self, row: Any, base: int) -> Any:
        together = sorted(map(said, self.entries.iterator())), sorted(map(said, self.plain.iterator()))
        keys = sorted(map(said, self.entries.keys())), sorted(map(said, self.plain.keys()))
        return together, keys, sorted(map(said, self.entries.values())), sorted(map(said, self.plain.values()))

    def _map_clear(self, row: Any, base: int) -> Any:
        self.plain.clear()
        return self.plain.exists()

    def _short_update(self, row: Any, base: int) -> Any:
        self.short.update((int(row.n),))
        self.short_list.appendValue((int(row.n),))
        self.short_map.updateValue((row.s or "none",), (int(row.n),))
        return self._short_get(row, base)

    def _short_get(self, row: Any, base: int) -> Any:
        entries = sorted(map(said, self.short_map.iterator()))
        return self.short.exists(), self.short.get(), list(self.short_list.get()), entries, self.short_map.exists()

    def _timer_set(self, row: Any, base: int) -> Any:
        if self._mode == "None":
            return None
        for after in (0, 10, 10 * (int(row.n) % 30), 700, 86_400_000):
            self.handle.registerTimer(base + after - 100)
        return sorted(self.handle.listTimers())

    def _timer_delete(self, row: Any, base: int) -> Any:
        if self._mode == "None":
            return None
        known = sorted(self.handle.listTimers())
        for at in known[::2]:
            self.handle.deleteTimer(at)
        return known, sorted(self.handle.listTimers())


_WHAT = ("value", "list", "map", "short", "timer")
OPERATIONS = sorted(name[1:] for name in vars(Probe) if name.startswith(tuple(f"_{what}_" for what in _WHAT)))


def random_rows(seed: int, batches: int, rows: int) -> list[list[dict[str, Any]]]:
    """Each batch is half an hour later than the one before, with rows that are late by more and less."""
    chance = random.Random(seed)
    begin, number, found = datetime(2024, 6, 1, tzinfo=UTC), 0, []
    for batch in range(batches):
        made = []
        for _ in range(rows):
            number += 1
            late = chance.choice((0, 0, 0, 10, 34, 40, 64, 70, 1_000)) if batch else 0
            at = begin + timedelta(minutes=30 * batch + chance.randrange(5) - late)
            made.append(
                {
                    "k": chance.choice("abc"),
                    "j": chance.choice((1, 2)),
                    "n": number,
                    "op": chance.choice(OPERATIONS),
                    "a": chance.choice((None, number, -number, 1 << 40)),
                    "x": chance.choice((None, number / 8, -0.5)),
                    "s": chance.choice((None, "", "ä", f"s{number % 6}")),
                    "flag": chance.choice((None, True, False)),
                    "at": at,
                }
            )
        found.append(made)
    return found


INITIAL = "s string, n long, j long, k string"


def initial_rows() -> list[dict[str, Any]]:
    """Of keys that have rows, and of some that have none."""
    return [
        {"s": f"initial {number}" if number % 3 else None, "n": number, "j": number % 4, "k": "abd"[number % 3]}
        for number in range(20)
    ]


class Counter(StatefulProcessor):
    """Counts rows; initial state says where to begin."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInitialState(self, key: Any, initialState: pd.DataFrame, timerValues: Any) -> None:
        self.count.update((int(initialState["start"].sum()),))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        n = (self.count.get() or (0,))[0] + sum(len(frame) for frame in rows)
        self.count.update((n,))
        yield pd.DataFrame({"k": [key[0]], "n": [n]})
