"""The embedded broker is a real Kafka: it keeps its data, and it never outlives the process that wanted it."""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from changelog_state.broker import EmbeddedBroker, embedded_broker, ensure_java_home, spark_connector_jars
from changelog_state.broker.jars import JarSet, fetch
from changelog_state.broker.java_shim import shim_home
from changelog_state.errors import BrokerUnavailableError, ConfigurationError, UnavailableError

pytestmark = pytest.mark.kafka

TOPIC = "letters"

# An owner that starts a broker, says so, and then only waits for its end.
OWNER = """
import json, sys, time
from changelog_state.broker import embedded_broker
with embedded_broker(data_dir=sys.argv[1] if len(sys.argv) > 1 else None) as broker:
    print(json.dumps({"pid": broker.pid, "data_dir": str(broker.data_dir)}), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker that a test may stop and kill, unlike the one of the session."""
    with embedded_broker(data_dir=tmp_path / "kafka", heap_mb=256) as running:
        yield running


def test_records_survive_stop_kill_and_restart_on_the_same_port(own_broker: EmbeddedBroker) -> None:
    address, first_pid, cluster = own_broker.bootstrap_servers, own_broker.pid, cluster_id(own_broker)
    create_topic(own_broker)
    produce(own_broker, b"a")

    own_broker.restart()
    produce(own_broker, b"b")
    own_broker.kill()
    assert not own_broker.is_running
    own_broker.start()

    assert consume(own_broker, count=2) == [b"a", b"b"]
    assert own_broker.bootstrap_servers == address
    assert own_broker.pid != first_pid
    assert cluster_id(own_broker) == cluster


def test_data_directory_is_kept_and_used_again(tmp_path: Path) -> None:
    with embedded_broker(data_dir=tmp_path / "kafka", heap_mb=256) as first:
        create_topic(first)
        produce(first, b"kept")
        cluster = cluster_id(first)
    with embedded_broker(data_dir=tmp_path / "kafka", heap_mb=256) as second:
        assert consume(second, count=1) == [b"kept"]
        assert cluster_id(second) == cluster


def test_temporary_data_is_removed_at_the_end() -> None:
    with embedded_broker(heap_mb=256) as broker:
        directory = broker.data_dir
        assert directory.exists()
    assert not directory.exists()


def test_directory_in_use_is_refused(own_broker: EmbeddedBroker) -> None:
    with (
        pytest.raises(ConfigurationError, match="in use by another broker"),
        embedded_broker(data_dir=own_broker.data_dir),
    ):
        pass
    assert own_broker.is_running


def test_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port} .*in use"), embedded_broker(port=port):
            pass


def test_broken_start_shows_the_log_and_keeps_it() -> None:
    broker = EmbeddedBroker(properties={"log.cleaner.threads": "many"})
    with pytest.raises(BrokerUnavailableError, match=r"log\.cleaner\.threads") as raised:
        broker.start()
    broker.close()
    assert str(broker.log_path) in str(raised.value)
    assert [path.name for path in broker.data_dir.iterdir()] == ["kafka.log"]
    broker.log_path.unlink()
    broker.data_dir.rmdir()


def test_start_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    broker = EmbeddedBroker(data_dir=tmp_path, heap_mb=256, start_timeout_seconds=0.1)
    with pytest.raises(BrokerUnavailableError, match=r"did not answer on 127\.0\.0\.1:\d+ in 0\.1 s"):
        broker.start()
    assert not broker.is_running


def test_kafka_stops_when_its_owner_is_killed() -> None:
    owner, kafka = start_owner()
    owner.kill()
    owner.wait()
    wait_until(lambda: not is_alive(kafka["pid"]), "Kafka outlived its owner")
    wait_until(lambda: not Path(kafka["data_dir"]).exists(), "temporary data was left behind")


def test_kafka_stops_when_its_owner_is_killed_but_a_forked_child_lives(tmp_path: Path) -> None:
    # The child inherits the pipe to the supervisor, which therefore does not end.
    script = OWNER.replace("    print", "    import os\n    if os.fork() == 0: time.sleep(600)\n    print")
    owner, kafka = start_owner(script, str(tmp_path))
    try:
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        wait_until(lambda: not is_alive(kafka["pid"]), "Kafka outlived its owner")
        assert (tmp_path / "data").exists()
    finally:
        os.killpg(owner.pid, signal.SIGKILL)


