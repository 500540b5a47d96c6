"""Quix Streams: recovery of a store from its changelog, in an environment of its own (quix_restore.py)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from benchmarks.bare_consumer import CONSUMER_SETTINGS
from benchmarks.child import UnavailableError, run_child
from benchmarks.restore_data import KEY_BYTES, VALUE_BYTES, batches, create_topic, producer, text
from benchmarks.session import Bench
from changelog_state.broker.cache import cache_directory

__all__ = ["Quix"]

_VERSION = "3.28"
_SCRIPT = Path(__file__).parent / "quix_restore.py"
_STORE = "default"
_STATE_NAME = "n"
_SETUP_TIMEOUT_SECONDS = 900.0

# Fetching is tuned as for the others; it sets the rest itself.
_CONSUMER = {name: value for name, value in CONSUMER_SETTINGS.items() if name.startswith(("fetch.", "queued."))}


class Quix:
    """One changelog topic per number of partitions; every restore begins with an empty state directory."""

    name = "quix"

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._groups: dict[int, str] = {}

    @cached_property
    def _python(self) -> str:
        return str(_environment() / "bin" / "python")

    def prepare(self, records: int, partitions: int) -> None:
        """Its changelog as it writes it: key and state name, JSON, and headers.

        A header names the input offset that a change came from; only changes below the group's committed offset
        are recovered. So there is one input record, and it is committed.
        """
        assert self._python
        group = self._groups[partitions] = f"bench-quix-{uuid.uuid4().hex[:6]}"
        source = f"{group}-input"
        changelog = f"changelog__{group}--{source}--{_STORE}"
        create_topic(self._bench, source, partitions)
        create_topic(self._bench, changelog, partitions, cleanup_policy="compact")
        headers = [("__column_family__", b"default"), ("__processed_tp_offsets__", json.dumps({source: 0}).encode())]
        client = producer(self._bench)
        for partition in range(partitions):
            client.produce(source, key=b"one", value=b"{}", partition=partition)
            for numbers in batches(records, partitions, partition):
                for number in numbers:
                    key, value = _record(number)
                    client.produce(changelog, key=key, value=value, partition=partition, headers=headers)
                if client.flush(60):
                    raise RuntimeError(f"records did not arrive in {changelog}")
        self._commit(group, source, partitions)

    def _commit(self, group: str, topic: str, partitions: int) -> None:
        consumer = Consumer({"bootstrap.servers": self._bench.bootstrap_servers, "group.id": group})
        try:
            offsets = [TopicPartition(topic, partition, 1) for partition in range(partitions)]
            consumer.commit(offsets=offsets, asynchronous=False)
        finally:
            consumer.close()

    def restore(self, records: int, partitions: int) -> dict[str, Any]:
        state_dir = self._bench.directory / f"quix-{uuid.uuid4().hex[:6]}"
        group = self._groups[partitions]
        settings = {
            "bootstrap_servers": self._bench.bootstrap_servers,
            "group": group,
            "input": f"{group}-input",
            "state_name": _STATE_NAME,
            "state_dir": str(state_dir),
            "consumer": _CONSUMER,
        }
        try:
            return run_child([self._python, "-P", str(_SCRIPT)], settings)
        finally:
            shutil.rmtree(state_dir, ignore_errors=True)

    def params(self, partitions: int) -> dict[str, Any]:
        return {"version": _VERSION, "processing_guarantee": "at-least-once", "consumer": _CONSUMER}


def _record(number: int) -> tuple[bytes, bytes]:
    name = json.dumps(_STATE_NAME)
    key = f"{number:0{KEY_BYTES - len(name) - 1}d}|{name}"
    value = json.dumps({"total": text(number, VALUE_BYTES - len('{"total":""}'))}, separators=(",", ":"))
    return key.encode(), value.encode()


def _environment() -> Path:
    """A virtual environment with Quix in the per-user cache; it appears by a rename when it is complete."""
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    target = cache_directory() / "environments" / f"quixstreams-{_VERSION}-{python}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=target.parent))
    try:
        made = scratch / "environment"
        _install(made, f"quixstreams=={_VERSION}.*")
        os.rename(made, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _install(environment: Path, requirement: str) -> None:
    """With uv (on the path, or where ``make`` puts its own), or else with venv and pip."""
    python = str(environment / "bin" / "python")
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.prefix) / ".uv" / "bin"))
    if uv is not None:
        commands = [
            [uv, "venv", "--quiet", "--python", sys.executable, str(environment)],
            [uv, "pip", "install", "--quiet", "--python", python, requirement],
        ]
    else:
        commands = [
            [sys.executable, "-m", "venv", str(environment)],
            [python, "-m", "pip", "install", "--quiet", requirement],
        ]
    for command in commands:
        try:
            subprocess.run(command, capture_output=True, text=True, timeout=_SETUP_TIMEOUT_SECONDS, check=True)
        except subprocess.CalledProcessError as error:
            reason = " ".join(error.stderr.split())[:300]
            raise UnavailableError(f"{requirement} could not be installed ({reason})") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnavailableError(f"{requirement} could not be installed ({error})") from error
