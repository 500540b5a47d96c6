"""A function called with a session on a cluster, in a driver of its own: a process can have one Spark only.

``python -m tests.support.cluster_call SETTINGS``
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.cluster import Cluster

_CALL_SECONDS = 180.0


def on_cluster(cluster: Cluster, function: Callable[..., Any], *arguments: Any) -> Any:
    """What ``function(spark, *arguments)`` gives; everything has to fit into JSON. Executors are gone afterwards."""
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory) / "answer.json"
        settings = {
            "spark": cluster.spark_settings(),
            "module": function.__module__,
            "function": function.__name__,
            "arguments": arguments,
            "answer": str(answer),
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.cluster_call", json.dumps(settings)],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=False,
            timeout=_CALL_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(answer.read_text())


def main(settings: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in settings["spark"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    function = getattr(importlib.import_module(settings["module"]), settings["function"])
    Path(settings["answer"]).write_text(json.dumps(function(spark, *settings["arguments"])))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
