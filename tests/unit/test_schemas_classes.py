"""Annotations and dataclasses as Avro schemas; values come back as they were given."""

from __future__ import annotations

import inspect
import json
import math
import random
import uuid
from dataclasses import InitVar, dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, NewType

import pytest

from changelog_state.errors import ConfigurationError, ValueEncodingError
from changelog_state.schemas.classes import aliased
from changelog_state.schemas.declared import codec_for

UserId = NewType("UserId", str)


class Color(Enum):
    RED = "r"
    GREEN = "g"


@dataclass(frozen=True, slots=True)
class Address:
    street: str
    zip: str | None = None


@dataclass
class Everything:
    user: UserId
    count: int
    address: Address
    spend: float = 0.0
    ok: bool = True
    color: Color = Color.GREEN
    tags: list[str] = field(default_factory=list)
    by_sku: dict[str, float] = field(default_factory=dict)
    note: str | None = "none"
    anything: Any = None
    loose: dict = field(default_factory=lambda: {"a": [1, None]})  # type: ignore[type-arg]
    seen: datetime = datetime(2020, 1, 2, tzinfo=UTC)
    day: date | None = None
    clock: time = time(1, 2, 3, 4)
    money: Decimal = Decimal("1.5")
    cents: Annotated[Decimal, (10, 2)] = Decimal("1.50")
    token: uuid.UUID | None = None
    either: int | str | Address = "x"
    lowest: float = float("inf")
    blob: bytes = b"\xff"
    friend: Everything | None = None
    friends: list[Everything] = field(default_factory=list)
    seen_as: Address = Address("x", "y")
    last: int = field(default=3, kw_only=True)
    double: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.double = 2 * self.count


def no_schema(fingerprint: bytes) -> str:
    raise AssertionError(f"nobody should ask for schema {fingerprint.hex()}")


def back(declared: Any, value: Any) -> Any:
    codec = codec_for(declared, name="variable")
    return codec.decode(codec.encode(value), no_schema)


def test_a_dataclass_comes_back_as_it_was() -> None:
    inner = Everything(UserId("b"), 2, Address("t"), either=Address("u", "v"), color=Color.RED)
    value = Everything(
        UserId("a"),
        -(2**63),
        Address("s", "1"),
        tags=["x", ""],
        by_sku={"k": 0.5, "": -1.0},
        note=None,
        anything=[1, {"b": 2**70}, b"\x00", None],
        day=date(1960, 2, 29),
        token=uuid.UUID(int=5),
        either=7,
        friend=inner,
        friends=[inner, inner],
        last=9,
    )
    value.double = 1
    found = back(Everything, value)
    assert found == value
    assert (type(found.friend), type(found.friend.address), found.double) == (Everything, Address, 1)


def test_the_schema_of_a_dataclass() -> None:
    @dataclass
    class Profile:
        full_name: Annotated[str, aliased("name", "title")]
        zip: str | None = None
        country: str | None = "de"
        age: int = field(default=0, metadata={"aliases": ["years"]})
        size: Annotated[float, aliased("length")] | None = None

    assert json.loads(codec_for(Profile, name="profile").schema_json or "") == {
        "type": "record",
        "name": "Profile",
        "fields": [
            {"name": "full_name", "type": "string", "aliases": ["name", "title"]},
            {"name": "zip", "type": ["null", "string"], "default": None},
            {"name": "country", "type": ["string", "null"], "default": "de"},
            {"name": "age", "type": "long", "aliases": ["years"], "default": 0},
            {"name": "size", "type": ["null", "double"], "aliases": ["length"], "default": None},
        ],
    }


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (list[int], [1, 2**40]),
        (list, [1, "a"]),
        (dict[str, list[float | None]], {"a": [1.5, None]}),
        (int | None, None),
        (int | None, 5),
        (str | int | float, 5),
        (str | int | float, 5.0),
        (Address | Color | None, Color.RED),
        (list[Address], [Address("a")]),
        (datetime, datetime(1900, 1, 1, 1, 2, 3, 4, tzinfo=UTC)),
        (Decimal, Decimal("-12.000000000000000001")),
        (Annotated[Decimal, (5, 1)], Decimal("9999.9")),
        (Annotated[Decimal | None, (30, 2)], Decimal(10**27)),
        (Annotated[Decimal, (30, 2)] | None, Decimal(10**27)),
        (time, time(23, 59, 59, 999999)),
        (Any, {"a": [1]}),
        (list[Any], [[[]], {"a": None}]),
    ],
)
def test_annotations(declared: Any, value: Any) -> None:
    found = back(declared, value)
    assert found == value
    assert type(found) is type(value)


