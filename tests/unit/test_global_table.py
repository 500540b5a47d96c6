"""A global table's settings, keys, values, and what it says where it is not connected."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

import changelog_state as cs
from changelog_state.agent import table_schemas
from changelog_state.agent.table_schemas import TableSchemas
from changelog_state.changelog.control import ControlState
from changelog_state.changelog.record import Claim, StoreIdentity
from changelog_state.codec import kinds
from changelog_state.codec.avro import SingleObjectCodec, encode_value
from changelog_state.codec.expiring import encode_expiring
from changelog_state.codec.partitioner import kafka_partition, spark_partition
from changelog_state.config import StoreConfig, TableConfig, log_from_json
from changelog_state.requests import LookupRequest
from changelog_state.schemas.declarations import Declarations
from changelog_state.schemas.declared import codec_for
from changelog_state.state.ttl import ABSENT
from changelog_state.state.variables import declared_types
from changelog_state.tables.access import TableAccess, by_nearness
from changelog_state.tables.codec import StoreCodec, TopicCodec
from changelog_state.tables.context import TaskTables, open_tables
from restore.replica_lag import LagLimits, table_warning
from restore.table_gate import TableGate

SERVICE = StoreConfig("shop", "totals", "host:9092", 4, {"security.protocol": "SSL"})
SCHEMA = {"type": "record", "name": "Price", "fields": [{"name": "price", "type": "double"}]}


@dataclass
class Profile:
    name: str


def topic_codec(partitions: int = 8, **settings: Any) -> TopicCodec:
    return TopicCodec(cs.GlobalTable("t", topic="x", **settings).settings, partitions)


def store_codec(
    table: cs.GlobalTable,
    partitioner: str = "spark",
    schema_of: Callable[[str, bytes], str | None] = lambda name, fingerprint: None,
    **changes: Any,
) -> StoreCodec:
    fields = {"application": "shop", "store": "users", "partitions": 8, "partitioner": partitioner}
    identity = StoreIdentity(**(fields | {"key_types": ["string"]} | changes))
    return StoreCodec(table.settings, identity, schema_of)


def test_what_agents_are_asked_to_follow() -> None:
    config = cs.GlobalTable("prices", topic="product-prices").settings.config(SERVICE)
    assert config == TableConfig("shop", "prices", "host:9092", "product-prices", True, {"security.protocol": "SSL"})
    assert log_from_json(json.loads(json.dumps(config.to_json()))) == config
    assert log_from_json(SERVICE.to_json()) == SERVICE
    users = cs.GlobalTable("users", store="users").settings.config(SERVICE)
    assert (users.changelog_topic, users.raw_keys) == ("shop-users-changelog", False)
    others = cs.GlobalTable("users", store="users", application="crm").settings.config(SERVICE)
    assert (others.application, others.changelog_topic) == ("shop", "crm-users-changelog")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "give topic= .* or store="),
        ({"topic": "a", "store": "b"}, "give topic= .* or store="),
        ({"store": "b", "key": "string"}, "leave key=, value= out"),
        ({"topic": "a", "application": "b"}, "application= is for the store"),
        ({"topic": "a", "key": "int"}, "key is 'int'; use one of 'string', 'bytes', 'long'"),
        ({"topic": "a", "value": "xml"}, "value is 'xml'; use one of 'json'"),
        ({"topic": "a", "value": "avro"}, "value='avro' and schema= go together"),
        ({"topic": "a", "schema": SCHEMA}, "value='avro' and schema= go together"),
        ({"topic": "a", "value": "avro", "schema": "no schema"}, "Avro schema is not valid"),
        ({"topic": "a b"}, "topic name is not usable"),
        ({"name": "a/b", "topic": "a"}, "global table name is not usable"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(cs.ConfigurationError, match=expected):
        cs.GlobalTable(**({"name": "t"} | settings))


def test_a_service_takes_tables_of_different_names() -> None:
    settings: dict[str, Any] = {"application": "a", "store": "s", "bootstrap_servers": "host:9092", "partitions": 1}
    with pytest.raises(cs.ConfigurationError, match="'x'; give instances of GlobalTable"):
        cs.StateService(**settings, global_tables=["x"])  # type: ignore[list-item]
    twice = [cs.GlobalTable("t", topic="a"), cs.GlobalTable("t", topic="b")]
    with pytest.raises(cs.ConfigurationError, match="a name twice"):
        cs.StateService(**settings, global_tables=twice)


def test_keys_are_those_of_javas_serializers() -> None:
    assert topic_codec().encode("ä") == "ä".encode()
    assert topic_codec(key="bytes").encode(b"\x00\x01") == b"\x00\x01"
    assert topic_codec(key="long").encode(-2) == bytes.fromhex("fffffffffffffffe")
    for key, wrong in (("string", 5), ("long", "5"), ("long", 2**63), ("bytes", "5"), ("string", None)):
        with pytest.raises(cs.InvalidKeyError):
            topic_codec(key=key).encode(wrong)
    assert topic_codec().place("sku-1", b"sku-1") == kafka_partition(b"sku-1", 8)


def test_values_of_a_topic() -> None:
    avro = SingleObjectCodec(SCHEMA).encode({"price": 1.5})
    older = SingleObjectCodec({**SCHEMA, "fields": [{"name": "price", "type": "long"}]}).encode({"price": 1})
    cases: list[tuple[dict[str, Any], bytes, Any]] = [
        ({}, b'{"price": 1.5, "tags": [null]}', {"price": 1.5, "tags": [None]}),
        ({"value": "string"}, "ä".encode(), "ä"),
        ({"value": "bytes"}, b"\xff", b"\xff"),
        ({"value": "avro", "schema": SCHEMA}, avro, {"price": 1.5}),
        ({"value": "avro", "schema": json.dumps(SCHEMA)}, avro, {"price": 1.5}),
        (
            {"value": "avro", "schema": [SCHEMA, {**SCHEMA, "fields": [{"name": "price", "type": "long"}]}]},
            older,
            {"price": 1},
        ),
    ]
    for settings, data, expected in cases:
        assert topic_codec(**settings).decode({"": data}, None, 0) == expected
    assert topic_codec().decode({}, None, 0) is ABSENT
    with pytest.raises(cs.ValueEncodingError, match="t is not json: b'no'.*value="):
        topic_codec().decode({"": b"no"}, None, 0)
    with pytest.raises(cs.ValueEncodingError, match="written with schema .* add the schema"):
        topic_codec(value="avro", schema=SCHEMA).decode({"": older}, None, 0)
    with pytest.raises(cs.InvalidInputError, match="no names, but 'price'.*default="):
        topic_codec().decode({"": b"{}"}, "price", 0)


def test_values_of_a_store() -> None:
    table = cs.GlobalTable("users", store="users")
    stored = {
        "name": encode_value("A"),
        "code": encode_expiring(encode_value([1]), 1_000),
        "none": encode_value(None),
    }
    codec = store_codec(table)
    assert codec.decode(stored, "name", 0) == "A"
    assert codec.decode(stored, "nothing", 0) is ABSENT
    assert codec.decode(stored, "none", 0) is None
    assert codec.decode(stored, None, 999) == {"code": [1], "name": "A", "none": None}
    assert codec.decode(stored, None, 1_000) == {"name": "A", "none": None}
    assert codec.decode({"code": stored["code"]}, None, 1_000) is ABSENT
    assert codec.place("a", codec.encode("a")) == spark_partition("a", codec._key_codec, 8)
    assert not codec.anywhere
    assert store_codec(table, "kafka").anywhere
    with pytest.raises(
        cs.ConfigurationError, match="asks for store shop/users, but its changelog is that of shop/us"
    ):
        store_codec(table, store="us")


def test_values_of_a_store_that_are_of_declared_types() -> None:
    """Their schemas are asked for, by variable: some have one fingerprint. And those of later ones, later."""
    types: dict[str, Any] = {"profile": Profile, "n": int | None, "at": datetime | None, "later": Profile}
    codecs = {name: codec_for(declared, name=name) for name, declared in types.items()}
    known = {"profile", "n", "at"}
    at = datetime(2024, 1, 1, tzinfo=UTC)
    asked: list[str] = []

    def schema_of(name: str, fingerprint: bytes) -> str | None:
        asked.append(name)
        assert fingerprint == codecs[name].fingerprint
        return codecs[name].schema_json if name in known else None

    codec = store_codec(cs.GlobalTable("users", store="users"), schema_of=schema_of)
    stored = {name: codecs[name].encode(value) for name, value in {"profile": Profile("A"), "n": 5, "at": at}.items()}
    for _ in range(2):
        assert codec.decode(stored, None, 0) == {"profile": {"name": "A"}, "n": 5, "at": at}
    assert sorted(asked) == ["at", "n", "profile"], "once each"
    later = {"later": codecs["later"].encode(Profile("B"))}
    with pytest.raises(cs.ValueEncodingError, match="'later' in global table users .* its store does not have"):
        codec.decode(later, "later", 0)
    known.add("later")
    assert codec.decode(later, "later", 0) == {"name": "B"}


class HeldPartition:
    """What a partition of a table has, without following anything."""

    def __init__(self, records: dict[bytes, bytes]) -> None:
        self.store = records

    def read(self, read: Callable[[Any], Any]) -> Any:
        return read(self)


def test_an_agent_finds_schemas_as_the_store_was_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    def claim(epoch: int) -> bytes:
        return Claim(epoch, "agent", "incarnation", 0, "crm", "users", 2, "spark", ["string"], 1).encode()

    def declare(**types: Any) -> None:
        declared = [cs.Value(name, each) for name, each in types.items()]
        agreed = Declarations().agreed(declared_types({each.name: each for each in declared}))
        monkeypatch.setattr(table_schemas, "read_control", lambda store: read.append(store) or control(agreed))

    def control(variables: Declarations) -> ControlState:
        return ControlState(None, None, variables)

    def find(name: str) -> str | None:
        return schemas.find(topic, partitions, name, fingerprint)  # type: ignore[arg-type]

    read: list[StoreConfig] = []
    number, time = codec_for(int | None, name="n"), codec_for(datetime | None, name="at")
    fingerprint = number.fingerprint
    assert fingerprint is not None
    assert fingerprint == time.fingerprint
    topic, partitions = "one", {0: HeldPartition({}), 1: HeldPartition({kinds.CLAIM: claim(2)})}
    schemas = TableSchemas(cs.GlobalTable("users", store="users", application="crm").settings.config(SERVICE))
    declare()
    assert find("at") is None
    declare(at=datetime | None)
    read.clear()
    assert [find("at"), find("at")] == [time.schema_json] * 2
    assert [(each.control_topic, each.kafka) for each in read] == [("crm-users-control", SERVICE.kafka)]
    declare(n=datetime | None)
    assert find("n") is None, "that comes with an epoch"
    partitions[0].store[kinds.CLAIM] = claim(3)
    assert find("n") == time.schema_json, "a later epoch"
    partitions[0].store[kinds.SCHEMA + fingerprint] = b"as it is in the changelog"
    assert find("of nobody") == "as it is in the changelog"
    topic = "made anew"
    declare(n=int | None)
    assert find("n") == number.schema_json


def test_a_table_travels_as_its_settings() -> None:
    table = cs.GlobalTable("prices", topic="p", value="avro", schema=SCHEMA)
    table.bind(None)  # type: ignore[arg-type]
    table._service = lambda: None  # type: ignore[assignment]  # cannot be pickled
    copy = pickle.loads(pickle.dumps(table))
    assert copy.settings == table.settings
    assert repr(copy) == "GlobalTable('prices', topic='p')"
    with pytest.raises(cs.ConfigurationError, match="prices is not connected here, so get.*global_tables="):
        copy.get("a")
    with pytest.raises(cs.ConfigurationError, match="so join.*global_tables="):
        copy.join(None, "a", "b string")


def test_a_task_looks_only_into_its_services_tables() -> None:
    table = cs.GlobalTable("prices", topic="p")
    given = ((table.settings, LookupRequest("shop", "prices", "p")),)
    with open_tables(TaskTables(given), None, 0):
        with pytest.raises(
            cs.ConfigurationError, match="users is not among the service's tables .prices.*global_tables="
        ):
            cs.GlobalTable("users", store="users").get("a")
        with pytest.raises(cs.ConfigurationError, match="prices differs from the one of this name"):
            cs.GlobalTable("prices", topic="other").get("a")
        with pytest.raises(cs.AgentUnavailableError, match="no agent is known that has it"):
            table.get("a")
        assert table.get_many([]) == {}
    with pytest.raises(cs.ConfigurationError, match="is not connected"):
        table.get("a")


def test_whom_a_task_asks_first(tmp_path: Any) -> None:
    socket = tmp_path / "agent.sock"
    socket.touch()
    here = ("grpc+tls://here:1", f"grpc+unix://{socket}")
    near, far = ("grpc+tls://a:1", "grpc+unix:///elsewhere/a.sock"), ("grpc+tls://b:1", None)
    assert by_nearness([far, near, here], far) == [f"grpc+unix://{socket}", "grpc+tls://b:1", "grpc+tls://a:1"]
    assert by_nearness([near, far]) == ["grpc+tls://a:1", "grpc+tls://b:1"]


def test_an_agent_that_is_gone_is_replaced_after_another_look() -> None:
    """Which is made only when nobody answers."""
    looks: list[str] = []

    def look(name: str) -> Callable[[], list[str]]:
        return lambda: looks.append(name) or [f"grpc+unix:///no/such/{name}"]  # type: ignore[func-returns-value]

    request = LookupRequest("shop", "prices", "p")
    table = cs.GlobalTable("prices", topic="p").settings
    with pytest.raises(cs.AgentUnavailableError, match="such/first.*such/second"):
        TableAccess(table, request, look("first"), keep=False, look_again=look("second")).get_many(["a"], None)
    assert looks == ["first", "second"]


def status(**changes: Any) -> dict[str, Any]:
    known = {
        "application": "shop",
        "table": "prices",
        "topic": "p",
        "plain": True,
        "phase": "FOLLOWING",
        "ready": True,
    }
    return known | {"lag_records": 0, "lag_seconds": 0.0, "error": None} | changes


def test_what_the_gate_waits_for() -> None:
    gate = TableGate([cs.GlobalTable("prices", topic="p").settings.config(SERVICE)], "driver")
    assert gate.waiting_for({"one": [status()], "two": [status(), status(table="other", ready=False)]}) == []
    waiting = gate.waiting_for({"one": [status(ready=False, phase="RESTORING", lag_records=7)], "two": []})
    assert waiting == [
        "global table shop/prices (topic p) at the agent at one is RESTORING, 7 records behind",
        "global table shop/prices (topic p) at the agent at two was not asked for yet",
    ]
    broken = status(ready=False, phase="FAILED", error={"class": "StoreError", "message": "disk full"})
    assert gate.waiting_for({"one": [broken]})[0].endswith("0 records behind, last error: disk full")
    with pytest.raises(cs.ConfigurationError, match="no such topic"):
        gate.waiting_for({"one": [broken | {"error": {"class": "ConfigurationError", "message": "no such topic"}}]})
    with pytest.raises(cs.ConfigurationError, match="another name"):
        gate.waiting_for({"one": [status(topic="q")]})
    assert gate.request["asker"] == "driver"
    assert TableGate([], "driver").request == {}


def test_when_a_table_is_warned_of() -> None:
    limits = LagLimits(seconds=60, records=1_000)
    assert table_warning(status(lag_records=5, lag_seconds=59.0), limits) is None
    assert table_warning(status(lag_records=2_000, lag_seconds=0.0), limits) is None
    assert table_warning(status(lag_records=None, lag_seconds=None, phase="RESTORING"), limits) is None
    assert "is 5 records and 61 s behind" in str(table_warning(status(lag_records=5, lag_seconds=61.0), limits))
    assert "is 2000 records" in str(table_warning(status(lag_records=2_000, lag_seconds=1.0), limits))
    assert "disk full" in str(table_warning(status(error={"class": "StoreError", "message": "disk full"}), limits))
