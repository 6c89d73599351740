"""`camshaft doctor`: versions, devices, extras, and a try to save."""

import json
import platform

import torch


def test_it_shows_versions_and_devices_and_that_a_run_can_save(camshaft, tmp_path):
    code, lines, errors = camshaft("doctor", tmp_path)
    facts = {line.split("  ")[0]: line for line in lines if "  " in line}
    assert (code, errors) == (0, [])
    assert platform.python_version() in facts["python"]
    assert torch.__version__ in facts["torch"]
    assert "threads of torch" in facts["cpu"]
    assert "whole files last here: " in facts[str(tmp_path)]
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_is_missing_is_named_with_what_to_install(processes, tmp_path):
    script = """
import importlib.metadata
real = importlib.metadata.metadata
def metadata(name):
    if name in ("hydra-core", "tqdm"):
        raise importlib.metadata.PackageNotFoundError(name)
    return real(name)
importlib.metadata.metadata = metadata
from camshaft.__main__ import main
raise SystemExit(main())
"""
    shown = processes.run(script, "doctor", tmp_path, cwd=tmp_path).stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert 'pip install "camshaft[config]" hydra-core' in lines
    assert "tqdm MISSING" in lines


def test_a_place_where_no_run_can_save_is_code_1_and_says_why(camshaft, tmp_path):
    (tmp_path / "file").touch()
    for name, why in (("nowhere", "No such file or directory"), ("file", "Not a directory")):
        code, lines, _ = camshaft("doctor", tmp_path / name)
        assert code == 1
        (line,) = (line for line in lines if line.startswith(str(tmp_path)))
        assert line.endswith(f"no run can save here: {why}")
        told = json.loads("\n".join(camshaft("doctor", tmp_path / name, "--json")[1]))
        assert why in told["directory"]["problem"]
