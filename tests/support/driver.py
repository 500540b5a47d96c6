"""A driver and its tasks without Spark: the same protocol, in steps that a test can take in any order."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import uuid
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from changelog_state.agent.client import AgentClient
from changelog_state.agent.launcher import find_agent
from changelog_state.agent.partition import Partition
from changelog_state.agent.registry import AgentSettings, Registry
from changelog_state.agent.server import AgentServer
from changelog_state.agent.transport import best_address
from changelog_state.changelog.record import BatchRecord, StoreIdentity
from changelog_state.changelog.topic import ensure_topics
from changelog_state.codec.digest import EMPTY_DIGEST
from changelog_state.codec.keys import KeyCodec, record_key, split_record_key
from changelog_state.codec.kinds import DATA
from changelog_state.config import StoreConfig
from changelog_state.errors import ChangelogStateError
from changelog_state.job_errors import worth_another_run
from changelog_state.requests import RequestHeader
from changelog_state.state.context import StateContext
from changelog_state.state.handle import State
from changelog_state.state.ttl import decode_visible
from changelog_state.store.base import next_prefix
from changelog_state.task.session import Session
from restore.coordinator import BatchLostError, Coordinator, Owner, Ticket
from restore.gate import MarkerView, Verdict, judge_batch

CODEC = KeyCodec(("string",))
BATCH_TIME_MS = 1_700_000_000_000
_MOST_ENTRIES = 1_000_000
_START_SECONDS = 30.0
_ROOT = Path(__file__).parents[2]

Event = tuple[str, int | None]
"""A key, and what to add to its total; None deletes it."""
Function = Callable[[str, list[int | None], State], Any]


def identity_of(config: StoreConfig, **changes: Any) -> StoreIdentity:
    fields = vars(StoreIdentity.of(config, "spark", CODEC.describe())) | changes
    return StoreIdentity(**fields)


def add_up(key: str, amounts: list[int | None], state: State) -> tuple[Any, ...]:
    """The row shows what was read, so equal rows mean equal reads."""
    before = state.get("total")
    for amount in amounts:
        if amount is None:
            state.delete("total")
        else:
            state.set("total", state.get("total", 0) + amount)
    return key, before, state.get("total")


def home_of(key: str, partitions: int) -> int:
    return zlib.crc32(key.encode()) % partitions


_open_attempts: set[Attempt] = set()
"""A server's shutdown waits for open exchanges, and a failed test may leave some."""


# -- agents ------------------------------------------------------------------------------------------------


class LocalAgent:
    """An agent in this process, where a test can reach into it. It cannot be killed, only stopped."""

    def __init__(self, state_dir: Path) -> None:
        self.registry = Registry(AgentSettings(state_dir, cache_mb=16, write_buffers_mb=32))
        self.registry.host = state_dir.name  # each plays a node of its own
        self._sockets = Path(tempfile.mkdtemp(prefix="cs-", dir="/tmp"))
        self._server = AgentServer(self.registry, f"grpc+unix://{self._sockets}/agent.sock")
        self.client = AgentClient(self._server.address)
        self._stopped = False

    def partition(self, config: StoreConfig, number: int = 0) -> Partition:
        return self.registry._host(config).partitions[number]

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self.client.close()
            for attempt in list(_open_attempts):
                attempt.cut()
            self._server.shutdown()
            self.registry.close()
            shutil.rmtree(self._sockets)


class AgentProcess:
    """A real agent on a state directory, started when it is asked for and not there."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._client: AgentClient | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def client(self) -> AgentClient:
        if self._client is None or not self.alive:
            self.kill()
            self._client = self._start()
        return self._client

    def _start(self) -> AgentClient:
        self.state_dir.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.support.quick_agent", str(self.state_dir)]
        with open(self.state_dir / "agent.log", "ab") as log:
            self._process = subprocess.Popen(command, cwd=_ROOT, stdout=log, stderr=log)
        self.starts += 1
        deadline = time.monotonic() + _START_SECONDS
        while (client := find_agent(self.state_dir)) is None:
            assert self._process.poll() is None, (self.state_dir / "agent.log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the agent does not answer"
            time.sleep(0.01)
        client.hello(as_driver=True)
        return client

    def kill(self) -> None:
        """As kill -9 does, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._client is not None:
            self._client.close()
            self._client = None

    def wipe(self, config: StoreConfig) -> None:
        """As if the node had been replaced. Only while the agent is dead."""
        shutil.rmtree(self.state_dir / "stores" / config.application, ignore_errors=True)


