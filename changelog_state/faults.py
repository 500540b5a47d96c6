"""Named fault points: how tests and the demo make a process die, or wait, at an exact place.

A point is armed by a file of its name in the directory ``$CHANGELOG_STATE_FAULTS``, so it works across
processes and fires once, however many threads and processes pass it.
The file's text says what happens there:

- ``kill``       SIGKILL to this process
- ``raise``      ``InjectedFaultError`` is raised
- ``hold``       the file ``<point>.held`` appears; the process waits until that is removed

``kill 3`` fires at the third passing (of all processes together).
Without the variable a point costs one dictionary look-up.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path

__all__ = ["InjectedFaultError", "arm", "fault_point"]

_VARIABLE = "CHANGELOG_STATE_FAULTS"
_HOLD_LIMIT_SECONDS = 120.0


class InjectedFaultError(RuntimeError):
    """Raised at a fault point that was armed with ``raise``."""


def fault_point(name: str) -> None:
    """Do what the armed file says, or nothing."""
    directory = os.environ.get(_VARIABLE)
    if directory:
        _pass(Path(directory), name)


def arm(directory: str | os.PathLike[str], name: str, action: str = "kill") -> None:
    """Arm a point. The write is atomic: a passing process sees all of it or nothing."""
    target = Path(directory) / name
    partial = target.with_name(f".{name}.partial")
    partial.write_text(action)
    partial.rename(target)


def _pass(directory: Path, name: str) -> None:
    action = _take(directory, name)
    if action is None:
        return
    (directory / f"{name}.fired").touch()
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "raise":
        raise InjectedFaultError(f"injected fault at {name}")
    elif action == "hold":
        held = directory / f"{name}.held"
        held.touch()
        deadline = time.monotonic() + _HOLD_LIMIT_SECONDS
        while held.exists():
            if time.monotonic() > deadline:
                raise InjectedFaultError(f"held at {name} for {_HOLD_LIMIT_SECONDS:.0f} s and never released")
            time.sleep(0.005)
    else:
        raise ValueError(f"unknown fault action {action!r} at {name}")


def _take(directory: Path, name: str) -> str | None:
    """What to do at this passing; the lock makes every passing count, in whatever thread or process."""
    armed = directory / name
    if not armed.exists():
        return None
    with open(directory / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            action, _, count = armed.read_text().partition(" ")
        except FileNotFoundError:
            return None  # another one took it
        remaining = int(count or 1)
        if remaining > 1:
            arm(directory, name, f"{action} {remaining - 1}")
            return None
        armed.unlink()
        return action
