"""``migrate=``: values of other schemas go through the user's function, those of the declared one do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from changelog_state.codec.avro import encode_value
from changelog_state.errors import FunctionError, ValueEncodingError
from changelog_state.schemas.declared import codec_for
from changelog_state.schemas.evolution import check_evolution


@dataclass
class Inner:
    n: int


@dataclass
class Dollars:
    amount: float
    inner: Inner


@dataclass
class Cents:
    cents: int
    inner: Inner


def to_cents(old: dict[str, Any]) -> Cents:
    return Cents(round(old["amount"] * 100), Inner(old["inner"]["n"]))


def test_an_old_value_is_migrated_when_it_is_read() -> None:
    old, new = codec_for(Dollars, name="sum"), codec_for(Cents, name="sum", migrate=to_cents)
    check_evolution("sum", new, [old.declaration, None])
    data = old.encode(Dollars(1.25, Inner(3)))
    found = new.decode(data, lambda _: old.schema_json or "")
    assert found == Cents(125, Inner(3))
    assert (new.is_current(data), new.is_current(new.encode(found))) == (False, True)


def test_values_of_the_declared_schema_are_not_migrated() -> None:
    def never(old: Any) -> Any:
        raise AssertionError(old)

    codec = codec_for(Cents, name="sum", migrate=never)
    assert codec.decode(codec.encode(Cents(1, Inner(2))), lambda _: "") == Cents(1, Inner(2))


def test_values_without_a_schema_are_migrated_too() -> None:
    codec = codec_for(Cents, name="sum", migrate=to_cents)
    assert codec.decode(encode_value({"amount": 2, "inner": {"n": 1}}), lambda _: "") == Cents(200, Inner(1))


def test_a_plain_type_migrates_what_is_not_of_it() -> None:
    codec = codec_for(str, name="sum", migrate=lambda old: f"{old}!")
    old = codec_for(int, name="sum")
    check_evolution("sum", codec, [old.declaration])
    assert codec.decode(old.encode(5), lambda _: "") == "5!"
    assert codec.decode(codec.encode("5"), lambda _: "") == "5"
    assert [codec.is_current(each) for each in (old.encode(5), codec.encode("5"))] == [False, True]
    avro = codec_for("long", name="sum")
    assert codec.decode(avro.encode(5), lambda _: avro.schema_json or "") == "5!"


def test_a_plain_type_migrates_also_what_would_fit() -> None:
    """250 cents are no 250.0 euros."""
    old, euros = codec_for(int, name="balance"), codec_for(float, name="balance", migrate=lambda cents: cents / 100)
    check_evolution("balance", euros, [old.declaration])
    assert euros.decode(old.encode(250), lambda _: "") == 2.5
    assert euros.decode(euros.encode(250), lambda _: "") == 250.0
    assert codec_for(float, name="balance").decode(old.encode(250), lambda _: "") == 250.0


def test_plain_types_and_none_at_all_are_of_one_schema() -> None:
    codec = codec_for(dict, name="sum", migrate=lambda old: {"sum": old})
    assert codec.decode(encode_value({"a": 1}), lambda _: "") == {"a": 1}
    assert codec.decode(encode_value(5), lambda _: "") == {"sum": 5}
    taken_back = codec_for(None, name="sum", migrate=lambda old: {"sum": old})
    assert taken_back.decode(codec.encode({"a": 1}), lambda _: "") == {"a": 1}


def test_what_a_migration_returns_must_fit() -> None:
    codec = codec_for(Cents, name="sum", migrate=lambda old: {"cents": 1})
    with pytest.raises(
        ValueEncodingError, match="variable sum does not take this value: sum is .*but Cents is declared"
    ):
        codec.decode(encode_value(1), lambda _: "")
    plain = codec_for(int, name="sum", migrate=lambda old: old)
    with pytest.raises(ValueEncodingError, match="variable sum does not take this value: it is 'x' of type str"):
        plain.decode(encode_value("x"), lambda _: "")


def test_a_migration_that_raises_is_the_users_function() -> None:
    codec = codec_for(Cents, name="sum", migrate=to_cents)
    with pytest.raises(FunctionError, match="migrate of variable sum has raised KeyError.'amount'. for {'x': 1}"):
        codec.decode(encode_value({"x": 1}), lambda _: "")
