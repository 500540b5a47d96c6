"""An agent that ends with its drivers: who counts as being there?"""

from __future__ import annotations

import os

from changelog_state.agent.drivers import Drivers, process_start


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.processes: dict[int, str] = {}
        self.drivers = Drivers(lambda: self.now, lambda pid: self.processes.get(pid, ""))


def test_nobody_ever_came() -> None:
    world = World()
    world.now += 61
    assert world.drivers.idle_seconds() == 61


def test_a_silent_driver_on_this_machine_counts_while_its_process_lives() -> None:
    world = World()
    world.processes[7] = "then"
    world.drivers.heard(7, "then")
    world.now += 3600
    assert world.drivers.idle_seconds() == 0
    world.now += 10
    world.processes[7] = "later"
    assert world.drivers.idle_seconds() == 10, "another process has its number"


def test_a_driver_elsewhere_counts_while_it_is_heard_from() -> None:
    world = World()
    world.processes[7] = "not the driver"
    world.drivers.heard(7, "then")
    world.now += 50
    assert world.drivers.idle_seconds() == 50
    world.drivers.heard(7, "then")
    assert world.drivers.idle_seconds() == 0
    world.now += 61
    assert world.drivers.idle_seconds() == 61


def test_one_of_several_is_enough() -> None:
    world = World()
    world.processes = {7: "a", 8: "b"}
    for pid, start in world.processes.items():
        world.drivers.heard(pid, start)
    del world.processes[7]
    world.now += 100
    assert world.drivers.idle_seconds() == 0
    del world.processes[8]
    world.now += 5
    assert world.drivers.idle_seconds() == 5


def test_processes_have_a_start() -> None:
    assert process_start(os.getpid())
    assert process_start(os.getpid()) == process_start(os.getpid())
    assert process_start(2**22 + 1) == ""
