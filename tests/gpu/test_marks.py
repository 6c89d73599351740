"""What needs CUDA says so by its mark, so that `make gpu` runs it and nothing else tries to."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
WITHOUT = {
    "tests/distributed/cost/beside_devices_on_ranks.py": "a backend beside gloo, without tensors",
    "tests/engine/state/test_recall.py": "the name of a device in a checkpoint",
    "tests/engine/supervised/test_transfer.py": "fake tensors, which have no memory",
    "tests/gpu/test_resume.py": "the generators of devices in a checkpoint",
    "tests/gpu/test_waits.py": "fake tensors",
}
"""Files that name a device which they do not use, and why."""
FILES = sorted(TESTS.glob("**/test_*.py"))


def is_marked(node):
    """True for a function, a class or a pytest.param with the mark."""
    named = [*getattr(node, "decorator_list", ()), *getattr(node, "keywords", ())]
    return any("mark.gpu" in ast.unparse(each) for each in named)


def uses(node):
    """True for a call of `.cuda()`, and for the name of a device."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "cuda"
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_text and node.value.split(":")[0] == "cuda"


def unmarked(node):
    """The lines outside of marked functions, parameters and comparisons that use CUDA."""
    if is_marked(node) or isinstance(node, ast.Compare):
        return []
    own = [node.lineno] if uses(node) else []
    return own + [line for child in ast.iter_child_nodes(node) for line in unmarked(child)]


def helpers_of(tree):
    """The functions that only marked tests call: none of the others names one."""
    functions = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
    plain = [each for each in functions if each.name.startswith("test") and not is_marked(each)]
    named = {each.id for node in plain for each in ast.walk(node) if isinstance(each, ast.Name)}
    return [each for each in functions if each.name[:4] != "test" and each.name not in named]


def offenders(text):
    """The lines of a test file that use CUDA without a mark."""
    tree = ast.parse(text)
    tree.body = [each for each in tree.body if each not in helpers_of(tree)]
    return unmarked(tree)


@pytest.mark.slow
def test_every_test_that_uses_cuda_is_marked():
    found = {}
    for path in FILES:
        name = path.relative_to(TESTS.parent).as_posix()
        text = path.read_text()
        if "cuda" in text and name not in WITHOUT and (lines := offenders(text)):
            found[name] = lines
    assert found == {}


def test_no_test_asks_for_a_device_to_skip_itself():
    """The mark does; so the line at the end counts all of them."""
    asking = [p.name for p in FILES if "skipif(not torch.cuda" in p.read_text()]
    assert asking == [Path(__file__).name]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("def test_a():\n    model.cuda()", [2]),
        ("def test_a():\n    model.to('cuda:0')", [2]),
        ("@pytest.mark.parametrize('d', ['cpu', 'cuda'])\ndef test_a(d): pass", [1]),
        ("def on():\n    model.cuda()\ndef test_a(): on()", [2]),
        ("@pytest.mark.gpu\ndef test_a():\n    model.cuda()", []),
        ("def on():\n    model.cuda()\n@pytest.mark.gpu\ndef test_a(): on()", []),
        ("D = [pytest.param('cuda', marks=pytest.mark.gpu)]", []),
        ("def test_a(d):\n    assert d == 'cuda'", []),
    ],
)
def test_the_look_sees_what_is_marked_and_what_is_not(text, lines):
    assert offenders(text) == lines
