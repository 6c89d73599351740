"""What `make gpu` does: the tests that need CUDA, then the benchmark, with the torch that is there.

Packages that are missing come from the wheels of `make gpu-wheels`, or from the network. They go
into a temporary folder, since torch may be installed where nobody may write.
`PRETEND=1` does all of it on the CPU, in sizes that mean nothing, and writes no page.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
WHEELS = ROOT / ".wheels"
PAGE = ROOT / "docs" / "project" / "benchmarks.md"
TESTS = 260
"""Seconds for the tests; the benchmark has what is left of all, less what its last case takes."""
ALL = 470
LAST = 60
LOOK = """
import json, torch
there = torch.cuda.is_available()
name = torch.cuda.get_device_name() if there else ""
print(json.dumps([torch.__version__, there, name]))
"""
NEEDED = ("pytest", "pytest_timeout", "hypothesis", "psutil", "blinker", "ignite", "tensorboardX")
NEEDED += ("torchmetrics", "safetensors", "tqdm", "pynvml")
SETTINGS = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # the same bits again
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # a process may look for devices and then be forked
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # those of other packages that are installed there
    "PYTHONDONTWRITEBYTECODE": "1",
}


def main():
    """Install, test, measure; 0 if all tests pass, or if there is no GPU."""
    end = time.monotonic() + ALL
    pretends = bool(os.environ.get("PRETEND"))
    found = look()
    if found is None or not (found[1] or pretends):
        missing = "torch cannot be imported" if found is None else f"torch {found[0]} finds no GPU"
        print(f"make gpu: nothing done, since {missing} ({sys.executable})")
        return 0
    say(f"torch {found[0]}, {found[2] or 'no GPU: pretending'}, {sys.executable}")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "camshaft").symlink_to(ROOT)  # the repository's root is the package
        environment = {**os.environ, **SETTINGS}
        path = [folder, environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        if problem := install(folder, environment):
            print(f"make gpu: {problem}")
            return 1
        failed = run(tests(pretends), environment, min(TESTS, end - time.monotonic()))
        left = end - time.monotonic()
        measured = run(benchmark(pretends, left - LAST), environment, left)
    say(f"tests: exit code {failed}; benchmark: exit code {measured}")
    return 1 if failed or measured else 0


def look():
    """Torch's version, whether it finds a GPU, and which; None without torch."""
    result = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True)
    return json.loads(result.stdout.splitlines()[-1]) if result.returncode == 0 else None


def install(folder, environment):
    """Put what is missing into the folder; what is wrong if something still is."""
    if not WHEELS.is_dir() or not fit():
        command = [sys.executable, ROOT / "tests" / "gpu" / "wheels.py"]
        run([*command, "{}.{}".format(*sys.version_info)], environment, 120)
    if WHEELS.is_dir() and fit():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
        command += ["--no-compile", "--no-cache-dir", "--target", folder]
        run([*command, *sorted(WHEELS.glob("*.whl"))], environment, 120)
    imports = f"import importlib\nfor name in {NEEDED}: importlib.import_module(name)"
    command = [sys.executable, "-W", "ignore", "-c", imports]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    if result.returncode:
        said = result.stderr.strip().splitlines()[-1]
        return f"{said}; run make gpu-wheels where there is network, and bring .wheels along"
    return None


def fit():
    """True if the compiled wheels are for this version of Python."""
    own = "cp{}{}".format(*sys.version_info)
    tags = [path.stem.split("-")[2:4] for path in WHEELS.glob("*.whl")]
    return bool(tags) and all(
        "abi3" in abi or kind in ("py3", "py2.py3", own) for kind, abi in tags
    )


def tests(pretends):
    """The command that runs every test that needs CUDA; on the CPU, their twins."""
    here = Path(__file__).parent
    files = [path for path in ROOT.glob("tests/**/test_*.py") if "mark.gpu" in path.read_text()]
    files = sorted({*files, *here.glob("test_*.py")})
    chosen = "slow and not soak" if pretends else "gpu"
    # A warning of another version of torch is shown, and fails no test.
    options = ["-p", "pytest_timeout", "-p", "no:cacheprovider", "-W", "default", "-m", chosen]
    names = [str(path.relative_to(ROOT)) for path in files if not pretends or path.parent == here]
    return [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--timeout=120",
        "--durations=5",
        *options,
        *names,
    ]


def benchmark(pretends, seconds):
    """The command that measures, and writes the page."""
    command = [sys.executable, ROOT / "tests" / "benchmarks" / "gpu" / "run.py"]
    if pretends:
        return [*command, "--device", "cpu", "--tiny"]
    return [*command, "--seconds", max(0, int(seconds)), "--page", PAGE]


def run(command, environment, seconds):
    """The exit code of a command; after so many seconds it is ended, with all that it started."""
    say(" ".join(map(str, command[1:])))
    with subprocess.Popen(
        list(map(str, command)), cwd=ROOT, env=environment, start_new_session=True
    ) as process:
        try:
            return process.wait(timeout=max(1, seconds))
        except subprocess.TimeoutExpired:
            say(f"ended after {seconds:.0f} s")
            return 124
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)


def say(line):
    """Tell what happens next, before what the next process writes."""
    print(f"gpu: {line[:300]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
