"""The fast way into a store gives what the slow one gives, whatever the log looks like and whoever dies."""

from __future__ import annotations

import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import restore.bulk
from changelog_state.broker import EmbeddedBroker
from changelog_state.changelog import clients
from changelog_state.changelog.record import Claim, Marker
from changelog_state.changelog.topic import Topic, ensure_topics, lookup_topic
from changelog_state.changelog.writer import ChangelogWriter
from changelog_state.codec.digest import EMPTY_DIGEST
from changelog_state.codec.kinds import CLAIM, DATA, IMAGE, MARKER
from changelog_state.config import StoreConfig
from changelog_state.errors import ChangelogStateError, StoreError
from changelog_state.faults import arm
from changelog_state.store.directory import PartitionDirectory
from changelog_state.store.meta import META_KEY
from changelog_state.store.rocksdb import RocksMemory
from restore.bulk_pool import BulkPool
from restore.catch_up import CaughtUp, catch_up
from restore.replay import ReplayProgress
from tests.support.driver import AgentProcess, Event, Model, dump, identity_of
from tests.support.polling import WAIT_SECONDS, until
from tests.support.quick_agent import BULK_OFFSETS

pytestmark = pytest.mark.kafka

MEBIBYTE = 1024 * 1024


@pytest.fixture(scope="module")
def pool() -> Iterator[BulkPool]:
    with BulkPool(processes=2) as workers:
        yield workers


