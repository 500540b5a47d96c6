"""The ceiling: a consumer that only counts messages. ``python -m benchmarks.bare_consumer SETTINGS`` is one process.

Several processes read an equal part of every partition's offsets each; they begin together.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from benchmarks.child import ROOT

__all__ = ["CONSUMER_SETTINGS", "count_records"]

COMMAND = (sys.executable, "-m", "benchmarks.bare_consumer")
CONSUMER_SETTINGS: dict[str, Any] = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "fetch.wait.max.ms": 10,
    "fetch.message.max.bytes": 16 * 1024 * 1024,
    "fetch.max.bytes": 100 * 1024 * 1024,
    "queued.max.messages.kbytes": 1024 * 1024,
    "queued.min.messages": 1_000_000,
}
_CONSUME = 20_000
_CONSUME_SECONDS = 0.02
_STALLED_SECONDS = 30.0


def count_records(
    bootstrap_servers: str, topic: str, partitions: int, *, processes: int = 1, collect_garbage: bool = True
) -> tuple[int, float]:
    """How many records there are, and in how many seconds the processes have counted them."""
    ends = _ends(bootstrap_servers, topic, partitions)
    with ExitStack() as stack:
        children = []
        for number in range(processes):
            settings = {
                "bootstrap_servers": bootstrap_servers,
                "topic": topic,
                "spans": [
                    (partition, end * number // processes, end * (number + 1) // processes)
                    for partition, end in enumerate(ends)
                ],
                "collect_garbage": collect_garbage,
            }
            child = subprocess.Popen(
                [*COMMAND, json.dumps(settings)],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            children.append(stack.enter_context(child))
        lines = [_pipe(child)[1].readline() for child in children]
        if lines != ["ready\n"] * processes:
            raise RuntimeError(f"a consumer process did not start: {lines}")
        begun = time.perf_counter()
        for child in children:
            _pipe(child)[0].write("go\n")
            _pipe(child)[0].flush()
        lines = [_pipe(child)[1].readline() for child in children]
        seconds = time.perf_counter() - begun
        if "" in lines:
            raise RuntimeError("a consumer process has failed; its error is above")
        return sum(map(int, lines)), seconds


def _pipe(child: subprocess.Popen[str]) -> tuple[Any, Any]:
    return child.stdin, child.stdout


def _ends(bootstrap_servers: str, topic: str, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "none", **CONSUMER_SETTINGS})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
            for partition in range(partitions)
        ]
    finally:
        consumer.close()


def main(settings: dict[str, Any]) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    if not settings["collect_garbage"]:
        gc.disable()
    topic = settings["topic"]
    spans = [(partition, begin, end) for partition, begin, end in settings["spans"] if begin < end]
    consumer = Consumer({"bootstrap.servers": settings["bootstrap_servers"], "group.id": "none", **CONSUMER_SETTINGS})
    consumer.assign([TopicPartition(topic, partition, begin) for partition, begin, _ in spans])
    open_ends = {partition: end for partition, _, end in spans}
    count, moved = 0, time.monotonic()
    while open_ends:
        messages = consumer.consume(_CONSUME, _CONSUME_SECONDS)
        count += len(messages)
        if messages:
            moved = time.monotonic()
            if messages[0].error() is not None:
                raise RuntimeError(str(messages[0].error()))
        elif time.monotonic() - moved > _STALLED_SECONDS:
            raise RuntimeError(f"nothing came for {_STALLED_SECONDS:.0f} s; missing are the ends {open_ends}")
        for reached in consumer.position([TopicPartition(topic, partition) for partition in open_ends]):
            end = open_ends[reached.partition]
            if reached.offset >= end:
                del open_ends[reached.partition]
                consumer.incremental_unassign([TopicPartition(topic, reached.partition)])
                # What lies beyond the end belongs to another process.
                count -= sum(m.partition() == reached.partition and m.offset() >= end for m in messages)
    print(count, flush=True)
    consumer.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
