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
from tests.support import stream

LOCAL = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def main(settings: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    from changelog_state.broker.jars import spark_connector_jars

    builder = SparkSession.builder
    for name, value in {**LOCAL, "spark.jars": ",".join(spark_connector_jars()), **settings["spark"]}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    source = stream.Input.existing(settings["bootstrap_servers"], settings["topic"])
    job = stream.Job(
        spark,
        source,
        Path(settings["checkpoint"]),
        function=getattr(stream, settings["function"]),
        **settings["job"],
    )
    directory = Path(settings["outputs"])

    def leave(batch: int) -> None:
        found = {"truth": job.truth[batch], "output": job.outputs[batch][-1]}
        partial = directory / f"{uuid.uuid4().hex}.partial"
        partial.write_text(json.dumps(found))
        partial.rename(directory / f"{batch:04d}-{partial.stem}.json")

    job.after_sink = leave
    job.run(cs.StateService(**settings["service"]))
    (directory / "done").touch()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
