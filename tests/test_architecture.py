"""The structure that design and contributors rely on, held against the code."""

import ast
import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("engine", "handlers")
MODULES = sorted(path for room in ROOMS for path in ROOT.glob(f"{room}/**/*.py"))
ONE_FILE_KNOWS = {
    "blinker": ["engine/signals.py"],
    "ignite": ["engine/ranks.py"],
    "rich": ["engine/inspection/describe.py"],
    "plotly": ["handlers/report/page.py"],
    "wandb": [],  # handlers/loggers/weights_and_biases.py imports it by name, as
    "mlflow": [],  # handlers/loggers/ml_flow.py does
    "swanlab": [],  # and handlers/loggers/swan_lab.py
    "matplotlib": [],  # and handlers/loggers/figure.py
    "tensorboardX": ["handlers/loggers/tensorboard.py"],  # and summaries.py, which imports by name
    "tqdm": ["handlers/progress_bar.py"],
    "psutil": ["handlers/measurements/system_use.py"],
    "safetensors": [
        "handlers/checkpoint/format/header.py",
        "handlers/checkpoint/directory/store.py",
    ],
    "torchmetrics": [],  # metrics are known by what they do
}
LOOP_WITHOUT_TORCH = ["events", "state", "signals", "engine", "loop", "moments", "readings"]


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def imports(path, everywhere=True):
    """What a module imports, absolute and with dots resolved to `engine.…` or `handlers.…`."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    nodes = ast.walk(tree) if everywhere else iter(tree.body)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            yield ".".join([*base, *(node.module or "").split(".")]).strip(".")


def third_parties(path, everywhere=True):
    return {name.split(".")[0] for name in imports(path, everywhere)}


@pytest.mark.parametrize("path", sorted(ROOT.glob("engine/*.py")), ids=name_of)
def test_the_engine_never_imports_handlers(path):
    assert not [name for name in imports(path) if name.startswith("handlers")]


@pytest.mark.parametrize("path", sorted(ROOT.glob("handlers/**/*.py")), ids=name_of)
def test_handlers_do_not_import_each_other(path):
    if path.name == "__init__.py":
        return
    folder = ".".join(path.relative_to(ROOT).parts[:-1])
    own = f"{folder}." if "." in folder else "handlers.scalars"
    allowed = ("engine", "handlers.scalars", own)
    inside = [name for name in imports(path) if name.split(".")[0] in ("engine", "handlers")]
    assert [name for name in inside if not name.startswith(allowed)] == []


@pytest.mark.parametrize("path", [ROOT / "__init__.py", *MODULES], ids=name_of)
def test_nothing_but_the_command_line_knows_the_commands(path):
    if path.relative_to(ROOT).parts[0] != "commands":
        assert not [name for name in imports(path) if name.startswith("commands")]


@pytest.mark.parametrize(("library", "files"), list(ONE_FILE_KNOWS.items()))
def test_each_library_is_known_by_one_file(library, files):
    assert [name_of(path) for path in MODULES if library in third_parties(path)] == files


@pytest.mark.parametrize(
    "library", ["plotly", "psutil", "rich", "tensorboardX", "tqdm", "ignite", "torchmetrics"]
)
def test_a_library_that_only_some_need_is_imported_when_it_is_used(library):
    assert not [name_of(p) for p in MODULES if library in third_parties(p, everywhere=False)]


@pytest.mark.parametrize("name", LOOP_WITHOUT_TORCH)
def test_the_loop_knows_nothing_of_torch(name):
    assert "torch" not in third_parties(ROOT / "engine" / f"{name}.py")


def test_an_engine_runs_where_torch_is_not_even_imported():
    script = (
        "import sys\n"
        "from camshaft import Engine\n"
        "from camshaft.handlers import checkpoints\n"
        "assert checkpoints('nowhere') == []\n"
        "engine = Engine(lambda state, batch: batch)\n"
        "assert engine.run([1, 2], max_epochs=2).iteration == 4\n"
        "assert engine.evaluate([1]).output == 1\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_inside_the_package_imports_are_relative(path):
    assert "camshaft" not in third_parties(path)


@pytest.mark.parametrize(
    "path", [path for path in MODULES if not path.name.startswith("_")], ids=name_of
)
def test_every_module_has_its_test_file(path):
    folder = ROOT / "tests" / path.relative_to(ROOT).parent
    assert (folder / f"test_{path.name}").exists()


HARMLESS = {
    "engine/late.py": [
        "import_module(homes[name], package)",
        "import_module(f'.{name}', home.__name__)",
    ],  # of a table in the source
    "handlers/checkpoint/directory/pt_export.py": [
        "torch.save"
    ],  # others ask for .pt; none is ever read
}
UNPICKLERS = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
RUNNERS = {"eval", "exec", "compile", "__import__", "load_module", "run_path"}
LOADERS = {"torch.load", "torch.save", "yaml.load", "numpy.load", "np.load", "pandas.read_pickle"}


def runs_what_it_reads(source):
    """What in a module could run what lies in a file."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            if found := UNPICKLERS & {part for name in names for part in name.split(".")}:
                yield f"import {found}"
        if (
            isinstance(node, ast.Attribute) and node.attr in UNPICKLERS
        ):  # torch.serialization.pickle
            yield ast.unparse(node)
        if isinstance(node, ast.Name | ast.Attribute):
            name = ast.unparse(node)
            last = name.split(".")[-1]
            own = name in RUNNERS or (last in RUNNERS - {"compile", "eval"} and "." in name)
            if own or name in LOADERS:
                yield name
        imports_by_name = isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func)
        if imports_by_name and not isinstance(node.args[0], ast.Constant):
            yield ast.unparse(node)
        if isinstance(node, ast.keyword) and node.arg in {"weights_only", "allow_pickle"}:
            yield str(node.arg)
        if isinstance(node, ast.Constant) and node.value in UNPICKLERS | {"__import__"}:
            yield repr(node.value)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_nothing_in_the_source_can_run_what_it_reads(path):
    assert list(runs_what_it_reads(path.read_text())) == HARMLESS.get(name_of(path), [])


