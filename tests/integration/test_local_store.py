"""The local store is not what it seems: of another log, outside it, too old, damaged, half restored."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from changelog_state.changelog import reader as reader_module
from changelog_state.changelog.topic import delete_topics, lookup_topic
from changelog_state.codec.keys import record_key
from changelog_state.codec.kinds import DATA, MARKER
from changelog_state.config import StoreConfig
from changelog_state.errors import CorruptStoreError, StoreError
from changelog_state.faults import arm
from changelog_state.store.directory import PartitionDirectory
from changelog_state.store.rocksdb import RocksMemory, RocksStore
from restore.catch_up import catch_up
from tests.support.driver import (
    CODEC,
    Event,
    LocalAgent,
    Model,
    dump,
    identity_of,
)
from tests.support.protocol import FIRST, SECOND, WAIT_SECONDS, committed

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("running", [False, True], ids=["agent restarted", "agent running"])
def test_a_recreated_changelog_that_has_grown_past_the_old_position(
    running: bool, make_agent: Any, make_driver: Any, config: StoreConfig
) -> None:
    """The old position exists in the new log, so nothing but the topic's id tells them apart."""
    agent, other = make_agent("old"), make_agent("other")
    for _ in range(3):  # so that the new store's epochs are lower than those this agent has seen
        driver = make_driver(agent)
        driver.run(0, FIRST)
    position = agent.client.status(config)[0]["position"]
    marker_offset = agent.partition(config)._state.meta.marker_offset  # type: ignore[union-attr]
    if not running:
        agent.stop()
    delete_topics(config)
    model = Model()
    new = make_driver(other)
    for batch in range(4):
        size = 20 if batch else len(FIRST) - 1  # so that no record is where the old marker was
        events: list[Event] = [(f"k{batch}-{number}", number) for number in range(size)]
        assert new.run(batch, events) == model.run(events)
    assert marker_offset not in {message.offset() for message in committed(config)}
    assert other.client.status(config)[0]["position"] > position
    if not running:
        agent = make_agent("old")
    back = make_driver(agent)
    assert back.run(4, SECOND) == model.run(SECOND)
    assert back.dump(agent.client) == model.entries


@pytest.mark.parametrize("moved", ["ahead of the log", "behind its beginning"])
def test_a_position_outside_the_log(
    moved: str, make_agent: Any, make_driver: Any, config: StoreConfig, caplog: pytest.LogCaptureFixture
) -> None:
    agent = make_agent()
    driver = make_driver(agent)
    model = Model()
    assert driver.run(0, FIRST) == model.run(FIRST)
    state = agent.partition(config)._state
    assert state is not None
    state.update_meta(position=10_000 if moved == "ahead of the log" else -1)
    batch = state.store.batch()
    batch.put(record_key(DATA, CODEC.encode("ghost"), "total"), b"never committed")
    state.store.write(batch)
    agent.stop()
    agent = make_agent()
    again = make_driver(agent)
    assert again.run(1, SECOND) == model.run(SECOND)
    assert again.dump(agent.client) == model.entries
    assert "outside the log" in caplog.text


