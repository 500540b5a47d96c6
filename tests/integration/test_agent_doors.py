"""The doors of an agent: TLS and a token for other machines, loopback for a trial, the socket for this one."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.flight as flight
import pytest
import trustme

from changelog_state.agent.client import AgentClient
from changelog_state.agent.transport import TLS_CA, TLS_CERT, TLS_KEY, TOKEN, call_options, connect
from changelog_state.broker import EmbeddedBroker
from changelog_state.config import ClusterConfig, StoreConfig
from changelog_state.errors import AgentRefusedError, AgentUnavailableError
from changelog_state.requests import RequestHeader
from changelog_state.store.directory import is_held
from changelog_state.task.session import Session
from tests.support.cluster_agent import ClusterAgent, command
from tests.support.driver import Driver
from tests.support.polling import until

pytestmark = pytest.mark.kafka

SECRET = "correct-horse-battery-staple"
WRONG = "another-horse-battery-staple"


@dataclass
class Authority:
    """Certificates that are made for this run."""

    directory: Path

    def __post_init__(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.directory / "ca.pem"))
        trustme.CA().cert_pem.write_to_path(str(self.directory / "foreign.pem"))
        for name, hosts in (("agent", ("127.0.0.1", "localhost")), ("elsewhere", ("worker-1.example.com",))):
            issued = authority.issue_cert(*hosts)
            issued.cert_chain_pems[0].write_to_path(str(self.directory / f"{name}.pem"))
            issued.private_key_pem.write_to_path(str(self.directory / f"{name}.key"))

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def certificate(self, name: str = "agent") -> dict[str, str]:
        return {TLS_CERT: self.path(f"{name}.pem"), TLS_KEY: self.path(f"{name}.key")}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls_agent(
    broker: EmbeddedBroker, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterAgent]:
    """One for many tests. Its loopback address stands for a host name: TLS and token are the same there."""
    cluster = ClusterConfig("doors", broker.bootstrap_servers)
    environment = authority.certificate() | {TOKEN: SECRET}
    disk = tmp_path_factory.mktemp("agent") / "state"
    agent = ClusterAgent(disk, cluster, "--advertise", "127.0.0.1:0", **environment).start()
    yield agent
    agent.kill()


@pytest.fixture
def start(broker: EmbeddedBroker, application: str, tmp_path: Path) -> Iterator[Callable[..., ClusterAgent]]:
    started: list[ClusterAgent] = []

    def start_one(*options: str, **environment: str) -> ClusterAgent:
        cluster = ClusterConfig(application, broker.bootstrap_servers)
        started.append(ClusterAgent(tmp_path / f"node-{len(started)}", cluster, *options, **environment))
        return started[-1].start()

    yield start_one
    for agent in started:
        agent.kill()


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch, authority: Authority) -> None:
    """This process verifies agents, and has no token yet."""
    monkeypatch.setenv(TLS_CA, authority.path("ca.pem"))
    monkeypatch.delenv(TOKEN, raising=False)


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch, trusted: None) -> Callable[[str], None]:
    return lambda value: monkeypatch.setenv(TOKEN, value)


def hello(address: str) -> Any:
    with closing(AgentClient(address)) as client:
        return client.hello()


# -- TLS and token -------------------------------------------------------------------------------------------


def test_with_the_token_a_whole_batch_runs(
    tls_agent: ClusterAgent, token: Callable[[str], None], config: StoreConfig
) -> None:
    """Actions and a task's exchange."""
    token(SECRET)
    assert tls_agent.address.startswith("grpc+tls://127.0.0.1:")
    with closing(AgentClient(tls_agent.address)) as client, closing(Driver(config, lambda: [client])) as driver:
        assert driver.run(0, [("a", 1), ("a", 2)]) == [("a", None, 3)]
        assert driver.dump(client) == {("a", "total"): 3}