# -- the driver --------------------------------------------------------------------------------------------


@dataclass
class Gate:
    owners: dict[int, Owner]
    headers: dict[int, RequestHeader]
    verdict: Verdict
    statuses: list[dict[str, Any]]


class Attempt:
    """One attempt of one task, step by step."""

    def __init__(
        self,
        owner: Owner,
        header: RequestHeader,
        events: Iterable[Event],
        function: Function,
        output_topic: str | None = None,
    ) -> None:
        self._session = Session(best_address(owner.address, owner.socket or ""), header)
        _open_attempts.add(self)
        self._owner = owner
        self._function = function
        self._output_topic = output_topic
        amounts: dict[str, list[int | None]] = defaultdict(list)
        for key, amount in events:
            amounts[key].append(amount)
        self._amounts = dict(sorted(amounts.items(), key=lambda item: CODEC.encode(item[0])))
        self._changes: list[tuple[bytes, bytes | None, bytes | None]] = []
        self._names: set[str] = set()
        self.rows: list[tuple[Any, ...]] = []

    def read(self) -> list[dict[str, bytes]]:
        return self._session.get([CODEC.encode(key) for key in self._amounts])

    def get(self) -> Attempt:
        self.rows, self._changes = [], []
        for (key, amounts), stored in zip(self._amounts.items(), self.read(), strict=True):
            state = State(stored, StateContext(BATCH_TIME_MS))
            self.rows.append(self._function(key, amounts, state))
            for name, value, previous in state.changed():
                self._names.add(name)
                self._changes.append((record_key(DATA, CODEC.encode(key), name), value, previous))
        return self

    def stage(self, chunk: int = 1_000) -> Ticket:
        for start in range(0, len(self._changes), chunk):
            part = self._changes[start : start + chunk]
            self._session.stage(*(list(column) for column in zip(*part, strict=True)))
        if self._output_topic is not None:
            for start in range(0, len(self.rows), chunk):
                self._put_out(self.rows[start : start + chunk])
        return Ticket(self._owner.partition, self._owner.partition, 0, **self._session.seal(self._names))

    def _put_out(self, rows: list[tuple[Any, ...]]) -> None:
        """Rows begin with their key."""
        columns = [row[0].encode() for row in rows], [repr(row).encode() for row in rows], [None] * len(rows)
        self._session.output(str(self._output_topic), *(pa.array(column, pa.binary()) for column in columns))

    def close(self) -> None:
        _open_attempts.discard(self)
        self._session.close()

    def cut(self) -> None:
        """As when the task's process is killed."""
        self._session._reader.cancel()
        self.close()


