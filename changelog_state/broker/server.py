"""A real one-node Kafka on localhost, without Docker."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from changelog_state.broker.directory import BrokerDirectory
from changelog_state.broker.ports import free_port, is_free, is_listening
from changelog_state.broker.process import SupervisedProcess
from changelog_state.broker.settings import HOST, server_properties
from changelog_state.errors import BrokerUnavailableError, ConfigurationError

__all__ = ["EmbeddedBroker", "embedded_broker"]

log = logging.getLogger(__name__)

_PORT_ATTEMPTS = 5
_PORT_TAKEN = "Address already in use"
_CLEAN_EXIT_STATUSES = (0, 128 + signal.SIGTERM)


@contextmanager
def embedded_broker(
    *,
    port: int | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    heap_mb: int = 512,
    properties: Mapping[str, object] | None = None,
    start_timeout_seconds: float = 120.0,
) -> Iterator[EmbeddedBroker]:
    """A running Kafka for the length of a ``with`` block.

    ``port``: a free one unless given. ``data_dir``: a temporary directory unless given; a given one is kept
    and used again, with its cluster id. ``properties``: server properties on top of the ones for tests.
    The broker ends with this process, even if that is killed.
    """
    broker = EmbeddedBroker(
        port=port,
        data_dir=data_dir,
        heap_mb=heap_mb,
        properties=properties,
        start_timeout_seconds=start_timeout_seconds,
    )
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


class EmbeddedBroker:
    """One Kafka that can be started, stopped and killed several times on the same port and data."""

    def __init__(
        self,
        *,
        port: int | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        heap_mb: int = 512,
        properties: Mapping[str, object] | None = None,
        start_timeout_seconds: float = 120.0,
    ) -> None:
        self._port = port
        self._heap_mb = heap_mb
        self._properties = dict(properties or {})
        self._start_timeout_seconds = start_timeout_seconds
        self._directory = BrokerDirectory(data_dir)
        self._process: SupervisedProcess | None = None
        self._keep_log = False

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def port(self) -> int:
        if self._port is None:
            raise BrokerUnavailableError("the embedded broker has no port yet: start it first")
        return self._port

    @property
    def pid(self) -> int:
        """The process id of Kafka's JVM."""
        if self._process is None:
            raise BrokerUnavailableError("the embedded broker is not running: start it first")
        return self._process.pid

    @property
    def data_dir(self) -> Path:
        return self._directory.path

    @property
    def log_path(self) -> Path:
        return self._directory.log_path

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    def start(self) -> None:
        """Start Kafka and return when it answers.

        1. Lock the directory.
        2. Choose the port, unless it was given or clients know it from an earlier start.
        3. Configure and start Kafka on it, and wait until a client sees this very cluster.
        4. If somebody else has taken a port in the meantime, go back to 2.
        """
        if self.is_running:
            return
        self._forget_process()
        self._directory.take_lock()
        try:
            for attempt in range(_PORT_ATTEMPTS):
                time.sleep(0.2 * attempt)
                port = self._port if self._port is not None else free_port()
                if is_free(port) and self._start_on(port):
                    self._port = port
                    return
            raise ConfigurationError(f"port {port} of {HOST} is in use: stop what uses it, or choose another port")
        except BaseException:
            self._keep_log = True
            self.kill()
            raise

    def stop(self) -> None:
        """Stop Kafka cleanly. Its data stays, so that ``start`` can go on with it."""
        if self._process is not None:
            status = self._process.stop()
            if status not in _CLEAN_EXIT_STATUSES:
                self._keep_log = True
                log.warning("Kafka did not end cleanly (exit status %d), see %s", status, self.log_path)
        self._forget_process()

    def kill(self) -> None:
        """End Kafka at once, as ``kill -9`` or a crash of its process would."""
        if self._process is not None:
            self._process.kill()
        self._forget_process()

    def restart(self) -> None:
        """Stop and start again: same port, same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and remove what was temporary; the log is kept if something went wrong."""
        self.stop()
        self._directory.remove(keep_log=self._keep_log)

    def _start_on(self, port: int) -> bool:
        """Start on a port that was free a moment ago; False if it, or the controller's, no longer was."""
        directory = self._directory
        directory.write_configuration(
            server_properties(
                port=port,
                controller_port=free_port(),
                log_dir=directory.data_path,
                overrides=self._properties,
            )
        )
        log_start = directory.log_size()
        directory.format_if_new()
        self._process = process = SupervisedProcess(
            directory.java_command(
                *(f"-Xms{self._heap_mb}m", f"-Xmx{self._heap_mb}m"),
                *("-XX:+UseG1GC", "-XX:+ExitOnOutOfMemoryError"),
                *("kafka.Kafka", str(directory.server_properties_path)),
            ),
            directory=directory.path,
            log_path=directory.log_path,
            lock_fd=directory.take_lock(),
            remove=directory.path if directory.temporary else None,
        )
        deadline = time.monotonic() + self._start_timeout_seconds
        while not _answers(port, directory.cluster_id()):
            if not process.is_running:
                status = process.wait()
                self._process = None
                if _PORT_TAKEN in directory.log_since(log_start):
                    return False
                raise directory.start_error(f"ended with exit status {status}", log_start)
            if time.monotonic() > deadline:
                timeout = f"{self._start_timeout_seconds:g} s"
                raise directory.start_error(f"did not answer on {HOST}:{port} in {timeout}", log_start)
            time.sleep(0.05)
        log.info("Kafka is running on %s:%d, pid %d, data in %s", HOST, port, process.pid, directory.path)
        return True

    def _forget_process(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._process = None
        self._directory.release_lock()


def _answers(port: int, cluster_id: str) -> bool:
    """Whether a client sees this cluster (not another one on the port) with its broker registered."""
    if not is_listening(port):
        return False
    client = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0})
    try:
        metadata = client.list_topics(timeout=2.0)
    except KafkaException:
        return False
    return bool(metadata.cluster_id == cluster_id and len(metadata.brokers) == 1)
