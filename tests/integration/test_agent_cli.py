"""``changelog-state agent drain``, as a person would type it before a node is taken down."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from changelog_state.agent.client import AgentClient
from changelog_state.agent.launcher import find_agent
from changelog_state.agent.transport import TOKEN
from changelog_state.broker import EmbeddedBroker
from changelog_state.config import ClusterConfig, StoreConfig
from tests.support.cluster_agent import ClusterAgent, command
from tests.support.driver import Driver
from tests.support.polling import until

pytestmark = pytest.mark.kafka

SECRET = "correct-horse-battery-staple"


@pytest.fixture
def agent(
    broker: EmbeddedBroker, application: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ClusterAgent]:
    cluster = ClusterConfig(application, broker.bootstrap_servers)
    made = ClusterAgent(tmp_path / "state", cluster, "--advertise", "127.0.0.1:0", **{TOKEN: SECRET}).start()
    yield made
    made.kill()


@pytest.fixture
def client(agent: ClusterAgent) -> Iterator[AgentClient]:
    found = find_agent(agent.disk)
    assert found is not None
    with closing(found):
        yield found


@pytest.fixture
def owned(client: AgentClient, config: StoreConfig) -> StoreConfig:
    """A store of one partition, owned by the agent; its driver has gone."""
    with closing(Driver(config, lambda: [client])) as driver:
        driver.run(0, [("a", 1)])
    assert client.summary()["owned"] == 1
    return config


def drain(agent: ClusterAgent, *options: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = command("agent", "drain", "--state-dir", str(agent.disk), *options)
    assert done.returncode == code, done.stderr
    return done


def test_an_agent_that_owns_nothing_is_drained_at_once(agent: ClusterAgent, client: AgentClient) -> None:
    name = agent.described["id"]
    done = drain(agent)
    assert f"agent {name} owns nothing; it can be stopped" in done.stderr
    assert client.hello()["draining"] is True
    assert "not draining any more" in drain(agent, "--undo").stderr
    assert client.hello()["draining"] is False


def test_waits_until_nothing_is_owned(agent: ClusterAgent, client: AgentClient, owned: StoreConfig) -> None:
    def give_away() -> None:
        until(lambda: client.summary()["draining"], "the agent is asked to drain")
        client.release(owned)

    mover = threading.Thread(target=give_away)
    mover.start()
    done = drain(agent, "--json", "--timeout", "60")
    mover.join()
    found = json.loads(done.stdout)
    assert found["agent"] == agent.described["id"]
    assert (found["owned"], found["draining"], found["stopped"]) == (0, True, False)
    assert agent.alive


def test_gives_up_when_the_time_is_over(agent: ClusterAgent, client: AgentClient, owned: StoreConfig) -> None:
    name = agent.described["id"]
    done = drain(agent, "--timeout", "1", "--stop", "--json", code=1)
    assert f"draining {name}: owns 1 partition" in done.stderr, "progress"
    assert f"changelog-state: agent {name} still owns 1 partition after 1 s" in done.stderr
    assert json.loads(done.stdout)["owned"] == 1
    assert client.hello()["draining"] is True, "it goes on"
    assert agent.alive, "with what it owns it is not stopped"


def test_stopped_when_it_is_drained(agent: ClusterAgent) -> None:
    done = drain(agent, "--stop")
    assert "owns nothing and has stopped" in done.stderr
    assert agent.wait() == 0


@pytest.mark.parametrize("by", ["id", "address"])
def test_an_agent_of_another_machine(agent: ClusterAgent, application: str, broker: EmbeddedBroker, by: str) -> None:
    """By what the topic says of it; its socket is not looked for where it is not."""
    wanted = agent.described["id"] if by == "id" else f"127.0.0.1:{agent.port}"
    words = ["agent", "drain", "--agent", wanted, "--stop", "--application", application]
    words += ["--bootstrap-servers", broker.bootstrap_servers]
    socket = Path(agent.described["socket"].removeprefix("grpc+unix://"))
    away = socket.rename(socket.with_suffix(".away"))
    try:
        refused = command(*words)
        assert refused.returncode == 2, refused.stderr
        assert f"set {TOKEN}" in refused.stderr
        done = command(*words, **{TOKEN: SECRET})
        assert done.returncode == 0, done.stderr
        assert agent.wait() == 0
    finally:
        away.unlink(missing_ok=True)


def test_nobody_to_drain(agent: ClusterAgent, application: str, broker: EmbeddedBroker, tmp_path: Path) -> None:
    done = command("agent", "drain", "--state-dir", str(tmp_path / "elsewhere"))
    assert done.returncode == 1
    assert "no agent answers for state directory" in done.stderr
    words = ["--agent", "worker-9:1", "--application", application, "--bootstrap-servers", broker.bootstrap_servers]
    done = command("agent", "drain", *words)
    assert done.returncode == 1
    assert f"no agent worker-9:1 is registered in {application}-agents; registered are: 127.0.0.1:" in done.stderr
    done = command("agent", "drain", "--agent", "worker-9:1")
    assert done.returncode == 2
    assert "application is not given" in done.stderr


def test_options_at_the_wrong_place(agent: ClusterAgent, client: AgentClient) -> None:
    done = command("agent", "--state-dir", str(agent.disk), "drain")
    assert done.returncode == 2, done.stderr
    assert "--state-dir stands before drain; give its options behind it" in done.stderr
    assert client.hello()["draining"] is False


def test_listening_for_nobody(tmp_path: Path) -> None:
    done = command("agent", "--state-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    assert done.returncode == 2, done.stderr
    assert "--listen is given, but not --advertise" in done.stderr


def test_client_settings_from_the_environment(application: str, broker: EmbeddedBroker, tmp_path: Path) -> None:
    """What a job hands to the agents that it starts, so that secrets are on no command line."""
    words = ["agent", "--state-dir", str(tmp_path / "state"), "--application", application]
    words += ["--bootstrap-servers", broker.bootstrap_servers, "--advertise", "127.0.0.1:0"]
    done = command(*words, CHANGELOG_STATE_KAFKA='{"isolation.level": "s3cret"}')
    assert done.returncode == 2, done.stderr
    assert "kafka['isolation.level'] cannot be set" in done.stderr
    assert "s3cret" not in done.stderr
