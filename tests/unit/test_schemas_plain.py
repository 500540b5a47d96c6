"""Variables of any value or of a plain type: the built-in schema's bytes, and a check of the type."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

from changelog_state.codec.avro import encode_value
from changelog_state.errors import ValueEncodingError
from changelog_state.schemas.declared import codec_for


def no_schema(fingerprint: bytes) -> str:
    raise AssertionError(f"nobody should ask for schema {fingerprint.hex()}")


@pytest.mark.parametrize("declared", [None, Any])
@pytest.mark.parametrize("value", [None, 1, 1.5, "a", b"a", True, [1, {"a": None}], 2**70])
def test_any_value_is_that_of_the_built_in_schema(declared: Any, value: Any) -> None:
    codec = codec_for(declared, name="anything")
    assert (codec.fingerprint, codec.schema_json) == (None, None)
    assert codec.encode(value) == encode_value(value)
    assert codec.decode(encode_value(value), no_schema) == value


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (int, 7),
        (int, -(2**70)),
        (float, 1.5),
        (str, "é"),
        (bytes, b"\xff"),
        (bool, True),
        (list, [1]),
        (dict, {"a": 1}),
    ],
)
def test_plain_types_use_the_built_in_schema(declared: type, value: Any) -> None:
    codec = codec_for(declared, name="plain")
    assert (codec.fingerprint, codec.schema_json) == (None, None)
    assert codec.encode(value) == encode_value(value)
    back = codec.decode(codec.encode(value), no_schema)
    assert back == value
    assert type(back) is declared


@pytest.mark.parametrize(
    ("declared", "value", "stored"),
    [
        (float, 3, 3.0),
        (float, np.float32(0.5), 0.5),
        (int, np.int64(5), 5),
        (bool, np.bool_(True), True),
        (list, (1, 2), [1, 2]),
        (bytes, bytearray(b"a"), b"a"),
    ],
)
def test_what_stands_for_a_plain_type_becomes_it(declared: type, value: Any, stored: Any) -> None:
    codec = codec_for(declared, name="plain")
    assert codec.encode(value) == encode_value(stored)
    assert type(codec.decode(codec.encode(value), no_schema)) is declared


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (int, True),
        (int, 1.0),
        (int, "1"),
        (int, None),
        (float, True),
        (float, "1.5"),
        (float, 10**400),
        (str, b"a"),
        (bytes, "a"),
        (bool, 1),
        (list, {"a": 1}),
        (list, "ab"),
        (dict, [1]),
    ],
)
def test_a_value_of_another_type_is_refused(declared: type, value: Any) -> None:
    codec = codec_for(declared, name="total")
    with pytest.raises(ValueEncodingError) as caught:
        codec.encode(value)
    text = str(caught.value)
    assert text.startswith("variable total does not take this value: it is ")
    assert f"of type {type(value).__name__}, but {declared.__name__} is declared" in text
    assert len(text) < 300


def test_a_stored_value_of_another_type_is_an_error_with_its_remedy() -> None:
    with pytest.raises(
        ValueEncodingError, match="variable total .* 'x' of type str, but int is declared; .*migrate="
    ):
        codec_for(int, name="total").decode(encode_value("x"), no_schema)


def test_ints_that_were_stored_are_floats_now() -> None:
    back = codec_for(float, name="total").decode(encode_value(5), no_schema)
    assert (back, type(back)) == (5.0, float)
    assert math.isnan(codec_for(float, name="total").decode(encode_value(math.nan), no_schema))


@pytest.mark.parametrize("declared", [None, int, dict])
def test_pickling(declared: Any) -> None:
    codec = codec_for(declared, name="total")
    copy = pickle.loads(pickle.dumps(codec))
    assert (type(copy), copy.name, copy.declaration) == (type(codec), "total", codec.declaration)
    if declared is int:
        with pytest.raises(ValueEncodingError, match="variable total"):
            copy.encode("x")
