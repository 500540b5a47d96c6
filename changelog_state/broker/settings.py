"""The files that a one-node Kafka starts from. Pure: values in, text out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["HOST", "LOG4J_CONFIGURATION", "properties_text", "server_properties"]

HOST = "127.0.0.1"

_NODE_ID = 1

# Standard output goes to the broker's log file, so that a JVM's last words are found beside Kafka's own.
LOG4J_CONFIGURATION = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %-5p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = info
"""


def server_properties(
    *, port: int, controller_port: int, log_dir: Path, overrides: Mapping[str, object]
) -> dict[str, str]:
    """Settings of one node that is broker and controller, sized for a test machine."""
    properties: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": _NODE_ID,
        # A static voter list keeps the controller's port out of the stored metadata, so it may change.
        "controller.quorum.voters": f"{_NODE_ID}@{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": log_dir,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "auto.create.topics.enable": "false",
        # One node can hold one replica; few internal partitions make the first use of each quick.
        "default.replication.factor": 1,
        "min.insync.replicas": 1,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 8,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 2,
        "group.initial.rebalance.delay.ms": 0,
        # After a kill the controller waits this long before it lets the broker register again.
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        # Tests watch compaction and timed-out transactions happen; the defaults make them wait 10 s and more.
        "log.cleaner.enable": "true",
        "log.cleaner.backoff.ms": 500,
        "log.cleaner.dedupe.buffer.size": 32 * 1024 * 1024,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    }
    properties.update(overrides)
    return {name: str(value) for name, value in properties.items()}


def properties_text(properties: Mapping[str, str]) -> str:
    """The text of a Java properties file; in values only a backslash and a line end need care."""
    lines = (
        f"{name}={value.replace(chr(92), chr(92) * 2).replace(chr(10), chr(92) + 'n')}"
        for name, value in properties.items()
    )
    return "\n".join(lines) + "\n"
