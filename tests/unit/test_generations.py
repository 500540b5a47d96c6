"""Declared types over batches: three generations of a schema, with replays and restores in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest

import changelog_state as cs
from changelog_state.errors import FunctionError, SchemaEvolutionError, ValueEncodingError
from changelog_state.testing import StateTester


@dataclass
class First:
    """Called Profile in all generations, as a class is that is edited."""

    name: str
    visits: int


@dataclass
class Second:
    name: str
    visits: float
    city: str = "unknown"


@dataclass
class Third:
    full_name: Annotated[str, cs.aliased("name")]
    visits: float
    tags: list[str] | None = None


for generation in (First, Second, Third):
    generation.__name__ = generation.__qualname__ = "Profile"


def of(kind: type, migrate: Callable[[Any], Any] | None = None) -> list[Any]:
    return [
        cs.Value("profile", kind, migrate=migrate),
        cs.List("past", kind, migrate=migrate),
        cs.Map("by", str, kind, migrate=migrate),
    ]


def visit(key: str, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
    new = rows[-1].get("new")
    if new is not None:
        state.profile = state.by["x"] = new
        state.past.append(new)
    yield {"profile": state.profile, "past": list(state.past), "by": dict(state.by.items())}


def everywhere(value: Any, past: list[Any] | None = None) -> dict[str, Any]:
    return {"profile": value, "past": past or [value], "by": {"x": value}}


class Program(StateTester):
    """Values are handed to the function beside the rows, which are only plain."""

    def __init__(self, **options: Any) -> None:
        self.new: Any = None
        super().__init__(self._visit, key="key", **options)

    def _visit(self, key: str, rows: list[dict[str, Any]], state: Any) -> Any:
        return visit(key, [*rows, {"new": self.new}], state)

    def write(self, key: str, value: Any) -> Any:
        self.new = value
        found = self.batch([{"key": key}])
        assert self.replay() == found
        self.new = None
        return found[0]

    def look(self, key: str) -> Any:
        return self.write(key, None)


def test_three_generations_with_restores_in_between() -> None:
    program = Program(state=of(First))
    assert program.write("a", First("Ann", 1)) == everywhere(First("Ann", 1))
    program.write("b", First("Bob", 2))
    program.restore()
    program.declare(of(Second))
    assert program.look("a") == everywhere(Second("Ann", 1.0))
    program.write("b", Second("Bob", 2.5, "Bonn"))
    program.restore()
    program.restart()
    program.declare(of(Third))
    assert program.look("a") == everywhere(Third("Ann", 1.0))
    third = Third("Bob", 2.5)
    assert program.look("b") == everywhere(third, [Third("Bob", 2.0), third])
    program.write("a", Third("Ann B.", 7.0, ["x"]))
    program.restore()
    assert program.get_all("a") == everywhere(
        Third("Ann B.", 7.0, ["x"]), [Third("Ann", 1.0), Third("Ann B.", 7.0, ["x"])]
    )


def test_without_the_declaration_values_are_dicts() -> None:
    program = Program(state=of(First))
    program.write("a", First("Ann", 1))
    program.declare([])
    assert program.get_all("a") == everywhere({"name": "Ann", "visits": 1})


def test_without_the_declaration_values_are_still_those_of_their_variable() -> None:
    """Which Avro's fingerprint, one for all of these, does not tell."""
    at = datetime(2024, 1, 1, tzinfo=UTC)
    values = {"price": Decimal("1.50"), "rate": Decimal("0.1234"), "n": 7, "at": at}

    def write(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        for name, value in values.items():
            setattr(state, name, value)
        state.times[0] = at

    declared = [
        cs.Value("price", Annotated[Decimal, (10, 2)]),
        cs.Value("rate", Annotated[Decimal, (10, 4)]),
        cs.Value("n", int | None),
        cs.Value("at", datetime | None),
        cs.Map("times", int, datetime | None),
    ]
    given = StateTester(write, key="key", state=declared)
    given.batch([{"key": "a"}])
    given.declare([])
    assert given.get_all("a") == values | {"times": {0: at}}


def test_a_schema_travels_once() -> None:
    program = Program(state=of(First))
    for number in range(3):
        program.write(f"key-{number}", First("Ann", number))
    records = [message.key() for message in program._partition.log.records]
    assert len({key for key in records if key[:1] == b"s"}) == len(
        set(records) & {k for k in records if k[:1] == b"s"}
    )
    fingerprint = of(First)[0].codec.fingerprint
    assert records.count(b"s" + fingerprint) == 1


@dataclass
class Narrow:
    name: str
    visits: bool


@dataclass
class NoDefault:
    name: str
    visits: int
    city: str


for generation in (Narrow, NoDefault):
    generation.__name__ = generation.__qualname__ = "Profile"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Narrow, ["profile", "visits", "long", "boolean"]),
        (NoDefault, ["profile", "city", "default"]),
        (int, ["profile", "record", "int"]),
    ],
)
def test_what_could_not_be_read_is_refused_at_once(kind: type, words: list[str]) -> None:
    program = Program(state=of(First))
    program.write("a", First("Ann", 1))
    with pytest.raises(SchemaEvolutionError) as refused:
        program.declare(of(kind))
    assert [word for word in words if word not in str(refused.value)] == []
    assert program.look("a") == everywhere(First("Ann", 1)), "nothing has happened"


def test_every_generation_counts_not_only_the_last() -> None:
    program = Program(state=[cs.Value("n", str)])
    program.declare([cs.Value("n", int, migrate=len)])
    with pytest.raises(SchemaEvolutionError, match="variable n.*str.*float"):
        program.declare([cs.Value("n", float)])
    program.declare([cs.Value("n", float, migrate=lambda old: float(len(str(old))))])


