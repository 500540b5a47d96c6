"""From values without a schema to declared ones, and back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from changelog_state.codec.avro import encode_value
from changelog_state.errors import SchemaEvolutionError, ValueEncodingError
from changelog_state.schemas.declared import codec_for
from changelog_state.schemas.evolution import check_evolution
from changelog_state.schemas.plain_values import decode_plain


@dataclass
class Address:
    street: str


@dataclass
class Profile:
    name: str
    spend: float = 0.0
    address: Address | None = None
    loose: Any = None


def no_schema(fingerprint: bytes) -> str:
    raise AssertionError(f"nobody should ask for schema {fingerprint.hex()}")


@pytest.mark.parametrize(
    ("declared", "value", "expected"),
    [
        (Profile, {"name": "a"}, Profile("a")),
        (
            Profile,
            {"name": "a", "spend": 3, "address": {"street": "s"}, "loose": [1]},
            Profile("a", 3.0, Address("s"), [1]),
        ),
        (list[int], [1, 2], [1, 2]),
        (dict[str, float], {"a": 1}, {"a": 1.0}),
        (int | None, None, None),
        ("int", 5, 5),
    ],
)
def test_a_value_from_before_the_declaration_is_read_where_it_fits(declared: Any, value: Any, expected: Any) -> None:
    codec = codec_for(declared, name="profile")
    check_evolution("profile", codec, [None])
    assert codec.decode(encode_value(value), no_schema) == expected


@pytest.mark.parametrize(
    ("declared", "value", "message"),
    [
        (Profile, {"name": 5}, "profile.name is 5 of type int, but string is declared"),
        (Profile, {"name": "a", "age": 1}, "profile has 'age', which record Profile does not declare"),
        (Profile, {"spend": 1.0}, "profile has no name"),
        (Profile, {"name": "a", "address": {"street": 1}}, "profile.address.street is 1 of type int"),
        (list[int], [1, "2"], r"profile\[1\] is '2' of type str"),
        ("int", 2**40, "does not fit into 32 bits"),
        (datetime, 5, "profile is 5 of type int, but timestamp-micros is declared"),
    ],
)
def test_where_it_does_not_fit_the_error_says_where(declared: Any, value: Any, message: str) -> None:
    with pytest.raises(ValueEncodingError, match=f"variable profile has a stored value .*{message}.*migrate="):
        codec_for(declared, name="profile").decode(encode_value(value), no_schema)


@pytest.mark.parametrize(
    ("declared", "value", "plain"),
    [
        (
            Profile,
            Profile("a", 1.0, Address("s")),
            {"name": "a", "spend": 1.0, "address": {"street": "s"}, "loose": None},
        ),
        (list[int], [1], [1]),
        (int | None, 5, 5),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "A", "A"),
    ],
)
def test_a_declaration_that_is_taken_back_leaves_plain_values(declared: Any, value: Any, plain: Any) -> None:
    old, new = codec_for(declared, name="profile"), codec_for(None, name="profile")
    check_evolution("profile", new, [old.declaration])
    found = new.decode(old.encode(value), lambda _: old.schema_json or "")
    assert found == plain
    assert type(found) is type(plain)
    new.encode(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (int, int),
        (int, float),
        (int, None),
        (int, "long"),
        (int, int | None),
        (float, "double"),
        (str, str | None),
        (list, list[int]),
        (dict, Profile),
        (dict, dict[str, int]),
        (Profile, dict),
        (list[int], list),
        (dict[str, int], dict),
        ("int", int),
        ("float", float),
        ("long", float),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, str),
    ],
)
def test_plain_types_and_schemas_that_follow_each_other(old: Any, new: Any) -> None:
    check_evolution("profile", codec_for(new, name="profile"), [codec_for(old, name="profile").declaration])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (int, str, "its value was Python's int and is Python's str"),
        (float, int, "its value was Python's float and is Python's int"),
        (bool, int, "its value was Python's bool and is Python's int"),
        (int, Profile, "its value was Python's int and is record Profile"),
        (int, "int", "its value was Python's int and is int"),
        (int, datetime, "its value was Python's int and is timestamp-micros"),
        (str, bytes, "its value was Python's str and is Python's bytes"),
        (str, "bytes", "its value was Python's str and is bytes"),
        (list, Profile, "its value was Python's list and is record Profile"),
        ("string", bytes, "its value was string and is Python's bytes"),
        (int | None, int, "its value was null or long and is Python's int"),
        (Profile, list, "its value was record Profile and is Python's list"),
        (Decimal, None, "its value was decimal.38, 18. and is any value"),
        (list[datetime], list, "its value was array of timestamp-micros and is Python's list"),
    ],
)
def test_plain_types_and_schemas_that_do_not(old: Any, new: Any, message: str) -> None:
    with pytest.raises(SchemaEvolutionError, match=f"variable profile .*{message}; keep"):
        check_evolution("profile", codec_for(new, name="profile"), [codec_for(old, name="profile").declaration])


def test_what_is_allowed_between_plain_types_and_schemas_is_read() -> None:
    old = codec_for("long", name="profile")
    assert codec_for(float, name="profile").decode(old.encode(5), lambda _: old.schema_json or "") == 5.0
    assert codec_for("double", name="profile").decode(codec_for(int, name="profile").encode(5), no_schema) == 5.0
    profile = codec_for(Profile, name="profile")
    found = codec_for(dict, name="profile").decode(profile.encode(Profile("a")), lambda _: profile.schema_json or "")
    assert found == {"name": "a", "spend": 0.0, "address": None, "loose": None}
    with pytest.raises(ValueEncodingError, match="stored value that does not fit: it is 5 of type int, but str is"):
        codec_for(str, name="profile").decode(old.encode(5), lambda _: old.schema_json or "")


def test_a_field_of_any_value_that_is_declared_later() -> None:
    @dataclass
    class Later:
        name: str
        loose: dict[str, int]

    old, new = codec_for(Profile, name="profile"), codec_for(Later, name="profile")
    check_evolution("profile", new, [old.declaration])
    schema = old.schema_json or ""
    assert new.decode(old.encode(Profile("a", loose={"x": 1})), lambda _: schema) == Later("a", {"x": 1})
    with pytest.raises(ValueEncodingError, match=r"profile.loose\['x'\] is '1' of type str, but long is declared"):
        new.decode(old.encode(Profile("a", loose={"x": "1"})), lambda _: schema)


def test_tools_read_values_without_their_declaration() -> None:
    codec = codec_for(Profile, name="profile")
    schema, data = codec.schema_json or "", codec.encode(Profile("a", address=Address("s"), loose=[1, {"b": None}]))
    expected = {"name": "a", "spend": 0.0, "address": {"street": "s"}, "loose": [1, {"b": None}]}
    assert decode_plain(schema, data) == expected
    for damaged in (data[:-1], data + b"\x00"):
        with pytest.raises(ValueEncodingError, match="a stored value cannot be read: it "):
            decode_plain(schema, damaged)
