"""Whatever a function does with its state, it equals plain dicts: through replays, restarts, restores, compaction."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import changelog_state as cs
from changelog_state.testing import StateTester

START = datetime(2024, 1, 1, tzinfo=UTC)
TTL_SECONDS = 10
SECOND = timedelta(seconds=1)

numbers = st.integers(-3, 300)
names = st.sampled_from(["x", "y"])
entry_keys = st.sampled_from(["", "a", "b\0", 2, -5, True, 0.5, b"a", (2, "a"), (2,)])
timer_names = st.sampled_from(["", "t"])
operations = st.one_of(
    st.tuples(st.just("set"), names, numbers),
    st.tuples(st.just("set_short"), names, numbers),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("total"), numbers),
    st.tuples(st.just("forget_total")),
    st.tuples(st.just("append"), numbers),
    st.tuples(st.just("popleft")),
    st.tuples(st.just("trim"), st.integers(0, 3)),
    st.tuples(st.just("set_item"), st.integers(0, 2), numbers),
    st.tuples(st.just("put"), entry_keys, numbers),
    st.tuples(st.just("remove"), entry_keys),
    st.tuples(st.just("visit"), entry_keys, numbers),
    st.tuples(st.just("clear_map")),
    st.tuples(st.just("clear_list")),
    st.tuples(st.just("timer"), timer_names, st.integers(-5, 25), st.booleans()),
    st.tuples(st.just("no_timer"), timer_names),
    st.tuples(st.just("clear")),
)
row = st.tuples(st.sampled_from(["k1", "k2", "k3"]), st.integers(0, 30), st.lists(operations, max_size=6))


@dataclass
class Key:
    """One key's state as plain Python."""

    values: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    total: int | None = None
    recent: list[int] = field(default_factory=list)
    counts: dict[Any, int] = field(default_factory=dict)
    visits: dict[Any, tuple[int, int]] = field(default_factory=dict)
    timers: dict[str, tuple[int, bool]] = field(default_factory=dict)

    def shown(self, now: int, watermark: int | None) -> dict[str, Any]:
        found: dict[str, Any] = {
            name: value for name, (value, expires) in self.values.items() if expires is None or expires > now
        }
        visits = {k: v for k, (v, expires) in self.visits.items() if watermark is None or expires > watermark}
        for name, value in (("recent", self.recent), ("by", self.counts), ("visits", visits)):
            if value:
                found[name] = value
        return found if self.total is None else found | {"total": self.total}


