"""Runs Kafka as a child and ends it when the process that wanted it is gone, however that ended.

Started by path, in a session of its own, with the standard library only: importing the package here would
cost a second at each start. The owner holds the other end of standard input::

    "stop\\n"              stop Kafka, keep its files
    end of file, or the
    parent is another one  the owner is gone: stop Kafka, remove its temporary files

Kafka's pid is the one line written to standard output; Kafka's exit status is the supervisor's.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from types import FrameType

_POLL_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1


class _Terminated(BaseException):
    """SIGTERM or SIGINT has arrived."""


def main(specification: str) -> int:
    spec = json.loads(specification)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _raise_terminated)
    owner_is_gone = True
    kafka = subprocess.Popen(
        spec["command"],
        cwd=spec["directory"],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )
    try:
        _report(f"{kafka.pid}\n")
        owner_is_gone = _watch(kafka, spec["owner_pid"])
    except _Terminated:
        pass
    finally:
        status = _end(kafka, spec["grace_seconds"])
        if owner_is_gone and spec["remove"]:
            shutil.rmtree(spec["remove"], ignore_errors=True)
    return status


def _watch(kafka: subprocess.Popen[bytes], owner_pid: int) -> bool:
    """Wait for a reason to end; True if that is the owner's death."""
    while kafka.poll() is None:
        readable, _, _ = select.select([0], [], [], _POLL_SECONDS)
        if readable:
            return os.read(0, 64) == b""
        # A child that the owner forked may still hold the pipe, so its end alone would not be enough.
        if os.getppid() != owner_pid:
            return True
    return False


def _end(kafka: subprocess.Popen[bytes], grace_seconds: float) -> int:
    """Stop Kafka, cleanly if it does so in time, and give its exit status as a shell would."""
    while kafka.poll() is None:
        try:
            kafka.send_signal(signal.SIGTERM)
            kafka.send_signal(signal.SIGCONT)  # a test may have paused it
            kafka.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            kafka.kill()
            kafka.wait()
        except _Terminated:
            continue
    status = kafka.returncode
    return status if status >= 0 else 128 - status


def _report(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # The owner is gone already; the watch will find out.
        os.write(1, line.encode())


def _die_with_parent() -> None:
    """Should the supervisor itself be killed, the kernel ends Kafka; it has one thread, so that is exact."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _raise_terminated(number: int, frame: FrameType | None) -> None:
    raise _Terminated


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
