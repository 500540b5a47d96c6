"""``changelog-restore`` on real stores and a real changelog, as a person would use it."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from changelog_state.broker import EmbeddedBroker
from changelog_state.changelog.reader import ChangelogReader
from changelog_state.changelog.topic import lookup_topic
from changelog_state.codec.keys import record_key
from changelog_state.codec.kinds import DATA
from changelog_state.config import StoreConfig
from changelog_state.faults import arm
from changelog_state.store.directory import PartitionDirectory, partition_path
from changelog_state.store.rocksdb import RocksMemory
from changelog_state.store.state_store import StateStore
from restore.cli import main
from tests.support.driver import CODEC, Driver, Event, LocalAgent, Model, home_of

pytestmark = pytest.mark.kafka

Cli = Callable[..., Any]
KEYS = 700
"""Enough for a log that is sampled, not counted."""


@dataclass(frozen=True)
class Filled:
    """A store that an agent has filled and left, in the directory of its node."""

    config: StoreConfig
    state_dir: Path
    model: Model

    def options(self, state_dir: Path | None = None) -> list[str]:
        return [
            *("--application", self.config.application, "--store", self.config.store),
            *("--bootstrap-servers", self.config.bootstrap_servers),
            *("--state-dir", str(state_dir or self.state_dir)),
        ]


def fill(config: StoreConfig, state_dir: Path, batches: list[list[Event]]) -> Filled:
    agent, model = LocalAgent(state_dir), Model()
    driver = Driver(config, lambda: [agent.client])
    try:
        for number, events in enumerate(batches):
            driver.run(number, events)
            model.run(events)
    finally:
        driver.close()
        agent.stop()
    return Filled(config, state_dir, model)


@pytest.fixture(scope="module")
def filled(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    config = StoreConfig(f"test-{uuid.uuid4().hex[:10]}", "totals", broker.bootstrap_servers, 2)
    first: list[Event] = [(f"user-{number}", number) for number in range(KEYS)]
    second: list[Event] = [("user-1", None), *((f"user-{number}", 1_000) for number in range(2, KEYS, 2))]
    return fill(config, tmp_path_factory.mktemp("filled") / "state", [first, second])


@pytest.fixture
def copied(filled: Filled, tmp_path: Path) -> Filled:
    """The same store on a disk of its own, to be spoiled."""
    shutil.copytree(filled.state_dir, tmp_path / "state")
    return Filled(filled.config, tmp_path / "state", filled.model)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command in this process; returns its JSON document, or its standard error if it failed."""

    def run(*words: str, code: int = 0, text: bool = False) -> Any:
        monkeypatch.setattr(sys, "argv", ["changelog-restore", *words, *([] if text else ["--json"])])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert (ended.value.code or 0) == code, err
        return out if text else json.loads(out) if out else err

    return run


def opened(filled: Filled, partition: int) -> StateStore:
    names = filled.config.application, filled.config.store
    return PartitionDirectory(partition_path(filled.state_dir, *names, partition), RocksMemory(8, 8)).open()


def change_meta(filled: Filled, partition: int, **changes: object) -> None:
    state = opened(filled, partition)
    state.update_meta(**changes)
    state.store.close()


def tamper(filled: Filled, partition: int, key: str, value: bytes | None) -> None:
    state = opened(filled, partition)
    batch = state.store.batch()
    found = record_key(DATA, CODEC.encode(key), "total")
    if value is None:
        batch.delete(found)
    else:
        batch.put(found, value)
    state.store.write(batch)
    state.store.close()


def a_file(filled: Filled, partition: int, pattern: str) -> Path:
    names = filled.config.application, filled.config.store
    return sorted((partition_path(filled.state_dir, *names, partition) / "db").glob(pattern))[-1]


def traces(filled: Filled) -> tuple[dict[str, tuple[int, str]], list[tuple[int, int]]]:
    """Everything that a command could have changed: files, and offsets of both topics."""
    files = {
        str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "")
        for path in [filled.state_dir, *filled.state_dir.rglob("*")]
    }
    offsets = []
    topics = [(filled.config.changelog_topic, partition) for partition in range(filled.config.partitions)]
    for topic, partition in [*topics, (filled.config.control_topic, 0)]:
        with ChangelogReader(filled.config, topic, partition) as reader:
            offsets.append(reader.bounds())
    return files, offsets