def function(key: str, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
    for row in rows:
        for operation in eval(row["operations"]):
            operate(state, *operation)
    yield {
        "key": key,
        "total": state.total,
        "recent": list(state.recent),
        "x": state.get("x"),
        "by": dict(state.by.items()),
    }


def on_timer(key: str, name: str, at: datetime, state: Any) -> Iterator[dict[str, Any]]:
    yield {"key": key, "timer": name, "at": at}
    state.total += 1
    if name == "t" and state.total % 3:
        state.set_timer(at + 2 * SECOND, "again", clock="processing")


def operate(state: Any, what: str, *arguments: Any) -> None:
    if what == "set":
        state.set(*arguments)
    elif what == "set_short":
        state.set(*arguments, ttl=TTL_SECONDS)
    elif what == "delete":
        state.delete(*arguments)
    elif what == "total":
        state.total += arguments[0]
    elif what == "forget_total":
        del state.total
    elif what == "append":
        state.recent.append(*arguments)
    elif what == "popleft":
        if state.recent:
            state.recent.popleft()
    elif what == "trim":
        state.recent.trim(*arguments)
    elif what == "set_item":
        if len(state.recent) > arguments[0]:
            state.recent[arguments[0]] = arguments[1]
    elif what == "put":
        state.by[arguments[0]] = arguments[1]
    elif what == "remove":
        del state.by[arguments[0]]
    elif what == "visit":
        state.visits[arguments[0]] = arguments[1]
    elif what == "clear_map":
        state.by.clear()
    elif what == "clear_list":
        state.recent.clear()
    elif what == "timer":
        name, seconds, by_event_time = arguments
        state.set_timer(START + seconds * SECOND, name, "event" if by_event_time else "processing")
    elif what == "no_timer":
        state.delete_timer(*arguments)
    else:
        state.clear()


class Model:
    """The same, told as simply as can be; times in seconds since ``START``."""

    def __init__(self) -> None:
        self.keys: dict[str, Key] = {}
        self.now = 0
        self.watermark: int | None = None

    def batch(self, rows: list[tuple[str, int, list[Any]]]) -> list[dict[str, Any]]:
        output = []
        for key in sorted({key for key, _, _ in rows} | set(self.keys)):
            mine = [(at, operations) for k, at, operations in rows if k == key]
            kept = self.keys.setdefault(key, Key())
            if mine:
                known = [] if self.watermark is None else [self.watermark]
                event_time = max(known + [at for at, _ in mine])
                for _, operations in mine:
                    for operation in operations:
                        self.operate(kept, event_time, *operation)
                shown = kept.shown(self.now, self.watermark)
                output.append(
                    {
                        "key": key,
                        "total": kept.total or 0,
                        "recent": list(kept.recent),
                        "x": shown.get("x"),
                        "by": dict(sorted(kept.counts.items(), key=entry_order)),
                    }
                )
            output += self.fire(key, kept)
        if rows:
            reached = max(at for _, at, _ in rows) - 3
            self.watermark = reached if self.watermark is None else max(self.watermark, reached)
        return output

    def fire(self, key: str, kept: Key) -> list[dict[str, Any]]:
        output = []
        while True:
            due = [
                (at, name)
                for name, (at, by_event_time) in kept.timers.items()
                if (now := self.watermark if by_event_time else self.now) is not None and at <= now
            ]
            if not due:
                return output
            at, name = min(due)
            del kept.timers[name]
            output.append({"key": key, "timer": name, "at": START + at * SECOND})
            kept.total = (kept.total or 0) + 1
            if name == "t" and kept.total % 3:
                kept.timers["again"] = at + 2, False  # later than the one that sets it

    def operate(self, kept: Key, event_time: int, what: str, *arguments: Any) -> None:
        if what == "set":
            kept.values[arguments[0]] = arguments[1], None
        elif what == "set_short":
            kept.values[arguments[0]] = arguments[1], self.now + TTL_SECONDS
        elif what == "delete":
            kept.values.pop(arguments[0], None)
        elif what == "total":
            kept.total = (kept.total or 0) + arguments[0]
        elif what == "forget_total":
            kept.total = None
        elif what == "append":
            kept.recent.append(arguments[0])
        elif what == "popleft":
            kept.recent = kept.recent[1:]
        elif what == "trim":
            kept.recent = kept.recent[max(0, len(kept.recent) - arguments[0]) :]
        elif what == "set_item":
            if len(kept.recent) > arguments[0]:
                kept.recent[arguments[0]] = arguments[1]
        elif what == "put":
            kept.counts[arguments[0]] = arguments[1]
        elif what == "remove":
            kept.counts.pop(arguments[0], None)
        elif what == "visit":
            kept.visits[arguments[0]] = arguments[1], event_time + TTL_SECONDS
        elif what == "clear_map":
            kept.counts = {}
        elif what == "clear_list":
            kept.recent = []
        elif what == "timer":
            kept.timers[arguments[0]] = arguments[1], arguments[2]
        elif what == "no_timer":
            kept.timers.pop(arguments[0], None)
        else:
            kept.__init__()  # type: ignore[misc]


def entry_order(entry: tuple[Any, int]) -> bytes:
    from changelog_state.codec.entries import encode_entry_key

    return encode_entry_key(entry[0])


class Programming(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.model = Model()
        self.replayed: list[dict[str, Any]] | None = None
        self.tester = StateTester(
            function,
            key="key",
            on_timer=on_timer,
            event_time="at",
            watermark_delay=3,
            state=[
                cs.Value("total", int, default=0),
                cs.List("recent", int, prefetch=2),
                cs.Map("by", values=int, prefetch=1),
                cs.Map("visits", values=int, ttl=cs.Ttl(TTL_SECONDS, clock="event")),
            ],
            now=START,
            key_types=["string"],
        )

    @rule(rows=st.lists(row, max_size=5))
    def batch(self, rows: list[tuple[str, int, list[Any]]]) -> None:
        given = [
            {"key": key, "at": START + at * SECOND, "operations": repr(operations)} for key, at, operations in rows
        ]
        before = deepcopy(self.model)
        found = self.tester.batch(given)
        assert found == before.batch(rows)
        self.model = before
        self.replayed = found

    @rule()
    def replay(self) -> None:
        if self.replayed is not None:
            assert self.tester.replay() == self.replayed

    @rule(seconds=st.integers(0, 8))
    def advance(self, seconds: int) -> None:
        self.tester.advance(seconds)
        self.model.now += seconds

    @rule()
    def restart(self) -> None:
        self.tester.restart()

    @rule()
    def restore(self) -> None:
        self.tester.restore()

    @invariant()
    def reads_equal_the_model(self) -> None:
        if not hasattr(self, "model"):
            return
        model = self.model
        expected = {key: kept.shown(model.now, model.watermark) for key, kept in sorted(model.keys.items())}
        found = self.tester.state()
        assert found == {key: shown for key, shown in expected.items() if shown}, (found, expected)
        for key, kept in model.keys.items():
            timers = {name: START + at * SECOND for name, (at, _) in kept.timers.items()}
            assert self.tester.timers(key) == timers

    def teardown(self) -> None:
        """Nothing is left behind: what has expired or was deleted goes, also without rows."""
        if hasattr(self, "model"):
            self.tester.advance(1_000)
            self.model.now += 1_000
            self.batch([("k9", 2_000, [])])
            for _ in range(3):
                self.batch([])
            keep = {key for key, kept in self.model.keys.items() if kept.shown(1 << 60, 1 << 60)}
            assert {key for key, _ in self.tester.state().items()} == keep
            assert not self.leftovers(keep)

    def leftovers(self, keep: set[str]) -> list[bytes]:
        return [record for record in self.tester.records() if record[1 : record.index(b"\0")].decode() not in keep]


TestProgramming = Programming.TestCase
TestProgramming.settings = settings(max_examples=100, stateful_step_count=12, deadline=None)
