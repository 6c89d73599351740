"""The files that a host of repositories and packagers read."""

import re
import tomllib
from itertools import chain, product
from pathlib import Path

import pytest
from packaging.requirements import Requirement

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


def test_workflows_call_targets_of_the_makefile_and_nothing_else():
    (workflow,) = (yaml.safe_load(each.read_text()) for each in GITHUB.glob("workflows/*.yml"))
    called = [each for job in workflow["jobs"].values() for each in commands(job) if each]
    found = [re.fullmatch(r"(?:sudo )?make ([a-z-]+)(?: PYTHON=python)?", each) for each in called]
    assert all(found), called
    names = {each.group(1) for each in found if each}
    assert names == {*("lint", "test", "slow", "lowest", "newest", "docs", "browser", "gpu")}
    assert names <= TARGETS


def test_workflows_test_each_python_of_the_classifiers():
    workflow = yaml.safe_load((GITHUB / "workflows" / "checks.yml").read_text())
    tested = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    declared = re.findall(r":: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert tested[: len(declared)] == declared


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
