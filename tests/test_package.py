"""What is installed: the packages, their dependencies and the wheel."""

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import camshaft

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULES = [
    path.relative_to(ROOT)
    for pattern in ("__*__.py", "engine/**/*.py", "handlers/**/*.py")
    for ending in ("", "i")
    for path in ROOT.glob(pattern + ending)
]
ASSETS = [path.relative_to(ROOT) for path in ROOT.glob("handlers/**/assets/*")]


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
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution of a copy of the checkout, and the wheel made of it."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    local = shutil.ignore_patterns(".*", "build", "dist", "runs", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, ignore=local, dirs_exist_ok=True)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", built, source]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "Warning" not in result.stdout + result.stderr
    return built


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    return next(distributions.glob("*.whl"))


@pytest.mark.slow
def test_the_metadata_of_both_distributions_pass_the_check_of_the_index(distributions: Path):
    command = [sys.executable, "-m", "twine", "check", "--strict", *distributions.iterdir()]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("PASSED") == 2


@pytest.mark.slow
def test_the_metadata_of_the_wheel_are_those_of_pyproject(wheel: Path):
    project = PYPROJECT["project"]
    with zipfile.ZipFile(wheel) as archive:
        folder = f"camshaft-{project['version']}.dist-info"
        metadata = message_from_bytes(archive.read(f"{folder}/METADATA"))
        entries = archive.read(f"{folder}/entry_points.txt").decode()
        assert archive.read(f"{folder}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    for field, key in {
        **{"Name": "name", "Version": "version", "Summary": "description"},
        **{"Requires-Python": "requires-python", "License-Expression": "license"},
    }.items():
        assert metadata[field] == project[key]
    assert metadata.get_all("Classifier") == project["classifiers"]
    shown = metadata.get_payload(decode=True).decode()
    assert not re.findall(r"\]\((?!\w+:|#)", shown)  # an index shows it without the repository
    web = project["urls"]["Source"]
    back = re.sub(rf"\]\({re.escape(web)}/(?:blob|tree|raw)/main/", "](", shown)
    assert back == (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"]({web}/raw/main/docs/script.svg)" in shown
    assert sorted(metadata.get_all("Project-URL")) == sorted(
        f"{name}, {address}" for name, address in project["urls"].items()
    )
    assert entries.split() == ["[console_scripts]", "camshaft", "=", "camshaft.__main__:main"]
    extras = project["optional-dependencies"]
    assert sorted(metadata.get_all("Provides-Extra")) == sorted(extras)
    wanted = {(Requirement(each), "") for each in project["dependencies"]}
    wanted |= {(Requirement(each), extra) for extra, group in extras.items() for each in group}
    found = [Requirement(each) for each in metadata.get_all("Requires-Dist")]
    assert {str(each) for each in found} == {
        str(Requirement(f'{each}; extra == "{extra}"' if extra else str(each)))
        for each, extra in wanted
    }


def test_the_classifiers_name_each_python_from_the_lowest_on():
    lowest = int(PYPROJECT["project"]["requires-python"].removeprefix(">=3."))
    found = re.findall(r":: 3\.(\d+)", "\n".join(PYPROJECT["project"]["classifiers"]))
    assert [*map(int, found)] == list(range(lowest, lowest + len(found)))
    page = (ROOT / "docs" / "guides" / "install.md").read_text()
    tested = {int(minor) for minor in re.findall(r"^\| 3\.(\d+) ", page, re.MULTILINE)}
    assert tested == {*map(int, found)}  # a row of the table of what was tested


def test_the_page_says_of_each_extra_what_it_is_for():
    page = (ROOT / "docs" / "guides" / "install.md").read_text()
    named = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", page, re.MULTILINE)
    developers = {"test", "lint", "docs", "bench", "gpu", "dev"}
    assert sorted(named) == sorted(
        PYPROJECT["project"]["optional-dependencies"].keys() - developers
    )
    assert re.search(r"torch>=([\d.]+)", str(PYPROJECT["project"]["dependencies"]))[1] in page


@pytest.mark.slow
def test_the_source_distribution_holds_what_the_tests_need(distributions: Path):
    with tarfile.open(next(distributions.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for folder in ("docs", "engine", "examples", "handlers", "tests"):
        kept = {
            path.relative_to(ROOT).as_posix()
            for path in ROOT.glob(f"{folder}/**/*")
            if path.is_file() and not {"__pycache__", "artefacts"} & {*path.parts}
        }
        assert kept <= names, sorted(kept - names)
    assert {"Makefile", "constraints.txt", "CITATION.cff", "LICENSE", "py.typed"} <= names


def test_the_citation_names_the_version_and_the_license():
    citation = (ROOT / "CITATION.cff").read_text()
    project = PYPROJECT["project"]
    assert f"\nversion: {project['version']}\nd" in citation
    assert f"\nlicense: {project['license']}\n" in citation


@pytest.mark.slow
def test_the_wheel_holds_only_the_package(wheel: Path):
    files = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert files == {
        "camshaft/py.typed",
        *(f"camshaft/{path.as_posix()}" for path in [*MODULES, *ASSETS]),
    }
    assert {"camshaft/__init__.py", "camshaft/engine/__init__.py"} < files


TRAINING = """
import sys
import sysconfig
from pathlib import Path
import torch
import camshaft
from camshaft import supervised
from camshaft.handlers import Checkpoint, JSONLines, ProgressBar, TensorBoard, Validate

assert str(Path(camshaft.__file__)).startswith(sys.prefix), camshaft.__file__
data = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(5)]
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
engine = supervised(model, optimizer, torch.nn.functional.mse_loss).add(
    Validate(data), Checkpoint("run", resume=True), TensorBoard("run"), JSONLines("run/rows.jsonl"),
    ProgressBar(),
)
print(engine.run(data, max_epochs=2).step, camshaft.__version__)
"""


@pytest.mark.slow
def test_the_wheel_alone_imports_and_trains_in_a_fresh_environment(wheel: Path, tmp_path: Path):
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(pip, check=True)
    # The dependencies are borrowed from here; a path in a .pth file brings no other .pth files
    # along, so this checkout's editable install stays out of sight.
    packages = sysconfig.get_path("purelib", vars={"base": str(environment)})
    Path(packages, "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = [python, "-I", "-c", TRAINING]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["10", PYPROJECT["project"]["version"]]
    for command in ([environment / "bin" / "camshaft"], [python, "-I", "-m", "camshaft"]):
        said = subprocess.run([*command, "--version"], capture_output=True, text=True).stdout
        assert said == f"camshaft {PYPROJECT['project']['version']}\n"
        looked = [*command, "verify", "run"]
        result = subprocess.run(looked, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert result.stdout.split() == [
            *("iteration-0000000005", "whole", "iteration-0000000010", "whole")
        ], result.stderr
