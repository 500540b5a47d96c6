"""``state`` in a user's function."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from changelog_state.codec.avro import encode_value
from changelog_state.errors import InvalidKeyError, ValueEncodingError
from changelog_state.state.context import StateContext
from changelog_state.state.handle import State

NOW = 1_700_000_000_000


def state(**stored: Any) -> State:
    return State({name: encode_value(value) for name, value in stored.items()}, StateContext(NOW))


def after(given: State, now_ms: int = NOW) -> State:
    """The key's state in the next batch."""
    stored = dict(given._stored)
    for name, value, _ in given.changed():
        if value is None:
            del stored[name]
        else:
            stored[name] = value
    return State(stored, StateContext(now_ms))


def test_reads_see_own_writes() -> None:
    handle = state(a=1)
    assert handle.get("a") == 1
    handle.set("a", 2)
    handle.set("b", [1, {"x": None}])
    assert (handle.get("a"), handle.get("b")) == (2, [1, {"x": None}])
    handle.delete("a")
    assert handle.get("a") is None
    assert handle.get("a", "default") == "default"
    handle.set("a", 3)
    assert handle.get("a") == 3
    assert dict(after(handle).items()) == {"a": 3, "b": [1, {"x": None}]}


def test_none_is_a_value() -> None:
    handle = state(stored=None)
    handle.set("own", None)
    assert handle.exists("stored")
    assert handle.exists("own")
    assert not handle.exists("nothing")
    assert handle.get("stored", "default") is None
    assert handle.get("nothing", "default") == "default"
    assert list(handle.items()) == [("own", None), ("stored", None)]
    handle.delete("stored")
    assert not handle.exists("stored")


def test_items_are_in_order_and_as_written() -> None:
    handle = state(c=3, a=1, b=2)
    handle.set("bb", 5)
    handle.set("a", 10)
    handle.delete("c")
    handle.delete("nothing")
    assert list(handle.items()) == [("a", 10), ("b", 2), ("bb", 5)]
    for name, _ in handle.items():
        handle.delete(name)  # changing it on the way is allowed
    assert list(handle.items()) == []


def test_values_are_copies() -> None:
    handle = state(names=["a"])
    handle.get("names").append("b")
    assert handle.get("names") == ["a"]
    mine = [1]
    handle.set("mine", mine)
    mine.append(2)
    assert handle.get("mine") == [1]


def test_only_what_differs_is_a_change() -> None:
    handle = state(same=1, changed=1, gone=1, back=1)
    handle.set("same", 1)
    handle.set("changed", 2)
    handle.delete("gone")
    handle.delete("never there")
    handle.delete("back")
    handle.set("back", 1)
    handle.set("new", None)
    one, two, null = encode_value(1), encode_value(2), encode_value(None)
    assert handle.changed() == [("changed", two, one), ("gone", None, one), ("new", null, None)]
    assert state(a=1).changed() == []


@pytest.mark.parametrize("value", [1, None, "x"])
def test_a_single_unchanged_set_is_no_change(value: Any) -> None:
    handle = state(a=value)
    handle.set("a", value)
    assert handle.changed() == []
    handle.set("a", "other")
    assert [name for name, _, _ in handle.changed()] == ["a"]


def test_equal_but_not_the_same_is_a_change() -> None:
    handle = state(a=1)
    handle.set("a", True)
    assert handle.changed() == [("a", encode_value(True), encode_value(1))]
    assert handle.get("a") is True


def test_changes_are_in_the_order_of_the_bytes() -> None:
    handle = state()
    for name in ("é", "z", "a", "", "𐀀", "\uffff"):
        handle.set(name, 1)
    names = [name for name, _, _ in handle.changed()]
    assert names == sorted(names, key=str.encode)


@pytest.mark.parametrize("name", [5, None, b"a", ("a",)])
def test_names_are_strings(name: Any) -> None:
    with pytest.raises(InvalidKeyError, match="names are strings"):
        state().set(name, 1)


@pytest.mark.parametrize("value", [object(), {1: 2}, {1, 2}])
def test_values_that_cannot_be_kept(value: Any) -> None:
    handle = state(a=1)
    with pytest.raises(ValueEncodingError):
        handle.set("a", value)
    assert handle.get("a") == 1
    assert handle.changed() == []


@pytest.mark.parametrize(("ttl", "expires"), [(10, 10_000), (0.5, 500), (timedelta(minutes=1), 60_000)])
def test_a_value_with_a_time_to_live(ttl: float | timedelta, expires: int) -> None:
    handle = state(plain=1)
    handle.set("short", "x", ttl=ttl)
    handle.set("null", None, ttl=ttl)
    assert handle.get("short") == "x"
    assert handle.exists("null")
    last = after(handle, NOW + expires - 1)
    assert last.get("short") == "x"
    assert dict(last.items()) == {"null": None, "plain": 1, "short": "x"}
    gone = after(handle, NOW + expires)
    assert gone.get("short", "default") == "default"
    assert not gone.exists("short")
    assert dict(gone.items()) == {"plain": 1}


def test_what_has_expired_can_be_deleted_and_written() -> None:
    handle = state()
    handle.set("a", 1, ttl=1)
    later = after(handle, NOW + 5_000)
    later.delete("a")
    [(name, value, previous)] = later.changed()
    assert (name, value) == ("a", None)
    assert previous is not None, "it is still stored, so its deletion is a change"
    later.set("a", 2)
    assert later.get("a") == 2
    assert after(later, NOW + 10_000).get("a") == 2


@pytest.mark.parametrize("ttl", [0, -1, True, "1", float("nan"), float("inf"), timedelta(0), 10**18])
def test_a_time_to_live_that_is_none(ttl: Any) -> None:
    handle = state()
    with pytest.raises(ValueEncodingError):
        handle.set("a", 1, ttl=ttl)
    assert not handle.exists("a")
