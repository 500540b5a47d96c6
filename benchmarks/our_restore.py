"""Our restore in a process of its own: ``python -m benchmarks.our_restore SETTINGS``.

Process and imports do not count, for no system. What counts begins with the call and ends when the stores of all
partitions are open and caught up; only then are their keys counted.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from changelog_state.changelog.topic import lookup_topic
from changelog_state.codec.kinds import DATA
from changelog_state.config import StoreConfig
from changelog_state.light_start import without_pandas
from changelog_state.store.base import next_prefix
from changelog_state.store.directory import StateDirectory
from restore.bulk_pool import BulkPool
from restore.catch_up import CaughtUp, catch_up

__all__ = ["COMMAND"]

COMMAND = (sys.executable, "-m", "benchmarks.our_restore")


def main(settings: dict[str, Any]) -> None:
    """``config``, ``state_dir``; ``count``: look at every key afterwards; ``kill``: end without closing anything."""
    config = StoreConfig.from_json(settings["config"])
    topic = lookup_topic(config)
    if topic is None:
        raise RuntimeError(f"there is no topic {config.changelog_topic}")
    directory = StateDirectory(Path(settings["state_dir"]))

    def restore(partition: int) -> CaughtUp:
        partition_directory = directory.partition(config.application, config.store, partition)
        return catch_up(config, topic, partition, partition_directory, None, None, lambda progress: None, pool=pool)

    begun = time.perf_counter()
    with BulkPool() as pool, ThreadPoolExecutor(config.partitions) as threads:
        caught_up = list(threads.map(restore, range(config.partitions)))
        seconds = time.perf_counter() - begun
    found = {
        "seconds": seconds,
        "replayed": sum(one.done.records for one in caught_up),
        "needs": sorted({one.plan.need.name for one in caught_up}),
        "keys": sum(_count(one) for one in caught_up) if settings["count"] else None,
        "last_batch_replayable": all(one.state.meta and one.state.meta.images_complete for one in caught_up),
        "peak_memory_mb": round(sum(_peak_memory_mb())),
    }
    print(json.dumps(found), flush=True)
    if settings["kill"]:
        os.kill(os.getpid(), signal.SIGKILL)
    for one in caught_up:
        one.state.store.close()
    directory.close()


def _count(one: CaughtUp) -> int:
    return sum(1 for _ in one.state.store.scan(DATA, next_prefix(DATA)))


def _peak_memory_mb() -> Iterator[float]:
    """Of this process, and of the largest one that it started."""
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        yield resource.getrusage(who).ru_maxrss / 1024


if __name__ == "__main__":
    without_pandas()  # as the agent and the restore commands do
    main(json.loads(sys.argv[1]))
