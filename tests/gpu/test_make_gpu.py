"""The scripts of `make gpu`, as far as a machine without a GPU can run them."""

import ast
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OF_TORCH = {"torch", "numpy"}


def loaded(name):
    spec = spec_from_file_location(f"gpu_{name}", Path(__file__).with_name(f"{name}.py"))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_without_a_gpu_it_says_so_in_one_line_and_is_no_failure(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError")
    script = Path(__file__).with_name("run.py")
    result = subprocess.run(
        [sys.executable, script], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert result.returncode == 0
    assert re.fullmatch(
        r"make gpu: nothing done, since torch cannot be imported \(.*\)\n", result.stdout
    )


def test_what_is_needed_follows_requirements_and_leaves_out_torch_and_what_it_brings():
    needs = {
        "a": ["torch>=2", "b>=1", 'c; extra == "more"', 'd; python_version < "3.12"'],
        "b": ["numpy", "A"],
    }
    assert loaded("wheels").needed(["a>=1"], needs) == ["a", "b"]
    with pytest.raises(KeyError, match="e"):
        loaded("wheels").needed(["e"], needs)


def test_every_requirement_has_a_pinned_version():
    wheels = loaded("wheels")
    names = {re.split(r"[><=\[]", each)[0].lower() for each in wheels.roots()}
    assert "torch" not in names
    assert names <= wheels.pins().keys()


@pytest.mark.slow
def test_the_files_that_it_runs_import_only_what_it_brings():
    run = loaded("run")
    brought = {*run.NEEDED, *OF_TORCH, "camshaft", *sys.stdlib_module_names}
    commands = [each for each in run.tests(False) if each.endswith(".py")]
    assert len(commands) > 8
    files = {ROOT / each for each in commands}
    files |= {path / "conftest.py" for file in files for path in file.parents if path != ROOT}
    foreign = {}
    for file in filter(Path.exists, files):
        for node in ast.parse(file.read_text()).body:
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            if left := {name.split(".")[0] for name in names} - brought:
                foreign[file.name] = left
    assert foreign == {}


@pytest.mark.soak
def test_the_benchmark_runs_on_the_cpu_in_sizes_that_mean_nothing(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- gpu: begin -->\nold\n<!-- gpu: end -->\nafter\n")
    script = ROOT / "tests" / "benchmarks" / "gpu" / "run.py"
    command = [sys.executable, script, "--device", "cpu", "--tiny", "--page", page]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    written = page.read_text()
    assert "old" not in written
    assert written.endswith("after\n")
    rows = [line.split(" | ") for line in written.splitlines() if line.startswith("| ")]
    cases = {row[0].strip("| "): row[2] for row in rows}
    measured = [name for name, ratio in cases.items() if re.fullmatch(r"\d+\.\d+ \(.*\)", ratio)]
    assert measured >= ["small step"]
    assert {"GPT of 124 million, bf16", "GPT, everything on"} <= set(measured)
    assert any(name.startswith("large batches") for name in measured)
    assert float(cases["**Camshaft**"]) > 0
