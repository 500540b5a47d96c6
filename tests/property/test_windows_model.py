"""Windows of every kind equal sums over all rows that were not late, whatever the order and the batches."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

import changelog_state as cs
from changelog_state.testing import StateTester

START = datetime(2024, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SINCE_1970 = int(START.timestamp())

Event: TypeAlias = tuple[str, int, int]
"""Key, seconds, and a number that no other event has: sums of them tell which events are in."""


class Sums:
    """One batch after the other, told as simply as can be: updates, closed windows, and late (event, window)."""

    def __init__(self, grace: int) -> None:
        self.grace = grace
        self.watermark: int | None = None
        self.updates: Counter[Any] = Counter()
        self.closed: Counter[Any] = Counter()
        self.late: Counter[Any] = Counter()

    def passed(self, end: int) -> bool:
        return self.watermark is not None and end + self.grace <= self.watermark

    def batch(self, events: list[Event], delay: int) -> None:
        self.updates, self.closed, self.late = Counter(), Counter(), Counter()
        for key in "abz":
            self.one_key(key, sorted((e for e in events if e[0] == key), key=lambda e: e[1]))
        if events:
            reached = max(at for _, at, _ in events) - delay
            self.watermark = reached if self.watermark is None else max(self.watermark, reached)

    def one_key(self, key: str, events: list[Event]) -> None:
        raise NotImplementedError


def total(events: list[Event]) -> int:
    return sum(n for _, _, n in events)


class FixedSums(Sums):
    def __init__(self, grace: int, size: int, every: int) -> None:
        super().__init__(grace)
        self.size, self.every = size, every
        self.windows: dict[tuple[str, int], list[Event]] = {}

    def one_key(self, key: str, events: list[Event]) -> None:
        changed = set()
        for event in events:
            for start in range(event[1] - self.size + 1, event[1] + 1):
                if (SINCE_1970 + start) % self.every:
                    continue
                if self.passed(start + self.size):
                    self.late[event, start, start + self.size] += 1
                else:
                    self.windows.setdefault((key, start), []).append(event)
                    changed.add(start)
        for start in changed:
            self.updates[key, start, start + self.size, total(self.windows[key, start])] += 1
        for its, start in list(self.windows):
            if its == key and self.passed(start + self.size):
                self.closed[key, start, start + self.size, total(self.windows.pop((key, start)))] += 1


class SessionSums(Sums):
    def __init__(self, grace: int, gap: int) -> None:
        super().__init__(grace)
        self.gap = gap
        self.sessions: dict[str, list[list[Event]]] = {}

    def end(self, session: list[Event]) -> int:
        return max(at for _, at, _ in session) + self.gap

    def start(self, session: list[Event]) -> int:
        return min(at for _, at, _ in session)

    def one_key(self, key: str, events: list[Event]) -> None:
        before = self.sessions.get(key, [])
        found = [session for session in before if not self.passed(self.end(session))]
        was_open = {n for session in found for _, _, n in session}
        found += [[event] for event in events]
        while near := next(((a, b) for a in found for b in found if a is not b and self.are_near(a, b)), None):
            found = [session for session in found if session not in near] + [near[0] + near[1]]
        new = {n for _, _, n in events}
        kept = []
        for session in found:
            numbers = {n for _, _, n in session}
            if self.passed(self.end(session)) and not numbers & was_open:
                self.late.update((event, self.start(session), self.end(session)) for event in session)
                continue
            kept.append(session)
            if numbers & new:
                self.updates[key, self.start(session), self.end(session), total(session)] += 1
        for session in before:
            if self.passed(self.end(session)):
                self.closed[key, self.start(session), self.end(session), total(session)] += 1
        self.sessions[key] = kept

    def are_near(self, a: list[Event], b: list[Event]) -> bool:
        return any(abs(x - y) < self.gap for _, x, _ in a for _, y, _ in b)


class SlidingSums(Sums):
    def __init__(self, grace: int, size: int) -> None:
        super().__init__(grace)
        self.size = size
        self.events: list[Event] = []
        self.open: set[tuple[str, int]] = set()

    def has_passed(self, at: int) -> bool:
        """The end of a sliding window is in it."""
        return self.watermark is not None and at + self.grace < self.watermark

    def one_key(self, key: str, events: list[Event]) -> None:
        self.events += events
        for event in events:
            if self.has_passed(event[1]):
                self.late[event, event[1] - self.size, event[1]] += 1
            else:
                self.open.add((key, event[1]))
        for its, at in sorted(self.open):
            if its == key and self.has_passed(at):
                self.open.discard((key, at))
                # Those that came in this batch came too late for it.
                inside = self.inside(key, at, [event for event in self.events if event not in events])
                self.closed[key, at - self.size, at, total(inside)] += 1
            elif its == key and self.inside(key, at, events):
                self.updates[key, at - self.size, at, total(self.inside(key, at, self.events))] += 1

    def inside(self, key: str, at: int, events: list[Event]) -> list[Event]:
        return [event for event in events if event[0] == key and at - self.size < event[1] <= at]


def update(key: str, window: cs.Window, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
    state.set("total", state.get("total", 0) + sum(row["n"] for row in rows))
    yield {"update": (key, *bounds(window), state.get("total"))}


def close(key: str, window: cs.Window, state: Any) -> Iterator[dict[str, Any]]:
    yield {"closed": (key, *bounds(window), state.get("total"))}


def merge(key: str, state: Any, other: Any) -> None:
    state.set("total", state.get("total", 0) + other.get("total", 0))


def bounds(window: cs.Window) -> tuple[int, int]:
    return (window.start - START) // SECOND, (window.end - START) // SECOND


kinds = st.one_of(
    st.tuples(st.just("tumbling"), st.integers(1, 12)),
    st.tuples(st.just("hopping"), st.integers(1, 12), st.integers(1, 12)).filter(lambda kind: kind[2] <= kind[1]),
    st.tuples(st.just("session"), st.integers(1, 8)),
    st.tuples(st.just("sliding"), st.integers(1, 12)),
)
graces = st.sampled_from([0, 0, 3])
rows = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40)), max_size=20)


def both(kind: tuple[Any, ...], grace: int) -> tuple[Any, Sums]:
    name, *sizes = kind
    if name == "tumbling":
        return cs.Tumbling(sizes[0], grace=grace), FixedSums(grace, sizes[0], sizes[0])
    if name == "hopping":
        return cs.Hopping(sizes[0], sizes[1], grace=grace), FixedSums(grace, *sizes)
    if name == "session":
        return cs.Session(sizes[0], merge, grace=grace), SessionSums(grace, sizes[0])
    return cs.Sliding(sizes[0], grace=grace), SlidingSums(grace, sizes[0])


@settings(max_examples=300, deadline=None)
@given(kinds, graces, st.sampled_from([0, 2, 10]), rows, st.randoms(use_true_random=False))
def test_windows_equal_sums_over_everything(
    kind: tuple[Any, ...], grace: int, delay: int, given: list[tuple[str, int]], chance: random.Random
) -> None:
    window, model = both(kind, grace)
    kit = StateTester.apply_windows(
        update,
        window=window,
        key="k",
        event_time="at",
        watermark_delay=delay,
        on_close=close,
        late="side_output",
    )
    left: list[Event] = [(key, at, 1 << number) for number, (key, at) in enumerate(given)]
    while left:
        size = chance.randint(0, min(6, len(left)))
        events, left = left[:size], left[size:]
        check(kit, model, events, delay)
        chance.choice([lambda: None, kit.restart, kit.restore, kit.compact])()
    for at in (10_000, 10_100):
        check(kit, model, [("z", at, at << 30)], delay)
    kit.batch()
    assert {key for key, _ in kit.state()} == {"z"}
    assert {record[1:4] for record in kit.records()} == {b"\x03z\0"}, "no timer is left either"


def check(kit: StateTester, model: Sums, events: list[Event], delay: int) -> None:
    kit.late.clear()
    output = kit.batch({"k": key, "at": START + at * SECOND, "n": n} for key, at, n in events)
    assert kit.replay() == output
    model.batch(events, delay)
    assert Counter(row["update"] for row in output if "update" in row) == model.updates
    assert Counter(row["closed"] for row in output if "closed" in row) == model.closed
    late = Counter(
        (
            (row["k"], (row["at"] - START) // SECOND, row["n"]),
            (row["window"]["start"] - START) // SECOND,
            (row["window"]["end"] - START) // SECOND,
        )
        for row in kit.late
    )
    assert late == model.late
    assert kit.last_batch is not None
    assert kit.last_batch.late_rows == late.total()
