"""Which drivers an agent takes for alive."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from changelog_state.agent.drivers import LEASE_SECONDS, Drivers, this_process


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def elsewhere(**changes: Any) -> dict[str, Any]:
    return {"id": "far-1", "pid": 1, "start": "1", "machine": "another one", **changes}


def test_a_process_of_this_machine_is_alive_as_long_as_it_runs() -> None:
    clock = Clock()
    drivers = Drivers(clock)
    me = drivers.heard(this_process())
    clock.now += 10 * LEASE_SECONDS
    assert drivers.is_alive(me), "however long ago it spoke"
    child = subprocess.run(
        [
            sys.executable,
            "-c",
            "import json; from changelog_state.agent.drivers import this_process; print(json.dumps(this_process()))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    import json

    ended = drivers.heard(json.loads(child.stdout))
    assert not drivers.is_alive(ended), "it has ended, though it spoke a moment ago"


def test_a_later_process_with_the_same_number_is_another_one() -> None:
    drivers = Drivers()
    assert not drivers.is_alive(drivers.heard(this_process() | {"id": "before", "start": "0"}))


def test_a_driver_of_another_machine_is_alive_while_it_speaks() -> None:
    clock = Clock()
    drivers = Drivers(clock)
    assert drivers.seconds_since_heard() is None
    assert not drivers.any_alive()
    far = drivers.heard(elsewhere())
    clock.now += LEASE_SECONDS - 1
    assert drivers.is_alive(far)
    assert drivers.any_alive()
    drivers.heard(elsewhere())
    clock.now += LEASE_SECONDS - 1
    assert drivers.is_alive(far), "renewed"
    clock.now += 2
    assert not drivers.is_alive(far)
    assert drivers.seconds_since_heard() == LEASE_SECONDS + 1
    assert not drivers.is_alive("never heard of")