def test_times_do_not_depend_on_the_machine() -> None:
    moment = datetime(2024, 3, 31, 2, 30, tzinfo=timezone(timedelta(hours=2)))
    assert back(datetime, moment) == moment
    assert back(datetime, datetime(2024, 3, 31, 2, 30)) == datetime(2024, 3, 31, 2, 30, tzinfo=UTC)


def test_instances_do_not_share_their_defaults() -> None:
    @dataclass
    class Old:
        count: int

    @dataclass
    class New:
        count: int
        tags: list[str] = field(default_factory=lambda: ["x"])

    old, new = codec_for(Old, name="v"), codec_for(New, name="v")
    first, second = (new.decode(old.encode(Old(1)), lambda _: old.schema_json or "") for _ in range(2))
    first.tags.append("y")
    assert (first, second) == (New(1, ["x", "y"]), New(1, ["x"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": "7"}, "variable.count is '7' of type str, but long is declared"),
        ({"count": True}, "variable.count is True of type bool, but long is declared"),
        ({"count": 2**63}, r"variable.count is .*\(9223372036854775808 does not fit into 64 bits\)"),
        ({"user": None}, "variable.user is None of type NoneType, but string is declared"),
        ({"user": "\ud800"}, "variable.user is .*surrogates"),
        ({"address": None}, "variable.address is None of type NoneType, but Address is declared"),
        ({"address": Address(5)}, "variable.address.street is 5 of type int"),  # type: ignore[arg-type]
        ({"address": {"street": "x"}}, "variable.address is .* of type dict, but Address is declared"),
        ({"tags": ["a", 1]}, r"variable.tags\[1\] is 1 of type int, but string is declared"),
        ({"tags": "ab"}, "variable.tags is 'ab' of type str, but array of string is declared"),
        ({"by_sku": {"a": "x"}}, r"variable.by_sku\['a'\] is 'x' of type str, but double is declared"),
        ({"by_sku": {1: 1.0}}, "a key of variable.by_sku is 1 of type int"),
        ({"note": 5}, "variable.note is 5 of type int, but string is declared"),
        ({"anything": {1, 2}}, "variable.anything: value is of type set; convert it"),
        ({"either": 1.5}, "variable.either is 1.5 of type float, but string or long or record Address is declared"),
        ({"day": datetime(2020, 1, 1)}, "variable.day is .* of type datetime, but date is declared"),
        ({"cents": Decimal("1.555")}, "variable.cents is .* does not fit into 10 digits, 2 of them decimals"),
        ({"cents": Decimal("1e1000000000")}, "variable.cents is .* does not fit into 10 digits"),
        ({"cents": Decimal("NaN")}, "variable.cents is "),
        ({"cents": 1.5}, r"variable.cents is 1.5 of type float, but decimal\(10, 2\) is declared"),
        ({"color": "RED"}, "variable.color is 'RED' of type str, but Color is declared"),
        ({"ok": 1}, "variable.ok is 1 of type int, but boolean is declared"),
        ({"friend": Everything(UserId("b"), "2", Address("t"))}, "variable.friend.count is '2'"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(change: dict[str, Any], message: str) -> None:
    value = Everything(UserId("a"), 1, Address("s"))
    for name, new in change.items():
        setattr(value, name, new)
    with pytest.raises(ValueEncodingError, match=f"variable does not take this value: {message}"):
        codec_for(Everything, name="variable").encode(value)


def test_a_subclass_is_refused_because_its_fields_would_be_lost() -> None:
    @dataclass(frozen=True)
    class Longer(Address):
        more: str = "x"

    with pytest.raises(ValueEncodingError, match="Longer, but Address is declared"):
        codec_for(Address, name="variable").encode(Longer("s"))


def test_nesting_has_a_limit_that_every_reader_reaches() -> None:
    value = Everything(UserId("a"), 1, Address("s"))
    for _ in range(98):
        value = Everything(UserId("a"), 1, Address("s"), friend=value)
    assert back(Everything, value) == value
    deep: Any = []
    for _ in range(98):
        deep = [deep]
    assert back(list[Any], deep) == deep
    for _ in range(5):
        value = Everything(UserId("a"), 1, Address("s"), friend=value)
    with pytest.raises(ValueEncodingError, match="nested more than 100 deep"):
        codec_for(Everything, name="variable").encode(value)
    value.friend = value
    with pytest.raises(ValueEncodingError, match="nested too deeply, or contains itself"):
        codec_for(Everything, name="variable").encode(value)


def a_constructor_with_something_else() -> type:
    @dataclass
    class Odd:
        count: int
        start: InitVar[int] = 0

    return Odd


def with_default(default: Any) -> type:
    @dataclass
    class Odd:
        count: int = default

    return Odd


def an_annotation_of_nowhere() -> type:
    Here = Address  # noqa: N806

    @dataclass
    class Odd:
        address: Here

    return Odd


def two_of_a_name() -> type:
    one, two = with_default(1), with_default(2)

    class Both:
        first: Any
        second: Any

    Both.__annotations__ = {"first": one, "second": two}
    return dataclass(Both)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (set[int], "variable v is declared as .*set.*, for which there is no Avro type; use int"),
        (tuple[int, str], "tuple"),
        (dict[int, str], "dict"),
        (complex, "variable v is declared as complex"),
        (object(), "variable v is declared as <object"),
        (list[set[int]], "an item of variable v is declared as"),
        (int | datetime, "one type twice"),
        (a_constructor_with_something_else, "Odd cannot be made again from its fields"),
        (lambda: with_default("x"), "Odd.count has the default 'x', which is not of its declared type"),
        (an_annotation_of_nowhere, "an annotation of Odd cannot be resolved .*Here"),
        (two_of_a_name, "Both.second is of another class Odd"),
    ],
)
def test_declarations_that_cannot_be(declared: Any, message: str) -> None:
    given = declared() if inspect.isfunction(declared) else declared
    with pytest.raises(ConfigurationError, match=message):
        codec_for(given, name="v")


def test_a_default_that_is_never_the_same_is_none() -> None:
    @dataclass
    class Visit:
        token: float = field(default_factory=random.random)

    codec = codec_for(Visit, name="v")
    assert json.loads(codec.schema_json or "")["fields"] == [{"name": "token", "type": "double"}]
    assert codec.declaration == codec_for(Visit, name="v").declaration


@dataclass
class Inner:
    n: int = 0


@dataclass
class Outer:
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("annotation", "factory"),
    [
        (dict | list, list),
        (dict[str, Any] | list[Any] | None, list),
        (Inner | Outer, Outer),
        (list[Inner] | Inner, Inner),
        (list[Color] | Color, lambda: Color.RED),
    ],
)
def test_a_default_may_be_of_a_type_that_an_earlier_branch_names(annotation: Any, factory: Any) -> None:
    declared = make_dataclass("Profile", [("name", str), ("x", annotation, field(default_factory=factory))])
    value = declared("a")
    assert back(declared, value) == value


@dataclass
class Letter:
    text: str = "x"


@dataclass
class Holder:
    loose: Any = b"x"


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (dict, {"version": "1", "n": 1, "x": 1.0, "ok": True, "none": None, "all": ["007", b"7", -(2**70)]}),
        (Any, "nan"),
        (Any, "NaN"),
        (Any, "1.5"),
        (Any, b"ab"),
        (Any, 2**64),
        (Any | None, {"value": "1"}),
        (list[bytes | str], ["x"]),
        (list[str | bytes], [b"x"]),
        (list[float | bool], [True, 1.0]),
        (list[float | int], [1]),
        (list[list[str] | str], ["ab"]),
        (list[Inner | Letter], [Letter(), Inner()]),
        (list[dict | Letter], [Letter()]),
        (Holder, Holder()),
        (Holder, Holder("x")),
        (dict[str, float | str], {"a": "7", "b": "Infinity", "c": math.inf, "d": 0.5}),
    ],
)
def test_a_default_keeps_its_type(annotation: Any, default: Any) -> None:
    without = make_dataclass("Profile", [("name", str)])
    old = codec_for(without, name="v")
    declared = make_dataclass("Profile", [("name", str), ("x", annotation, field(default_factory=lambda: default))])
    new = codec_for(declared, name="v")
    found = new.decode(old.encode(without("a")), lambda _: old.schema_json or "")
    assert repr(found.x) == repr(default)


def test_a_default_that_json_cannot_say_does_not_count_in_the_fingerprint() -> None:
    plain, odd = (make_dataclass("Profile", [("x", Any, each)]) for each in ("ab", b"ab"))
    assert "changelog_state.default" not in (codec_for(plain, name="v").schema_json or "")
    assert codec_for(plain, name="v").fingerprint == codec_for(odd, name="v").fingerprint
    assert codec_for(plain, name="v").declaration == codec_for(odd, name="v").declaration
