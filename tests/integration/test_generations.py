"""A schema's generations on a real store: what is recorded, what is refused, and what tools make of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import changelog_state as cs
from restore.inspection import entries_of_key

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@dataclass
class Old:
    name: str
    n: int


@dataclass
class New:
    name: str
    n: float
    city: str = "unknown"


@dataclass
class Wrong:
    name: int
    n: float


def of(kind: type) -> list[Any]:
    kind.__name__ = kind.__qualname__ = "Person"
    return [cs.Value("person", kind)]


def test_generations_of_a_store(spark: Any, make_service: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("a",), ("b",)], "key string")
    called = tmp_path / "called"

    def write(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        state.person = Old(key, 1)

    def touch(key: str, rows: list[dict[str, Any]], state: Any) -> Any:
        called.touch()
        if key == "a":
            state.person = New(key, state.person.n + 0.5)
        yield {"key": key, "n": state.person.n, "city": state.person.city}

    first = make_service(state=of(Old))
    first.apply(frame, 0, write, key="key", schema="key string")
    assert first.get("a", "person") == Old("a", 1)
    first.close()
    shutil.rmtree(tmp_path / "state" / "stores")

    with pytest.raises(cs.SchemaEvolutionError, match="person.*name.*string.*long"):
        make_service(state=of(Wrong)).apply(frame, 1, touch, key="key", schema="key string, n double, city string")
    assert not called.exists(), "no event was processed"

    second = make_service(state=of(New), migration="eager")
    # What the replay of a batch rewrites is thrown away: the next batch has to do it.
    second.apply(frame, 0, lambda key, rows, state: None, key="key", schema="key string")
    only_a = frame.where("key = 'a'").coalesce(1)  # no rows for the partition of b
    rows = second.apply(only_a, 1, touch, key="key", schema="key string, n double, city string").collect()
    assert sorted(map(tuple, rows)) == [("a", 1.5, "unknown")]
    assert second.last_batch.rewritten == 1
    second.apply(frame.where("false"), 2, touch, key="key", schema="key string, n double, city string")
    assert second.last_batch.rewritten == 0
    assert second.get("b", "person") == New("b", 1.0)
    assert make_service().get("b", "person") == {"name": "b", "n": 1.0, "city": "unknown"}
    partition = next(
        p["partition"] for p in second.status()["partitions"] if any(second.scan(partitions=[p["partition"]]))
    )
    key = next(key for key, _ in second.scan(partitions=[partition]))
    second.close()
    path = tmp_path / "state" / "stores" / second._config.application / "totals" / str(partition)
    [entry] = entries_of_key(path, ["string"], key)
    assert entry.value == {"name": key, "n": 1.5 if key == "a" else 1.0, "city": "unknown"}


def test_an_empty_store_may_be_anything(spark: Any, make_service: Any) -> None:
    frame = spark.createDataFrame([("a",)], "key string")

    def write(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        state.person = Old(key, 1)

    service = make_service(state=of(Old))
    service.apply(frame, 0, write, key="key", schema="key string")
    service.close()
    with pytest.raises(cs.SchemaEvolutionError, match="variable person"):
        make_service(state=of(Wrong)).apply(frame, 1, write, key="key", schema="key string")
    service = make_service(state=of(Wrong))
    assert service.clear() == 1
    service.close()

    def rewrite(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        state.person = Wrong(1, 2.0)

    again = make_service(state=of(Wrong))
    again.apply(frame, 1, rewrite, key="key", schema="key string")
    assert again.get("a", "person") == Wrong(1, 2.0)


def test_a_store_that_a_new_query_has_cleared_knows_the_types_of_that_query(spark: Any, make_service: Any) -> None:
    frame = spark.createDataFrame([("a",)], "key string")

    def write(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        state.person = Old(key, 1)

    service = make_service(state=of(Old), on_new_query="clear")
    for query in ("first", "second"):
        service.apply(frame, 0, write, key="key", schema="key string", query_id=query)
    with pytest.raises(cs.SchemaEvolutionError, match="person.*name.*string.*long"):
        make_service(state=of(Wrong)).apply(frame, 1, write, key="key", schema="key string", query_id="second")
    epoch = service._coordinator.epoch
    service.apply(frame, 1, write, key="key", schema="key string", query_id="second")
    assert service._coordinator.epoch == epoch, "who was refused has disturbed nobody"