@pytest.mark.parametrize("given", [None, WRONG, SECRET[:-1], SECRET + "x"], ids=["none", "wrong", "short", "long"])
def test_without_the_token_nothing(
    tls_agent: ClusterAgent, token: Callable[[str], None], config: StoreConfig, given: str | None
) -> None:
    if given is not None:
        token(given)
    before = len(tls_agent.log)
    advice = rf"does not accept this process.*set {TOKEN} .*spark\.executorEnv\.{TOKEN}"
    with pytest.raises(AgentRefusedError, match=advice) as raised:
        hello(tls_agent.address)
    header = RequestHeader(config.application, config.store, 0, 1, 0, "q", 0, "t")
    with pytest.raises(AgentRefusedError, match=advice):
        Session(tls_agent.address, header).get([b"a"])
    with closing(connect(tls_agent.address)) as client:
        options = call_options(tls_agent.address, 10)
        for ask in (
            lambda: list(client.list_actions(options=options)),
            lambda: list(client.list_flights(options=options)),
            lambda: client.do_get(flight.Ticket(b""), options=options),
            lambda: client.get_flight_info(flight.FlightDescriptor.for_command(b""), options=options),
        ):
            with pytest.raises(flight.FlightUnauthenticatedError):
                ask()
    what = "no token" if given is None else "a wrong token"
    logged = until(lambda: tls_agent.log[before:] if "refused" in tls_agent.log[before:] else "", "it is logged")
    assert "WARNING" in logged
    assert "refused a call from ipv4:127.0.0.1:" in logged
    assert f"it has {what}" in logged
    for secret in (SECRET, WRONG):
        assert secret not in logged
        assert secret not in str(raised.value)
        assert secret not in str(raised.value.__cause__)


def test_a_token_that_changes_its_mind(tls_agent: ClusterAgent, token: Callable[[str], None]) -> None:
    """Judged call by call, not once per connection."""
    with closing(AgentClient(tls_agent.address)) as client:
        token(SECRET)
        assert client.hello()["address"] == tls_agent.address
        token(WRONG)
        with pytest.raises(AgentRefusedError):
            client.hello()
        token(SECRET)
        assert client.hello()["id"] == tls_agent.described["id"]


def test_two_tokens_are_none(tls_agent: ClusterAgent, trusted: None) -> None:
    headers = [(b"authorization", b"Bearer " + text.encode()) for text in (WRONG, SECRET)]
    with closing(connect(tls_agent.address)) as client, pytest.raises(flight.FlightUnauthenticatedError):
        list(client.list_actions(options=flight.FlightCallOptions(timeout=10, headers=headers)))


def test_without_tls_nothing(tls_agent: ClusterAgent, token: Callable[[str], None]) -> None:
    token(SECRET)
    with pytest.raises(AgentUnavailableError, match="did not answer"):
        hello(tls_agent.address.replace("grpc+tls", "grpc+tcp"))