# -- plan --------------------------------------------------------------------------------------------------


def test_plan_for_a_node_that_has_nothing(filled: Filled, tmp_path: Path) -> None:
    """In a process of its own, by environment and file, as on a machine that is new."""
    file = tmp_path / "store.toml"
    file.write_text(
        f'application = "{filled.config.application}"\nbootstrap_servers = "{filled.config.bootstrap_servers}"\n'
    )
    environment = os.environ | {"CHANGELOG_STATE_STORE": "totals", "CHANGELOG_STATE_DIR": str(tmp_path / "new")}
    command = [sys.executable, "-m", "restore", "plan", "--config", str(file), "--json"]
    before = traces(filled)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["why"] for row in found["partitions"]] == ["no local store"] * 2
    assert all(
        row["local_position"] is None and row["replay_from"] == row["log_start"] for row in found["partitions"]
    )
    events = KEYS + KEYS // 2
    assert 0.9 * events < found["total"]["records"] < 1.1 * (events + 20)
    assert found["total"]["bytes"] > 20 * events
    assert found["total"]["seconds"] > 0
    assert found["rate"]["source"] == "assumed"
    assert traces(filled) == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda filled: None, "up to date"),
        (lambda filled: change_meta(filled, 0, position=10), "behind"),
        (lambda filled: change_meta(filled, 0, position=10, caught_up_ms=0), "stale"),
        (lambda filled: change_meta(filled, 0, topic_id="other"), "recreated changelog"),
        (lambda filled: change_meta(filled, 0, position=10**9), "outside log"),
        (lambda filled: change_meta(filled, 0, marker_offset=12), "foreign marker"),
        (lambda filled: a_file(filled, 0, "*.sst").unlink(), "corrupt"),
        (lambda filled: os.truncate(a_file(filled, 0, "MANIFEST-*"), 7), "corrupt"),
        (lambda filled: shutil.rmtree(a_file(filled, 0, "CURRENT").parent), "no local store"),
    ],
)
def test_plan_tells_why_and_changes_nothing(copied: Filled, cli: Cli, spoil: Any, why: str) -> None:
    spoil(copied)
    before = traces(copied)
    found = cli("plan", *copied.options())
    assert [row["why"] for row in found["partitions"]] == [why, "up to date"]
    row = found["partitions"][0]
    assert row["from_scratch"] is (why not in ("up to date", "behind"))
    assert row["replay_from"] == (row["local_position"] if not row["from_scratch"] else row["log_start"])
    assert (row["records"] > 0) is (why != "up to date")
    assert (row["damage"] is not None) is (why == "corrupt")
    shown = cli("plan", *copied.options(), text=True)
    assert why in shown
    assert "assumed" in shown
    assert traces(copied) == before


def test_a_store_of_a_newer_library_is_wrong_use(copied: Filled, cli: Cli) -> None:
    change_meta(copied, 1, format=99)
    for command in ("plan", "run", "verify", "inspect", "status"):
        told = cli(command, *copied.options(), code=2)
        assert "format 99" in told
        assert "upgrade" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["plan", "--partitions", "2"], "there is no partition 2"),
        (["plan", "--store", "nothing"], "there is no changelog topic"),
        (["verify", "--state-dir", "/nowhere"], "there is no local store"),
        (["inspect", "--partitions", "9"], "only for [0, 1]"),
        (["inspect", "--output", "x"], "--format"),
        (["inspect", "--format", "parquet"], "--output"),
        (["clear", "tombstone"], "--changelog"),
        (["clear", "--changelog", "--partitions", "0"], "leave --partitions out"),
    ],
)
def test_wrong_use(filled: Filled, cli: Cli, words: list[str], told: str) -> None:
    assert told in cli(words[0], *filled.options(), *words[1:], code=2)


# -- verify ------------------------------------------------------------------------------------------------


