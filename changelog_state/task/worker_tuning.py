"""Removes the fixed costs that Spark's reused Python worker adds to every task.

``tune_worker()`` runs at the start of every task. What it changes, in the worker process only:

1. *Zip directories are read again only when the archive has changed.* Before every task Spark calls
   ``importlib.invalidate_caches()``, and up to Python 3.11 each ``zipimporter`` then reads its archive's
   directory again: ``pyspark.zip`` once per package of it, ``spark-core.jar``, and with
   ``spark.jars.packages`` every jar of it. ``zipimporter.invalidate_caches`` is wrapped so that it first
   looks at the file's mtime, ctime, size and inode.
   Safe because only a repetition is left out: an archive that is new, replaced or gone is seen as before,
   and finders of plain directories are not touched at all (``addPyFile`` works, a test shows it).
2. *``gc.freeze()``, once.* Between tasks Spark calls ``gc.collect()``, which walks every module object that
   the worker inherited or imported. They are moved to the permanent generation, before the second task.
   Safe because that is the one moment without a task: the first task's garbage has just been collected and
   the second task's function is not there yet, so nothing is frozen that could become garbage.
3. *TCP_QUICKACK on the socket to the JVM, in every task.* The JVM sends a task's header and its first rows
   in two small writes; Nagle holds back the second until the first is acknowledged, and the kernel delays
   that by 40 ms. The kernel leaves quick-ack mode by itself, hence in every task. Safe because it changes
   only when acknowledgements are sent.

Linux only, and only for the versions of pyspark whose ``daemon.py`` and ``worker.py`` were read
(``EXAMINED_VERSIONS``); everywhere else, and outside of a Spark worker, it does nothing.
``CHANGELOG_STATE_WORKER_TUNING=0`` in the executors' environment switches it off.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import socket
import sys
import zipimport
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["EXAMINED_VERSIONS", "SWITCH", "tune_worker"]

EXAMINED_VERSIONS = ("4.0.",)
SWITCH = "CHANGELOG_STATE_WORKER_TUNING"

_SIGNATURE = "_changelog_state_signature"

_log = logging.getLogger(__name__)
_worker_socket: socket.socket | None = None
_frozen = False


def tune_worker() -> None:
    """Take Spark's fixed costs out of this worker. Idempotent; about 2 µs once it has been done.

    1. The first time: find the worker's socket on the stack, wrap ``zipimporter.invalidate_caches``.
    2. Every time: quick acknowledgements for this task.
    """
    global _worker_socket
    if os.environ.get(SWITCH) == "0":
        return
    if _worker_socket is None:
        if not _examined():
            return
        task = _running_task()
        if task is None:
            return
        _worker_socket, boot_time = task
        _skip_unchanged_archives(boot_time)
        _log.debug("worker %d tuned", os.getpid())
    # A worker behind something else than TCP has no delayed acknowledgements either.
    with contextlib.suppress(OSError):
        _worker_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _examined() -> bool:
    if sys.platform != "linux":
        return False
    pyspark = sys.modules.get("pyspark")
    return str(getattr(pyspark, "__version__", "")).startswith(EXAMINED_VERSIONS)


def _running_task() -> tuple[socket.socket, float] | None:
    """The socket of ``pyspark.daemon.worker`` and the start of ``pyspark.worker.main``, both below us."""
    main = _frame_of("main", "pyspark/worker.py")
    worker = _frame_of("worker", "pyspark/daemon.py")
    if main is None or worker is None:
        return None
    boot_time, sock = main.f_locals.get("boot_time"), worker.f_locals.get("sock")
    if isinstance(sock, socket.socket) and isinstance(boot_time, float):
        return sock, boot_time
    return None


def _skip_unchanged_archives(boot_time: float) -> None:
    importer_class: Any = zipimport.zipimporter
    read_again: Callable[[Any], None] = importer_class.invalidate_caches

    def invalidate_caches(self: Any) -> None:
        _freeze_once()
        signature = _signature(self.archive)
        if signature is not None and getattr(self, _SIGNATURE, None) == signature:
            return
        read_again(self)
        setattr(self, _SIGNATURE, signature)

    # This task has read every archive after boot_time. One that did not change since before that need not
    # be read in the next task either; one second is more than the kernel's clock for ctime lags behind.
    for finder in list(sys.path_importer_cache.values()):
        if isinstance(finder, zipimport.zipimporter):
            signature = _signature(finder.archive)
            if signature is not None and signature[1] < (boot_time - 1) * 1e9:
                setattr(finder, _SIGNATURE, signature)
    importer_class.invalidate_caches = invalidate_caches


def _signature(archive: str) -> tuple[int, int, int, int] | None:
    try:
        stat = os.stat(archive)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino


def _freeze_once() -> None:
    # IMPORTANT: only while Spark sets up a task. Inside of one (a user may invalidate caches too), the
    # function with all that its closure holds would be frozen, and functions are in cycles with their
    # globals: a leak.
    global _frozen
    if not _frozen and _frame_of("setup_spark_files", "pyspark/worker_util.py") is not None:
        _frozen = True
        gc.freeze()


def _frame_of(function: str, file: str) -> FrameType | None:
    """The nearest frame below us that runs this function of pyspark."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == function and frame.f_code.co_filename.endswith(file):
            return frame
        frame = frame.f_back
    return None
