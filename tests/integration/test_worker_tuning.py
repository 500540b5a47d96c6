"""``tune_worker`` in Spark's real Python workers: what it changes, and what it must not."""

from __future__ import annotations

import gc
import importlib
import os
import socket
import sys
import zipfile
import zipimport
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from changelog_state.task import worker_tuning
from changelog_state.task.worker_tuning import EXAMINED_VERSIONS, SWITCH, tune_worker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        sys.platform != "linux" or not pyspark.__version__.startswith(EXAMINED_VERSIONS),
        reason="nothing is tuned here",
    ),
]


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # The workers cannot import this module.


Environment = dict[str, str]


@pytest.fixture
def worker_environment(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[Environment]:
    """A worker of its own for every test: Spark pools workers by their environment."""
    environment: Environment = spark.sparkContext.environment
    earlier = dict(environment)
    environment["CHANGELOG_STATE_TEST"] = request.node.name
    yield environment
    environment.clear()
    environment.update(earlier)


def in_a_task(spark: SparkSession, function: Callable[[], object]) -> Any:
    """The worker's pid, and what ``function`` gives inside of one task that has been tuned."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        from changelog_state.task.worker_tuning import tune_worker

        tune_worker()
        result = repr(function())
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "result": [result]})

    [row] = spark.range(1, numPartitions=1).mapInArrow(task, "pid long, result string").collect()
    return row.pid, eval(row.result)


def state_of_the_worker() -> dict[str, Any]:
    import gc
    import zipimport

    from changelog_state.task import worker_tuning

    return {
        "patched": zipimport.zipimporter.invalidate_caches.__module__ == worker_tuning.__name__,
        "frozen": gc.get_freeze_count() > 0,
        "socket": worker_tuning._worker_socket is not None,
    }


def test_a_worker_is_tuned_and_goes_on_working(spark: SparkSession, worker_environment: Environment) -> None:
    pids, states = zip(*[in_a_task(spark, state_of_the_worker) for _ in range(3)], strict=True)
    assert len(set(pids)) == 1  # One reused worker, or the test shows nothing.
    assert states[1] == states[2] == {"patched": True, "frozen": True, "socket": True}


def test_acknowledgements_are_quick_in_every_task(spark: SparkSession, worker_environment: Environment) -> None:
    def quick_after_tuning() -> tuple[bool, bool]:
        import socket

        from changelog_state.task import worker_tuning

        worker_tuning.tune_worker()
        sock = worker_tuning._worker_socket
        assert sock is not None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)  # as the kernel does by itself
        before = bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))
        worker_tuning.tune_worker()
        return before, bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))

    for _ in range(2):
        assert in_a_task(spark, quick_after_tuning)[1] == (False, True)


def test_the_socket_is_the_one_to_the_jvm(spark: SparkSession, worker_environment: Environment) -> None:
    def same_as_the_tasks_input() -> bool:
        import os
        import sys

        from changelog_state.task import worker_tuning

        frame = sys._getframe()
        while frame.f_code.co_name != "main":
            frame = frame.f_back  # type: ignore[assignment]
        sock = worker_tuning._worker_socket
        assert sock is not None
        return os.fstat(frame.f_locals["infile"].fileno()).st_ino == os.fstat(sock.fileno()).st_ino

    assert in_a_task(spark, same_as_the_tasks_input)[1] is True


def test_unchanged_archives_are_not_read_again(spark: SparkSession, worker_environment: Environment) -> None:
    def directories_read() -> tuple[int, int]:
        import importlib
        import sys
        import zipimport

        archives = {f for f in sys.path_importer_cache.values() if isinstance(f, zipimport.zipimporter)}
        original = zipimport._read_directory
        read = []
        zipimport._read_directory = lambda archive: read.append(archive) or original(archive)
        try:
            importlib.invalidate_caches()
        finally:
            zipimport._read_directory = original
        return len(archives), len(read)

    in_a_task(spark, bool)
    archives, read = in_a_task(spark, directories_read)[1]
    assert archives > 10  # pyspark.zip has a finder per package, spark-core.jar one
    assert read == 0


def module_version(name: str) -> Callable[[], object]:
    def read() -> object:
        import importlib
        import sys

        sys.modules.pop(name, None)
        try:
            return importlib.import_module(name).VERSION
        except ImportError:
            return None

    return read


def write_zip(path: Path, module: str, version: int) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{module}.py", f"VERSION = {version}\n")
    return path


def test_a_tuned_worker_sees_files_that_are_added_later(
    spark: SparkSession, worker_environment: Environment, tmp_path: Path
) -> None:
    plain, zipped = module_version("added_plain"), module_version("added_zipped")
    pids = {in_a_task(spark, bool)[0] for _ in range(2)}
    assert in_a_task(spark, plain)[1] is None
    assert in_a_task(spark, zipped)[1] is None

    (tmp_path / "added_plain.py").write_text("VERSION = 1\n")
    spark.sparkContext.addPyFile(str(tmp_path / "added_plain.py"))
    spark.sparkContext.addPyFile(str(write_zip(tmp_path / "added.zip", "added_zipped", 1)))

    pid, found = in_a_task(spark, plain)
    assert found == 1
    assert in_a_task(spark, zipped)[1] == 1
    assert pids == {pid}


def test_a_tuned_worker_sees_an_archive_that_is_replaced(
    spark: SparkSession, worker_environment: Environment, tmp_path: Path
) -> None:
    archive = str(tmp_path / "replaced.zip")
    one, two = module_version("replaced_one"), module_version("replaced_two")

    def with_archive(read: Callable[[], object]) -> Callable[[], object]:
        def function() -> object:
            import sys

            if archive not in sys.path:
                sys.path.append(archive)
            return read()

        return function

    write_zip(Path(archive), "replaced_one", 1)
    pids = {in_a_task(spark, with_archive(one))[0] for _ in range(2)}
    assert in_a_task(spark, with_archive(two))[1] is None

    os.replace(write_zip(tmp_path / "new.zip", "replaced_two", 2), archive)
    pid, found = in_a_task(spark, with_archive(two))
    assert found == 2
    assert in_a_task(spark, with_archive(one))[1] is None
    assert pids == {pid}


def test_what_tasks_hold_is_not_frozen(spark: SparkSession, worker_environment: Environment) -> None:
    """Frozen is only what was there between the first two tasks; the count stays as it is."""

    def frozen() -> int:
        import gc
        import importlib

        importlib.invalidate_caches()  # A user may do that; it must not freeze the task's objects.
        return gc.get_freeze_count()

    counts = [in_a_task(spark, frozen)[1] for _ in range(4)]
    assert counts[1] > 1000
    assert max(counts[1:]) <= counts[1]


def test_garbage_of_tasks_is_collected(spark: SparkSession, worker_environment: Environment) -> None:
    """Also what the first two tasks leave behind, when the freezing is done."""

    def leave_garbage() -> int:
        import builtins
        import gc
        import weakref

        class Cycle:
            itself: object

        cycle = Cycle()
        cycle.itself = cycle
        watched = vars(builtins).setdefault("_watched", [])
        gc.collect()
        alive = sum(reference() is not None for reference in watched)
        watched.append(weakref.ref(cycle))
        return alive

    assert [in_a_task(spark, leave_garbage)[1] for _ in range(4)] == [0, 0, 0, 0]


def test_switched_off_nothing_is_touched(spark: SparkSession, worker_environment: Environment) -> None:
    worker_environment[SWITCH] = "0"
    for _ in range(3):
        found = in_a_task(spark, state_of_the_worker)[1]
        assert found == {"patched": False, "frozen": False, "socket": False}


def nothing_is_patched() -> bool:
    return (
        zipimport.zipimporter.invalidate_caches.__module__ == "zipimport"
        and worker_tuning._worker_socket is None
        and gc.get_freeze_count() == 0
    )


def test_outside_of_a_worker_nothing_is_touched() -> None:
    tune_worker()
    importlib.invalidate_caches()
    assert nothing_is_patched()


@pytest.mark.parametrize(("name", "value"), [("pyspark", "4.1.0"), ("platform", "darwin")])
def test_elsewhere_nothing_is_touched(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = socket.socketpair()
    monkeypatch.setattr(worker_tuning, "_running_task", lambda: (a, 0.0))
    if name == "pyspark":
        monkeypatch.setattr(pyspark, "__version__", value)
    else:
        monkeypatch.setattr(sys, "platform", value)
    with a, b:
        tune_worker()
    assert nothing_is_patched()
