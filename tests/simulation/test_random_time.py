"""The real thing against the kit: random batches with timers, event time and values that expire, while agents are
killed, disks lost and drivers replaced. Every output, and every byte of the state, is the same as in memory.

Seeds as in ``test_random_crashes``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import changelog_state as cs
from changelog_state.agent.client import AgentClient
from changelog_state.broker import EmbeddedBroker
from changelog_state.config import StoreConfig
from changelog_state.faults import InjectedFaultError, arm
from changelog_state.task.keyed import KeyedProgram
from changelog_state.testing import StateTester
from tests.simulation.test_random_crashes import AGENT_DIES, seeds
from tests.support.driver import AgentProcess
from tests.support.quick_agent import BULK_OFFSETS
from tests.support.task_driver import TaskDriver

pytestmark = pytest.mark.kafka

START = datetime(2024, 1, 1, tzinfo=UTC)
BATCHES = 8
STEP_SECONDS = 3
DELAY_SECONDS = 4
KEYS = [f"key-{number}" for number in range(10)]
VARIABLES = [
    cs.Value("n", int, default=0),
    cs.List("recent", int, prefetch=2),
    cs.Map("seen", int, int, ttl=cs.Ttl(8, clock="event")),
]


def visit(key: str, rows: list[dict[str, Any]], state: Any) -> Iterator[Any]:
    for row in rows:
        state.n += row["by"]
        state.recent.append(row["by"])
        state.seen[row["by"]] = state.n
        state.set(f"short-{row['by'] % 2}", state.n, ttl=5)
        if row["by"] % 3:
            state.set_timer(row["at"] + timedelta(seconds=row["by"]), f"t{row['by'] % 2}")
        else:
            state.set_timer(state.batch_time + timedelta(seconds=row["by"]), "soon", clock="processing")
    state.recent.trim(3)
    short = [state.get("short-0"), state.get("short-1")]
    yield {"key": key, "n": state.n, "recent": list(state.recent), "seen": sorted(state.seen), "short": short}


def fire(key: str, name: str, at: datetime, state: Any) -> Iterator[Any]:
    yield {"key": key, "timer": name, "at": at, "n": state.n}
    if state.n % 5 == 0:
        state.clear()
    elif name == "soon":
        state.set_timer(at + timedelta(seconds=1), "again", clock="processing")


@pytest.fixture(scope="module")
def process(fault_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    os.environ[BULK_OFFSETS] = "60"  # so that longer logs are restored in bulk
    made = AgentProcess(tmp_path_factory.mktemp("node") / "state")
    yield made
    made.kill()
    del os.environ[BULK_OFFSETS]


@pytest.mark.parametrize("seed", seeds() if "CHANGELOG_STATE_SEEDS" in os.environ else [1, 2])
def test_time_goes_as_in_memory(
    seed: int, broker: EmbeddedBroker, application: str, process: AgentProcess, faults: Path
) -> None:
    rng = random.Random(seed)
    config = StoreConfig(application, "timed", broker.bootstrap_servers, 2)
    program = KeyedProgram(visit, fire)
    tester = StateTester(
        visit, key="key", on_timer=fire, event_time="at", watermark_delay=DELAY_SECONDS, state=VARIABLES, now=START
    )
    times_ms = [int((START.timestamp() + STEP_SECONDS * number) * 1000) for number in range(BATCHES)]
    drivers: list[TaskDriver] = []

    def agents() -> list[AgentClient]:
        if not process.alive and rng.random() < 0.5:
            print("  disk lost")
            process.wipe(config)
        return [process.client]

    def new_driver() -> None:
        while True:
            try:
                driver = TaskDriver(config, agents, program, VARIABLES, times_ms, 1000 * DELAY_SECONDS)
            except InjectedFaultError as error:
                print(f"  driver died: {error}")
            else:
                drivers.append(driver)
                return

    def run(batch: int, rows: list[dict[str, Any]]) -> list[Any]:
        for _ in range(10):
            try:
                return sorted(drivers[-1].run(batch, rows, lambda: print("  an owner was lost")), key=repr)
            except InjectedFaultError as error:
                print(f"  driver died: {error}")
                new_driver()
        raise AssertionError("the batch does not get through")

    print(f"seed {seed}")
    new_driver()
    try:
        for batch in range(BATCHES):
            rows = [
                {
                    "key": rng.choice(KEYS),
                    "at": START + timedelta(seconds=rng.randint(0, 5 * batch)),
                    "by": rng.randint(1, 9),
                }
                for _ in range(rng.choice([0, 5, 20]))
            ]
            if batch:
                tester.advance(STEP_SECONDS)
            expected = sorted(tester.batch(rows), key=repr)
            point = rng.choice([*AGENT_DIES, "driver.commit_one"])
            print(f"batch {batch}: {len(rows)} rows; {point}")
            arm(faults, point, f"{'raise' if point.startswith('driver') else 'kill'} {rng.randint(1, 2)}")
            assert run(batch, rows) == expected
            if rng.random() < 0.4:
                new_driver()
                assert run(batch, rows) == expected
            for armed in faults.iterdir():
                if not armed.name.startswith("."):
                    armed.unlink()
            assert drivers[-1].records(agents()[0]) == tester.records()
    finally:
        for driver in drivers:
            driver.close()
