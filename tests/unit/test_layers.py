"""Imports only go down, so that a reader knows where to look."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYERS: list[tuple[str, ...]] = [
    ("changelog_state.errors", "changelog_state._version", "changelog_state.faults", "changelog_state.durations"),
    ("changelog_state.config", "changelog_state.requests", "changelog_state.codec", "changelog_state.schemas"),
    ("changelog_state.changelog", "changelog_state.store"),
    ("restore",),
    ("changelog_state.agent",),
    ("changelog_state.state", "changelog_state.windows", "changelog_state.spark_bridge", "changelog_state.broker"),
    (
        "changelog_state.task",
        "changelog_state.aggregation",
        "changelog_state.processors",
        "changelog_state.tables",
        "changelog_state.executor_agents",
    ),
    ("changelog_state.fleet", "changelog_state.routes"),
    ("changelog_state.cluster_status", "changelog_state.service_tables"),
    ("changelog_state.arrangement", "changelog_state.job_errors", "changelog_state.reading"),
    ("changelog_state.settings", "changelog_state.metrics", "changelog_state.inputs"),
    ("changelog_state.kafka_output",),
    (
        "changelog_state.calls",
        "changelog_state.joins",
        "changelog_state.processors.call",
        "changelog_state.processors.checkpoint",
        "changelog_state.processors.import_call",
        "changelog_state.aggregation.call",
        "changelog_state.aggregation.frame",
        "changelog_state.aggregation.over",
        "changelog_state.batch_job",
    ),
    (
        "changelog_state.batch_run",
        "changelog_state.window_calls",
        "changelog_state.late_output",
        "changelog_state.aggregation.windows",
    ),
    ("changelog_state.batches",),
    ("changelog_state.service",),
    ("changelog_state", "changelog_state.demo"),
    ("changelog_state.testing", "changelog_state.cli", "changelog_state.__main__", "restore.cli", "restore.__main__"),
]


def layer_of(module: str) -> int:
    found = [
        (len(prefix), number)
        for number, prefixes in enumerate(LAYERS)
        for prefix in prefixes
        if module == prefix or module.startswith(prefix + ".")
    ]
    assert found, f"{module} is in no layer: say where it belongs"
    return max(found)[1]


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if is_module(name) else node.module for name in submodules}
    return {name for name in found if name.split(".")[0] in ("changelog_state", "restore")}


def test_imports_only_go_down() -> None:
    wrong = []
    files = [*ROOT.glob("changelog_state/**/*.py"), *ROOT.glob("restore/**/*.py")]
    for path in files:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        wrong += [f"{module} → {used}" for used in imports_of(path) if layer_of(used) > layer_of(module)]
    assert len(files) > 50
    assert wrong == []


def test_one_module_touches_the_jvm() -> None:
    touching = [
        str(path.relative_to(ROOT))
        for path in ROOT.glob("changelog_state/**/*.py")
        if "._jvm" in path.read_text() or "._jdf" in path.read_text() or "_jsparkSession" in path.read_text()
    ]
    assert touching == ["changelog_state/spark_bridge.py"]