@pytest.mark.parametrize(
    "source",
    [
        *("import pickle", "from pickle import loads", "import _pickle as p", "import dill.source"),
        *("from torch.serialization import pickle", "torch.serialization.pickle.load(f)"),
        *("eval('1')", "run = eval", "exec(text)", "compile(t, '', 'exec')", "__import__(name)"),
        *("importlib.import_module(name)", "getattr(sys, 'modules')['pickle']", "torch.load(f)"),
        *("from importlib import import_module\nimport_module(name)", "yaml.load(f)"),
        *("numpy.load(f)", "anything(f, weights_only=False)", "anything(f, allow_pickle=True)"),
    ],
)
def test_ways_to_run_what_is_read_are_seen(source):
    assert list(runs_what_it_reads(source))


def modules_with_examples():
    names = ["camshaft"]
    for package in ROOMS:
        found = importlib.import_module(f"camshaft.{package}")
        walked = pkgutil.walk_packages(found.__path__, f"camshaft.{package}.")
        names += [module.name for module in walked]
    return [name for name in names if ">>>" in Path(_file(name)).read_text()]


def _file(name):
    return importlib.import_module(name).__file__


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_in_docstrings_are_true(name):
    failures, tests = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert tests > 0
    assert failures == 0


def public_objects():
    for name in ("camshaft", "camshaft.handlers", "camshaft.engine.ranks"):
        module = importlib.import_module(name)
        for each in getattr(module, "__all__", vars(module)):
            thing = getattr(module, each)
            if not each.startswith("_") and getattr(thing, "__module__", "").startswith("camshaft"):
                yield pytest.param(thing, id=f"{name}.{each}")


@pytest.mark.parametrize("thing", list(public_objects()))
def test_everything_public_says_in_one_sentence_what_it_is(thing):
    first = thing.__doc__.splitlines()[0]
    assert first.rstrip().endswith((".", "`.", ":"))
    assert len(first) <= 100
