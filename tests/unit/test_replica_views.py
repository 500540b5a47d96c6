"""Who is asked for a partition, what status() says of it, and when a replica is warned of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from changelog_state.cluster_status import partition_status
from changelog_state.routes import Answering, by_preference
from restore.replica_lag import LagLimits, replica_warning


@dataclass
class Client:
    address: str


def status(phase: str, *, claim: int | None = None, position: int | None = None, lag: int | None = None) -> Any:
    follower = None
    if lag is not None:
        follower = {"position": position, "end": 0, "lag_records": lag, "lag_seconds": 0.5 if lag else 0.0}
    return {
        "partition": 0,
        "phase": phase,
        "claim": claim,
        "position": position,
        "disk_position": position,
        "last_batch": 7,
        "follower": follower,
        "tailing": phase == "FOLLOWING",
        "restore": None,
        "error": None,
    }


def agent(name: str, held: Any = None, *, here: bool = False) -> Answering:
    described = {"id": name, "host": f"host-of-{name}", "socket": f"socket-of-{name}"}
    address = described["socket"] if here else f"tcp-of-{name}"
    return Answering(Client(address), described, {} if held is None else {0: held})  # type: ignore[arg-type]


def order(agents: list[Answering], *, stale_ok: bool) -> list[str]:
    return [str(one.agent["id"]) for one in by_preference(0, agents, stale_ok)]


OWNER = agent("owner", status("ACTIVE", claim=9, position=100))
ZOMBIE = agent("zombie", status("ACTIVE", claim=5, position=50))
NEAR = agent("near", status("FOLLOWING", position=99, lag=1), here=True)
FAR = agent("far", status("FOLLOWING", position=10, lag=90))
CLOSED = agent("closed", status("CLOSED", position=99))
NOTHING = agent("nothing")


def test_the_latest_owner_is_asked_first_then_the_most_caught_up() -> None:
    everyone = [NOTHING, CLOSED, FAR, NEAR, ZOMBIE, OWNER]
    assert order(everyone, stale_ok=False) == ["owner", "zombie", "near", "far", "closed", "nothing"]


def test_with_stale_ok_whoever_has_it_ready_here_then_other_replicas() -> None:
    assert order([OWNER, FAR, NEAR, CLOSED], stale_ok=True) == ["near", "far", "owner", "closed"]


def test_status_of_a_partition() -> None:
    found = partition_status(0, 100, [NEAR, ZOMBIE, OWNER, FAR, NOTHING], LagLimits(records=50, seconds=60))
    assert found["owner"] == "owner", "the highest claim tells"
    assert (found["phase"], found["last_batch"], found["lag_records"]) == ("ACTIVE", 7, 0)
    assert [replica["agent"] for replica in found["replicas"]] == ["far", "near"]
    far, near = found["replicas"]
    assert (near["host"], near["phase"], near["position"], near["lag_records"]) == (
        "host-of-near",
        "FOLLOWING",
        99,
        1,
    )
    assert near["warning"] is None
    assert "90 records" in far["warning"]


def test_status_without_an_owner_tells_of_whoever_has_the_most() -> None:
    found = partition_status(0, 100, [FAR, NEAR], LagLimits())
    assert (found["owner"], found["phase"], found["position"]) == (None, "FOLLOWING", 99)
    assert partition_status(0, 100, [], LagLimits())["phase"] == "CLOSED"


@pytest.mark.parametrize(
    ("records", "seconds", "said"),
    [
        (0, 0.0, None),
        (99, 59.0, None),
        (101, 1.0, "101 records"),
        (5, 61.0, "61 s behind"),
        (0, 61.0, "61 s behind"),
        (5, 501.0, "missed deletions"),
    ],
)
def test_when_a_replica_is_warned_of(records: int, seconds: float, said: str | None) -> None:
    limits = LagLimits(seconds=60, records=100, delete_retention_ms=1_000_000)
    text = replica_warning({"lag_records": records, "lag_seconds": seconds}, limits)
    assert (text is None) if said is None else (text is not None and said in text)


def test_one_that_is_still_catching_up_is_not_late() -> None:
    assert replica_warning(None, LagLimits()) is None
