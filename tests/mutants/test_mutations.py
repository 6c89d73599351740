"""The faults that `make mutants` puts into modules."""

import ast
import importlib.util
import random
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


@pytest.fixture(scope="module")
def mutations():
    specification = importlib.util.spec_from_file_location("mutations", FOLDER / "mutations.py")
    module = importlib.util.module_from_spec(specification)
    sys.modules["mutations"] = module
    specification.loader.exec_module(module)
    yield module.mutations
    del sys.modules["mutations"]


def test_each_fault_changes_one_place(mutations):
    text = b'''
def f(a, b=1):
    """Words."""
    if a < 2 and b:
        a += b
    g(a, key=True)
    return a
'''
    assert [(each.line, each.after) for each in mutations(text)] == [
        *((4, "(a <= 2)"), (4, "(a < 2)"), (4, "(b)"), (4, "(not (a < 2 and b))"), (4, "3")),
        *((5, "pass"), (6, "pass"), (6, ""), (6, "False"), (7, "None")),
    ]
    assert b"\n    g(a)\n" in mutations(text)[7].of(text)
    assert "(a <= (b := 1))" in [
        each.after for each in mutations(b"def f():\n  return a < (b := 1)\n")
    ]


@pytest.mark.slow
def test_every_fault_of_the_package_is_python_and_another_program(mutations):
    chance = random.Random(0)
    modules = sorted([*ROOT.glob("engine/**/*.py"), *ROOT.glob("handlers/**/*.py")])
    count = 0
    for path in chance.sample(modules, 60):
        text = path.read_bytes()
        tree = ast.dump(ast.parse(text))
        faults = mutations(text)
        for each in chance.sample(faults, min(len(faults), 5)):
            assert ast.dump(ast.parse(each.of(text))) != tree, (path, each)
            count += 1
    assert count > 100
