"""The agent's door to other machines: where it listens, and who may come in."""

from __future__ import annotations

import hmac
import logging
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from changelog_state.agent.presence import Presence
from changelog_state.agent.server import AgentServer
from changelog_state.agent.transport import TLS_CERT, TLS_KEY, TOKEN, is_loopback, own_token, split_host_port
from changelog_state.errors import ConfigurationError

__all__ = ["DoorSettings", "TcpDoor"]

logger = logging.getLogger(__name__)

_TOKEN_CHECK = "token"
_GUARDED = frozenset(
    {flight.FlightMethod.LIST_ACTIONS, flight.FlightMethod.DO_ACTION, flight.FlightMethod.DO_EXCHANGE}
)


@dataclass(frozen=True)
class DoorSettings:
    """Checked when they are made: beyond loopback only with TLS and a token."""

    host: str
    port: int
    listen_host: str
    listen_port: int
    certificate: tuple[bytes, bytes] | None = field(default=None, repr=False)
    token: bytes | None = field(default=None, repr=False)

    @classmethod
    def from_options(cls, advertise: str, listen: str | None) -> DoorSettings:
        """What the command line says, with certificate and token from the environment."""
        host, port = split_host_port(advertise, "--advertise")
        if _is_any(host):
            raise ConfigurationError(
                f"--advertise is {advertise!r}, which is no address that others could use; give this machine's name, "
                "and --listen if it must be bound to certain addresses"
            )
        if listen is not None:
            listen_host, listen_port = split_host_port(listen, "--listen")
        else:
            listen_host, listen_port = host if is_loopback(host) else "0.0.0.0", port
        settings = cls(host, port, listen_host, listen_port, _certificate(), own_token())
        settings._refuse_wide()
        return settings

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host) and is_loopback(self.listen_host)

    @property
    def scheme(self) -> str:
        return "grpc+tcp" if self.certificate is None else "grpc+tls"

    def advertised(self, bound_port: int) -> str:
        """The agent's name in its registration: host:port."""
        return _joined(self.host, self.port or bound_port)

    def failure_domain(self, bound_port: int) -> str:
        """The host; on loopback with the port: there each agent of a trial cluster plays a node."""
        return self.advertised(bound_port) if is_loopback(self.host) else self.host

    def _refuse_wide(self) -> None:
        if self.is_loopback:
            return
        missing = [] if self.certificate is not None else [f"{TLS_CERT} and {TLS_KEY} (PEM files)"]
        missing += [] if self.token is not None else [f"{TOKEN} (a long random text, the same everywhere)"]
        if missing:
            raise ConfigurationError(
                f"an agent that listens on {_joined(self.listen_host, self.listen_port)} and advertises "
                f"{_joined(self.host, self.port)} can be reached from other machines, so it needs TLS and a token; "
                f"set {' and '.join(missing)}, or advertise a loopback address"
            )


class TcpDoor(AgentServer):
    """The same agent, for other machines: every call is checked for the token, if the agent has one."""

    def __init__(self, presence: Presence, settings: DoorSettings) -> None:
        self._settings = settings
        _refuse_taken(settings)
        try:
            super().__init__(
                presence.registry,
                f"{settings.scheme}://{_joined(settings.listen_host, settings.listen_port)}",
                presence,
                tls_certificates=None if settings.certificate is None else [settings.certificate],
                middleware={_TOKEN_CHECK: _TokenCheck(settings.token)},
            )
        except pa.ArrowException as error:
            raise ConfigurationError(
                f"the agent cannot listen on {_joined(settings.listen_host, settings.listen_port)} ({error}); "
                f"choose another port or --listen address, and check {TLS_CERT} and {TLS_KEY}"
            ) from error

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        _admit(context)
        return super().list_actions(context)

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        _admit(context)
        return super().do_action(context, action)

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        _admit(context)
        super().do_exchange(context, descriptor, reader, writer)


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Judges every call. Those with a method of ours are refused there, where it is known who called."""

    def __init__(self, token: bytes | None) -> None:
        self._expected = None if token is None else b"Bearer " + token

    def start_call(self, info: Any, headers: dict[str, list[Any]]) -> flight.ServerMiddleware:
        given = headers.get("authorization", [])
        accepted = self._expected is None or (
            len(given) == 1 and hmac.compare_digest(_as_bytes(given[0]), self._expected)
        )
        if not accepted and info.method not in _GUARDED:
            raise _refusal()
        return _Verdict(accepted, bool(given))


class _Verdict(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, accepted: bool, given: bool) -> None:
        self.accepted = accepted
        self.given = given


def _admit(context: Any) -> None:
    verdict = context.get_middleware(_TOKEN_CHECK)
    if verdict is None or not verdict.accepted:
        what = "a wrong token" if verdict is not None and verdict.given else "no token"
        logger.warning("refused a call from %s: it has %s (see %s)", context.peer(), what, TOKEN)
        raise _refusal()


def _refusal() -> flight.FlightUnauthenticatedError:
    return flight.FlightUnauthenticatedError(f"this agent wants a token; set {TOKEN} to the agent's")


def _as_bytes(header: str | bytes) -> bytes:
    return header if isinstance(header, bytes) else header.encode(errors="replace")


def _certificate() -> tuple[bytes, bytes] | None:
    """The PEM files that the environment names; tried out, as gRPC does not say what is wrong with them."""
    paths = {name: os.environ.get(name) for name in (TLS_CERT, TLS_KEY)}
    certificate, key = paths.values()
    if certificate is None and key is None:
        return None
    if not certificate or not key:
        given, missing = sorted(paths, key=lambda name: not paths[name])
        raise ConfigurationError(f"{given} is set, but {missing} is not; TLS needs both, as paths of PEM files")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, password=lambda: "")
        return Path(certificate).read_bytes(), Path(key).read_bytes()
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"{TLS_CERT}={certificate!r} and {TLS_KEY}={key!r} cannot be used ({error.strerror or error}); give a "
            "certificate with its chain, and its key without a password, as readable PEM files"
        ) from error


def _refuse_taken(settings: DoorSettings) -> None:
    """gRPC does not say why it cannot listen; and the usual reason deserves a name."""
    family = socket.AF_INET6 if ":" in settings.listen_host else socket.AF_INET
    try:
        with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.listen_host, settings.listen_port))
    except OSError as error:
        raise ConfigurationError(
            f"the agent cannot listen on {_joined(settings.listen_host, settings.listen_port)} "
            f"({error.strerror or error}); choose another port or --listen address"
        ) from error


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_any(host: str) -> bool:
    return host in ("0.0.0.0", "::", "*")