def test_kafka_stops_when_its_supervisor_is_killed(own_broker: EmbeddedBroker) -> None:
    pid = own_broker.pid
    os.kill(parent_of(pid), signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), "Kafka outlived its supervisor")
    assert not own_broker.is_running


def test_ctrl_c_stops_kafka_in_order() -> None:
    owner, kafka = start_owner()
    # A terminal sends the signal to the whole group; Kafka is in another one.
    os.killpg(owner.pid, signal.SIGINT)
    owner.wait(timeout=60)
    assert not is_alive(kafka["pid"])
    assert not Path(kafka["data_dir"]).exists()


def test_command_prints_one_document_and_stops_on_sigterm(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "changelog_state", "broker", "--json", "--data-dir", str(tmp_path / "kafka")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        document = json.loads(process.stdout.readline())
        assert set(document) == {"bootstrap_servers", "pid", "data_dir", "log"}
        assert is_alive(document["pid"])
        process.terminate()
        assert process.stdout.read() == ""
        assert process.wait(timeout=60) == 0
    assert not is_alive(document["pid"])


def test_connector_brings_no_jar_that_spark_ships() -> None:
    import pyspark

    connector = {Path(jar).name for jar in spark_connector_jars()}
    assert any(name.startswith("spark-sql-kafka") for name in connector)
    shipped = {jar.name for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    assert {module(name) for name in connector}.isdisjoint(module(name) for name in shipped)


def test_jars_are_fetched_once_and_again_when_damaged(
    maven_repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jar_set = JarSet("test", ("org.example:a:1",), excludes=("org.example:shipped",))
    (jar,) = fetch(jar_set)
    assert jar.name == "a-1.jar"

    withheld = maven_repository.rename(tmp_path / "withheld")
    assert fetch(jar_set) == [jar]

    jar.write_bytes(b"cut")
    with pytest.raises(UnavailableError, match=r"could not fetch test \(org\.example:a:1\)"):
        fetch(jar_set)
    withheld.rename(maven_repository)
    assert fetch(jar_set) == [jar]
    assert jar.read_bytes() == b"a jar"


def test_spark_gets_a_java_home_that_it_can_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    home = ensure_java_home()
    assert os.environ["JAVA_HOME"] == str(home)
    assert ensure_java_home() == home
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_java_shim_drops_one_option_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    java = shim_home(Path("/bin/echo")) / "bin" / "java"
    arguments = ["-Da=b  c", "--add-modules=jdk.incubator.vector", "--add-modules=java.sql", "*"]
    printed = subprocess.run([str(java), *arguments], capture_output=True, text=True, check=True).stdout
    assert printed == "-Da=b  c --add-modules=java.sql *\n"


@pytest.fixture
def maven_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Maven repository with one module, which needs another one that is not there."""
    root = tmp_path / "maven"
    module_dir = root / "org" / "example" / "a" / "1"
    module_dir.mkdir(parents=True)
    (module_dir / "a-1.jar").write_bytes(b"a jar")
    (module_dir / "a-1.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>org.example</groupId><artifactId>a</artifactId><version>1</version><dependencies><dependency>"
        "<groupId>org.example</groupId><artifactId>shipped</artifactId><version>1</version>"
        "</dependency></dependencies></project>"
    )
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(root))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("CHANGELOG_STATE_MAVEN_REPOSITORY", f"http://127.0.0.1:{server.server_port}")
        yield root
        server.shutdown()


def module(jar: str) -> str:
    """A jar's name without its version."""
    return jar.rpartition("-")[0]


def start_owner(script: str = OWNER, *arguments: str) -> tuple[subprocess.Popen[str], dict[str, object]]:
    owner = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert owner.stdout is not None
    return owner, json.loads(owner.stdout.readline())


def is_alive(pid: object) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_until(condition: Callable[[], bool], otherwise: str, timeout_seconds: float = 40.0) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


def cluster_id(broker: EmbeddedBroker) -> str:
    metadata = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=30)
    return str(metadata.cluster_id)


def create_topic(broker: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=1)])[TOPIC].result(timeout=30)


def produce(broker: EmbeddedBroker, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(TOPIC, value)
    assert producer.flush(30) == 0


def consume(broker: EmbeddedBroker, *, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([TOPIC])
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    return values