def test_verify_an_intact_store(filled: Filled, cli: Cli) -> None:
    before = traces(filled)
    found = cli("verify", *filled.options())
    assert found["equal"] is True
    for row in found["partitions"]:
        assert row["result"] == "equal"
        assert row["in_store"] == row["in_changelog"]
    assert sum(row["in_store"]["values"] for row in found["partitions"]) == len(filled.model.totals)
    assert "no difference found" in cli("verify", *filled.options(), text=True)
    assert traces(filled) == before


def test_verify_finds_what_is_changed_missing_or_extra(copied: Filled, cli: Cli) -> None:
    keys = [f"user-{number}" for number in range(2, KEYS) if home_of(f"user-{number}", 2) == 0]
    changed, missing = keys[0], keys[1]
    other = opened(copied, 0).store
    value = other.get(record_key(DATA, CODEC.encode(keys[2]), "total"))
    other.close()
    assert value is not None
    tamper(copied, 0, changed, value)
    tamper(copied, 0, missing, None)
    tamper(copied, 0, "who", value)
    before = traces(copied)
    found = cli("verify", *copied.options(), code=3)
    assert [row["result"] for row in found["partitions"]] == ["different", "equal"]
    row = found["partitions"][0]
    assert (row["differences"], row["undecided"]) == (3, 0)
    assert row["in_store"]["digest"] != row["in_changelog"]["digest"]
    totals, wrong = copied.model.totals, copied.model.totals[keys[2]]
    told = {one["key"]: (one["problem"], one["store"], one["changelog"]) for one in row["first_differences"]}
    assert told == {
        changed: ("changed", wrong, totals[changed]),
        missing: ("missing", None, totals[missing]),
        "who": ("extra", wrong, None),
    }
    assert cli("verify", *copied.options(), "--most-differences", "1", code=3)["partitions"][0]["differences"] == 3
    shown = cli("verify", *copied.options(), code=3, text=True)
    assert f"data 'who' 'total' is extra: the store has {wrong}, the changelog has nothing" in shown
    assert traces(copied) == before
    assert cli("verify", *copied.options(), "--partitions", "1")["equal"] is True


def test_verify_checks_before_images(copied: Filled, cli: Cli) -> None:
    state = opened(copied, 0)
    assert state.meta is not None
    assert state.meta.images_begin is not None
    state.update_meta(images_begin=state.meta.images_begin - 1)
    state.store.close()
    row = cli("verify", *copied.options(), code=3)["partitions"][0]
    assert (row["result"], row["differences"]) == ("different", 0)
    assert "before batch 1" in row["reason"]


@pytest.mark.parametrize(
    ("spoil", "result", "reason"),
    [
        (lambda filled: a_file(filled, 0, "*.sst").unlink(), "corrupt", "damaged"),
        (lambda filled: change_meta(filled, 0, topic_id="other"), "not comparable", "recreated"),
        (lambda filled: change_meta(filled, 0, position=10**9), "not comparable", "outside the log"),
    ],
)
def test_verify_what_cannot_be_compared(copied: Filled, cli: Cli, spoil: Any, result: str, reason: str) -> None:
    spoil(copied)
    row, other = cli("verify", *copied.options(), code=3)["partitions"]
    assert (row["result"], other["result"]) == (result, "equal")
    assert reason in row["reason"]


def test_verify_a_store_that_lags_behind_a_compacted_log(
    broker: EmbeddedBroker, application: str, tmp_path: Path, cli: Cli
) -> None:
    """The log has lost what the store rightly has, as it was overwritten later: no difference, nor a proof."""
    config = StoreConfig(
        application,
        "compacted",
        broker.bootstrap_servers,
        1,
        topic={
            "min.compaction.lag.ms": 0,
            "segment.bytes": 1024 * 1024,
            "min.cleanable.dirty.ratio": 0.001,
            "max.compaction.lag.ms": 200,
        },
    )
    first: list[Event] = [(f"k{number:03}", number) for number in range(100)]
    agent = LocalAgent(tmp_path / "state")
    driver = Driver(config, lambda: [agent.client])
    driver.run(0, first)
    agent.partition(config).release()
    shutil.copytree(tmp_path / "state", tmp_path / "old")
    driver.run(1, [(key, 1_000) for key, _ in first[:60]])
    old = Filled(config, tmp_path / "old", Model())

    def old_values() -> int:
        with ChangelogReader(config, config.changelog_topic, 0) as reader:
            _, high = reader.bounds()
            reader.seek(0)
            records: list[Any] = []
            while reader.position() < high:
                records += reader.read(1_000)
        return sum(1 for message in records if message.key()[:1] == DATA) - 60

    deadline = time.monotonic() + 60
    while old_values() > 40:
        assert time.monotonic() < deadline, "the cleaner has not removed batch 0's values"
        driver.close()
        driver = Driver(config, lambda: [agent.client])  # a claim rolls the segment, which is then cleaned
        driver.gate(1)
        time.sleep(0.2)
    [row] = cli("verify", *old.options())["partitions"]
    assert (row["result"], row["differences"], row["in_store"]["values"]) == ("equal", 0, 100)
    assert row["undecided"] >= 60
    tamper(old, 0, "k080", None)
    [row] = cli("verify", *old.options(), code=3)["partitions"]
    assert [(one["key"], one["problem"]) for one in row["first_differences"]] == [("k080", "missing")]
    driver.close()
    agent.stop()