def test_a_kind_of_variable_stays() -> None:
    program = Program(state=[cs.Value("n", int)])
    with pytest.raises(SchemaEvolutionError, match="declared as a list, but the store has it as a value"):
        program.declare([cs.List("n", int)])


def test_the_keys_of_a_map_stay_what_they_are() -> None:
    program = StateTester(visit, key="key", state=[cs.Map("by", str, int)])
    program.declare([cs.Map("by", None, int)])
    with pytest.raises(
        SchemaEvolutionError,
        match=r"by\[keys\] is declared as a map with bigint keys, but the store has it as a map with string keys",
    ):
        program.declare([cs.Map("by", int, int)])
    program.declare([cs.Map("by", str, int)])


@pytest.mark.parametrize("migration", ["lazy", "eager"])
def test_migration(migration: Any) -> None:
    def migrate(old: dict[str, Any]) -> Narrow:
        return Narrow(old["name"].upper(), old["visits"] > 0)

    program = Program(state=of(First), migration=migration, ttl=1_000)
    for key in ("a", "b", "c"):
        program.write(key, First(key, 1))
    before = program.records()
    program.declare(of(Narrow, migrate))
    assert program.look("b") == everywhere(Narrow("B", True))
    assert program.last_batch is not None
    changed = {key for key, data in program.records().items() if before[key] != data}
    if migration == "lazy":
        assert changed == set(), "reading is not touching"
        program.write("b", Narrow("B", False))
        assert program.get("a", "profile") == Narrow("A", True)
    else:
        assert program.last_batch.rewritten == len(changed) == 9
        program.look("b")
        assert program.last_batch.rewritten == 0
        program.declare(of(Narrow, lambda old: 1 / 0))
        assert program.get("a", "profile") == Narrow("A", True), "nothing is left to be migrated"
    program.restore()
    assert program.get("c", "profile") == Narrow("C", True)
    program.advance(2_000)
    assert program.state() == {}, "a migration prolongs no life"


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_many_old_values_are_written_anew_in_steps(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between rows, timers and values that expire, in the order of the keys."""
    monkeypatch.setattr("changelog_state.task.keyed._KEYS_AT_ONCE", at_once)

    def function(key: str, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
        if rows[0]["new"]:
            state.n = 1
            state.set_timer(100, "t")
            state.set("short", key, ttl=100)
        yield {"key": key, "n": state.n}

    def on_timer(key: str, name: str, at: datetime, state: Any) -> Iterator[dict[str, Any]]:
        yield {"timer of": key}

    given = StateTester(
        function, key="key", on_timer=on_timer, state=[cs.Value("n", int)], migration="eager", now=0.0
    )
    given.batch([{"key": key, "new": True} for key in "abcdefgh"])
    given.declare([cs.Value("n", str, migrate=lambda old: f"{old}!")])
    given.advance(100)
    found = given.batch([{"key": "c", "new": False}, {"key": "f", "new": False}])
    assert given.replay() == found
    assert [row for row in found if "n" in row] == [{"key": "c", "n": "1!"}, {"key": "f", "n": "1!"}]
    assert [row["timer of"] for row in found if "n" not in row] == list("abcdefgh")
    assert given.last_batch is not None
    assert given.last_batch.rewritten == 8
    assert given.state() == {key: {"n": "1!"} for key in "abcdefgh"}
    given.restore()
    given.declare([cs.Value("n", str, migrate=lambda old: 1 / 0)])
    assert given.state() == {key: {"n": "1!"} for key in "abcdefgh"}


def test_what_has_expired_need_not_fit() -> None:
    """It is removed in steps, so that much of it may still be there."""

    def function(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        if key != "look":
            state.n = key

    given = StateTester(function, key="key", state=[cs.Value("n", ttl=60)], migration="eager")
    given.batch([{"key": "a"}])
    given.advance(120)
    given.declare([cs.Value("n", int, ttl=60)])
    given.batch([{"key": "look"}])
    assert given.last_batch is not None
    assert given.last_batch.rewritten == 0
    assert given.records() == {}


def test_a_migration_that_fails_says_for_which_value() -> None:
    program = Program(state=of(First))
    program.write("a", First("Ann", 1))
    program.declare(of(Narrow, lambda old: old["nothing"]))
    with pytest.raises(FunctionError, match=r"migrate of variable profile has raised KeyError.*Ann"):
        program.look("a")


def test_values_from_before_there_was_a_declaration() -> None:
    def untyped(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        state.set("n", key)

    given = StateTester(untyped, key="key")
    given.batch([{"key": "5"}])
    given.declare([cs.Value("n", str)])
    assert given.get("5", "n") == "5"
    given.declare([])
    given._declarations = type(given._declarations)()
    given.declare([cs.Value("n", int)])
    with pytest.raises(ValueEncodingError, match="variable n"):
        given.get("5", "n")


def test_values_of_the_declared_type_only() -> None:
    program = Program(state=[cs.Value("profile", int), cs.List("past"), cs.Map("by")])
    with pytest.raises(ValueEncodingError, match=r"variable profile does not take this value.*'many'"):
        program.write("a", "many")


def test_times_are_utc() -> None:
    at = datetime(2024, 1, 1, 12, tzinfo=UTC)
    program = Program(state=[cs.Value("profile", datetime), cs.List("past", datetime), cs.Map("by", str, datetime)])
    assert program.write("a", at) == everywhere(at)
