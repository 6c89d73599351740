"""The files that a host of repositories and packagers read."""

import re
import subprocess
import tomllib
from itertools import chain, product
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
pytestmark = pytest.mark.skipif(not GITHUB.is_dir(), reason="needs a checkout")


def commands(job):
    """The commands of a job, for each choice of its matrix."""
    matrix = job.get("strategy", {}).get("matrix", {})
    for values in product(*matrix.values()):
        for step in job["steps"]:
            text = step.get("run", "")
            for name, value in zip(matrix, values, strict=True):
                text = text.replace(f"${{{{ matrix.{name} }}}}", value)
            yield text


def workflow(name):
    return yaml.safe_load((GITHUB / "workflows" / f"{name}.yml").read_text())


def test_workflows_call_targets_of_the_makefile_and_nothing_else():
    jobs = {**workflow("checks")["jobs"], **workflow("release")["jobs"]}
    called = [each for job in jobs.values() for each in commands(job) if each]
    found = [re.fullmatch(r"(?:sudo )?make ([a-z-]+)(?: PYTHON=python)?", each) for each in called]
    assert all(found), called
    names = {each.group(1) for each in found if each}
    assert names == {
        *("lint", "test", "slow", "lowest", "newest", "docs", "browser", "gpu", "dist")
    }
    assert names <= TARGETS


def test_workflows_test_each_python_of_the_classifiers_and_take_no_other_but_the_next():
    tested = workflow("checks")["jobs"]["test"]["strategy"]["matrix"]["python"]
    declared = re.findall(r":: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert tested[: len(declared)] == declared
    for name in ("checks", "release"):
        text = (GITHUB / "workflows" / f"{name}.yml").read_text()
        assert {*re.findall(r'python-version: "(.+)"', text)} <= {*declared}


def test_workflows_take_actions_by_their_hashes_and_may_do_next_to_nothing():
    for path in GITHUB.glob("workflows/*.yml"):
        used = re.findall(r"uses: *(.+)", path.read_text())
        assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each) for each in used)
    checks, release = workflow("checks"), workflow("release")
    assert checks["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in checks["jobs"].values())
    build, publish = release["jobs"]["build"], release["jobs"]["publish"]
    assert (release["permissions"], build["permissions"]) == ({}, {"contents": "read"})
    assert publish["permissions"] == {"attestations": "write", "id-token": "write"}
    assert (publish["environment"], publish["needs"]) == ("pypi", "build")
    assert not any("run" in step for step in publish["steps"])  # no code of ours beside the token


def test_the_locks_have_the_versions_of_the_constraints_by_their_hashes():
    def pairs(lines):
        found = map(Requirement, lines)
        return {(canonicalize_name(each.name), str(each.specifier)) for each in found}

    versions = pairs((ROOT / "constraints.txt").read_text().splitlines()[1:])
    pinned = {name for name, _ in versions}
    needed = {canonicalize_name(Requirement(each).name) for each in PROJECT["dependencies"]}
    for lock, wanted in (("dist", {"build", "setuptools", "twine"}), ("ci", needed)):
        text = (ROOT / "locks" / f"{lock}.txt").read_text()
        assert "//" not in text  # of whatever index
        hashed = r"^(\w.*?)(?: \\\n +--hash=sha256:[0-9a-f]{64})+$"
        lines = re.findall(hashed, text, re.MULTILINE)
        assert len(lines) == len(re.findall(r"^\w", text, re.MULTILINE))
        locked = pairs(lines)
        assert wanted <= {name for name, _ in locked}
        assert {each for each in locked if each[0] in pinned} <= versions


def test_a_bug_asks_for_a_script_and_the_environment():
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / "bug.yml").read_text())
    required = {each["id"] for each in form["body"] if each.get("validations", {}).get("required")}
    assert {"script", "environment"} <= required


def test_the_recipe_for_conda_has_the_requirements_of_the_project():
    text = (ROOT / "conda" / "meta.yaml").read_text()
    run = re.search(r"^  run:\n((?:    - .*\n)+)", text, re.MULTILINE)
    assert run
    found = {each.strip("- ").replace(" ", "") for each in run.group(1).strip().splitlines()}
    other = {"torch": "pytorch", "pytorch-ignite": "ignite", "tensorboardX": "tensorboardx"}
    wanted = (Requirement(each) for each in PROJECT["dependencies"])
    names = {f"{other.get(each.name, each.name)}{each.specifier}" for each in wanted}
    assert found == names | {f"python{PROJECT['requires-python']}"}
    assert f'version = "{PROJECT["version"]}"' in text


def test_the_changelog_goes_by_version_and_kind():
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    kinds = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
    assert {each for each in lines if each.startswith("### ")} <= {f"### {each}" for each in kinds}
    versions = [re.match(r"## (\d+)\.(\d+)\.(\d+), ", each) for each in lines if each[:3] == "## "]
    assert all(versions)
    numbers = [tuple(map(int, each.groups())) for each in versions if each]
    assert numbers == sorted(numbers, reverse=True)
    assert ".".join(map(str, numbers[0])) == PROJECT["version"]


def test_the_files_that_people_look_for_are_there():
    names = ("LICENSE", "SECURITY.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "CITATION.cff")
    templates = chain(GITHUB.glob("*.md"), GITHUB.glob("ISSUE_TEMPLATE/*.yml"))
    assert all((ROOT / each).is_file() for each in names)
    assert len([*templates]) == 4


def test_a_folder_at_the_top_is_one_of_the_projects_and_not_what_a_trial_left():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("no checkout of git")
    folders = {each.partition("/")[0] for each in listed.stdout.splitlines() if "/" in each}
    own = {"conda", "docs", "engine", "examples", "findings", "handlers", "locks", "tests"}
    assert folders == own | {".ci", ".github"}