# -- inspect -----------------------------------------------------------------------------------------------


def test_inspect_shows_a_store_without_kafka(filled: Filled, cli: Cli) -> None:
    options = filled.options()
    options[options.index("--bootstrap-servers") + 1] = "localhost:1"
    before = traces(filled)
    found = cli("inspect", *options, "--sample", "3", "--key", "user-2", "--key", "user-1")
    for row in found["partitions"]:
        assert (row["marker"]["batch"], row["marker"]["query"]) == (1, "q")
        assert row["claim"]["key_types"] == ["string"]
        assert row["images"]["complete"] is True
        assert row["position"] > row["marker"]["begin"] + row["marker"]["records"]
        assert "Json" in [schema["name"] for schema in row["schemas"]]
        assert len(row["sample"]) == 3
        assert all(one["value"] == filled.model.totals[one["key"]] for one in row["sample"])
    assert sum(row["counts"]["data"] for row in found["partitions"]) == len(filled.model.totals)
    there, gone = found["keys"]
    home = home_of("user-2", 2)
    assert there["found"] == [{"partition": home, "name": "total", "value": 1_002, "expires_ms": None}]
    assert gone == {"key": "user-1", "found": []}
    shown = cli("inspect", *options, "--key", "user-2", text=True)
    assert "'user-2' total = 1002" in shown
    assert traces(filled) == before


def test_exports_can_be_read_back(filled: Filled, cli: Cli, tmp_path: Path) -> None:
    expected = {(home_of(key, 2), key, "total", total, None) for key, total in filled.model.totals.items()}
    files = {name: tmp_path / f"all.{name}" for name in ("json", "csv", "parquet")}
    for name, file in files.items():
        done = cli("inspect", *filled.options(), "--format", name, "--output", str(file))
        assert done == {"exported": len(expected), "format": name, "output": str(file)}
    columns = ("partition", "key", "name", "value", "expires_ms")
    rows = json.loads(files["json"].read_text())
    assert {tuple(row[name] for name in columns) for row in rows} == expected
    with files["csv"].open(newline="") as stream:
        texts = [[row[name] for name in columns] for row in csv.DictReader(stream)]
    assert {(int(p), key, name, json.loads(value), e or None) for p, key, name, value, e in texts} == expected
    table = pq.read_table(files["parquet"]).to_pylist()
    assert {(r["partition"], r["key"], r["name"], json.loads(r["value"]), r["expires_ms"]) for r in table} == expected
    assert sorted(tmp_path.iterdir()) == sorted(files.values()), "no partial file is left"
    assert json.loads(cli("inspect", *filled.options(), "--format", "json", text=True)) == rows


