"""A Spark standalone cluster on one machine: a master, and workers that each play a node with a disk of its own.

Everything that runs on a node has the node's mark in its environment: the worker, its executors, their Python
workers, the agents that are started from them. So a node can be lost as a whole, whoever started what.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyspark

from changelog_state.broker.jars import spark_connector_jars
from changelog_state.broker.java import ensure_java_home
from changelog_state.broker.process import SupervisedProcess
from tests.support.node import Node
from tests.support.polling import until

HOST = "127.0.0.1"
_ROOT = Path(__file__).parents[2]
_SPARK_HOME = Path(pyspark.__path__[0])
_START_SECONDS = 60.0
_MARK = "TEST_CLUSTER_NODE"
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Little is run often enough to be worth compiling well, and many JVMs share few cores."""
_EXECUTOR = b"CoarseGrainedExecutorBackend"


class Cluster:
    """Use it as a context manager; ``environment`` is for all nodes alike."""

    def __init__(self, directory: Path, *, nodes: int = 2, environment: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.nodes: list[ClusterNode] = []
        self.master_url = ""
        self._environment = dict(environment or {})
        self._number_of_nodes = nodes
        self._master: _Daemon | None = None

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def start(self) -> None:
        ensure_java_home()
        self._master = _Daemon(self.directory / "master", "master.Master", {})
        started = re.compile(r"Starting Spark master at (spark://\S+)")
        self.master_url = self._master.said(started)[1]
        self.nodes = [self._new_node() for _ in range(self._number_of_nodes)]
        for node in self.nodes:
            node.wait_until_registered()

    def add_node(self) -> ClusterNode:
        node = self._new_node()
        self.nodes.append(node)
        node.wait_until_registered()
        return node

    def _new_node(self) -> ClusterNode:
        name = f"node-{len(list(self.directory.glob('node-*'))) + 1}"
        node = ClusterNode(self.directory / name, self.master_url, self._environment)
        node.start_worker()
        return node

    def spark_settings(self) -> dict[str, str]:
        """For a driver: one executor per worker, and no job before all of them are there."""
        return {
            "spark.master": self.master_url,
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": HOST,
            "spark.driver.host": HOST,
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
            "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
            "spark.executor.memory": "1g",
            # All are on one disk in truth: nothing has to be copied to them.
            "spark.jars": ",".join(f"local:{jar}" for jar in spark_connector_jars()),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.sql.shuffle.partitions": "4",
        }

    def close(self) -> None:
        for node in self.nodes:
            node.kill_everything()
        if self._master is not None:
            self._master.kill()


class ClusterNode:
    """A worker with one core, a disk, fault points of its own, and an agent if one is started."""

    def __init__(self, directory: Path, master_url: str, environment: Mapping[str, str]) -> None:
        self.name = directory.name
        self.disk = directory / "disk"
        self.faults = directory / "faults"
        self._directory = directory
        self._master_url = master_url
        self._worker: _Daemon | None = None
        self.environment = {
            "CHANGELOG_STATE_DIR": str(self.disk),
            "CHANGELOG_STATE_FAULTS": str(self.faults),
            "PYTHONPATH": str(_ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_DIRS": str(directory / "scratch"),
            **environment,
            _MARK: str(directory),
        }
        self.faults.mkdir(parents=True)
        self.disk.mkdir()
        self.agent = Node(self.disk, self.environment)
        """Not running until it is started."""

    def agent_joins(self, application: str, bootstrap_servers: str, *options: str) -> Node:
        """Start this node's agent as one of the application's cluster."""
        self.agent.options = (
            *("--advertise", f"{HOST}:0"),
            *("--application", application, "--bootstrap-servers", bootstrap_servers),
            *options,
        )
        self.agent.start()
        return self.agent

    def start_worker(self) -> None:
        self._worker = _Daemon(
            self._directory / "worker",
            "worker.Worker",
            self.environment,
            *("--cores", "1", "--memory", "1g", "--work-dir", str(self._directory / "work"), self._master_url),
        )

    def wait_until_registered(self) -> None:
        assert self._worker is not None
        self._worker.said(re.compile("Successfully registered with master"))

    def executors(self) -> list[int]:
        """The process ids of its executors' JVMs."""
        return [pid for pid in self.processes() if _EXECUTOR in _read(pid, "cmdline")]

    def processes(self) -> list[int]:
        """Everything that runs on this node."""
        mark = f"{_MARK}={self._directory}".encode()
        pids = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
        return [pid for pid in pids if mark in _read(pid, "environ").split(b"\0")]

    def kill_executors(self) -> list[int]:
        """Only the JVMs: their Python workers notice by themselves. The worker starts new ones."""
        return _kill(self.executors())

    def kill_worker(self) -> None:
        """Worker and executors, as when Spark crashes on this node; its agent lives on, and so does its disk."""
        agents = {pid for pid in self.processes() if b"changelog_state\0agent" in _read(pid, "cmdline")}
        self._end_worker()
        _kill(set(self.processes()) - agents)

    def kill_everything(self) -> None:
        """The machine is switched off: its disk stays."""
        self._end_worker()
        # Whoever is being killed may have started somebody in the meantime.
        while _kill(self.processes()):
            pass
        self.agent.kill()

    def lose_disk(self) -> None:
        shutil.rmtree(self.disk)
        self.disk.mkdir()

    def lose(self) -> None:
        """Machine and disk."""
        self.kill_everything()
        self.lose_disk()

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None


class _Daemon:
    """Spark's master or a worker. It ends with this process, even if that is killed."""

    def __init__(self, directory: Path, kind: str, environment: Mapping[str, str], *arguments: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / "log"
        self._log.touch()
        self._begin = self._log.stat().st_size
        settings = {
            **environment,
            "SPARK_HOME": str(_SPARK_HOME),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "192m",
            # However many executors a test kills, the application is not given up.
            "SPARK_DAEMON_JAVA_OPTS": f"{_JAVA_OPTIONS} -Dspark.master.rest.enabled=false "
            "-Dspark.deploy.maxExecutorRetries=-1",
        }
        command = [
            *("env", *(f"{name}={value}" for name, value in settings.items())),
            *(str(_SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"),
            *("--host", HOST, "--port", "0", "--webui-port", "0", *arguments),
        ]
        with open(directory / "lock", "w") as lock:
            self._process = SupervisedProcess(
                command, directory=directory, log_path=self._log, lock_fd=lock.fileno(), remove=None
            )

    def said(self, pattern: re.Pattern[str]) -> re.Match[str]:
        def found() -> re.Match[str] | None:
            text = self._log.read_bytes()[self._begin :].decode(errors="replace")
            assert self._process.is_running, f"Spark did not start:\n{text}"
            return pattern.search(text)

        match: re.Match[str] = until(found, f"{self._log} has {pattern.pattern!r}", _START_SECONDS)
        return match

    def kill(self) -> None:
        self._process.kill()


def _kill(pids: Iterable[int]) -> list[int]:
    killed = list(pids)
    for pid in killed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in killed:
        # A dead process has no environment, even while its parent has not taken note.
        until(lambda pid=pid: not _read(pid, "environ"), f"process {pid} is gone")
    return killed


def _read(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""
