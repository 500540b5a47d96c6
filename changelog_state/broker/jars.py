"""Jars from Maven, resolved by the Ivy that pyspark ships, kept in a per-user cache.

A set of jars is fetched once, into a directory of its own that appears by a rename when it is complete;
from then on no network is touched. Ivy gets a private home and cache, so that a half-filled ``~/.m2`` or
``~/.ivy2`` cannot break it.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from changelog_state.broker.cache import cache_directory
from changelog_state.broker.java import find_java
from changelog_state.broker.repository import forwarding_repository
from changelog_state.broker.versions import (
    KAFKA_LOG4J_VERSION,
    KAFKA_VERSION,
    SCALA_BINARY_VERSION,
    SPARK_KAFKA_CONNECTOR_VERSION,
)
from changelog_state.errors import ConfigurationError, UnavailableError

__all__ = [
    "KAFKA",
    "SPARK_CONNECTOR",
    "JarSet",
    "fetch",
    "kafka_jars",
    "spark_connector_jars",
]

log = logging.getLogger(__name__)

REPOSITORY_VARIABLE = "CHANGELOG_STATE_MAVEN_REPOSITORY"
MAVEN_CENTRAL = "https://repo1.maven.org/maven2/"

_FETCH_TIMEOUT_SECONDS = 1800.0
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class JarSet:
    """Some modules (``group:artifact:version``) with all that they need, except what is excluded."""

    name: str
    modules: tuple[str, ...]
    excludes: tuple[str, ...] = ()  # "group:artifact", or "group:*"

    @property
    def directory_name(self) -> str:
        # The digest makes a changed list a new directory, so an old cache is never mistaken for it.
        digest = hashlib.sha256(repr((self.modules, self.excludes)).encode()).hexdigest()
        return f"{self.name}-{digest[:8]}"


KAFKA = JarSet(
    name=f"kafka-{KAFKA_VERSION}",
    modules=(
        f"org.apache.kafka:kafka_{SCALA_BINARY_VERSION}:{KAFKA_VERSION}",
        f"org.apache.logging.log4j:log4j-slf4j-impl:{KAFKA_LOG4J_VERSION}",
    ),
)

# All that Spark ships is left out: a second copy is at best slow to load, and hadoop-client alone is 50 MB.
SPARK_CONNECTOR = JarSet(
    name=f"spark-sql-kafka-{SPARK_KAFKA_CONNECTOR_VERSION}",
    modules=(f"org.apache.spark:spark-sql-kafka-0-10_{SCALA_BINARY_VERSION}:{SPARK_KAFKA_CONNECTOR_VERSION}",),
    excludes=(
        f"org.apache.spark:spark-tags_{SCALA_BINARY_VERSION}",
        "org.apache.hadoop:*",
        "org.scala-lang:*",
        "org.scala-lang.modules:*",
        "org.slf4j:*",
        "org.lz4:*",
        "org.xerial.snappy:*",
        "com.github.luben:*",
        "com.google.code.findbugs:*",
        "commons-logging:*",
    ),
)


def kafka_jars() -> list[Path]:
    """The jars of the embedded broker."""
    return fetch(KAFKA)


def spark_connector_jars() -> list[str]:
    """Spark's Kafka connector, for ``.config("spark.jars", ",".join(spark_connector_jars()))``.

    Unlike ``spark.jars.packages`` this needs no network at the session's start and puts no jar on the
    ``sys.path`` of the Python workers.
    """
    return [str(jar) for jar in fetch(SPARK_CONNECTOR)]


def fetch(jar_set: JarSet) -> list[Path]:
    """The jars of a set, from the cache if they are there.

    1. A complete directory is used as it is.
    2. Otherwise take the lock: of several processes one fetches, the others wait and then find it done.
    3. Ivy resolves and retrieves into a temporary directory, which is renamed into place.
    """
    jars_root = cache_directory() / "jars"
    target = jars_root / jar_set.directory_name
    jars = _complete_jars(target)
    if jars is not None:
        return jars
    try:
        jars_root.mkdir(parents=True, exist_ok=True)
        with _locked(jars_root / f"{jar_set.directory_name}.lock"):
            jars = _complete_jars(target)
            return jars if jars is not None else _fetch_into(target, jar_set)
    except OSError as error:
        raise ConfigurationError(
            f"cannot keep jars in {jars_root} ({error}): make it writable, or set XDG_CACHE_HOME to a"
            " directory that is"
        ) from error


def _fetch_into(target: Path, jar_set: JarSet) -> list[Path]:
    log.info("fetching %s from Maven (once) into %s", jar_set.name, target)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=target.parent) as scratch:
        retrieved = Path(scratch) / "jars"
        retrieved.mkdir()
        _run_ivy(jar_set, Path(scratch), retrieved)
        sizes = {jar.name: jar.stat().st_size for jar in sorted(retrieved.glob("*.jar"))}
        (retrieved / _MANIFEST).write_text(json.dumps(sizes, indent=1))
        if target.exists():
            log.warning("jars are missing from %s, replacing it", target)
            shutil.rmtree(target)
        os.rename(retrieved, target)
    log.info("fetched %s: %d jars, %.0f MB", jar_set.name, len(sizes), sum(sizes.values()) / 1e6)
    return [target / name for name in sizes]


def _complete_jars(directory: Path) -> list[Path] | None:
    """The jars that the manifest names, or None if one is missing or cut (someone cleaned the cache)."""
    try:
        sizes = json.loads((directory / _MANIFEST).read_text())
        if sizes and all((directory / name).stat().st_size == size for name, size in sizes.items()):
            return [directory / name for name in sizes]
    except (OSError, ValueError):
        pass
    return None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run_ivy(jar_set: JarSet, scratch: Path, retrieved: Path) -> None:
    upstream = os.environ.get(REPOSITORY_VARIABLE) or MAVEN_CENTRAL
    module_file, settings_file = scratch / "ivy.xml", scratch / "ivysettings.xml"
    module_file.write_text(_ivy_module(jar_set))
    with forwarding_repository(upstream) as repository:
        settings_file.write_text(_ivy_settings(repository.url))
        command = [
            str(find_java().executable),
            f"-Divy.home={scratch / 'home'}",
            f"-Duser.home={scratch}",
            "-jar",
            str(_ivy_jar()),
            *("-settings", str(settings_file)),
            *("-cache", str(scratch / "cache")),
            *("-ivy", str(module_file)),
            *("-retrieve", str(retrieved / "[artifact]-[revision](-[classifier]).[ext]")),
            "-warn",
        ]
        try:
            ivy = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=_FETCH_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(
                f"fetching {jar_set.name} from {upstream} took more than {_FETCH_TIMEOUT_SECONDS:.0f} s:"
                " check the connection and try again"
            ) from error
    if ivy.returncode != 0 or not any(retrieved.glob("*.jar")):
        details = repository.failures[:3] or [line for line in ivy.stdout.splitlines() if line.strip()][-20:]
        raise UnavailableError(
            f"could not fetch {jar_set.name} ({', '.join(jar_set.modules)}) from {upstream}: check the"
            f" connection, or name a mirror of Maven Central in ${REPOSITORY_VARIABLE}:\n" + "\n".join(details)
        )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigurationError("pyspark is not installed, and its Ivy is needed to fetch jars: install pyspark")
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not jars:
        raise ConfigurationError(f"no ivy-*.jar beside {spec.origin}: install pyspark from PyPI, which ships it")
    return jars[-1]


def _ivy_module(jar_set: JarSet) -> str:
    lines = ['<ivy-module version="2.0">']
    lines.append(f'<info organisation="changelog-state" module={quoteattr(jar_set.name)}/>')
    lines.append('<configurations><conf name="default"/></configurations>')
    lines.append("<dependencies>")
    for module in jar_set.modules:
        group, artifact, version = module.split(":")
        lines.append(
            f"<dependency org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)}"
            ' conf="default->default"/>'
        )
    for exclude in jar_set.excludes:
        group, artifact = exclude.split(":")
        lines.append(f"<exclude org={quoteattr(group)} module={quoteattr(artifact)}/>")
    lines.append("</dependencies></ivy-module>")
    return "\n".join(lines)


def _ivy_settings(repository_url: str) -> str:
    return f"""<ivysettings>
  <property name="ivy.maven.lookup.sources" value="false"/>
  <property name="ivy.maven.lookup.javadoc" value="false"/>
  <settings defaultResolver="maven"/>
  <resolvers><ibiblio name="maven" m2compatible="true" root={quoteattr(repository_url)}/></resolvers>
</ivysettings>"""
