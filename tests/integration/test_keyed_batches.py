"""What is made of ``apply``'s parts, in Spark: that it gets there, and that rows come back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import changelog_state as cs

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_stateful_map(spark: Any, make_service: Any) -> None:
    def changes(key: str, value: dict[str, Any], state: list[int]) -> Any:
        previous = state[-1] if state else None
        return {"user": key, "was": previous, "n": value["n"]}, [*state, value["n"]][-2:]

    service = make_service()

    def batch(number: int, *rows: tuple[str, int, str]) -> tuple[list[Any], list[Any]]:
        df = spark.createDataFrame(list(rows), "user string, n int, at string").selectExpr(
            "user", "n", "cast(at as timestamp) as at"
        )
        done, late = service.stateful_map(
            df,
            number,
            changes,
            key="user",
            schema="user string, was int, n int",
            initial=list,
            order_by="at",
            event_time="at",
            late="side_output",
        )
        return [tuple(row) for row in done.orderBy("user", "n").collect()], [row["n"] for row in late.collect()]

    noon = "2024-01-01 12:00:0"
    first = batch(0, ("a", 3, noon + "3"), ("a", 1, noon + "1"), ("b", 2, noon + "2"))
    assert first == ([("a", None, 1), ("a", 1, 3), ("b", None, 2)], [])
    assert batch(1, ("a", 7, noon + "2"), ("a", 4, noon + "3")) == ([("a", 3, 4)], [7])
    assert dict(service.scan()) == {"a": {"state": [3, 4]}, "b": {"state": [2]}}


def test_windows(spark: Any, make_service: Any) -> None:
    """With a key of two columns, late rows, and a replay by another driver."""

    def total(key: tuple[str, int], window: cs.Window, rows: list[Any], state: Any) -> Iterator[dict[str, Any]]:
        state.total += sum(row["n"] for row in rows)
        state.seen.extend(row["n"] for row in rows)
        yield {"user": key[0], "shop": key[1], "start": window.start, "total": state.total}

    def close(key: tuple[str, int], window: cs.Window, state: Any) -> Iterator[dict[str, Any]]:
        yield {"user": key[0], "shop": key[1], "start": window.start, "total": -state.total}

    def batch(service: cs.StateService, number: int, *rows: tuple[str, int, int]) -> tuple[list[Any], list[Any]]:
        data = [(user, 1, n, datetime(2024, 1, 1, 12, minute, tzinfo=UTC)) for user, n, minute in rows]
        done, late = service.apply_windows(
            spark.createDataFrame(data, "user string, shop int, n int, `at` timestamp"),
            number,
            total,
            window=cs.Hopping("10 minutes", every="5 minutes"),
            key=["user", "shop"],
            schema="user string, shop int, start timestamp, total int",
            event_time="at",
            on_close=close,
            late="side_output",
            order_by="n",
        )
        assert late.columns == ["user", "shop", "n", "at", "window"]
        return (
            sorted((row["user"], minute(row["start"]), row["total"]) for row in done.collect()),
            sorted((row["user"], row["n"], minute(row["window"]["start"])) for row in late.collect()),
        )

    def minute(time: datetime) -> int:
        return int((time.timestamp() - datetime(2024, 1, 1, 12, tzinfo=UTC).timestamp()) // 60)

    state = [cs.Value("total", int, default=0), cs.List("seen", int)]
    service = make_service(state=state)
    assert batch(service, 0, ("a", 1, 3), ("b", 2, 12), ("a", 4, 7)) == (
        [("a", -5, 1), ("a", 0, 5), ("a", 5, 4), ("b", 5, 2), ("b", 10, 2)],
        [],
    )
    second = batch(service, 1, ("a", 8, 6), ("c", 16, 2), ("c", 32, 30))
    assert second == (
        [("a", -5, -1), ("a", 0, -5), ("a", 5, 12), ("c", 25, 32), ("c", 30, 32)],
        [("a", 8, 0), ("c", 16, -5), ("c", 16, 0)],
    )
    assert service.last_batch.late_rows == 3
    start_ms = 1704110700000
    assert service.get_all(("a", 1, start_ms)) == {"total": 12, "seen": [4, 8]}
    assert [key for key, _ in service.scan(prefix=("a",))] == [("a", 1, start_ms)]
    service.close()

    again = make_service(state=state)
    assert batch(again, 1, ("c", 16, 2), ("a", 8, 6), ("c", 32, 30)) == second
    assert batch(again, 2) == ([("a", 5, -12), ("b", 5, -2), ("b", 10, -2)], [])
    assert [key for key, _ in again.scan()] == [("c", 1, start_ms + n * 60_000) for n in (20, 25)]
