"""Addresses, tokens and certificates, before anything is connected."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import trustme

from changelog_state.agent.doors import DoorSettings
from changelog_state.agent.transport import (
    TLS_CA,
    TLS_CERT,
    TLS_KEY,
    TOKEN,
    best_address,
    connect,
    is_loopback,
    own_token,
    split_host_port,
)
from changelog_state.errors import ConfigurationError


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (TOKEN, TLS_CA, TLS_CERT, TLS_KEY):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    issued = trustme.CA().issue_cert("worker-1")
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    return str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")


# -- addresses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [("worker-1:9440", ("worker-1", 9440)), ("10.0.0.7:0", ("10.0.0.7", 0)), ("[::1]:9440", ("::1", 9440))],
)
def test_host_and_port(text: str, expected: tuple[str, int]) -> None:
    assert split_host_port(text, "it") == expected


@pytest.mark.parametrize(
    "text", ["worker-1", ":9440", "worker-1:", "worker-1:x", "worker-1:65536", "::1:9440", "grpc://a:1", "u@h:1", ""]
)
def test_no_host_and_port(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--advertise is .*give host:port"):
        split_host_port(text, "--advertise")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.10", "::1"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "localhost.example.com", socket.gethostname()])
def test_beyond_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("address", ["grpc+tcp://10.0.0.1:9440", "grpc://127.0.0.1:9440", "http://127.0.0.1:9440"])
def test_the_token_is_not_sent_unprotected(address: str) -> None:
    with pytest.raises(ConfigurationError):
        connect(address)


def test_the_socket_if_it_is_here(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    here, there = f"grpc+unix://{path}", "grpc+tls://worker-1:9440"
    assert best_address(there, here) == there
    path.touch()
    assert best_address(there, here) == here
    assert best_address(here, here) == here


# -- token and certificates ----------------------------------------------------------------------------------


def test_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_token() is None
    monkeypatch.setenv(TOKEN, " ")
    assert own_token() is None
    monkeypatch.setenv(TOKEN, "s3cret/+=\n")
    assert own_token() == b"s3cret/+=", "as a file ends with it"
    for bad in ("sécret", "s3 cret", "s3\ncret"):
        monkeypatch.setenv(TOKEN, bad)
        with pytest.raises(ConfigurationError, match=TOKEN) as raised:
            own_token()
        assert bad not in str(raised.value)


def test_an_authority_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    executors = f"spark.executorEnv.{TLS_CA}"
    with pytest.raises(ConfigurationError, match=f"nothing to verify it with: set {TLS_CA}.*{executors}"):
        connect("grpc+tls://worker-1:9440")
    (tmp_path / "empty.pem").touch()
    for path, reason in ((tmp_path / "missing.pem", "No such file"), (tmp_path / "empty.pem", "no certificate")):
        monkeypatch.setenv(TLS_CA, str(path))
        with pytest.raises(
            ConfigurationError, match=f"{TLS_CA} is '{path}', which cannot be used.*{reason}"
        ) as raised:
            connect("grpc+tls://worker-1:9440")
        assert executors in str(raised.value)


# -- where an agent may listen -------------------------------------------------------------------------------


def test_loopback_needs_nothing() -> None:
    door = DoorSettings.from_options("localhost:9440", None)
    assert (door.listen_host, door.listen_port) == ("localhost", 9440)
    assert door.scheme == "grpc+tcp"
    assert door.failure_domain(9440) == "localhost:9440", "on loopback each agent plays a node"


def test_beyond_loopback_with_both(monkeypatch: pytest.MonkeyPatch, certificate: tuple[str, str]) -> None:
    monkeypatch.setenv(TLS_CERT, certificate[0])
    monkeypatch.setenv(TLS_KEY, certificate[1])
    monkeypatch.setenv(TOKEN, "s3cret")
    door = DoorSettings.from_options("worker-1:9440", None)
    assert (door.listen_host, door.listen_port) == ("0.0.0.0", 9440)
    assert door.scheme == "grpc+tls"
    assert door.failure_domain(9440) == "worker-1"
    assert DoorSettings.from_options("worker-1:0", None).advertised(4711) == "worker-1:4711"
    assert DoorSettings.from_options("worker-1:9440", "10.0.0.7:1").advertised(1) == "worker-1:9440"
    assert DoorSettings.from_options("[fd00::7]:0", "[::]:0").advertised(4711) == "[fd00::7]:4711"
    assert "s3cret" not in repr(door)
    assert "PRIVATE" not in repr(door)


@pytest.mark.parametrize(
    ("advertise", "listen"),
    [("worker-1:1", None), ("127.0.0.1:1", "0.0.0.0:1"), ("127.0.0.1:1", "[::]:1"), ("worker-1:1", "127.0.0.1:1")],
)
@pytest.mark.parametrize("has", [(), ("token",), ("certificate",)], ids=["neither", "token", "certificate"])
def test_beyond_loopback_without_both(
    advertise: str,
    listen: str | None,
    has: tuple[str, ...],
    certificate: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "token" in has:
        monkeypatch.setenv(TOKEN, "s3cret")
    if "certificate" in has:
        monkeypatch.setenv(TLS_CERT, certificate[0])
        monkeypatch.setenv(TLS_KEY, certificate[1])
    with pytest.raises(ConfigurationError, match="needs TLS and a token") as raised:
        DoorSettings.from_options(advertise, listen)
    assert (f"{TOKEN} (" in str(raised.value)) == ("token" not in has)
    assert (f"{TLS_CERT} and" in str(raised.value)) == ("certificate" not in has)
    assert "s3cret" not in str(raised.value)


def test_certificates_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, certificate: tuple[str, str], tmp_path: Path
) -> None:
    monkeypatch.setenv(TLS_CERT, certificate[0])
    with pytest.raises(ConfigurationError, match=f"{TLS_CERT} is set, but {TLS_KEY} is not"):
        DoorSettings.from_options("localhost:1", None)
    other = tmp_path / "other.pem"
    trustme.CA().issue_cert("worker-1").private_key_pem.write_to_path(str(other))
    for key in ("/nowhere/key.pem", certificate[0], str(other)):
        monkeypatch.setenv(TLS_KEY, key)
        with pytest.raises(ConfigurationError, match=f"{TLS_KEY}='{key}' cannot be used"):
            DoorSettings.from_options("localhost:1", None)


def test_an_address_for_nobody() -> None:
    with pytest.raises(ConfigurationError, match="no address that others could use"):
        DoorSettings.from_options("0.0.0.0:9440", None)
