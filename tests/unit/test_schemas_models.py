"""Pydantic models as declarations."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import pytest

from changelog_state.errors import ConfigurationError, ValueEncodingError
from changelog_state.schemas.classes import aliased
from changelog_state.schemas.declared import codec_for

pydantic = pytest.importorskip("pydantic")
BaseModel, Field = pydantic.BaseModel, pydantic.Field


class Address(BaseModel):
    street: str


class Profile(BaseModel):
    name: Annotated[str, aliased("full_name")]
    age: int = Field(default=0, ge=0, json_schema_extra={"aliases": ["years"]})
    address: Address | None = None
    cents: Annotated[Decimal, Field(max_digits=10, decimal_places=2)] = Decimal("0.50")
    tags: list[str] = Field(default_factory=list)
    friends: list[Profile] = []  # noqa: RUF012
    kind: str = Field(default="x", alias="type")
    either: str | None = Field(default=None, validation_alias=pydantic.AliasChoices("one", "other"))
    price: Decimal | None = Field(default=None, max_digits=30, decimal_places=3)
    _cache: int = 0

    def model_post_init(self, context: Any) -> None:
        self._cache = self.age + 1


def no_schema(fingerprint: bytes) -> str:
    raise AssertionError(f"nobody should ask for schema {fingerprint.hex()}")


def test_a_model_comes_back_as_it_was() -> None:
    codec = codec_for(Profile, name="profile")
    value = Profile(name="a", age=3, address=Address(street="s"), tags=["x"], type="y", one="z")
    value.friends = [Profile(name="b"), Profile(name="c", cents=Decimal("1.25"))]
    for each in (codec, pickle.loads(pickle.dumps(codec))):
        found = each.decode(each.encode(value), no_schema)
        assert found == value
        assert type(found.friends[0]) is Profile
        assert (found.kind, found.either, found._cache) == ("y", "z", 4)


def test_a_dataclass_of_pydantic_may_say_its_defaults_as_a_model_does() -> None:
    @pydantic.dataclasses.dataclass
    class Visit:
        name: str = Field(max_length=5)
        count: int = Field(default=5)
        tags: list[str] = Field(default_factory=lambda: ["x"])
        ok: bool = True

    @dataclass
    class Later(Visit):
        count: int = 6

    codec = codec_for(Visit, name="visit")
    assert codec.decode(codec.encode(Visit("a", tags=["y"])), no_schema) == Visit("a", tags=["y"])
    fields = json.loads(codec.schema_json or "")["fields"]
    assert [each.get("default", "none") for each in fields] == ["none", 5, ["x"], True]
    fields = json.loads(codec_for(Later, name="visit").schema_json or "")["fields"]
    assert [each.get("default", "none") for each in fields] == ["none", 6, ["x"], True]


def test_the_schema_of_a_model() -> None:
    fields = json.loads(codec_for(Profile, name="profile").schema_json or "")["fields"]
    assert fields[:2] == [
        {"name": "name", "type": "string", "aliases": ["full_name"]},
        {"name": "age", "type": "long", "aliases": ["years"], "default": 0},
    ]
    assert fields[3]["type"] == {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    assert [each["name"] for each in fields[4:]] == ["tags", "friends", "kind", "either", "price"]
    assert fields[-1]["type"] == ["null", {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 3}]
    assert fields[4]["default"] == []


def test_a_value_that_does_not_fit_is_refused_with_its_path() -> None:
    value = Profile(name="a")
    value.friends = [Profile(name="b")]
    value.friends[0].age = "7"  # type: ignore[assignment]
    with pytest.raises(
        ValueEncodingError, match=r"profile.friends\[0\].age is '7' of type str, but long is declared"
    ):
        codec_for(Profile, name="profile").encode(value)


def test_stored_values_meet_new_constraints() -> None:
    class Loose(BaseModel):
        name: str
        age: int = 0

    data = codec_for(Loose, name="profile").encode(Loose(name="a", age=-1))
    schema = codec_for(Loose, name="profile").schema_json or ""
    with pytest.raises(
        ValueEncodingError, match=r"(?s)variable profile has a stored value that does not fit.*migrate="
    ):
        codec_for(Profile, name="profile").decode(data, lambda _: schema)


def test_models_that_cannot_be() -> None:
    class Open(BaseModel, extra="allow"):
        name: str

    with pytest.raises(ConfigurationError, match="takes fields that it does not declare"):
        codec_for(Open, name="v")
    with pytest.raises(ConfigurationError, match="is a RootModel"):
        codec_for(pydantic.RootModel[list[int]], name="v")


def test_a_field_that_is_also_filled_from_inside_another_value() -> None:
    path = pydantic.AliasPath("x", 0)

    class Named(BaseModel):
        first: int = Field(default=0, validation_alias=pydantic.AliasChoices(path, "one"))

    class ByName(BaseModel, populate_by_name=True):
        first: int = Field(default=0, validation_alias=path)

    class Alone(BaseModel):
        first: int = Field(default=0, validation_alias=path)

    for cls in (Named, ByName):
        codec = codec_for(cls, name="v")
        value = cls.model_validate({"x": [5]})
        assert codec.decode(codec.encode(value), no_schema) == value
    with pytest.raises(ConfigurationError, match=r"Alone.first is only filled from inside another value .*'x'"):
        codec_for(Alone, name="v")
