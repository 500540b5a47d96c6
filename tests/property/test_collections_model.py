"""Lists and maps whose entries expire, against plain ones: reads that refresh, ranges, and lifetimes that change.

Random, and the same for a seed. A function does some operations per batch; batches are replayed, and what can happen
to agents and disks happens in between.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import changelog_state as cs
from changelog_state.codec.entries import encode_entry_key
from changelog_state.testing import StateTester

KEYS = ["", "a", "b", 1, 2, (1, "x"), 0.5]
START = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass
class Model:
    """Entries with the time at which they are over; ``clock``: what they go by."""

    now: int = 0
    watermark: int | None = None
    entries: dict[Any, tuple[Any, Any]] = field(default_factory=dict)
    items: list[tuple[Any, Any]] = field(default_factory=list)

    def lives(self, until: tuple[str, int] | None) -> bool:
        if until is None:
            return True
        clock, at = until
        now = self.now if clock == "processing" else self.watermark
        return now is None or at > now

    def forget_the_dead(self) -> None:
        self.entries = {key: each for key, each in self.entries.items() if self.lives(each[1])}
        self.items = [each for each in self.items if self.lives(each[1])]

    def shown(self) -> dict[str, Any]:
        entries = {key: value for key, (value, until) in self.entries.items() if self.lives(until)}
        items = [value for value, until in self.items if self.lives(until)]
        return {name: found for name, found in (("queue", items), ("table", entries)) if found}


def operate(state: Any, operations: list[tuple[Any, ...]]) -> list[Any]:
    said: list[Any] = []
    entries, items = state.table, state.queue
    for what, *given in operations:
        match what:
            case "put":
                entries[given[0]] = given[1]
            case "delete":
                del entries[given[0]]
            case "get":
                said.append(entries.get(given[0]))
            case "pop":
                said.append(entries.pop(given[0]))
            case "range":
                said.append(list(entries.items(*given)))
            case "pairs":
                said.append(sum(1 for _ in entries for _ in entries))
            case "length":
                said.append(len(entries))
            case "clear":
                entries.clear()
            case "append":
                items.append(given[0])
            case "popleft":
                said.append(items.popleft() if items else None)
            case "trim":
                items.trim(given[0])
            case "slice":
                said.append(items[slice(*given)])
            case "replace":
                if len(items) > given[0]:
                    items[given[0]] = given[1]
            case "delete all":
                state.delete("table")
                state.delete("queue")
    return said


def operate_plainly(model: Model, operations: list[tuple[Any, ...]], until: Any, *, refreshing: bool) -> list[Any]:
    said: list[Any] = []
    model.forget_the_dead()

    def read(*keys: Any) -> None:
        for key in keys if refreshing else ():
            model.entries[key] = model.entries[key][0], until

    def read_items() -> None:
        if refreshing:
            model.items = [(value, until) for value, _ in model.items]

    for what, *given in operations:
        entries = model.entries
        match what:
            case "put":
                entries[given[0]] = given[1], until
            case "delete":
                entries.pop(given[0], None)
            case "get":
                said.append(entries[given[0]][0] if given[0] in entries else None)
                read(*(key for key in given if key in entries))
            case "pop":
                said.append(entries.pop(given[0], (None,))[0])
            case "range":
                start, end, limit = given
                keys = sorted(
                    (
                        key
                        for key in entries
                        if (start is None or encode_entry_key(key) >= encode_entry_key(start))
                        and (end is None or encode_entry_key(key) < encode_entry_key(end))
                    ),
                    key=encode_entry_key,
                )[:limit]
                said.append([(key, entries[key][0]) for key in keys])
                read(*keys)
            case "pairs":
                said.append(len(entries) ** 2)
                read(*entries)
            case "length":
                said.append(len(entries))
                read(*entries)
            case "clear":
                entries.clear()
            case "append":
                model.items.append((given[0], until))
            case "popleft":
                read_items()
                said.append(model.items.pop(0)[0] if model.items else None)
            case "trim":
                read_items()
                model.items = model.items[max(0, len(model.items) - given[0]) :]
            case "slice":
                read_items()
                said.append([value for value, _ in model.items][slice(*given)])
            case "replace":
                read_items()
                if len(model.items) > given[0]:
                    model.items[given[0]] = given[1], until
            case "delete all":
                entries.clear()
                model.items.clear()
    return said


def random_operation(rng: random.Random) -> tuple[Any, ...]:
    key, number = (lambda: rng.choice(KEYS)), (lambda: rng.randint(1, 99))
    bound: Callable[[], Any] = lambda: rng.choice([None, key()])  # noqa: E731
    kinds: list[Callable[[], tuple[Any, ...]]] = [
        *[lambda: ("put", key(), number())] * 4,
        *[lambda: ("append", number())] * 4,
        lambda: ("delete", key()),
        lambda: ("get", key()),
        lambda: ("pop", key()),
        lambda: ("range", bound(), bound(), rng.choice([None, 0, 1, 2])),
        lambda: ("pairs",),
        lambda: ("length",),
        lambda: ("clear",),
        lambda: ("popleft",),
        lambda: ("trim", rng.randint(0, 3)),
        lambda: ("slice", rng.randint(-4, 4), rng.randint(-4, 4), rng.choice([None, 1, 2, -1])),
        lambda: ("slice", None, None, rng.choice([None, -2])),
        lambda: ("replace", rng.randint(0, 2), number()),
        lambda: ("delete all",),
    ]
    return rng.choice(kinds)()


def declared(ttl: cs.Ttl | None, rng: random.Random) -> list[Any]:
    return [
        cs.List("queue", int, ttl=ttl, prefetch=rng.choice([0, 1, 100])),
        cs.Map("table", None, int, ttl=ttl, prefetch=rng.choice([0, 1, 2, 100])),
    ]


class Pair:
    """The tester and the model, side by side."""

    def __init__(self, seed: int, ttl: cs.Ttl | None) -> None:
        self.rng = random.Random(seed)
        self.model = Model()
        self.ttl = ttl
        self.operations: list[tuple[Any, ...]] = []
        self.tester = StateTester(
            self.call, key="key", state=declared(ttl, self.rng), event_time="at", now=START, key_types=["string"]
        )

    def call(self, key: str, rows: Any, state: Any) -> Any:
        yield {"said": operate(state, self.operations)}

    def declare(self, ttl: cs.Ttl | None) -> None:
        self.ttl = ttl
        self.tester.declare(declared(ttl, self.rng))

    def batch(self, at: int) -> None:
        model, ttl = self.model, self.ttl
        self.operations = [random_operation(self.rng) for _ in range(self.rng.randint(0, 5))]
        begins = model.now
        if ttl is not None and ttl.by_event_time:
            begins = at if model.watermark is None else max(at, model.watermark)
        until = None if ttl is None else (ttl.clock, begins + ttl.milliseconds // 1000)
        refreshing = ttl is not None and ttl.on_read
        said = operate_plainly(model, self.operations, until, refreshing=refreshing)
        found = self.tester.batch([{"key": "k", "at": START + timedelta(seconds=at)}])
        assert found == [{"said": said}], self.operations
        model.watermark = at if model.watermark is None else max(model.watermark, at)
        self.look()
        if self.rng.random() < 0.5:
            assert self.tester.replay() == found
        [lambda: None, self.tester.restart, self.tester.restore, self.tester.compact][self.rng.randrange(4)]()
        if self.rng.random() < 0.5:
            assert self.tester.replay() == found
        self.look()

    def advance(self) -> None:
        seconds = self.rng.choice([0, 1, 5, 9, 10, 11])
        self.tester.advance(seconds)
        self.model.now += seconds
        self.look()

    def look(self) -> None:
        found = self.tester.get_all("k")
        assert found == self.model.shown()


@pytest.mark.parametrize("refresh", ["write", "read", None])
def test_entries_that_expire(refresh: Any) -> None:
    for seed in range(60):
        pair = Pair(seed, None if refresh is None else cs.Ttl(10, refresh=refresh))
        for _ in range(12):
            pair.batch(at=0)
            pair.advance()
        if refresh is not None:
            pair.tester.advance(1_000)
            pair.tester.batch()
            assert pair.tester.records() == {}, seed


def test_lifetimes_that_change() -> None:
    """Each entry lives as it was written, whatever is declared later; nothing is lost, and nothing comes back."""
    lifetimes = [None, cs.Ttl(10), cs.Ttl(20), cs.Ttl(10, clock="event"), cs.Ttl(10, clock="event")]
    for seed in range(120):
        pair = Pair(seed, random.Random(seed).choice(lifetimes))
        for _ in range(14):
            if pair.rng.random() < 0.3:
                pair.declare(pair.rng.choice(lifetimes))
            if pair.rng.random() < 0.7:
                pair.batch(at=pair.model.now + pair.rng.randint(-3, 3))
            else:
                pair.tester.batch()
            pair.advance()
