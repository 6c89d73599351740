"""Run other libraries' own tests with the bridge in the place of ignite's Engine.

`make ignite-suite` runs ignite's: `tests.txt` says which of them use an engine as users do.
`make monai-suite` runs MONAI's tests of what it builds on an engine, twice: on ignite's, and on
ours. Each test has to end alike.

The tests come from ignite's source distribution and MONAI's repository, or MONAI_SOURCE=path, a
repository with the same tag; the wheels have none. They and a virtual environment of their own lie
in the folder that is given, outside of this repository: 1.5 GB, which take some minutes the first
time.
"""

import os
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
IGNITE = "pytorch-ignite==0.5.5"
MONAI = "1.5.0"
MONAI_SOURCE = os.environ.get("MONAI_SOURCE") or "https://github.com/Project-MONAI/MONAI"
NEEDS = {
    "all": [
        *("pytest<9", "pytest-order", "pytest-timeout", "pytest-xdist", "filelock", "pandas"),
        *("scipy", "tqdm", "scikit-learn", "matplotlib", "tensorboardX", "tensorboard", "nltk"),
        *("scikit-image", "requests", "setuptools"),
    ],
    "ignite": [
        *("dill", "pynvml<12", "pycocotools", "joblib", "clearml", "fairlearn", "ranx"),
        *("mlflow-skinny", "neptune", "polyaxon"),
    ],
    "monai": ["parameterized", "nibabel", "einops", "psutil"],
}
WITHOUT_THEIR_NEEDS = ["torchvision", "pillow", "pytorch-fid"]
"""Torchvision would bring another torch."""
PARTS = {
    "ignite": [
        ["ignite/engine", "ignite/handlers", "ignite/metrics"],
        ["ignite/contrib", "ignite/test_utils.py"],
    ],
    "monai": [
        [
            *("engines", "handlers", "apps/pathology/handlers"),
            *("apps/pathology/test_prepare_batch_hovernet.py", "data/test_handler_smartcache.py"),
            *("data/test_iterable_dataset.py", "data/test_threadcontainer.py", "fl/monai_algo"),
            *("integration/test_integration_workflows_adversarial.py",),
            *("integration/test_integration_workflows_gan.py", "utils/test_handler_logfile.py"),
            *("utils/test_handler_metric_logger.py", "utils/test_profiling.py"),
        ]
    ],
}
"""Each in a process of its own: importing ignite.contrib warns once, and a test checks that."""


def set_up(name, folder):
    """Make the virtual environment and fetch the tests, unless they are there."""
    pip = [folder / "venv/bin/python", "-m", "pip", "--disable-pip-version-check", "-q"]
    if not (folder / f"{name}-ready").exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        limits = ["--constraint", ROOT / "constraints.txt"]
        subprocess.run([*pip, "install", *limits, "torch", IGNITE], check=True)
        subprocess.run([*pip, "install", *NEEDS["all"], *NEEDS[name]], check=True)
        subprocess.run([*pip, "install", "--no-deps", *WITHOUT_THEIR_NEEDS], check=True)
        if name == "ignite":
            source = ["--no-deps", "--no-binary", "pytorch-ignite", "-d", folder, IGNITE]
            subprocess.run([*pip, "download", *source], check=True)
            with tarfile.open(next(folder.glob("pytorch_ignite-*.tar.gz"))) as archive:
                archive.extractall(folder, filter="data")
        elif not (folder / "monai").exists():
            clone = ["git", "clone", "--quiet", "--depth", "1", "--branch", MONAI]
            quiet = ["--config", "advice.detachedHead=false"]
            subprocess.run([*clone, *quiet, MONAI_SOURCE, folder / "monai"], check=True)
        (folder / f"{name}-ready").touch()
    subprocess.run([*pip, "install", ROOT], check=True)
    subprocess.run([*pip, "install", "--no-deps", "--force-reinstall", ROOT], check=True)


def run(name, folder, engine="camshaft"):
    """Run the tests in each part's process; return the kind and the outcome of each by its name."""
    source = next(path.parent for path in folder.glob(f"*{name}*/tests"))
    results = folder / f"{name}-on-{engine}.txt"
    results.unlink(missing_ok=True)
    environment = os.environ | {
        "PYTHONPATH": str(HERE),
        "CAMSHAFT_ENGINE": engine,
        "CAMSHAFT_RESULTS": str(results),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
        "CLEARML_OFFLINE_MODE": "1",
        "POLYAXON_NO_OP": "1",
    }
    # Tests that look at times fail on a busy machine, so what fails is run once more, alone.
    for again in ([], ["--last-failed", "--last-failed-no-failures", "none"]):
        for number, part in enumerate(PARTS[name]):
            options = ["-p", "swap_engine", "-q", "--tb=short", "--timeout=300", "--color=no"]
            options += ["-o", f"cache_dir={folder / f'cache-{name}-{engine}-{number}'}"]
            options += ["-m", "not distributed and not multinode_distributed and not tpu"]
            options += again or ["-n", str(min(4, os.cpu_count() or 1)), "--dist", "loadfile"]
            paths = [f"tests/{each}" for each in part]
            command = [folder / "venv/bin/python", "-m", "pytest", *options, *paths]
            subprocess.run(command, cwd=source, env=environment, check=False)
    found = {}
    for line in results.read_text().splitlines():
        kind, test, outcome = line.split("\t")
        found[test] = kind, outcome  # of two runs, the second counts
    return found


def ignite_suite(folder):
    """Run ignite's tests on our loop, and print how many of each kind passed."""
    passed = Counter(
        kind for kind, outcome in run("ignite", folder).values() if outcome == "passed"
    )
    most = {kind: int(number) for kind, number in kinds()}
    said = ", ".join(f"{passed[kind]} of {most[kind]} {kind}" for kind in most)
    print(f"{IGNITE}, its own tests on Camshaft's loop: {said}")
    return int(any(passed[kind] != most[kind] for kind in most))


def kinds():
    """The kinds of ignite's tests, and how many there are of each."""
    for line in (HERE / "tests.txt").read_text().splitlines():
        if line.startswith("["):
            yield line.strip("[]").split(": ")


def monai_suite(folder):
    """Run MONAI's tests on both loops, and print how they end and which of them end otherwise."""
    theirs, ours = (run("monai", folder, engine) for engine in ("ignite", "camshaft"))
    found = Counter(outcome for _, outcome in ours.values())
    said = ", ".join(f"{number} {outcome}" for outcome, number in found.most_common())
    print(f"monai=={MONAI}, its own tests on Camshaft's loop: {said}")
    otherwise = [test for test in {**theirs, **ours} if theirs.get(test) != ours.get(test)]
    for test in otherwise:
        print(f"  {test}: {theirs.get(test)} on ignite's loop, {ours.get(test)} on Camshaft's")
    print(f"{len(otherwise)} of them end otherwise than on ignite's loop")
    return int(bool(otherwise) or not found["passed"])


if __name__ == "__main__":
    name, place = sys.argv[1], Path(sys.argv[2]).expanduser().resolve()
    if ROOT in [place, *place.parents]:
        sys.exit(f"{place} is inside of this repository; give a folder outside")
    place.mkdir(parents=True, exist_ok=True)
    set_up(name, place)
    sys.exit({"ignite": ignite_suite, "monai": monai_suite}[name](place))
