"""Fetches what `make gpu` needs besides torch into `.wheels`, for a machine without network.

pip resolves the requirements of pyproject.toml for that machine's Python. What only torch needs is
left out: it is installed there, together with torch.
"""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

try:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name
except ModuleNotFoundError:  # where only torch is installed
    from pip._vendor.packaging.requirements import Requirement
    from pip._vendor.packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".wheels"
MOST = 60 * 2**20
EXTRA = "gpu"
"""What the tests that need CUDA import besides Camshaft's own requirements."""
THERE = {"torch", "numpy"}
"""Installed there: numpy is compiled, and torch was made beside one of its versions."""
PYTHON = "3.12"
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 24, 17, 12, 5)]
PLATFORMS += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]


def target(python):
    """The options of pip for the other machine."""
    named = [f"--platform={each}" for each in PLATFORMS]
    return ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}", *named]


def roots():
    """What is required by name, without torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = project["dependencies"] + project["optional-dependencies"][EXTRA]
    return [each for each in named if canonicalize_name(Requirement(each).name) not in THERE]


def pins(path=ROOT / "constraints.txt"):
    """The versions of constraints.txt, by name."""
    lines = (line.strip() for line in path.read_text().splitlines())
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


def needed(named, needs, python=PYTHON):
    """The names of all that these requirements need, of those that pip has found.

    Args:
        named: The requirements.
        needs: By name, what each distribution requires.
        python: The version of Python there.
    """
    environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    found, left = set(), [Requirement(each) for each in named]
    while left:
        each = left.pop()
        name = canonicalize_name(each.name)
        is_needed = each.marker is None or each.marker.evaluate(environment)
        if is_needed and name not in THERE | found:
            found.add(name)
            left += map(Requirement, needs[name])
    return sorted(found)


def resolve(python=PYTHON):
    """What pip would install there of all that is required, and what each of it requires."""
    options = [*target(python), "--constraint", ROOT / "constraints.txt"]
    # Not torch itself: it would be resolved with gigabytes of CUDA, to be left out again.
    done, needs, known = set(), {}, pins()
    left = {canonicalize_name(Requirement(each).name) for each in roots()}
    while left := left - done - THERE:
        report = _pip(
            *("install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet"),
            *("--report=-", "--target=unused", *options),
            *(f"{name}=={known[name]}" for name in sorted(left)),
        )
        done |= left
        for each in json.loads(report)["install"]:
            metadata = each["metadata"]
            needs[canonicalize_name(metadata["name"])] = metadata.get("requires_dist", [])
        left = set(needed(roots(), {**{name: [] for name in known}, **needs}, python))
    return needs


def main():
    """Fill the folder anew."""
    python = sys.argv[1] if len(sys.argv) > 1 else PYTHON
    needs = resolve(python)
    known = pins()
    names = needed(roots(), needs, python)
    shutil.rmtree(FOLDER, ignore_errors=True)
    _pip(
        *("download", "--quiet", "--no-deps", f"--dest={FOLDER}", *target(python)),
        *(f"{name}=={known[name]}" for name in names),
    )
    size = sum(each.stat().st_size for each in FOLDER.iterdir())
    print(f"{len(names)} wheels for Python {python} in {FOLDER.name}, {size / 2**20:.1f} MiB")
    return f"{size:,} bytes are more than {MOST:,}: leave something out" if size > MOST else 0


def _pip(*arguments):
    command = [sys.executable, "-m", "pip", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        sys.exit(result.stderr)
    return result.stdout


if __name__ == "__main__":
    sys.exit(main())
