"""Quix Streams' recovery of a store, timed. Runs on the interpreter of Quix's own environment (see quix.py).

Imports only Quix, rocksdict and the standard library: this project is not installed there.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from quixstreams import Application
from quixstreams.state.recovery import RecoveryManager
from rocksdict import AccessType, Options, Rdict

# Where a partition's data is, beside the store's own metadata.
_COLUMN_FAMILY = "default"


def main(settings: dict[str, Any]) -> None:
    logging.basicConfig(level=logging.WARNING)
    application = Application(
        broker_address=settings["bootstrap_servers"],
        consumer_group=settings["group"],
        state_dir=settings["state_dir"],
        auto_offset_reset="earliest",
        consumer_extra_config=settings["consumer"],
        loglevel="WARNING",
    )
    rows = application.dataframe(application.topic(settings["input"], key_deserializer="bytes"))
    rows.update(lambda value, state: state.set(settings["state_name"], value), stateful=True)
    seconds: list[float] = []
    recover = RecoveryManager.do_recovery

    def timed(manager: RecoveryManager) -> None:
        begun = time.perf_counter()
        recover(manager)
        seconds.append(time.perf_counter() - begun)
        application.stop()

    RecoveryManager.do_recovery = timed
    application.run()
    keys = sum(_count(database) for database in _databases(Path(settings["state_dir"])))
    print(json.dumps({"seconds": sum(seconds), "keys": keys}))


def _databases(state_dir: Path) -> list[Path]:
    return sorted({path.parent for path in state_dir.rglob("CURRENT")})


def _count(database: Path) -> int:
    families = {name: Options(raw_mode=True) for name in Rdict.list_cf(str(database))}
    store = Rdict(str(database), Options(raw_mode=True), families, AccessType.read_only())
    entries = store.get_column_family(_COLUMN_FAMILY).iter()
    entries.seek_to_first()
    count = 0
    while entries.valid():
        count += 1
        entries.next()
    return count


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