def test_a_certificate_of_another_authority(
    tls_agent: ClusterAgent, token: Callable[[str], None], authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    token(SECRET)
    monkeypatch.setenv(TLS_CA, authority.path("foreign.pem"))
    with pytest.raises(AgentRefusedError, match=rf"not accepted here \(certificate verify failed.*set {TLS_CA} "):
        hello(tls_agent.address)


def test_a_certificate_of_another_host(
    start: Callable[..., ClusterAgent], token: Callable[[str], None], authority: Authority
) -> None:
    token(SECRET)
    agent = start("--advertise", "127.0.0.1:0", **authority.certificate("elsewhere"), **{TOKEN: SECRET})
    with pytest.raises(AgentRefusedError, match=r"127\.0\.0\.1 is not in peer certificate.*host that the agent adv"):
        hello(agent.address)


# -- beyond loopback only with both --------------------------------------------------------------------------


@pytest.mark.parametrize("has", ["neither", "token", "certificate"])
def test_refuses_to_listen_wide(has: str, authority: Authority, broker: EmbeddedBroker, tmp_path: Path) -> None:
    environment = {"neither": {}, "token": {TOKEN: SECRET}, "certificate": authority.certificate()}[has]
    words = ["agent", "--state-dir", str(tmp_path / "state"), "--application", "doors", "--advertise", "127.0.0.1:0"]
    words += ["--listen", "0.0.0.0:0", "--bootstrap-servers", broker.bootstrap_servers]
    done = command(*words, **environment)
    assert done.returncode == 2, done.stderr
    assert "can be reached from other machines, so it needs TLS and a token; set " in done.stderr
    assert SECRET not in done.stderr
    assert not (tmp_path / "state").exists(), "refused before anything was touched"


def test_listens_wide_with_both(
    start: Callable[..., ClusterAgent], token: Callable[[str], None], authority: Authority
) -> None:
    token(SECRET)
    agent = start("--advertise", "localhost:0", "--listen", "0.0.0.0:0", **authority.certificate(), **{TOKEN: SECRET})
    assert agent.address == f"grpc+tls://localhost:{agent.port}"
    assert hello(agent.address)["host"] == f"localhost:{agent.port}"
    with socket.create_connection(("127.0.0.2", agent.port), timeout=10):
        pass  # it listens on all addresses


def test_a_port_that_is_taken(tls_agent: ClusterAgent, broker: EmbeddedBroker, tmp_path: Path) -> None:
    words = ["agent", "--state-dir", str(tmp_path / "state"), "--application", "doors"]
    words += ["--advertise", f"127.0.0.1:{tls_agent.port}", "--bootstrap-servers", broker.bootstrap_servers]
    done = command(*words)
    assert done.returncode == 2, done.stderr
    assert f"cannot listen on 127.0.0.1:{tls_agent.port} (Address already in use)" in done.stderr


# -- loopback, and the socket beside it ----------------------------------------------------------------------


def test_loopback_without_anything(start: Callable[..., ClusterAgent], trusted: None) -> None:
    agent = start("--advertise", "127.0.0.1:0", "--rack", "r1")
    assert agent.address.startswith("grpc+tcp://127.0.0.1:")
    described = hello(agent.address)
    assert described == agent.described
    assert described["host"] == f"127.0.0.1:{agent.port}"
    assert described["rack"] == "r1"
    assert described["draining"] is False
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", agent.port), timeout=10)


def test_loopback_with_a_token(start: Callable[..., ClusterAgent], token: Callable[[str], None]) -> None:
    agent = start("--advertise", "127.0.0.1:0", **{TOKEN: SECRET})
    with pytest.raises(AgentRefusedError):
        hello(agent.address)
    token(SECRET)
    assert hello(agent.address)["address"] == agent.address


def test_the_socket_needs_no_token(tls_agent: ClusterAgent, trusted: None) -> None:
    described = hello(tls_agent.described["socket"])
    assert described["address"] == tls_agent.address
    assert described["socket"].startswith("grpc+unix://")
    path = Path(described["socket"].removeprefix("grpc+unix://"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_one_registry_behind_both(tls_agent: ClusterAgent, token: Callable[[str], None], config: StoreConfig) -> None:
    token(SECRET)
    with (
        closing(AgentClient(tls_agent.address)) as far,
        closing(AgentClient(tls_agent.described["socket"])) as near,
        closing(Driver(config, lambda: [far])) as driver,
    ):
        driver.run(0, [("a", 1)])
        assert near.status(config) == far.status(config)
        assert near.status(config)[0]["phase"] == "ACTIVE"
        near.drain()
        summaries = [door.summary() for door in (near, far)]
        for found in summaries:
            assert found.pop("driver_seen_seconds_ago") < 60
        assert summaries[0] == summaries[1]
        assert summaries[0]["draining"] is True
        assert summaries[0]["owned"] >= 1
        far.drain(undo=True)
        assert near.hello()["draining"] is False


def test_a_task_that_does_not_end_keeps_nobody(start: Callable[..., ClusterAgent], config: StoreConfig) -> None:
    agent = start("--advertise", "127.0.0.1:0")
    with closing(AgentClient(agent.address)) as client, closing(Driver(config, lambda: [client])) as driver:
        attempt = driver.attempt(driver.gate(0), [("a", 1)]).get()
        started = time.monotonic()
        assert agent.terminate() == 0
        assert time.monotonic() - started < 30
        attempt.cut()
    assert "stopping without them" in agent.log
    assert not is_held(agent.disk)


@pytest.mark.parametrize("door", ["address", "socket"])
def test_stopped_through_either(start: Callable[..., ClusterAgent], door: str, trusted: None) -> None:
    agent = start("--advertise", "127.0.0.1:0")
    described = agent.described
    with closing(AgentClient(described[door])) as client:
        client.stop()
    assert agent.wait() == 0
    for address in (described["address"], described["socket"]):
        with pytest.raises(AgentUnavailableError):
            hello(address)
    assert not Path(described["socket"].removeprefix("grpc+unix://")).parent.exists()
