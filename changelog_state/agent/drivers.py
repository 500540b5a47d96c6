"""Which drivers are alive, seen from an agent: by their process on the same machine, else by when they last spoke."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = ["LEASE_SECONDS", "Drivers", "this_process"]

LEASE_SECONDS = 15.0
"""A driver speaks twice a second while it rules a store."""


@lru_cache(maxsize=8)
def _identity(pid: int) -> dict[str, Any]:
    machine, start = _machine(), _process_start(pid)
    return {"id": f"{machine}-{pid}-{start}", "pid": pid, "start": start, "machine": machine}


def this_process() -> dict[str, Any]:
    """What a driver says of itself in its requests."""
    return _identity(os.getpid())


class Drivers:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, tuple[Mapping[str, Any], float]] = {}

    def heard(self, driver: Mapping[str, Any]) -> str:
        """A request of this driver has come; returns its id."""
        self._known[driver["id"]] = driver, self._clock()
        return str(driver["id"])

    def is_alive(self, driver_id: str) -> bool:
        driver, heard = self._known.get(driver_id, (None, 0.0))
        if driver is None:
            return False
        if driver["machine"] == _machine():
            return bool(_process_start(driver["pid"]) == driver["start"])
        return self._clock() - heard < LEASE_SECONDS

    def any_alive(self) -> bool:
        return any(map(self.is_alive, list(self._known)))

    def seconds_since_heard(self) -> float | None:
        """Of whichever spoke last; None if none ever has."""
        newest = max((heard for _, heard in list(self._known.values())), default=None)
        return None if newest is None else self._clock() - newest


@lru_cache(maxsize=1)
def _machine() -> str:
    """The same for processes that see each other's process ids: one boot of a machine, one container in it."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}-{os.readlink('/proc/self/ns/pid')}"


def _process_start(pid: int) -> str:
    """Tells a process from a later one with the same number; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
