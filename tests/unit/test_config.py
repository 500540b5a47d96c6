"""Settings are checked when they are made."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from changelog_state.config import ClusterConfig, StoreConfig, default_state_dir
from changelog_state.errors import ConfigurationError
from changelog_state.requests import RequestHeader, decode_request


def config(**changes: Any) -> StoreConfig:
    settings: dict[str, Any] = {"application": "app", "store": "s", "bootstrap_servers": "host:9092", "partitions": 4}
    return StoreConfig(**(settings | changes))


def test_names() -> None:
    made = config(application="my.app", store="user_totals")
    assert made.name == "my.app/user_totals"
    assert made.changelog_topic == "my.app-user_totals-changelog"
    assert made.control_topic == "my.app-user_totals-control"
    assert made.transactional_id(3) == "my.app-user_totals-3"
    assert made.control_transactional_id == "my.app-user_totals-control"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"application": ""}, "application name"),
        ({"application": "a/b"}, "'a/b'"),
        ({"application": "a b"}, "letters, digits"),
        ({"application": "ä"}, "application name"),
        ({"application": ".."}, "not only dots"),
        ({"application": None}, "None"),
        ({"store": "s\n"}, "store name"),
        ({"store": "x" * 250}, "249"),
        ({"partitions": 0}, "partitions is 0"),
        ({"partitions": -1}, "-1"),
        ({"partitions": True}, "True"),
        ({"partitions": 2.0}, "2.0"),
        ({"partitions": "4"}, "'4'"),
        ({"bootstrap_servers": ""}, "bootstrap_servers"),
        ({"bootstrap_servers": " "}, "localhost:9092"),
        ({"bootstrap_servers": None}, "None"),
        ({"kafka": {"bootstrap.servers": "x"}}, "use bootstrap_servers="),
        ({"kafka": {"transactional.id": "x"}}, "the protocol depends on it"),
        ({"kafka": {"isolation.level": "read_uncommitted"}}, "isolation.level"),
        ({"kafka": {"enable.idempotence": False}}, "enable.idempotence"),
    ],
)
def test_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        config(**changes)


def test_frozen_and_through_json() -> None:
    made = config(kafka={"security.protocol": "SSL"}, topic={"segment.bytes": 5})
    assert StoreConfig.from_json(json.loads(json.dumps(made.to_json()))) == made
    with pytest.raises(FrozenInstanceError):
        made.partitions = 5  # type: ignore[misc]


def test_header_through_bytes() -> None:
    header = RequestHeader("a", "s", 1, 2, 3, "q", 4, "t")
    assert decode_request(header.encode()) == header


def test_default_state_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CHANGELOG_STATE_DIR", str(tmp_path))
    assert default_state_dir() == tmp_path
    monkeypatch.delenv("CHANGELOG_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert default_state_dir() == tmp_path / "xdg" / "changelog-state"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_state_dir() == tmp_path / "home" / ".local" / "state" / "changelog-state"


def test_the_cluster_of_a_store() -> None:
    made = config(kafka={"client.rack": "r"}, topic={"replication.factor": 3}).cluster
    assert made == ClusterConfig("app", "host:9092", {"client.rack": "r"}, {"replication.factor": 3})
    assert made.agents_topic == "app-agents"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("a/b", "host:9092"), "application name"),
        (("a" * 244, "host:9092"), "longer than 249"),
        (("app", " "), "bootstrap_servers"),
        (("app", "host:9092", {"group.id": "g"}), "group.id"),
    ],
)
def test_clusters_that_cannot_be(settings: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        ClusterConfig(*settings)
