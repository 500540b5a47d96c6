"""The embedded broker: a real Kafka on localhost, without Docker."""

from changelog_state.broker.jars import spark_connector_jars
from changelog_state.broker.java import ensure_java_home, find_java
from changelog_state.broker.server import EmbeddedBroker, embedded_broker

__all__ = ["EmbeddedBroker", "embedded_broker", "ensure_java_home", "find_java", "spark_connector_jars"]
