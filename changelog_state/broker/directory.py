"""Where a broker lives on disk: its lock, its configuration, its data and its log."""

from __future__ import annotations

import base64
import fcntl
import os
import shutil
import subprocess
import tempfile
import uuid
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from changelog_state.broker.jars import kafka_jars
from changelog_state.broker.java import find_java
from changelog_state.broker.settings import LOG4J_CONFIGURATION, properties_text
from changelog_state.errors import BrokerUnavailableError, ConfigurationError

__all__ = ["BrokerDirectory"]

_LOG_TAIL_LINES = 20
_FORMAT_TIMEOUT_SECONDS = 120.0


class BrokerDirectory:
    """A directory for one broker at a time. Without a given path it is temporary."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.temporary = path is None
        if path is None:
            self.path = Path(tempfile.mkdtemp(prefix="changelog-state-broker-"))
            self._finalizer = weakref.finalize(self, _remove_tree, self.path, os.getpid())
        else:
            self.path = Path(path).absolute()
        self.log_path = self.path / "kafka.log"
        self.data_path = self.path / "data"
        self.server_properties_path = self.path / "server.properties"
        self._log4j_path = self.path / "log4j2.properties"
        self._meta_path = self.data_path / "meta.properties"
        self._lock: IO[str] | None = None

    def take_lock(self) -> int:
        """Keep a second broker out, and give the lock's descriptor.

        The supervisor inherits it, so the lock outlives a killed owner for as long as Kafka is stopping.
        """
        if self._lock is not None:
            return self._lock.fileno()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = open(self.path / "broker.lock", "a")  # noqa: SIM115
        except OSError as error:
            raise ConfigurationError(
                f"cannot use {self.path} for the broker's data ({error}): choose a writable directory"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise ConfigurationError(
                f"{self.path} is in use by another broker: stop that one, or choose another directory"
            ) from error
        self._lock = lock
        return lock.fileno()

    def release_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write_configuration(self, properties: Mapping[str, str]) -> None:
        self.server_properties_path.write_text(properties_text(properties), encoding="utf-8")
        self._log4j_path.write_text(LOG4J_CONFIGURATION)

    def java_command(self, *arguments: str) -> list[str]:
        return [
            str(find_java().executable),
            f"-Dlog4j2.configurationFile={self._log4j_path}",
            "-Djava.awt.headless=true",
            *("-cp", os.pathsep.join(str(jar) for jar in kafka_jars())),
            *arguments,
        ]

    def format_if_new(self) -> None:
        """Give a new directory its cluster id; one that has been used keeps its own."""
        if self._meta_path.exists():
            return
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        command = self.java_command(
            *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"),
            *("kafka.tools.StorageTool", "format", "--ignore-formatted"),
            f"--cluster-id={cluster_id}",
            f"--config={self.server_properties_path}",
        )
        log_start = self.log_size()
        with open(self.log_path, "ab") as output:
            try:
                status: object = subprocess.run(
                    command,
                    cwd=self.path,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=_FORMAT_TIMEOUT_SECONDS,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                status = f"none in {_FORMAT_TIMEOUT_SECONDS:.0f} s"
        if status != 0:
            raise self.start_error(f"could not format {self.data_path} (exit status {status})", log_start)

    def cluster_id(self) -> str:
        for line in self._meta_path.read_text().splitlines():
            if line.startswith("cluster.id="):
                return line.partition("=")[2].strip()
        raise ConfigurationError(f"no cluster.id in {self._meta_path}: remove {self.path} and start again")

    def log_size(self) -> int:
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def log_since(self, start: int) -> str:
        try:
            with open(self.log_path, "rb") as log_file:
                log_file.seek(start)
                return log_file.read().decode(errors="replace")
        except OSError:
            return ""

    def start_error(self, what: str, log_start: int) -> BrokerUnavailableError:
        """The error of a start that failed: it shows the end of the log and says where the rest is."""
        tail = "\n".join(self.log_since(log_start).splitlines()[-_LOG_TAIL_LINES:])
        return BrokerUnavailableError(
            f"the embedded Kafka did not start: it {what}. The whole log is in {self.log_path}; its end:\n"
            + (tail or "(empty)")
        )

    def remove(self, *, keep_log: bool) -> None:
        """Remove the directory if it is temporary, without its log if that may be wanted."""
        if not self.temporary:
            return
        if not keep_log:
            self._finalizer()
        elif self._finalizer.detach() is not None:
            for entry in self.path.iterdir():
                if entry.is_dir():
                    shutil.rmtree(entry, ignore_errors=True)
                elif entry != self.log_path:
                    entry.unlink(missing_ok=True)


def _remove_tree(path: Path, owner_pid: int) -> None:
    # Finalizers also run at the exit of a forked child, to which the directory does not belong.
    if os.getpid() == owner_pid:
        shutil.rmtree(path, ignore_errors=True)