class Driver:
    """One reign: making it takes the next epoch."""

    def __init__(
        self,
        config: StoreConfig,
        agents: Callable[[], Sequence[AgentClient]],
        *,
        query: str = "q",
        function: Function = add_up,
        chunk: int = 1_000,
        output_topic: str | None = None,
        timeout_seconds: float = 60.0,
        **restore_settings: Any,
    ) -> None:
        ensure_topics(config)
        self.config = config
        self.query = query
        self.function = function
        self.chunk = chunk
        self.output_topic = output_topic
        self.answers: dict[int, dict[str, Any]] = {}
        self.coordinator = Coordinator(config, identity_of(config), agents, timeout_seconds, **restore_settings)

    @property
    def epoch(self) -> int:
        return self.coordinator.epoch

    def gate(self, batch: int) -> Gate:
        token = uuid.uuid4().hex
        owners, statuses = self.coordinator.open_gate(self.query, batch, token)
        verdict = judge_batch(
            store=self.config.name,
            query=self.query,
            batch=batch,
            epoch=self.epoch,
            offsets_hash=None,
            markers=[view for view in map(MarkerView.from_status, statuses) if view is not None],
            record=self.coordinator.control.batch,
            on_new_query="refuse",
            on_unreplayable="refuse",
        )
        headers = {
            p: RequestHeader(
                self.config.application, self.config.store, p, self.epoch, owner.claim, self.query, batch, token
            )
            for p, owner in owners.items()
        }
        return Gate(owners, headers, verdict, statuses)

    def attempt(self, gate: Gate, events: Iterable[Event], partition: int = 0) -> Attempt:
        return Attempt(gate.owners[partition], gate.headers[partition], events, self.function, self.output_topic)

    def record(self, gate: Gate, batch: int) -> None:
        if gate.verdict.known is None:
            record = BatchRecord(self.query, batch, self.epoch, BATCH_TIME_MS, None, None, None, None)
            self.coordinator.control.record_batch(record)

    def commit(self, gate: Gate, tickets: Iterable[Ticket]) -> dict[int, dict[str, Any]]:
        return self.coordinator.commit(gate.owners, gate.headers, tickets, gate.verdict.replayed)

    def run_once(self, batch: int, events: Sequence[Event]) -> list[tuple[Any, ...]]:
        gate = self.gate(batch)
        self.record(gate, batch)
        rows: list[tuple[Any, ...]] = []
        tickets: list[Ticket] = []
        for partition in range(self.config.partitions):
            mine = [event for event in events if home_of(event[0], self.config.partitions) == partition]
            if not mine:
                tickets.append(Ticket(partition, partition, 0, None, EMPTY_DIGEST.hex(), 0))
                continue
            attempt = self.attempt(gate, mine, partition)
            try:
                tickets.append(attempt.get().stage(self.chunk))
            except ChangelogStateError as error:
                if worth_another_run(error):
                    raise BatchLostError(str(error)) from error
                raise
            finally:
                attempt.close()
            rows += attempt.rows
        self.answers = self.commit(gate, tickets)
        self.coordinator.close_batch(next(iter(gate.headers.values())).token)
        return sorted(rows, key=repr)

    def run(self, batch: int, events: Sequence[Event], on_lost: Callable[[], None] = lambda: None) -> Any:
        """As ``BatchRun.run`` does it: when an owner is lost, once more from the gate on."""
        for _ in range(5):
            try:
                return self.run_once(batch, events)
            except BatchLostError:
                on_lost()
                self.coordinator.forget_agents()
        raise AssertionError("an owner was lost five times in a row")

    def dump(self, client: AgentClient) -> dict[tuple[str, str], Any]:
        return dump(client, self.config)

    def close(self) -> None:
        self.coordinator.close()


def dump(client: AgentClient, config: StoreConfig) -> dict[tuple[str, str], Any]:
    """Everything in the store, by key and name."""
    found: dict[tuple[str, str], Any] = {}
    for partition in range(config.partitions):
        for entry, value in client.scan(config, partition, DATA, next_prefix(DATA), _MOST_ENTRIES):
            _, key, name = split_record_key(CODEC, entry)
            found[key, name.decode()] = decode_visible(value, BATCH_TIME_MS)
    return found


class Model:
    """The same totals in a dict: what an undisturbed run gives."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}

    def run(self, events: Iterable[Event]) -> list[tuple[Any, ...]]:
        amounts: dict[str, list[int | None]] = defaultdict(list)
        for key, amount in events:
            amounts[key].append(amount)
        rows = []
        for key, values in amounts.items():
            before = self.totals.get(key)
            for amount in values:
                if amount is None:
                    self.totals.pop(key, None)
                else:
                    self.totals[key] = self.totals.get(key, 0) + amount
            rows.append((key, before, self.totals.get(key)))
        return sorted(rows, key=repr)

    @property
    def entries(self) -> dict[tuple[str, str], Any]:
        return {(key, "total"): total for key, total in self.totals.items()}