def test_inspect_a_damaged_store(copied: Filled, cli: Cli, tmp_path: Path) -> None:
    file = a_file(copied, 1, "*.sst")
    content = bytearray(file.read_bytes())
    content[len(content) // 4 : len(content) * 3 // 4] = bytes(len(content) * 3 // 4 - len(content) // 4)
    file.write_bytes(content)
    rows = cli("inspect", *copied.options())["partitions"]
    assert rows[0]["damage"] is None
    assert "damaged" in rows[1]["damage"]
    told = cli("inspect", *copied.options(), "--format", "csv", "--output", str(tmp_path / "all.csv"), code=1)
    assert "damaged" in told
    assert not (tmp_path / "all.csv").exists()


# -- run and status ----------------------------------------------------------------------------------------


def test_run_leaves_nothing_for_the_agent_to_replay(filled: Filled, cli: Cli, tmp_path: Path) -> None:
    options = filled.options(tmp_path / "new")
    done = cli("run", *options)
    assert done["interrupted"] is False
    for row in done["partitions"]:
        assert (row["result"], row["why"], row["position"]) == ("done", "no local store", row["end"])
        assert row["records"] > 0
    assert [row["why"] for row in cli("plan", *options)["partitions"]] == ["up to date"] * 2
    assert cli("verify", *options)["equal"] is True
    assert "2 of 2 partitions are restored" in cli("run", *options, text=True)
    assert cli("run", *options)["records"] == 0
    again = cli("run", *options, "--from-scratch", "--partitions", "1", "--parallelism", "1")["partitions"]
    assert [(row["partition"], row["why"], row["records"]) for row in again] == [
        (1, "from scratch", done["partitions"][1]["records"])
    ]


def test_run_mends_a_damaged_store(copied: Filled, cli: Cli) -> None:
    a_file(copied, 0, "*.sst").unlink()
    rows = cli("run", *copied.options())["partitions"]
    assert [(row["result"], row["why"]) for row in rows] == [("done", "corrupt"), ("done", "up to date")]
    names = copied.config.application, copied.config.store
    assert list(partition_path(copied.state_dir, *names, 0).glob("corrupt-*"))
    assert cli("verify", *copied.options())["equal"] is True


def test_run_where_an_agent_is_running(copied: Filled, cli: Cli) -> None:
    agent = LocalAgent(copied.state_dir)
    try:
        for words in (["run"], ["clear", "--yes"]):
            told = cli(*words, *copied.options(), code=2)
            assert f"process {os.getpid()}" in told
            assert "stop that process" in told
        assert cli("verify", *copied.options())["equal"] is True
        assert [row["why"] for row in cli("plan", *copied.options())["partitions"]] == ["up to date"] * 2
    finally:
        agent.stop()


@pytest.fixture(scope="module")
def large(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """More than the replay takes at once."""
    config = StoreConfig(f"test-{uuid.uuid4().hex[:10]}", "large", broker.bootstrap_servers, 1)
    return fill(config, tmp_path_factory.mktemp("large") / "state", [[(f"k{n}", 7 * n) for n in range(25_000)]])


def test_run_interrupted_and_run_again(large: Filled, tmp_path: Path, faults: Path, cli: Cli) -> None:
    options = large.options(tmp_path / "new")
    arm(faults, "replay.between_chunks", "hold")
    command = [sys.executable, "-m", "restore", "run", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    held = faults / "replay.between_chunks.held"
    deadline = time.monotonic() + 60
    while not held.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    time.sleep(3.0)  # the command says nothing before it has ended, and a busy machine takes its time
    held.unlink()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert "interrupted; run it again to go on from there" in err
    assert "0 of 1 partitions are restored" in out
    assert "Traceback" not in err
    [row] = cli("run", *options)["partitions"]
    assert (row["result"], row["why"]) == ("done", "behind")
    assert 0 < row["start"] < row["end"] == row["position"]
    assert row["records"] < 25_000
    assert cli("verify", *options)["equal"] is True


def test_run_on_a_disk_that_is_full(large: Filled, tmp_path: Path, cli: Cli) -> None:
    """A limit on the size of files gives the same errors as a disk without space."""
    options = large.options(tmp_path / "new")
    command = f"ulimit -f 32; exec {sys.executable} -m restore run {' '.join(options)} --json"
    done = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    [row] = json.loads(done.stdout)["partitions"]
    assert (row["result"], row["position"]) == ("failed", None)
    assert "check the disk's space" in row["error"]
    assert "check the disk's space" in done.stderr
    assert "Traceback" not in done.stderr
    [row] = cli("run", *options)["partitions"]
    assert (row["result"], row["position"]) == ("done", row["end"])
    assert cli("verify", *options)["equal"] is True


def test_status_shows_disk_and_agent(
    filled: Filled, tmp_path: Path, cli: Cli, agent_on: Callable[[Path], LocalAgent]
) -> None:
    before = traces(filled)
    closed = cli("status", *filled.options())
    assert closed["agent"] is None
    for row in closed["partitions"]:
        assert (row["phase"], row["why"], row["lag_records"], row["last_batch"]) == ("CLOSED", "up to date", 0, 1)
        assert row["bytes"] > 0
    assert traces(filled) == before
    empty = cli("status", *filled.options(tmp_path / "new"))["partitions"]
    assert [(row["why"], row["position"], row["lag_records"]) for row in empty] == [
        ("no local store", None, row["end_offset"]) for row in empty
    ]
    assert not (tmp_path / "new").exists()
    shutil.copytree(filled.state_dir, tmp_path / "state")
    agent = agent_on(tmp_path / "state")
    agent.client.read(filled.config, 0, [b"dnothing"])
    running = cli("status", *filled.options(tmp_path / "state"))
    assert running["agent"]["pid"] == os.getpid()
    assert [row["phase"] for row in running["partitions"]] == ["FOLLOWING", "CLOSED"]
    assert "is running in" in cli("status", *filled.options(tmp_path / "state"), text=True)


@pytest.fixture
def agent_on() -> Iterator[Callable[[Path], LocalAgent]]:
    """An agent in this process that tools find as they find any other."""
    made: list[LocalAgent] = []

    def start(state_dir: Path) -> LocalAgent:
        agent = LocalAgent(state_dir)
        made.append(agent)
        (state_dir / "agent.json").write_text(json.dumps(agent.client.hello()))
        return agent

    yield start
    for agent in made:
        agent.stop()


# -- clear -------------------------------------------------------------------------------------------------


def test_clear_local_state(copied: Filled, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    before = traces(copied)
    cli("clear", *copied.options(), code=1, text=True)
    after = traces(copied)
    after[0].pop(str(copied.state_dir / "agent.lock"))
    before[0].pop(str(copied.state_dir / "agent.lock"))
    assert after == before
    done = cli("clear", *copied.options(), "--partitions", "1", "--yes")
    assert [row["partition"] for row in done["partitions"]] == [1]
    assert done["partitions"][0]["bytes"] > 0
    assert [row["why"] for row in cli("plan", *copied.options())["partitions"]] == ["up to date", "no local store"]
    assert [row["partition"] for row in cli("clear", *copied.options(), "--yes")["partitions"]] == [0]
    assert not (copied.state_dir / "stores" / copied.config.application).exists()
    assert cli("clear", *copied.options(), "--yes")["partitions"] == []
    assert lookup_topic(copied.config) is not None


def test_clear_the_changelog(
    broker: EmbeddedBroker,
    application: str,
    tmp_path: Path,
    cli: Cli,
    agent_on: Callable[[Path], LocalAgent],
    fault_root: Path,
) -> None:
    config = StoreConfig(application, "totals", broker.bootstrap_servers, 1)
    agent = agent_on(tmp_path / "state")
    driver = Driver(config, lambda: [agent.client])
    driver.run(0, [("a", 1), ("b", 2)])
    filled = Filled(config, tmp_path / "state", Model())
    driver.gate(1)
    told = cli("clear", *filled.options(), "--changelog", "--yes", "--force", code=1)
    assert "batch 1 of query q is running" in told
    driver.close()
    agent.stop()
    (tmp_path / "state" / "agent.json").unlink()
    told = cli("clear", *filled.options(), "--changelog", "--yes", code=1)
    assert "seems active" in told
    assert "--force" in told
    done = cli("clear", *filled.options(), "--changelog", "tombstone", "--yes", "--force")
    assert (done["changelog"], done["values_deleted"]) == ("tombstone", 2)
    assert cli("run", *filled.options())["partitions"][0]["result"] == "done"
    assert cli("inspect", *filled.options())["partitions"][0]["counts"].get("data") is None
    done = cli("clear", *filled.options(), "--changelog", "delete", "--yes", "--force")
    assert done["topics"] == [config.changelog_topic, config.control_topic]
    assert lookup_topic(config) is None
    assert "no changelog topic" in cli("plan", *filled.options(), code=2)
