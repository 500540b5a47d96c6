"""Kafka Streams (Java): a persistent key-value store restored from its changelog by java/RestoreBench.java."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.child import UnavailableError
from benchmarks.restore_data import KEY_BYTES, VALUE_BYTES, batches, create_topic, producer, text
from benchmarks.session import Bench
from changelog_state.broker.jars import JarSet, fetch
from changelog_state.broker.java import find_java
from changelog_state.broker.versions import KAFKA_VERSION
from changelog_state.errors import ChangelogStateError

__all__ = ["KafkaStreams"]

_JARS = JarSet(f"kafka-streams-{KAFKA_VERSION}", (f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}",))
_SOURCE = Path(__file__).parent / "java" / "RestoreBench.java"
_STORE = "totals"
_HEAP_MB = 2048
_TIMEOUT_SECONDS = 1800.0

SETTINGS = {
    # Reading uncommitted is, if anything, the faster one.
    "processing.guarantee": "at_least_once",
    "restore.consumer.fetch.max.bytes": str(100 * 1024 * 1024),
    "restore.consumer.max.partition.fetch.bytes": str(16 * 1024 * 1024),
    "restore.consumer.max.poll.records": "10000",
    "restore.consumer.receive.buffer.bytes": str(1024 * 1024),
}


class KafkaStreams:
    """One changelog topic per number of partitions; every restore begins with an empty state directory."""

    name = "kafka-streams"

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._applications: dict[int, str] = {}

    @cached_property
    def _class_path(self) -> str:
        """The jars and our compiled program, or the reason why there are none."""
        try:
            java, jars = find_java(), fetch(_JARS)
        except ChangelogStateError as error:
            raise UnavailableError(str(error).splitlines()[0].rstrip(":")) from error
        compiler = java.home / "bin" / "javac"
        if not compiler.exists():
            raise UnavailableError(f"{java.home} has no Java compiler; install a JDK, e.g. openjdk-17-jdk-headless")
        class_path = os.pathsep.join(map(str, jars))
        classes = self._bench.directory / "java"
        compiled = subprocess.run(
            [str(compiler), "-cp", class_path, "-d", str(classes), str(_SOURCE)],
            capture_output=True,
            text=True,
            check=False,
        )
        if compiled.returncode != 0:
            raise RuntimeError(f"{_SOURCE.name} does not compile:\n{compiled.stderr}")
        return os.pathsep.join([str(classes), class_path])

    def prepare(self, records: int, partitions: int) -> None:
        """Its changelog, filled as its own producers would have done it, and an empty input topic."""
        assert self._class_path
        application = self._applications[partitions] = f"bench-streams-{uuid.uuid4().hex[:6]}"
        create_topic(self._bench, f"{application}-input", partitions)
        changelog = f"{application}-{_STORE}-changelog"
        create_topic(self._bench, changelog, partitions, cleanup_policy="compact")
        client = producer(self._bench)
        for partition in range(partitions):
            for numbers in batches(records, partitions, partition):
                messages = [
                    {"key": b"%0*d" % (KEY_BYTES, number), "value": text(number, VALUE_BYTES).encode()}
                    for number in numbers
                ]
                if client.produce_batch(changelog, messages, partition=partition) != len(messages):
                    raise RuntimeError(f"records were not taken for {changelog}")
                if client.flush(60):
                    raise RuntimeError(f"records did not arrive in {changelog}")

    def restore(self, records: int, partitions: int) -> dict[str, Any]:
        state_dir = self._bench.directory / f"streams-{uuid.uuid4().hex[:6]}"
        application = self._applications[partitions]
        settings = {
            "application.id": application,
            "bootstrap.servers": self._bench.bootstrap_servers,
            "state.dir": str(state_dir),
            "num.stream.threads": str(_threads(partitions)),
            **SETTINGS,
        }
        try:
            child = subprocess.run(
                [
                    *(str(find_java().executable), f"-Xmx{_HEAP_MB}m", "-cp", self._class_path, "RestoreBench"),
                    *(f"{application}-input", _STORE, str(partitions)),
                    *(f"{name}={value}" for name, value in settings.items()),
                ],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        finally:
            shutil.rmtree(state_dir, ignore_errors=True)
        if child.returncode != 0:
            raise RuntimeError(f"Kafka Streams ended with exit status {child.returncode}:\n{child.stderr[-4000:]}")
        found: dict[str, Any] = json.loads(child.stdout.strip().splitlines()[-1])
        return found

    def params(self, partitions: int) -> dict[str, Any]:
        return {"version": KAFKA_VERSION, "threads": _threads(partitions), "settings": SETTINGS}


def _threads(partitions: int) -> int:
    return min(partitions, 2)
