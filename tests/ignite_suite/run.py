"""Run ignite's own tests with the bridge in the place of its Engine: `make ignite-suite`.

The tests come from ignite's source distribution; the wheel has none. They and a virtual
environment of their own lie in the folder that is given, outside of this repository: 1.5 GB, which
take some minutes the first time. `tests.txt` says which tests use an engine as users do.
"""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
IGNITE = "pytorch-ignite==0.5.5"
TESTS_NEED = [
    *("pytest<9", "pytest-order", "pytest-timeout", "pytest-xdist", "dill", "filelock", "pandas"),
    *("scipy", "tqdm", "scikit-learn", "matplotlib", "tensorboardX", "tensorboard", "pynvml<12"),
    *("scikit-image", "pycocotools", "nltk", "requests", "joblib", "clearml", "fairlearn", "ranx"),
    *("mlflow-skinny", "neptune", "polyaxon", "setuptools"),
]
WITHOUT_THEIR_NEEDS = ["torchvision", "pillow", "pytorch-fid"]
"""Torchvision would bring another torch."""
PARTS = [["engine", "handlers", "metrics"], ["contrib", "test_utils.py"]]
"""Each in a process of its own: importing ignite.contrib warns once, and a test checks that."""


def set_up(folder):
    """Make the virtual environment and fetch the tests, unless they are there."""
    pip = [folder / "venv/bin/python", "-m", "pip", "--disable-pip-version-check", "-q"]
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        limits = ["--constraint", ROOT / "constraints.txt"]
        subprocess.run([*pip, "install", *limits, "torch", IGNITE], check=True)
        subprocess.run([*pip, "install", *TESTS_NEED], check=True)
        subprocess.run([*pip, "install", "--no-deps", *WITHOUT_THEIR_NEEDS], check=True)
        source = ["--no-deps", "--no-binary", "pytorch-ignite", "-d", folder, IGNITE]
        subprocess.run([*pip, "download", *source], check=True)
        with tarfile.open(next(folder.glob("pytorch_ignite-*.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
        (folder / "ready").touch()
    subprocess.run([*pip, "install", ROOT], check=True)
    subprocess.run([*pip, "install", "--no-deps", "--force-reinstall", ROOT], check=True)


def run(folder):
    """Run the tests in two processes; return the exit code, and print the closing line."""
    source = next(path.parent for path in folder.glob("pytorch_ignite-*/tests"))
    results = folder / "results.txt"
    results.unlink(missing_ok=True)
    environment = os.environ | {
        "PYTHONPATH": str(HERE),
        "CAMSHAFT_RESULTS": str(results),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
        "CLEARML_OFFLINE_MODE": "1",
        "POLYAXON_NO_OP": "1",
    }
    # Tests that look at times fail on a busy machine, so what fails is run once more, alone.
    for again in ([], ["--last-failed", "--last-failed-no-failures", "none"]):
        for number, part in enumerate(PARTS):
            options = ["-p", "swap_engine", "-q", "--tb=short", "--timeout=120", "--color=no"]
            options += ["-o", f"cache_dir={folder / f'cache{number}'}"]
            options += ["-m", "not distributed and not multinode_distributed and not tpu"]
            options += again or ["-n", str(min(4, os.cpu_count() or 1)), "--dist", "loadfile"]
            paths = [f"tests/ignite/{name}" for name in part]
            command = [folder / "venv/bin/python", "-m", "pytest", *options, *paths]
            subprocess.run(command, cwd=source, env=environment, check=False)
    return close(results)


def close(results):
    """Print how many tests of each kind passed."""
    found = {}
    for line in results.read_text().splitlines():
        kind, test, outcome = line.split("\t")
        found.setdefault(kind, {})[test] = outcome  # of two runs, the second counts
    passed = {kind: list(tests.values()).count("passed") for kind, tests in found.items()}
    most = {kind: int(number) for kind, number in kinds()}
    said = ", ".join(f"{passed.get(kind, 0)} of {most[kind]} {kind}" for kind in most)
    print(f"{IGNITE}, its own tests on Camshaft's loop: {said}")
    return int(any(passed.get(kind, 0) != most[kind] for kind in most))


def kinds():
    """The kinds of tests, and how many there are of each."""
    for line in (HERE / "tests.txt").read_text().splitlines():
        if line.startswith("["):
            yield line.strip("[]").split(": ")


if __name__ == "__main__":
    place = Path(sys.argv[1]).expanduser().resolve()
    if ROOT in [place, *place.parents]:
        sys.exit(f"{place} is inside of this repository; give a folder outside")
    place.mkdir(parents=True, exist_ok=True)
    set_up(place)
    sys.exit(run(place))
