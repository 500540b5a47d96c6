"""How an agent is reached: over its unix socket on the same machine, else over TCP with TLS and a token.

Token and certificates come from the environment of each process, never from a plan, a pickle or a command line.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from pathlib import Path

import pyarrow.flight as flight

from changelog_state.errors import ConfigurationError

__all__ = [
    "TLS_CA",
    "TLS_CERT",
    "TLS_KEY",
    "TOKEN",
    "best_address",
    "call_options",
    "connect",
    "is_loopback",
    "is_socket",
    "on_executors",
    "own_token",
    "split_host_port",
]

TOKEN = "CHANGELOG_STATE_TOKEN"
TLS_CA = "CHANGELOG_STATE_TLS_CA"
TLS_CERT = "CHANGELOG_STATE_TLS_CERT"
TLS_KEY = "CHANGELOG_STATE_TLS_KEY"

_UNIX = "grpc+unix://"
_TCP = "grpc+tcp://"
_TLS = "grpc+tls://"

_GRPC_OPTIONS: list[tuple[str, int]] = [
    # gRPC by default keeps refusing for seconds after a server is back; 200 ms is enough.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.use_local_subchannel_pool", 1),
]
_TCP_OPTIONS: list[tuple[str, int]] = [
    # Agents are on the same network as whoever calls them; a proxy for the outside world is no way to them.
    ("grpc.enable_http_proxy", 0),
    # What was sent and is not acknowledged for this long ends the connection: a task must not wait for a node that
    # is gone. The kernel does that once keepalive is on; a server takes offence at pings more often than every 5 min.
    ("grpc.keepalive_time_ms", 330_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


def connect(address: str) -> flight.FlightClient:
    """A client for ``grpc+unix://``, ``grpc+tls://`` or, on loopback only, ``grpc+tcp://``. Connects when used."""
    if address.startswith(_UNIX):
        return flight.connect(address, generic_options=_GRPC_OPTIONS)
    options = _GRPC_OPTIONS + _TCP_OPTIONS
    if address.startswith(_TLS):
        return flight.connect(address, generic_options=options, tls_root_certs=_trusted_certificates(address))
    host, _ = split_host_port(address.removeprefix(_TCP), "agent address")
    if not address.startswith(_TCP) or not is_loopback(host):
        # Whoever has put such an address into the agents' topic would be sent the token, readable for everybody.
        raise ConfigurationError(
            f"agent address {address} is neither on this machine nor protected; start the agent with {TLS_CERT} and "
            f"{TLS_KEY}, so that it registers as {_TLS}…"
        )
    return flight.connect(address, generic_options=options)


def call_options(address: str, timeout_seconds: float) -> flight.FlightCallOptions:
    """The deadline and, over TCP, the token. A unix socket is protected by its file's permissions."""
    token = None if address.startswith(_UNIX) else own_token()
    headers = [(b"authorization", b"Bearer " + token)] if token else []
    return flight.FlightCallOptions(timeout=timeout_seconds, headers=headers)


def best_address(address: str, socket: str) -> str:
    """The unix socket, if it is here (its name is random, so then it is the agent's), else the address."""
    path = socket.removeprefix(_UNIX)
    return socket if path != socket and os.access(path, os.W_OK) else address


def is_socket(address: str) -> bool:
    return address.startswith(_UNIX)


def own_token() -> bytes | None:
    """This process's token; None if it has none."""
    token = os.environ.get(TOKEN, "").strip()
    if not token:
        return None
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigurationError(f"{TOKEN} has characters other than letters, digits and signs; choose another token")
    return token.encode()


def on_executors(variable: str) -> str:
    """Where the variable has to be set. Tasks do not inherit the driver's environment."""
    return f"{variable} (for Spark's tasks: spark.executorEnv.{variable})"


def split_host_port(text: str, what: str) -> tuple[str, int]:
    """``host:port`` or ``[v6-address]:port``."""
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    legal = bool(bare) and bool(colon) and port.isdecimal() and int(port) < 65_536
    if not legal or (":" in bare and bare == host) or any(mark in bare for mark in "/@[] "):
        raise ConfigurationError(f"{what} is {text!r}; give host:port, e.g. worker-1.example.com:9440")
    return bare, int(port)


def is_loopback(host: str) -> bool:
    """By what it says, not by what it resolves to: a machine's own name may lead to loopback here only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _trusted_certificates(address: str) -> bytes:
    path = os.environ.get(TLS_CA)
    if not path:
        raise ConfigurationError(
            f"agent at {address} is reached with TLS, but there is nothing to verify it with: set "
            f"{on_executors(TLS_CA)} to the PEM file of the authority that has signed the agents' certificates"
        )
    try:
        ssl.create_default_context(cafile=path)  # gRPC itself only says that nothing could be connected
        return Path(path).read_bytes()
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"{TLS_CA} is {path!r}, which cannot be used ({error.strerror or error}); give a readable PEM file with "
            f"certificates, on every machine: set {on_executors(TLS_CA)}"
        ) from error