def test_a_marker_that_is_not_in_the_log(
    make_agent: Any, make_driver: Any, config: StoreConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """Same topic, position inside, and yet another history: the record at the marker's offset tells."""
    agent = make_agent()
    model = Model()
    assert make_driver(agent).run(0, FIRST) == model.run(FIRST)
    state = agent.partition(config)._state
    assert state is not None
    batch = state.store.batch()
    batch.put(MARKER, state.marker[:-1] + b"\x00")  # type: ignore[index]
    batch.put(record_key(DATA, CODEC.encode("ghost"), "total"), b"never committed")
    state.store.write(batch)
    agent.stop()
    agent = make_agent()
    again = make_driver(agent)
    assert again.run(1, SECOND) == model.run(SECOND)
    assert again.dump(agent.client) == model.entries
    assert "marker is not in this log" in caplog.text


def test_a_store_that_was_away_for_too_long_is_rebuilt(
    make_agent: Any, make_driver: Any, config: StoreConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """Deletions do not stay readable for ever: what was caught up too long ago may have missed one."""
    agent = make_agent()
    model = Model()
    assert make_driver(agent).run(0, FIRST) == model.run(FIRST)
    state = agent.partition(config)._state
    assert state is not None
    batch = state.store.batch()
    batch.put(record_key(DATA, CODEC.encode("ghost"), "total"), b"deleted meanwhile")
    state.store.write(batch)
    state.update_meta(caught_up_ms=int(time.time() * 1000) - 13 * 3_600_000)  # of 24 h that a deletion stays
    agent.stop()
    agent = make_agent()
    again = make_driver(agent)
    assert again.run(1, SECOND) == model.run(SECOND)
    assert again.dump(agent.client) == model.entries
    assert "missed deletions" in caplog.text


def largest_sst(state_dir: Path, config: StoreConfig) -> Path:
    found = (state_dir / "stores" / config.application / config.store).rglob("db/*.sst")
    return max(found, key=lambda path: path.stat().st_size)


# Where in a file of one batch: images come first (b), then data (d), then filter and index.
IMAGE_BLOCK, DATA_BLOCK = 0.2, 0.6


def overwrite(path: Path, where: float) -> None:
    with open(path, "r+b") as file:
        file.seek(int(path.stat().st_size * where))
        file.write(bytes(32))


@pytest.mark.parametrize(
    "damage", ["data block", "image block", "manifest", "truncated manifest", "current", "missing file"]
)
def test_a_damaged_store_is_moved_aside_and_rebuilt(
    damage: str, make_agent: Any, make_driver: Any, config: StoreConfig, tmp_path: Path
) -> None:
    agent = make_agent()
    driver = make_driver(agent)
    model = Model()
    events: list[Event] = [(f"k{number:05}", number) for number in range(3_000)]
    assert driver.run(0, events) == model.run(events)
    agent.stop()
    directory = tmp_path / "state" / "stores" / config.application / config.store / "0"
    path = largest_sst(tmp_path / "state", config)
    if damage == "data block":
        overwrite(path, DATA_BLOCK)
    elif damage == "image block":
        overwrite(path, IMAGE_BLOCK)
    elif damage == "missing file":
        path.unlink()
    elif damage == "manifest":
        overwrite(max((directory / "db").glob("MANIFEST-*")), 0.3)
    elif damage == "truncated manifest":
        manifest = max((directory / "db").glob("MANIFEST-*"))
        os.truncate(manifest, manifest.stat().st_size // 2)
    else:
        (directory / "db" / "CURRENT").write_text("MANIFEST-999999\n")
    agent = make_agent()
    again = make_driver(agent)
    more: list[Event] = [(key, 1) for key, _ in events]
    assert again.run(1, more) == model.run(more)
    assert again.dump(agent.client) == model.entries
    assert list(directory.glob("corrupt-*")), "kept for whoever wants to know why"


@pytest.mark.parametrize("by", ["get", "read", "scan", "clear"])
def test_damage_that_only_a_read_finds(
    by: str, make_agent: Any, make_driver: Any, config: StoreConfig, tmp_path: Path
) -> None:
    """An open store can go bad too. Whoever meets it hears of it, and the next claim rebuilds."""
    agent = make_agent()
    model = Model()
    events: list[Event] = [(f"k{number:05}", number) for number in range(3_000)]
    driver = make_driver(agent)
    assert driver.run(0, events) == model.run(events)
    store = agent.partition(config)._state.store  # type: ignore[union-attr]
    store.flush()
    path = largest_sst(tmp_path / "state", config)
    overwrite(path, DATA_BLOCK)
    gate = driver.gate(1)
    record_keys = [record_key(DATA, CODEC.encode(key), "total") for key, _ in events]
    meets = {
        "get": lambda: driver.attempt(gate, events).get(),
        "read": lambda: agent.client.read(config, 0, record_keys),
        "scan": lambda: driver.dump(agent.client),
        "clear": lambda: driver.coordinator.clear(),
    }
    with pytest.raises(CorruptStoreError):
        meets[by]()
    assert agent.client.status(config)[0]["phase"] == "FAILED"
    more: list[Event] = [(key, 1) for key, _ in events]
    again = make_driver(agent)
    assert again.run(1, more) == model.run(more)
    assert again.dump(agent.client) == model.entries


def test_a_restore_that_was_cut_short_goes_on(
    make_agent: Any, make_driver: Any, faults: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry begins where the first try ended; an hour's restore is not lost to a second's trouble."""
    monkeypatch.setattr(reader_module, "_MOST_READ", 50)
    first, second = make_agent("first"), make_agent("second")
    driver = make_driver(first)
    model = Model()
    events: list[Event] = [(f"k{number}", number) for number in range(500)]
    assert driver.run(0, events) == model.run(events)
    config = driver.config
    arm(faults, "replay.between_chunks", "raise 4")
    epoch = make_driver(second).epoch
    [status] = second.client.claim(config, identity_of(config), epoch, [0], WAIT_SECONDS)
    assert (status["phase"], status["restore"]["start"]) == ("FAILED", 0)
    reached = status["restore"]["position"]
    assert reached >= 100
    [status] = second.client.claim(config, identity_of(config), epoch, [0], WAIT_SECONDS)
    assert status["phase"] == "ACTIVE"
    assert status["restore"]["start"] >= reached
    assert dump(second.client, config) == model.entries
    more: list[Event] = [("k1", 1)]
    assert make_driver(second).run(0, events) == Model().run(events), "images were collected across the cut"
    assert make_driver(second).run(1, more) == model.run(more)


@pytest.mark.parametrize("point", ["claim.before_fencing", "claim.before_replay", "replay.between_chunks"])
def test_a_claim_that_fails_leaves_nothing_locked(
    point: str, agent: LocalAgent, make_driver: Any, config: StoreConfig, faults: Path
) -> None:
    """From CLOSED and from FOLLOWING, where the store is open already."""
    model = Model()
    assert make_driver(agent).run(0, FIRST) == model.run(FIRST)
    for follow in (False, True):
        agent.client.release(config)
        if follow:
            assert dump(agent.client, config) == model.entries
            assert agent.client.status(config)[0]["phase"] == "FOLLOWING"
        driver = make_driver(agent)
        arm(faults, point, "raise")
        [status] = agent.client.claim(config, identity_of(config), driver.epoch, [0], WAIT_SECONDS)
        assert status["phase"] == "FAILED"
        [status] = agent.client.claim(config, identity_of(config), driver.epoch, [0], WAIT_SECONDS)
        assert status["phase"] == "ACTIVE"
        assert driver.dump(agent.client) == model.entries


def test_a_store_that_cannot_be_closed_is_given_up_all_the_same(
    agent: LocalAgent, make_driver: Any, config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk shows when buffers are flushed; the partition must not stay in between for ever."""
    model = Model()
    assert make_driver(agent).run(0, FIRST) == model.run(FIRST)
    closing = RocksStore.close

    def fail(store: RocksStore) -> None:
        closing(store)
        raise StoreError("no space left")

    monkeypatch.setattr(RocksStore, "close", fail)
    agent.client.release(config)
    assert agent.client.status(config)[0]["phase"] == "CLOSED"
    monkeypatch.undo()
    assert make_driver(agent).run(1, SECOND) == model.run(SECOND)


def test_a_replay_that_outlasts_the_deletions_is_not_believed(
    make_agent: Any, make_driver: Any, config: StoreConfig, tmp_path: Path
) -> None:
    """What it read first may be deleted by now, and the deletion gone from the log before the replay got there."""
    make_driver(make_agent()).run(0, FIRST)
    topic = lookup_topic(config)
    assert topic is not None
    impatient = replace(topic, settings={**topic.settings, "delete.retention.ms": "0"})
    directory = PartitionDirectory(tmp_path / "copy", RocksMemory(8, 8))
    arguments = (0, directory, None, None, lambda progress: None)
    with pytest.raises(StoreError, match="raise delete.retention.ms"):
        catch_up(config, impatient, *arguments)
    assert not directory.exists(), "nothing is left that could be gone on from"
    caught_up = catch_up(config, topic, *arguments)
    assert caught_up.plan.need == "no local store"
    caught_up.state.store.close()
