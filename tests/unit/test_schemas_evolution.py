"""Three generations of one variable: what the third one reads, and what is refused before any event."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import pytest

from changelog_state.errors import SchemaEvolutionError, ValueEncodingError
from changelog_state.schemas.classes import aliased
from changelog_state.schemas.declared import codec_for
from changelog_state.schemas.evolution import check_evolution
from changelog_state.schemas.value_codec import ValueCodec


def record(*fields: tuple[Any, ...], name: str = "R") -> dict[str, Any]:
    """Fields as (name, type), (name, type, default) or (name, type, default, aliases)."""
    keys = "name", "type", "default", "aliases"
    return {"type": "record", "name": name, "fields": [dict(zip(keys, each, strict=False)) for each in fields]}


def codec(declared: Any, migrate: Any = None) -> ValueCodec:
    return codec_for(declared, name="profile", migrate=migrate)


def evolve(old: ValueCodec, new: ValueCodec, value: Any) -> Any:
    """An old value under the new declaration, after the check that comes before."""
    check_evolution("profile", new, [old.declaration])
    return new.decode(old.encode(value), {old.fingerprint: old.schema_json}.__getitem__)  # type: ignore[arg-type]


@dataclass
class AddressV1:
    street: str
    house: int


@dataclass
class ProfileV1:
    name: str
    visits: int
    spend: float
    address: AddressV1
    obsolete: list[str] = field(default_factory=list)


@dataclass
class AddressV2:
    street: str
    house: int
    city: str = "?"


@dataclass
class ProfileV2:
    full_name: Annotated[str, aliased("name")]
    visits: float
    spend: float
    address: AddressV2
    tags: list[str] = field(default_factory=lambda: ["new"])


@dataclass
class Location:
    road: Annotated[str, aliased("street")]
    city: str = "?"


@dataclass
class Profile:
    shown_as: Annotated[str, aliased("full_name", "name")]
    address: Location | None
    visits: float = 0.0
    spend: float | None = None
    tags: list[str] = field(default_factory=list)
    score: int = 5


def test_three_generations_are_read_by_the_third() -> None:
    generations = [codec(ProfileV1), codec(ProfileV2), codec(Profile)]
    check_evolution("profile", generations[2], [each.declaration for each in generations])
    schemas = {each.fingerprint: each.schema_json for each in generations}
    values = [
        ProfileV1("a", 3, 1.5, AddressV1("s", 7), ["x"]),
        ProfileV2("b", 4.0, 2.5, AddressV2("t", 8, "c"), ["y"]),
        Profile("c", None, 5.0, None, [], 9),
    ]
    stored = [each.encode(value) for each, value in zip(generations, values, strict=True)]
    assert [generations[2].decode(data, schemas.__getitem__) for data in stored] == [  # type: ignore[arg-type]
        Profile("a", Location("s", "?"), 3.0, 1.5, [], 5),
        Profile("b", Location("t", "c"), 4.0, 2.5, ["y"], 5),
        Profile("c", None, 5.0, None, [], 9),
    ]
    second = generations[1].decode(stored[0], schemas.__getitem__)  # type: ignore[arg-type]
    assert second == ProfileV2("a", 3.0, 1.5, AddressV2("s", 7, "?"), ["new"])
    assert type(second.visits) is float


def test_what_is_rewritten_is_of_the_new_schema() -> None:
    old, new = codec(ProfileV1), codec(ProfileV2)
    data = old.encode(ProfileV1("a", 3, 1.5, AddressV1("s", 7)))
    assert not new.is_current(data)
    rewritten = new.encode(evolve(old, new, ProfileV1("a", 3, 1.5, AddressV1("s", 7))))
    assert new.is_current(rewritten)


def test_every_generation_counts_not_only_the_last() -> None:
    first, second, third = codec(record(("a", "string"))), codec(record()), codec(record(("a", "long", 0)))
    check_evolution("profile", second, [first.declaration])
    check_evolution("profile", third, [second.declaration])
    with pytest.raises(SchemaEvolutionError, match="field a was string and is long"):
        check_evolution("profile", third, [first.declaration, second.declaration])


@pytest.mark.parametrize(
    ("old", "new", "value", "expected"),
    [
        ("int", "long", 5, 5),
        ("int", "float", 5, 5.0),
        ("int", "float", 2**24 + 1, 2.0**24),
        ("int", "double", 5, 5.0),
        ("long", "float", 5, 5.0),
        ("long", "double", 5, 5.0),
        ("float", "double", 0.5, 0.5),
        ("string", "bytes", "é", "é".encode()),
        ("bytes", "string", "é".encode(), "é"),
        ("long", ["null", "double"], 5, 5.0),
        ("long", ["double", "long"], 5, 5),
        (["null", "int"], ["string", "long", "null"], 5, 5),
        (["null", "int"], ["string", "long", "null"], None, None),
        (["long"], "long", 5, 5),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "double"}, [1], [1.0]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": ["null", "long"]}, {"a": 1}, {"a": 1}),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            {"type": "enum", "name": "F", "symbols": ["C", "B", "A"]},
            "A",
            "A",
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            {"type": "enum", "name": "E", "symbols": ["B"], "default": "B"},
            "A",
            "B",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            1,
            Decimal("1.00"),
        ),
        (
            record(("a", "long"), ("b", "long")),
            record(("b", "long"), ("a", "long")),
            {"a": 1, "b": 2},
            {"a": 1, "b": 2},
        ),
        (record(("a", "long")), record(("b", "long", 0, ["a"])), {"a": 1}, {"b": 1}),
        (record(("a", "long"), ("b", "long")), record(("b", "long", 0, ["a"])), {"a": 1, "b": 2}, {"b": 2}),
        (record(("a", "long")), ["null", record(("a", "long"), name="S")], {"a": 1}, {"a": 1}),
        (
            ["null", record(("a", "long")), record(("c", "long"), name="T")],
            ["null", record(("c", "long"), name="T"), {**record(("a", "long"), name="S"), "aliases": ["R"]}],
            {"a": 1},
            {"a": 1},
        ),
        (record(), record(("a", "bytes", "\u00ff")), {}, {"a": b"\xff"}),
        (record(), record(("a", record(("b", "long", 3), name="S"), {})), {}, {"a": {"b": 3}}),
        (record(), record(("a", ["null", "long"], 7)), {}, {"a": 7}),
        (
            record(),
            record(("a", {"type": "long", "logicalType": "local-timestamp-micros"}, 0)),
            {},
            {"a": datetime(1970, 1, 1)},
        ),
    ],
)
def test_compatible_changes(old: Any, new: Any, value: Any, expected: Any) -> None:
    found = evolve(codec(old), codec(new), value)
    assert found == expected
    assert sorted(repr(found)) == sorted(repr(expected))  # 5 and 5.0 are equal


SIZE = "keep a field's type, or only widen it"
DEFAULT = "give a new field a default, or name in its aliases the field"
MIGRATE = "or say migrate=func.old. -> new"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("long", "int", f"its value was long and is int; {SIZE}.*{MIGRATE}"),
        ("double", "float", "its value was double and is float"),
        ("double", "long", "its value was double and is long"),
        ("boolean", "long", "its value was boolean and is long"),
        ("string", "long", "its value was string and is long"),
        ("long", "string", "its value was long and is string"),
        (["null", "long"], "long", "its value was null or long and is long"),
        (["null", "string"], ["null", "long"], "its value was null or string and is null or long"),
        (record(("a", "string")), record(("a", "long")), f"field a was string and is long; {SIZE}"),
        (
            record(("a", "long")),
            record(("a", "long"), ("b", "string")),
            f"field b .string. is new and has no default; {DEFAULT}",
        ),
        (
            record(("a", "long")),
            record(("b", "long")),
            "new and has no default; .* the field .one of a.. that it was",
        ),
        (record(("a", "long")), "long", "its value was record R and is long"),
        (
            record(("a", record(("b", ["null", "long"]), name="S"))),
            record(("a", record(("b", "long"), name="S"))),
            "field a.b was null or long and is long",
        ),
        (
            record(("a", {"type": "array", "items": record(("b", "long"), name="S")})),
            record(("a", {"type": "array", "items": record(("b", "string"), name="S")})),
            r"field a\[\].b was long and is string",
        ),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}, "its value{} was long and is int"),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            {"type": "enum", "name": "E", "symbols": ["A"]},
            r"its value was enum E \(A, B\) and is enum E \(A\)",
        ),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            "was fixed F of 2 bytes and is fixed F of 3 bytes",
        ),
        ("int", {"type": "int", "logicalType": "date"}, "its value was int and is date"),
        (
            [record(("a", "long")), record(("a", "long"), name="S")],
            [record(("a", "long"), name="T"), "null"],
            "was record R or record S and is record T or null",
        ),
    ],
)
def test_incompatible_changes_name_the_field_both_types_and_the_remedy(old: Any, new: Any, message: str) -> None:
    with pytest.raises(SchemaEvolutionError, match=f"variable profile .*{message}"):
        check_evolution("profile", codec(new), [codec(old).declaration])


def test_all_problems_are_named_at_once() -> None:
    old = codec(record(("a", "string"), ("b", "long"), ("c", "long")))
    with pytest.raises(SchemaEvolutionError) as caught:
        check_evolution("profile", codec(record(("a", "long"), ("b", "int"), ("d", "long"))), [old.declaration])
    assert str(caught.value) == (
        "variable profile has values that cannot be read as it is declared now: field a was string and is long; "
        "field b was long and is int; field d (long) is new and has no default; give a new field a default, or name "
        "in its aliases the field (one of c?) that it was before; keep a field's type, or only widen it (int to long "
        "to float to double), or give the new type to a new field; or say migrate=func(old) -> new"
    )


def test_enums_of_python_evolve_by_their_names() -> None:
    old, new = Enum("Color", ["RED", "GREEN"]), Enum("Color", ["BLUE", "GREEN", "RED"])
    assert evolve(codec(old), codec(new), old["RED"]) is new["RED"]


def test_a_change_that_avro_cannot_see_is_refused_even_with_a_migration() -> None:
    old = codec(record(("at", "long")))
    new = codec(record(("at", {"type": "long", "logicalType": "timestamp-micros"})), migrate=lambda old: old)
    assert old.fingerprint == new.fingerprint
    with pytest.raises(
        SchemaEvolutionError, match="field at was long and is timestamp-micros, but .* same fingerprint"
    ):
        check_evolution("profile", new, [old.declaration])
    renamed = record(("at", {"type": "long", "logicalType": "timestamp-micros"}), name="S")
    check_evolution("profile", codec(renamed, migrate=lambda old: old), [old.declaration])


def test_a_value_whose_schema_was_never_checked_is_an_error_too() -> None:
    old, new = codec(record(("a", "string"))), codec(record(("a", "long")))
    with pytest.raises(
        ValueEncodingError, match="profile .* cannot read: field a was string and is long; .*migrate="
    ):
        new.decode(old.encode({"a": "x"}), lambda _: old.schema_json or "")
    with pytest.raises(ValueEncodingError, match="keep each schema under its own fingerprint"):
        new.decode(old.encode({"a": "x"}), lambda _: new.schema_json or "")
    with pytest.raises(KeyError):
        new.decode(old.encode({"a": "x"}), {}.__getitem__)


def test_a_schema_is_asked_for_once() -> None:
    old, new = codec("int"), codec("long")
    asked: list[bytes] = []

    def schema_of(fingerprint: bytes) -> str:
        asked.append(fingerprint)
        return old.schema_json or ""

    assert [new.decode(old.encode(each), schema_of) for each in range(3)] == [0, 1, 2]
    assert asked == [old.fingerprint]


def test_damage_in_an_old_value_is_called_damage() -> None:
    old, new = codec(record(("a", "string"))), codec(record(("a", "bytes"), ("b", "long", 0)))
    data = old.encode({"a": "abc"})
    for damaged in (data[:-1], data[:10], data + b"\x00"):
        with pytest.raises(ValueEncodingError, match="a stored value cannot be read"):
            new.decode(damaged, lambda _: old.schema_json or "")


def test_a_type_inside_itself() -> None:
    node = record(("n", "int"), ("next", ["null", "R"], None))
    wider = record(("n", "long"), ("note", "string", ""), ("next", ["null", "R"], None))
    value = {"n": 1, "next": {"n": 2, "next": None}}
    assert evolve(codec(node), codec(wider), value) == {
        "n": 1,
        "note": "",
        "next": {"n": 2, "note": "", "next": None},
    }
    narrower = record(("n", "string"), ("next", ["null", "R"], None))
    with pytest.raises(SchemaEvolutionError, match="now: field n was int and is string; keep"):
        check_evolution("profile", codec(narrower), [codec(node).declaration])


@pytest.mark.parametrize(
    ("new", "value"),
    [(str | None, "a"), (str | None, None), (list[int] | None, [1]), (str | list[int] | None, [1]), (Any, "a")],
)
def test_any_value_in_a_union_becomes_what_it_is_of_the_declared_one(new: Any, value: Any) -> None:
    assert evolve(codec(list[Any | None]), codec(list[new]), [value]) == [value]


def test_any_value_in_a_union_that_does_not_fit_is_refused_with_its_path() -> None:
    with pytest.raises(ValueEncodingError, match=r"profile\[\] is 5 of type int, but string is declared"):
        evolve(codec(list[Any | None]), codec(list[str | None]), [5])
