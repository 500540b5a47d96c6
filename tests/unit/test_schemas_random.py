"""Random schemas and values: fastavro reads our bytes and we read its, and what the check lets pass can be read."""

from __future__ import annotations

import contextlib
import json
import struct
from io import BytesIO
from typing import Any

import fastavro
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from changelog_state.errors import SchemaEvolutionError, ValueEncodingError
from changelog_state.schemas.declared import codec_for
from changelog_state.schemas.evolution import check_evolution

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
FLOATS = st.floats(width=32, allow_nan=False)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70),
    "float": FLOATS,
    "double": st.floats(allow_nan=False),
    "string": TEXTS,
    "bytes": st.binary(max_size=8),
}
PRIMITIVES = st.sampled_from([kind for kind in VALUES if kind != "null"])
NAMES = ["a", "b", "c", "d"]


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2, name: str = "R") -> Any:
    kinds = ["primitive", "primitive", "nullable"] + ["array", "map", "record", "union"] * (depth > 0)
    kind = draw(st.sampled_from(kinds))
    if kind == "nullable":
        return draw(st.permutations(["null", draw(PRIMITIVES)]))
    if kind == "array":
        return {"type": "array", "items": draw(schemas(depth - 1, name + "i"))}
    if kind == "map":
        return {"type": "map", "values": draw(schemas(depth - 1, name + "v"))}
    if kind == "union":
        # Without bytes: beside a string, fastavro resolves them to whichever comes first, even if both are the same.
        return draw(st.lists(st.sampled_from(["null", "boolean", "long", "string"]), min_size=1, unique=True))
    return draw(records(depth, name)) if kind == "record" else draw(PRIMITIVES)


@st.composite
def records(draw: st.DrawFn, depth: int = 2, name: str = "R") -> Any:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    fields = [{"name": each, "type": draw(schemas(depth - 1, name + each))} for each in names]
    return {"type": "record", "name": name, "fields": fields}


def values(schema: Any) -> st.SearchStrategy[Any]:
    if isinstance(schema, list):
        return st.one_of([values(each) for each in schema])
    if isinstance(schema, str):
        return VALUES[schema]
    if schema["type"] == "array":
        return st.lists(values(schema["items"]), max_size=3)
    if schema["type"] == "map":
        return st.dictionaries(TEXTS, values(schema["values"]), max_size=3)
    return st.fixed_dictionaries({each["name"]: values(each["type"]) for each in schema["fields"]})


def exact(value: Any) -> Any:
    """A value that equals another one only if types and float bits are equal too."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, list):
        return [exact(each) for each in value]
    if isinstance(value, dict):
        return {key: exact(each) for key, each in value.items()}
    return type(value).__name__, value


def fastavro_write(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def fastavro_read(data: bytes, written: Any, declared: Any = None) -> Any:
    body = BytesIO(data[10:])
    found = fastavro.schemaless_reader(
        body, fastavro.parse_schema(written), declared and fastavro.parse_schema(declared)
    )
    assert not body.read()
    return found


def no_schema(fingerprint: bytes) -> str:
    raise AssertionError(f"nobody should ask for schema {fingerprint.hex()}")


@relaxed
@given(st.data(), schemas())
def test_we_and_fastavro_write_and_read_the_same(data: st.DataObject, schema: Any) -> None:
    value, codec = data.draw(values(schema)), codec_for(schema, name="v")
    encoded = codec.encode(value)
    assert encoded == codec.header + fastavro_write(schema, value)
    assert exact(codec.decode(encoded, no_schema)) == exact(fastavro_read(encoded, schema)) == exact(value)


@relaxed
@given(st.data(), schemas(), st.integers(0, 5))
def test_nothing_is_taken_that_fastavro_would_refuse(data: st.DataObject, schema: Any, other: int) -> None:
    value = data.draw(values(["null", "boolean", "long", "double", "string", "bytes"][other]))
    with contextlib.suppress(ValueEncodingError):
        codec_for(schema, name="v").encode(value)
        assert fastavro.validation.validate(value, schema, raise_errors=False)


# Not to float: there we round to its 32 bits at once.
WIDER = {"int": ["long", "double"], "long": ["double"], "float": ["double"]}
WIDER |= {"string": ["bytes"], "bytes": ["string"]}


@st.composite
def evolved(draw: st.DrawFn, schema: Any) -> Any:
    """A schema to which this one may be changed."""
    if isinstance(schema, str):
        return draw(st.sampled_from([schema, *WIDER.get(schema, []), "nullable"]))
    if isinstance(schema, list):
        return schema if {"double", "float"} & set(schema) else schema + draw(st.sampled_from([[], ["double"]]))
    if schema["type"] == "array":
        return {**schema, "items": draw(evolved(schema["items"]).map(lambda to: wrapped(to, schema["items"])))}
    if schema["type"] == "map":
        return {**schema, "values": draw(evolved(schema["values"]).map(lambda to: wrapped(to, schema["values"])))}
    fields = []
    for each in draw(st.permutations(schema["fields"])):
        change = draw(st.sampled_from(["keep", "drop", "rename"]))
        kind = draw(evolved(each["type"]).map(lambda to, each=each: wrapped(to, each["type"])))
        if change == "keep":
            fields.append({**each, "type": kind})
        elif change == "rename":
            fields.append({"name": "new_" + each["name"], "aliases": [each["name"]], "type": kind})
    if draw(st.booleans()):
        fields.append({"name": "added", "type": {"type": "array", "items": "long"}, "default": [1, 2]})
    return {**schema, "fields": fields}


def wrapped(kind: Any, before: Any) -> Any:
    return ["null", before] if kind == "nullable" else kind


@relaxed
@given(st.data(), records())
def test_compatible_changes_are_read_as_fastavro_reads_them(data: st.DataObject, schema: Any) -> None:
    value, declared = data.draw(values(schema)), data.draw(evolved(schema))
    old, new = codec_for(schema, name="v"), codec_for(declared, name="v")
    check_evolution("v", new, [old.declaration])
    encoded = old.encode(value)
    try:
        expected: Any = exact(fastavro_read(encoded, schema, declared))
    except UnicodeDecodeError:
        expected = None  # bytes that are no text: neither of us can read them as one
    try:
        found = exact(new.decode(encoded, lambda _: old.declaration or ""))
    except ValueEncodingError:
        found = None
    assert found == expected


@relaxed
@given(st.data(), schemas(), schemas())
def test_what_the_check_lets_pass_can_be_read(data: st.DataObject, schema: Any, declared: Any) -> None:
    value, old, new = data.draw(values(schema)), codec_for(schema, name="v"), codec_for(declared, name="v")
    encoded = old.encode(value)
    try:
        check_evolution("v", new, [old.declaration])
    except SchemaEvolutionError:
        # Not every value shows it, but none may come out wrong: the codec refuses the schema, too.
        with contextlib.suppress(ValueEncodingError):
            new.decode(encoded, lambda _: json.dumps(schema))
            raise AssertionError("what was refused is read") from None
        return
    try:
        found = new.decode(encoded, lambda _: json.dumps(schema))
    except ValueEncodingError as error:
        assert isinstance(error.__cause__, UnicodeDecodeError)  # noqa: PT017
        return
    assert new.decode(new.encode(found), no_schema) == found


@relaxed
@given(schemas(), st.binary(max_size=40))
def test_any_bytes_are_a_value_or_an_error(schema: Any, body: bytes) -> None:
    codec = codec_for(schema, name="v")
    with contextlib.suppress(ValueEncodingError):
        value = codec.decode(codec.header + body, no_schema)
        assert exact(codec.decode(codec.encode(value), no_schema)) == exact(value)
