"""The streaming query's process: ``python -m changelog_state.demo.driver JOB``.

Standard output: one JSON object per line, ``{"event": …}``:

- ``query_started``
- ``batch``     state changed, output written: ``batch``, ``purchases``, ``seconds``, ``at`` (the monotonic clock)
- ``drained``   all that was in the input topic when asked is processed
- ``failed``    the query ended by itself: ``error``

Standard input: the line ``finish`` asks for an end in order. Its end means that the demo is gone; this goes too.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from changelog_state.demo.results import purchases_in
from changelog_state.demo.stream import Job, spark_session, start_query

__all__ = ["main"]

_POLL_SECONDS = 0.1


def main(job_text: str) -> int:
    """
    1. Start Spark and the query.
    2. Report each batch; watch for the query's failure and for the wish to finish.
    3. Process what is left, then stop everything that was started.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    protocol = _Protocol()
    finish = threading.Event()
    threading.Thread(target=_listen, args=(finish,), name="listen", daemon=True).start()
    job = Job.from_json(job_text)
    try:
        spark = spark_session(job)
        service = job.service()
        query = start_query(spark, job, service, protocol.batch_done)
        protocol.send("query_started")
        while not finish.wait(_POLL_SECONDS):
            if not query.isActive:
                query.awaitTermination()  # raises what ended it
                raise RuntimeError("the query has ended by itself")
        query.processAllAvailable()
        protocol.send("drained")
        query.stop()
        service.close()
        spark.stop()
    except Exception as error:
        logging.getLogger(__name__).exception("the query has failed")
        protocol.send("failed", error=_short(error))
        return 1
    return 0


class _Protocol:
    def __init__(self) -> None:
        # Spark's JVM inherits standard output and may print to it; from here on that goes to the log.
        self._out: TextIO = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def send(self, event: str, **fields: Any) -> None:
        with self._lock:
            print(json.dumps({"event": event, **fields}), file=self._out, flush=True)

    def batch_done(self, batch: int, directory: Path, seconds: float) -> None:
        at = time.monotonic()
        self.send("batch", batch=batch, purchases=purchases_in(directory), seconds=seconds, at=at)


def _listen(finish: threading.Event) -> None:
    for line in sys.stdin:
        if line.strip() == "finish":
            finish.set()
    # The demo's process is gone, or it closes the pipe because it does not need this one any more.
    if not finish.is_set():
        os.killpg(0, signal.SIGKILL)


def _short(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
