"""The wheel is complete: it works installed in an environment that does not see this checkout."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
BUILT_FROM = ("changelog_state", "restore", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built without network: the build backend is one of the test dependencies."""
    # A copy, so that a build can neither see nor leave anything in the checkout.
    source = tmp_path_factory.mktemp("source")
    for name in BUILT_FROM:
        path = PROJECT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, source / name)
    target = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(source))
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel, and with this one's packages (but not its editable install) behind it."""
    root = tmp_path_factory.mktemp("environment")
    venv.create(root, with_pip=False, symlinks=True)
    python = root / "bin" / "python"
    run(
        *(sys.executable, "-m", "pip", "--python", str(python)),
        *("install", "--quiet", "--no-index", "--no-deps", str(wheel)),
    )
    # A path from a .pth file is searched last and its own .pth files are not read.
    (site_packages,) = root.glob("lib/python*/site-packages")
    behind = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    (site_packages / "dependencies.pth").write_text("\n".join(sorted(behind)))
    return root


def test_packages_come_from_the_wheel(environment: Path) -> None:
    script = "import changelog_state, restore; print(changelog_state.__file__); print(restore.__file__)"
    for path in run(str(environment / "bin" / "python"), "-c", script).split():
        assert Path(path).is_relative_to(environment)


def test_every_source_file_is_in_the_wheel(environment: Path) -> None:
    (site_packages,) = environment.glob("lib/python*/site-packages")
    for package in ("changelog_state", "restore"):
        assert (site_packages / package / "py.typed").exists()
        assert python_files(site_packages / package) == python_files(PROJECT / package)


def test_command_runs(environment: Path) -> None:
    assert "broker" in run(str(environment / "bin" / "changelog-state"), "--help")
    assert "verify" in run(str(environment / "bin" / "changelog-restore"), "--help")


def test_pytest_finds_the_plugin(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_it(pytestconfig): assert pytestconfig.pluginmanager.has_plugin('changelog_state.testing')"
    )
    run(str(environment / "bin" / "python"), "-m", "pytest", "--strict-config", "-W", "error", str(tmp_path))


def python_files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*.py")}


def run(*command: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout
