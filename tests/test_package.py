"""What is installed: the packages, their dependencies and the wheel."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import camshaft

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULES = [
    path.relative_to(ROOT)
    for pattern in ("__init__.py", "engine/**/*.py", "handlers/**/*.py")
    for path in ROOT.glob(pattern)
]


def test_the_packages_listed_in_pyproject_are_the_folders_that_exist():
    folders = {".".join(("camshaft", *module.parent.parts)) for module in MODULES}
    assert sorted(PYPROJECT["tool"]["setuptools"]["packages"]) == sorted(folders)


def test_the_core_dependencies_are_these_seven():
    names = {
        re.split(r"[^\w-]", requirement)[0] for requirement in PYPROJECT["project"]["dependencies"]
    }
    assert names == {
        "torch",
        "blinker",
        "pytorch-ignite",
        "tensorboardX",
        "torchmetrics",
        "safetensors",
        "tqdm",
    }


def test_the_version_is_the_one_in_pyproject():
    assert camshaft.__version__ == PYPROJECT["project"]["version"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the checkout, so that no stale build folder gets into it."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    local = shutil.ignore_patterns(".*", "build", "dist", "runs", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, ignore=local, dirs_exist_ok=True)
    command = "-m pip wheel --no-deps --no-build-isolation --wheel-dir"
    subprocess.run([sys.executable, *command.split(), built, source], check=True)
    return next(built.glob("*.whl"))


def test_the_wheel_holds_only_the_package(wheel: Path):
    files = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert files == {"camshaft/py.typed", *(f"camshaft/{path.as_posix()}" for path in MODULES)}
    assert {"camshaft/__init__.py", "camshaft/engine/__init__.py"} < files
