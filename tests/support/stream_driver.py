"""``python -m tests.support.stream_driver SETTINGS``: a streaming query in a process of its own, which can be killed.

Counts events per user; what each execution of a batch put out, and what came in, is left in files.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

import changelog_state as cs


def main(settings: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    from changelog_state.broker.jars import spark_connector_jars
    from tests.support.stream import Input, Job

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.jars", ",".join(spark_connector_jars()))
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    source = Input.existing(settings["bootstrap_servers"], settings["topic"])
    job = Job(spark, source, Path(settings["checkpoint"]))
    directory = Path(settings["outputs"])

    def leave(batch: int) -> None:
        found = {"truth": job.truth[batch], "output": job.outputs[batch][-1]}
        (directory / f"{batch:04d}-{uuid.uuid4().hex}.json").write_text(json.dumps(found))

    job.after_sink = leave
    job.run(cs.StateService(**settings["service"]))
    (directory / "done").touch()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
