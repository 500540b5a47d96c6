"""``python -m changelog_state.demo.cluster.stream``: the driver of a stream on a Spark cluster, until stopped."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from changelog_state.demo.cluster.settings import PARTITIONS, ClusterSettings
from changelog_state.demo.purchases import create_input_topic
from changelog_state.demo.results import purchases_in
from changelog_state.demo.stream import start_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["READY_FILE", "main"]

READY_FILE = Path("/tmp/ready")
"""There once this driver has processed a batch from end to end; the container's health check looks for it."""

_POLL_SECONDS = 0.2
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


def main() -> None:
    """
    1. Start Spark on the cluster and the query.
    2. Say what each batch did, until stopped (SIGTERM, Ctrl-C) or until the query fails.
    3. Let the running batch end, and stop in order.
    """
    READY_FILE.unlink(missing_ok=True)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    stopped = threading.Event()
    settings = ClusterSettings.from_environment()
    job = settings.job()
    create_input_topic(settings.bootstrap_servers, job.input_topic, PARTITIONS)
    spark = _spark_session(os.environ["SPARK_MASTER"])
    service = settings.service()
    query = start_query(spark, job, service, _batch_done)
    # Spark takes SIGINT for itself when it starts, so this comes after it.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    print("the query runs", flush=True)
    while not stopped.wait(_POLL_SECONDS):
        if not query.isActive:
            query.awaitTermination()  # raises what ended it
            raise RuntimeError("the query has ended by itself")
    query.stop()
    service.close()
    spark.stop()


def _batch_done(batch: int, directory: Path, seconds: float) -> None:
    print(f"batch {batch}: {purchases_in(directory):,} purchases in {seconds:.1f} s", flush=True)
    READY_FILE.touch()


def _spark_session(master: str) -> SparkSession:
    """The image has the Kafka connector among Spark's jars; workers have the same image."""
    from pyspark.sql import SparkSession

    spark: SparkSession = (
        SparkSession.builder.master(master)
        .appName("changelog-state demo")
        .config("spark.driver.host", socket.gethostname())
        .config("spark.driver.bindAddress", "0.0.0.0")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", _QUICK_JVM)
        .config("spark.executor.cores", "2")
        .config("spark.executor.memory", "768m")
        .config("spark.executor.extraJavaOptions", _QUICK_JVM)
        # A batch that runs again after the loss of a node prefers, by its old plan, the executor that is gone: Spark
        # would wait for that one for six seconds, when the state has long been taken over.
        .config("spark.locality.wait", "0s")
        .config("spark.sql.shuffle.partitions", str(PARTITIONS))
        .config("spark.sql.warehouse.dir", "/tmp/warehouse")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    main()
