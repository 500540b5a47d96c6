"""Choosing localhost ports that stay free while a broker is down."""

from __future__ import annotations

import random
import socket
from pathlib import Path

from changelog_state.broker.settings import HOST
from changelog_state.errors import ConfigurationError

__all__ = ["free_port", "is_free", "is_listening"]

_LOWEST = 15_000
_EPHEMERAL_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A free port below the range that the kernel gives to outgoing connections.

    NOTE: a port from that range could be taken while the broker restarts, even by a client's own attempt to
    reconnect: a TCP connection from a port to itself succeeds.
    """
    highest = max(_first_ephemeral_port(), _LOWEST + 1_000)
    candidates = random.SystemRandom().sample(range(_LOWEST, highest), k=200)
    for port in candidates:
        if is_free(port):
            return port
    raise ConfigurationError(f"no free port found on {HOST} in {_LOWEST}-{highest}: name one")


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Java does on Linux, so that connections in TIME_WAIT do not count as use.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def is_listening(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1.0):
            return True
    except OSError:
        return False


def _first_ephemeral_port() -> int:
    try:
        return int(_EPHEMERAL_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
