"""``failover``: seconds from the loss of an owner until the next batch may begin, with a hot replica and without.

Two agents, each playing a node; one owns the store and is killed with SIGKILL. Either the other one has followed it
all along and takes over, or it restores the store from its changelog. The state grows; the time with a replica should
not.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.restore_data import KEY_BYTES, KEY_CODEC, VALUE_BYTES, OurChangelog, key_of, new_changelog, value_of
from benchmarks.results import Report, Result
from benchmarks.session import Bench
from benchmarks.trial_agent import TrialAgent
from changelog_state.changelog.record import StoreIdentity
from changelog_state.config import StoreConfig
from restore.coordinator import Coordinator

__all__ = ["Size", "measure", "run"]

AIM_SECONDS = 3.0
"""With a replica, from when the loss was noticed."""
_LIMIT_SECONDS = 600.0
_NOTICE_SECONDS = 10.0
_REPLAYED_AT_MOST = 100
"""By a replica that takes over: the claims of those who came before."""
_SAMPLES = 200


@dataclass(frozen=True)
class Size:
    keys: tuple[int, ...]
    rounds: int


FULL = Size(keys=(10_000, 200_000, 2_000_000), rounds=5)
QUICK = Size(keys=(10_000, 200_000), rounds=2)


def run(bench: Bench, report: Report) -> None:
    measure(bench, report, QUICK if bench.quick else FULL)


def measure(bench: Bench, report: Report, size: Size) -> None:
    runs: dict[tuple[int, bool], list[dict[str, float]]] = defaultdict(list)
    for keys in size.keys:
        report.say(f"writing {keys:,} keys")
        changelog = new_changelog(bench, keys, 1)
        for number in range(1, size.rounds + 1):
            # In turn from both ends, so that none is always the last.
            for replica in (True, False) if number % 2 else (False, True):
                found = _lose_the_owner(bench, changelog, keys, replica)
                runs[keys, replica].append(found)
                report.say(
                    f"round {number} of {size.rounds}, {_variant(keys, replica)}: "
                    f"{found['seconds']:.2f} s, {found['since_kill']:.2f} s after the kill"
                )
    for (keys, replica), found_runs in runs.items():
        report.add(_result(keys, replica, found_runs))
    hot = {keys: median(found["seconds"] for found in runs[keys, True]) for keys in size.keys}
    least, most = min(hot), max(hot)
    worst = max(found["seconds"] for keys in size.keys for found in runs[keys, True])
    report.note(
        f"with a replica the next batch begins {worst:.2f} s after the loss was noticed, at the worst "
        f"(aim: {AIM_SECONDS:g} s, {'reached' if worst <= AIM_SECONDS else 'not reached'})"
    )
    report.note(
        f"{most:,} keys take {hot[most] / hot[least]:.2f} times as long as {least:,} (aim: 1, it does not grow)"
    )


def _lose_the_owner(bench: Bench, changelog: OurChangelog, keys: int, replica: bool) -> dict[str, float]:
    """Once, with two new agents.

    1. A first batch's gate: one of the agents restores the store and owns it.
    2. The other one follows, until it has everything.
    3. The owner is killed. The driver notices, as it does while a job is running, and opens the next gate.
    """
    config = changelog.config
    disks = [bench.directory / f"failover-{uuid.uuid4().hex[:6]}" for _ in range(2)]
    identity = StoreIdentity.of(config, "spark", KEY_CODEC.describe())
    with TrialAgent(disks[0], config) as one, TrialAgent(disks[1], config) as two:
        clients = [one.client, two.client]
        coordinator = Coordinator(config, identity, lambda: clients, _LIMIT_SECONDS, standby_replicas=int(replica))
        try:
            owners, _ = coordinator.open_gate("bench", 0, uuid.uuid4().hex)
            owner, other = (one, two) if owners[0].agent == one.client.address else (two, one)
            if replica:
                _wait_until_hot(other, config)
            noticed = threading.Event()
            with coordinator.watching(owners, noticed.set):
                killed = time.perf_counter()
                owner.kill()
                if not noticed.wait(_NOTICE_SECONDS):
                    raise RuntimeError(f"the loss was not noticed within {_NOTICE_SECONDS:g} s")
                lost = time.perf_counter()
            coordinator.forget_agents()
            owners, statuses = coordinator.open_gate("bench", 1, uuid.uuid4().hex)
            opened = time.perf_counter()
            if owners[0].agent != other.client.address:
                raise RuntimeError(f"the agent at {owners[0].agent} should be dead")
            replayed = statuses[0]["restore"]["records"]
            _check(other, config, keys, replayed, replica)
        finally:
            coordinator.close()
    return {
        "seconds": opened - lost,
        "since_kill": opened - killed,
        "noticed": lost - killed,
        "replayed_records": replayed,
    }


def _wait_until_hot(agent: TrialAgent, config: StoreConfig) -> None:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while True:
        follower = next((status["follower"] for status in agent.client.status(config)), None)
        if follower is not None and follower["lag_records"] == 0 and follower["lag_seconds"] == 0.0:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the replica is not hot after {_LIMIT_SECONDS:g} s: {agent.client.status(config)}")
        time.sleep(0.1)


def _check(agent: TrialAgent, config: StoreConfig, keys: int, replayed: int, replica: bool) -> None:
    """The state is there, and came in the way that was to be measured."""
    if replayed > _REPLAYED_AT_MOST if replica else replayed < keys:
        raise RuntimeError(f"{replayed} records of {keys} were replayed {'with' if replica else 'without'} a replica")
    numbers = random.Random(keys).sample(range(keys), min(keys, _SAMPLES))
    if agent.client.read(config, 0, [key_of(number) for number in numbers]) != list(map(value_of, numbers)):
        raise RuntimeError("the store does not hold what was written")


def _result(keys: int, replica: bool, runs: Sequence[dict[str, float]]) -> Result:
    value = median(found["seconds"] for found in runs)
    replayed = [found["replayed_records"] for found in runs]
    since_kill = [found["since_kill"] for found in runs]
    params = {
        "variant": _variant(keys, replica),
        "keys": keys,
        "replica": replica,
        "partitions": 1,
        "key_bytes": KEY_BYTES,
        "value_bytes": VALUE_BYTES,
        "seconds": [round(found["seconds"], 3) for found in runs],
        "since_kill_seconds": [round(one, 3) for one in since_kill],
        "noticed_seconds": [round(found["noticed"], 3) for found in runs],
        "replayed_records": replayed,
    }
    shown = {
        "median": f"{value:.2f}",
        "slowest": f"{max(found['seconds'] for found in runs):.2f}",
        "since the kill": f"{median(since_kill):.2f}",
        "replayed": f"{median(replayed):,.0f}",
        "rounds": str(len(runs)),
    }
    return Result("ours", value, "s", params, shown)


def _variant(keys: int, replica: bool) -> str:
    return f"{keys:,} keys, {'hot replica' if replica else 'no replica'}"