@pytest.fixture
def bulk_from_50(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests have small logs: the bulk way is worth it from 50 offsets on, here and in agents that are started."""
    monkeypatch.setattr(restore.bulk, "BULK_OFFSETS", 50)
    monkeypatch.setenv(BULK_OFFSETS, "50")


def restored(config: StoreConfig, path: Path, pool: BulkPool | None, **settings: Any) -> CaughtUp:
    topic = lookup_topic(config)
    assert topic is not None
    told = settings.pop("on_progress", lambda progress: None)
    return catch_up(config, topic, 0, PartitionDirectory(path, RocksMemory(8, 8)), None, None, told, pool=pool)


def contents(one: CaughtUp) -> dict[bytes, bytes]:
    """All but what differs by nature: when it was caught up, and where the chunks of images begin."""
    found = dict(one.state.store.scan(b"", None))
    meta = one.state.meta
    assert meta is not None
    found[META_KEY] = replace(meta, caught_up_ms=0).encode()
    return {key: value for key, value in found.items() if key[:1] != IMAGE}


def assert_same_in_bulk(config: StoreConfig, tmp_path: Path, pool: BulkPool) -> CaughtUp:
    slow, fast = restored(config, tmp_path / "slow", None), restored(config, tmp_path / "fast", pool)
    assert contents(fast) == contents(slow)
    assert (fast.done.records, fast.done.bytes) == (slow.done.records, slow.done.bytes)
    assert fast.done.position == fast.done.end
    slow.state.store.close()
    assert not (tmp_path / "fast" / "bulk").exists()
    return fast


def random_batches(seed: int, count: int, keys: int = 120) -> list[list[Event]]:
    rng = random.Random(seed)
    return [
        [(f"k{rng.randrange(keys)}", None if rng.random() < 0.25 else rng.randrange(1_000)) for _ in range(80)]
        for _ in range(count)
    ]


def abort_something(config: StoreConfig) -> None:
    """The log then ends with records that never happened, and the marker that says so."""
    producer = clients.transactional_producer(config, f"{config.application}-rival")
    producer.begin_transaction()
    for number in range(20):
        producer.produce(config.changelog_topic, key=DATA + b"k%d\x00total" % number, value=b"wrong", partition=0)
    producer.flush(WAIT_SECONDS)
    producer.abort_transaction(WAIT_SECONDS)


@pytest.mark.usefixtures("bulk_from_50")
@pytest.mark.parametrize("ending", ["markers", "aborted", "deleted", "cleared", "nothing"])
def test_whatever_the_log_looks_like(
    ending: str, make_agent: Any, make_driver: Any, config: StoreConfig, tmp_path: Path, pool: BulkPool
) -> None:
    agent, model = make_agent(), Model()
    driver = make_driver(agent)
    for batch, events in enumerate(random_batches(7, 6) if ending != "nothing" else []):
        assert driver.run(batch, events) == model.run(events)
    if ending == "aborted":
        abort_something(config)
    elif ending == "deleted":
        gone: list[Event] = [(key, None) for key in list(model.totals)]
        assert driver.run(6, gone) == model.run(gone)
    elif ending == "cleared":
        driver.coordinator.clear()
        model = Model()
    one = assert_same_in_bulk(config, tmp_path, pool)
    found = {key for key, _ in one.state.store.scan(DATA, b"e")}
    assert found == {DATA + key.encode() + b"\x00total" for key in model.totals}
    one.state.store.close()


@pytest.mark.usefixtures("bulk_from_50")
def test_the_last_batch_can_be_replayed_on_it(make_agent: Any, make_driver: Any, config: StoreConfig) -> None:
    first, second = make_agent("first"), make_agent("second")
    driver, model = make_driver(first), Model()
    *earlier, last = random_batches(8, 5)
    for batch, events in enumerate(earlier):
        assert driver.run(batch, events) == model.run(events)
    expected = model.run(last)
    assert driver.run(4, last) == expected
    heir = make_driver(second)
    assert heir.run(4, last) == expected, "the same rows, from images that the restore has made"
    [status] = second.client.status(config)
    assert status["restore"]["records"] > 200
    assert heir.dump(second.client) == model.entries
    more = random_batches(9, 1)[0]
    assert heir.run(5, more) == model.run(more)


@pytest.mark.usefixtures("bulk_from_50")
def test_while_the_broker_compacts(
    broker: EmbeddedBroker, application: str, make_agent: Any, make_driver: Any, tmp_path: Path, pool: BulkPool
) -> None:
    """Small segments, no lag: between and during the restores the cleaner takes away whatever is overwritten."""
    eager = {"min.compaction.lag.ms": 0, "max.compaction.lag.ms": 100, "min.cleanable.dirty.ratio": 0.001}
    settings = eager | {"segment.bytes": MEBIBYTE, "segment.ms": 100}
    config = StoreConfig(application, "compacted", broker.bootstrap_servers, 1, topic=settings)
    agent, model = make_agent(), Model()
    driver = make_driver(agent, config=config)
    read: list[int] = []
    batches = iter(enumerate(random_batches(10, 400)))

    def compacted_while_restored() -> bool:
        for _ in range(5):
            batch, events = next(batches)
            assert driver.run(batch, events) == model.run(events)
        path = tmp_path / str(len(read))
        one = restored(config, path, pool)
        found = {key for key, _ in one.state.store.scan(DATA, b"e")}
        assert found == {DATA + key.encode() + b"\x00total" for key in model.totals}
        assert one.state.meta is not None
        one.state.store.close()
        read.append(one.done.records)
        return one.plan.offsets > 2 * one.done.records > 0

    until(compacted_while_restored, "more than half of the log is gaps", 90)
    assert driver.dump(agent.client) == model.entries


@pytest.mark.usefixtures("bulk_from_50")
@pytest.mark.parametrize(
    ("point", "action", "survives"),
    [
        pytest.param("bulk.before_ingest", "kill 2", False, id="agent killed between two parts"),
        pytest.param("bulk.after_ingest", "kill", False, id="agent killed behind a part"),
        pytest.param("bulk.part_written", "kill", True, id="worker killed"),
    ],
)
def test_killed_in_the_middle_it_goes_on_from_there(
    point: str,
    action: str,
    survives: bool,
    make_agent: Any,
    make_driver: Any,
    config: StoreConfig,
    faults: Path,
    tmp_path: Path,
) -> None:
    first, model = make_agent("first"), Model()
    driver = make_driver(first)
    *earlier, last = random_batches(11, 8)
    for batch, events in enumerate(earlier):
        assert driver.run(batch, events) == model.run(events)
    first.stop()
    process = AgentProcess(tmp_path / "second")
    try:
        arm(faults, point, action)
        heir = make_driver(process)
        expected = model.run(last)
        assert heir.run(7, last) == expected
        assert (faults / f"{point}.fired").exists()
        assert process.starts == (1 if survives else 2)
        [status] = process.client.status(config)
        if not survives:
            assert status["restore"]["start"] > 0, "what was ingested is not read again"
        assert dump(process.client, config) == model.entries
        assert make_driver(process).run(7, last) == expected, "and the last batch can be replayed"
        assert not list((tmp_path / "second").rglob("bulk"))
    finally:
        process.kill()


@pytest.mark.usefixtures("bulk_from_50")
def test_whoever_is_told_of_progress_can_stop_it(
    make_agent: Any, make_driver: Any, config: StoreConfig, tmp_path: Path, pool: BulkPool
) -> None:
    driver = make_driver(make_agent())
    for batch, events in enumerate(random_batches(12, 4)):
        driver.run(batch, events)

    def stop(progress: ReplayProgress) -> None:
        if progress.records:
            raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        restored(config, tmp_path / "one", pool, on_progress=stop)
    assert not (tmp_path / "one" / "bulk").exists()
    assert_same_in_bulk(config, tmp_path, pool).state.store.close()


@pytest.mark.usefixtures("bulk_from_50")
def test_progress_ends_at_exactly_all(
    make_agent: Any, make_driver: Any, config: StoreConfig, tmp_path: Path, pool: BulkPool
) -> None:
    driver = make_driver(make_agent())
    for batch, events in enumerate(random_batches(13, 4)):
        driver.run(batch, events)
    told: list[ReplayProgress] = []
    one = restored(config, tmp_path / "one", pool, on_progress=told.append)
    one.state.store.close()
    assert told[0].position == told[0].start
    assert [progress.position for progress in told] == sorted(progress.position for progress in told)
    assert (told[-1], told[-1].position) == (one.done, one.done.end)


def test_an_agent_whose_disk_has_everything_has_nothing_to_replay(
    make_agent: Any, make_driver: Any, config: StoreConfig, tmp_path: Path
) -> None:
    """Its own claim is no news to it."""
    first = make_agent("first")
    make_driver(first).run(0, random_batches(14, 1)[0])
    first.stop()
    restored(
        config, tmp_path / "second" / "stores" / config.application / config.store / "0", None
    ).state.store.close()
    second = make_agent("second")
    driver = make_driver(second)
    [status] = second.client.claim(config, identity_of(config), driver.epoch, [0], WAIT_SECONDS)
    assert status["phase"] == "ACTIVE"
    figures = status["restore"]
    assert (figures["records"], figures["bytes"], figures["need"]) == (0, 0, "up to date")
    assert figures["start"] == figures["position"] == figures["end"]


# -- limits ------------------------------------------------------------------------------------------------


def _same(record: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    return record


@pytest.fixture
def fill(config: StoreConfig) -> Callable[..., Topic]:
    """A changelog with so many values of so many bytes each, which repeat themselves so often."""

    def write(count: int, size: int, repeated: int = 1) -> Topic:
        topic = ensure_topics(config)
        name = config.changelog_topic
        writer = ChangelogWriter(config, name, 0, config.transactional_id(0), topic.largest_record_bytes)
        claim = Claim(1, "test", "test", 0, **vars(identity_of(config)))
        begin = writer.write((), lambda: (CLAIM, claim.encode()), purpose="test") + 1
        for start in range(0, count, 100):
            keys = [DATA + b"%08d\x00v" % number for number in range(start, min(count, start + 100))]
            marker = Marker("q", start, 1, begin, len(keys), EMPTY_DIGEST, EMPTY_DIGEST, ["v"], 0)
            values = [random.Random(key).randbytes(size // repeated) * repeated for key in keys]
            last = (MARKER, marker.encode())
            begin = writer.write([(keys, values)], partial(_same, last), purpose="test") + 1
        return topic

    return write


@pytest.mark.usefixtures("bulk_from_50")
def test_memory_is_bounded_whatever_the_size_of_the_partition(
    config: StoreConfig, fill: Callable[..., Topic], tmp_path: Path
) -> None:
    """320 MB of values through a worker that may take 96."""
    fill(3_200, 100_000, repeated=4)
    peaks_kb: list[int] = []

    def look(progress: ReplayProgress) -> None:
        for worker in list(small._busy):
            status = Path(f"/proc/{worker._process.pid}/status").read_text()
            peaks_kb.extend(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))

    with BulkPool(memory_mb=96, processes=1) as small:
        one = restored(config, tmp_path / "one", small, on_progress=look)
    assert sum(1 for _ in one.state.store.scan_keys(DATA, b"e")) == 3_200
    assert one.done.bytes > 3 * 96 * MEBIBYTE
    assert 0 < max(peaks_kb) < 96 * 1024
    one.state.store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A file system of so many megabytes, which can be made larger."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = False

    def sized(megabytes: int) -> Path:
        nonlocal mounted
        options = f"size={megabytes}m" + (",remount" if mounted else "")
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], capture_output=True)
        if done.returncode:
            pytest.skip(f"a small file system cannot be mounted here: {done.stderr.decode().strip()}")
        mounted = True
        return path

    yield sized
    if mounted:
        subprocess.run(["umount", str(path)], check=True)


@pytest.mark.parametrize("way", ["bulk", "one by one"])
def test_a_full_disk_fails_cleanly_and_goes_on_when_there_is_room(
    way: str,
    config: StoreConfig,
    fill: Callable[..., Topic],
    small_disk: Callable[[int], Path],
    pool: BulkPool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restore.bulk, "BULK_OFFSETS", 50)
    workers = pool if way == "bulk" else None
    path = small_disk(24) / "one"
    fill(600, 100_000)
    with pytest.raises(StoreError, match="space"):
        restored(config, path, workers).state.store.close()
    assert not (path / "bulk").exists()
    small_disk(400)
    one = restored(config, path, workers)
    assert sum(1 for _ in one.state.store.scan_keys(DATA, b"e")) == 600
    one.state.store.close()


# -- workers -----------------------------------------------------------------------------------------------


def test_a_closed_pool_ends_its_workers(config: StoreConfig, tmp_path: Path) -> None:
    workers = BulkPool(processes=1)
    workers.close()
    with pytest.raises(ChangelogStateError, match="cancelled"):
        workers.run({}, lambda event: None, threading.Event())


def test_a_worker_s_error_keeps_its_class(config: StoreConfig, pool: BulkPool, tmp_path: Path) -> None:
    """There is no such directory, so the part cannot be written."""
    ensure_topics(config)
    job = {
        "config": config.to_json(),
        "partition": 0,
        "start": 0,
        "end": 0,
        "directory": str(tmp_path / "missing"),
        "meta": {"topic_id": "x"},
    }
    with pytest.raises(StoreError, match="could not be written"):
        pool.run(job, lambda event: None, threading.Event())
