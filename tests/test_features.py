"""Every row of the acceptance table has its code and its test, or says why it is left out.

And the page of features for users names all that is public, in lines of code that are right.
"""

import ast
import inspect
import re
import shlex
from functools import cache
from importlib import import_module
from pathlib import Path

import camshaft
from camshaft import __main__ as command_line
from camshaft import handlers
from camshaft.handlers import loggers, schedules
from camshaft.handlers.bridges.lightning import from_lightning

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "tests" / "features.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.read_text().splitlines()
    if re.match(r"\| \d+ \|", line)
]


@cache
def functions(path):
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_all_rows_are_there_once_and_in_order():
    assert [int(row[0].strip("| ")) for row in ROWS] == [*range(1, 136)]


def test_every_row_names_code_and_a_test_that_exist_or_a_reason():
    wrong = []
    for number, title, code, test, *_ in ROWS:
        assert title
        if code.startswith("left out: "):
            assert len(code) > len("left out: ") + 20, f"row {number} gives no reason"
            continue
        files = re.findall(r"\]\((?:\.\./)([^)]+)\)", code)
        tests = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", test)
        assert files, f"row {number} names no file"
        assert tests, f"row {number} names no test"
        wrong += [f"{number}: no {path}" for path in files if not (ROOT / path).exists()]
        for path, name in tests:
            if not (ROOT / path).exists() or (name and name not in functions(path)):
                wrong += [f"{number}: no {path}::{name}"]
    assert wrong == []


FOR_USERS = ROOT / "docs" / "features.md"
LINES = re.findall(r"^\| `(.*?)` \| .* \| \[.*\]\(.*\) \|$", FOR_USERS.read_text(), re.M)
ROOMS = (camshaft, handlers, loggers, schedules)
NAMES = {name: getattr(room, name) for room in ROOMS for name in room.__all__}
NAMES |= {"from_lightning": from_lightning}
HELD_BY = {"engine": camshaft.Engine, "state": camshaft.State, "ranks": camshaft.ranks}
HELD_BY |= {"Events": camshaft.Events, "Stage": camshaft.Stage}
PREDICATES = {"every": None, "at": None, "after": None, "last": None, "seconds": None}
THEIRS = """CosineAnnealingLR DataLoader DistributedDataParallel Environments GanEvents IgniteEvents
    Memory MulticlassAccuracy ReduceLROnPlateau adamw batch callback checkpoint code config
    count evaluate_step function handler inputs instantiate lengths loss loss_fn memory mesh
    micro model module muon open_board optimizer prepare publish sampler step stream
    test_loader texts train_loader train_set trial val_loader web weight len print"""


def found(node, assigned):
    """What a name or an attribute is, of ours; None if of others; unknown names are errors."""
    if isinstance(node, ast.Name):
        if node.id not in NAMES and node.id not in {*THEIRS.split(), *assigned, *HELD_BY}:
            raise NameError(node.id)
        return NAMES.get(node.id) if node.id not in assigned else None
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        owner = HELD_BY.get(node.value.id)
        return owner and getattr(owner, node.attr)
    return None


def check_line(line):
    tree = ast.parse(line)
    stored = {
        each.id
        for each in ast.walk(tree)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for each in node.names:
                getattr(import_module(node.module), each.name)
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            found(node, stored)
        if not isinstance(node, ast.Call):
            continue
        function = found(node.func, stored)
        given = {each.arg: None for each in node.keywords}
        if isinstance(function, camshaft.Events):
            assert given.keys() <= PREDICATES.keys(), line
        elif function is not None:
            method = isinstance(node.func, ast.Attribute) and inspect.isfunction(function)
            held = method and inspect.isclass(HELD_BY[node.func.value.id])
            inspect.signature(function).bind(*[None] * (len(node.args) + held), **given)


def test_each_line_of_the_page_for_users_is_code_of_ours_with_arguments_that_exist():
    assert len(LINES) > 100
    assert len(LINES) == FOR_USERS.read_text().count("\n| `")
    wrong = []
    for line in LINES:
        try:
            if line.startswith("camshaft "):
                command_line._parser().parse_args(shlex.split(line)[1:])
            else:
                check_line(line)
        except (
            AssertionError,
            AttributeError,
            NameError,
            SyntaxError,
            SystemExit,
            TypeError,
        ) as error:
            wrong.append(f"{line}: {error!r}")
    assert wrong == []


def test_the_page_for_users_names_every_public_name():
    code = " ".join(re.findall(r"`([^`]+)`", FOR_USERS.read_text()))
    named = set(re.findall(r"\w+", code))
    public = {*camshaft.__all__, *handlers.__all__} - {"__version__"}
    assert sorted(public - named) == [], "give each of them a line in docs/features.md"
