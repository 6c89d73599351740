"""The structure that design and contributors rely on, held against the code."""

import ast
import doctest
import importlib
import pkgutil
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
ROOMS = ("engine", "handlers")
MODULES = sorted(path for room in ROOMS for path in ROOT.glob(f"{room}/**/*.py"))
BRIDGES = "handlers/bridges/"
# The room of those who come from ignite.
IGNITE = "__init__ description engine feed from_ignite front memory run supervised"
BRIDGE = [f"{BRIDGES}ignite/{name}.py" for name in IGNITE.split()]
ONE_FILE_KNOWS = {
    "blinker": ["engine/signals/signals.py"],
    "ignite": sorted([*BRIDGE, "engine/ranks/process_group.py"]),
    "rich": ["engine/inspection/describe.py"],
    "plotly": ["handlers/tools/report/page.py"],
    "jinja2": ["handlers/tools/report/page.py"],
    "markupsafe": ["handlers/tools/report/page.py"],
    "wandb": [],  # the files of handlers/bridges/trackers import theirs by name
    "mlflow": [],
    "swanlab": [],
    "trackio": [],
    "clearml": [],
    "comet_ml": [],
    "aim": [],
    "fsspec": [],  # handlers/cluster/mirror/store.py imports it by name
    "matplotlib": [],  # and handlers/loggers/images.py, handlers/tools/search/lr_curve.py
    "hydra": ["handlers/tools/configs/run_config.py"],
    "omegaconf": ["handlers/tools/configs/run_config.py"],
    "yaml": ["handlers/tools/configs/run_config.py"],
    "optuna": [],  # as handlers/bridges/optuna/optuna_pruning.py
    "ray": [],  # and handlers/bridges/ray/report.py do
    "torchft": [],  # as does handlers/cluster/replicas/crew.py
    "accelerate": [],  # what it and Fabric have prepared is known by its class
    "lightning_fabric": [],
    "lightning": [],  # as are its modules and callbacks, which bring it along
    "pytorch_lightning": [],
    "tensorboardX": ["handlers/bridges/trackers/tensorboard.py"],
    "tqdm": ["handlers/progress_bar.py", "handlers/tools/prove/prove.py"],
    "psutil": ["handlers/measurements/system_use.py"],
    "pynvml": [],  # handlers/measurements/system_use.py imports it by name
    "safetensors": ["handlers/checkpoint/format/tensors.py"],
    "torchmetrics": [],  # metrics are known by what they do
}
WITHOUT_TORCH = [
    *("engine/events.py", "engine/signals/__init__.py", "engine/moments.py", "engine/loop.py"),
    *("engine/engine.py", "engine/ranks/*.py", "engine/state/*.py", "engine/inspection/*.py"),
]
MOST_FILES = 12


def name_of(path):
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path):
    return ast.parse(path.read_text())


@cache
def imported(path, everywhere=True, for_types=True):
    """What a module imports: inside functions if `everywhere`, and for type checkers alone.

    Pairs of a module and a name in it. Modules of the package are paths without a suffix, such as
    `engine/state`; others are dotted names.
    """
    found = []
    tree = tree_of(path)
    left_out = set() if for_types else {id(node) for node in only_for_types(tree)}
    for node in ast.walk(tree) if everywhere else iter(tree.body):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                folder = path.parents[node.level - 1].relative_to(ROOT)
                module = folder.joinpath(*module.split("."))
            found += [(module, alias.name) for alias in node.names]
    return found


def only_for_types(tree):
    """What stands under `if TYPE_CHECKING:`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for each in node.body:
                yield from ast.walk(each)


def file_of(module):
    """The file of a module or package; None for a name inside one."""
    files = (module.with_name(f"{module.name}.py"), module / "__init__.py")
    return next((each for each in files if (ROOT / each).is_file()), None)


def inside(path):
    """The files of the package that a module knows when it runs."""
    known = imported(path, for_types=False)
    own = [(module, name) for module, name in known if isinstance(module, Path)]
    return {file_of(module / name) or file_of(module) for module, name in own}


def third_parties(path, everywhere=True):
    names = [module for module, _ in imported(path, everywhere) if isinstance(module, str)]
    return {name.split(".")[0] for name in names}


def test_in_every_folder_files_and_rooms_know_each_other_one_way():
    """Imports inside functions count, those for types do not; there is no circle of any length."""
    knows = {}
    for path in [ROOT / "__main__.py", *MODULES]:
        importer = path.relative_to(ROOT).parts
        for target in inside(path):
            parts = target.parts
            common = next(
                i for i, (a, b) in enumerate(zip(importer, parts, strict=False)) if a != b
            )
            if importer[common] != "__init__.py":
                folder = knows.setdefault("/".join(importer[:common]), {})
                folder.setdefault(importer[common], set()).add(parts[common])
    circles = {}
    for folder, graph in knows.items():
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circles[folder] = error.args[1]
    assert circles == {}


RINGS = ("handlers/cluster/", "handlers/bridges/", "handlers/tools/")


def test_nothing_inside_the_rings_knows_them():
    """Imports inside functions count; the stubs from which names are imported late do not."""
    inner = [path for path in MODULES if not name_of(path).startswith(RINGS)]
    known = [name_of(path) for path in inner if any(f"{t}".startswith(RINGS) for t in inside(path))]
    assert len(MODULES) - len(inner) > 60
    assert known == []


DOORS = {"handlers/cluster/": 15, "handlers/bridges/": 15, "handlers/tools/": 15, "": 13}
"""How many names of `handlers/checkpoint` a ring knows, and the rest; no door grows."""


def test_the_doors_of_checkpoint_do_not_grow():
    names = {ring: set() for ring in DOORS}
    for path in MODULES:
        if not name_of(path).startswith("handlers/checkpoint/"):
            ring = next(each for each in DOORS if name_of(path).startswith(each))
            found = [(m, name) for m, name in imported(path) if isinstance(m, Path)]
            names[ring] |= {n for m, n in found if f"{m}/".startswith("handlers/checkpoint/")}
    assert all(len(names[ring]) <= most for ring, most in DOORS.items()), names


def test_only_imports_for_types_are_left_out_of_the_arrows(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (path := tmp_path / "one.py").write_text(
        "import a\n"
        "if TYPE_CHECKING:\n    import b\nelse:\n    import c\n"
        "if not TYPE_CHECKING:\n    import d\n"
        "def f():\n    import e\n"
    )
    assert {module for module, _ in imported(path)} == {*"abcde"}
    assert {module for module, _ in imported(path, for_types=False)} == {*"acde"}


def test_a_room_is_imported_by_its_name_and_not_by_its_files():
    """Files of the own folder and of those around it are imported as they are."""
    offenders = []
    for path in [ROOT / "__main__.py", *MODULES]:
        around = path.relative_to(ROOT).parents
        for module, name in imported(path):
            if isinstance(module, str) or module == Path("engine/late"):
                continue
            is_room = file_of(module).name == "__init__.py"
            is_around = (module if is_room else module.parent) in around
            if is_room == is_around and not (is_room and file_of(module / name)):
                offenders.append(f"{name_of(path)} imports {name} from {module}")
    assert offenders == []


def test_no_folder_is_crowded():
    crowded = {
        name_of(folder): count
        for folder in {path.parent for path in MODULES}
        if (count := len([*folder.glob("[!_]*.py")])) > MOST_FILES
    }
    assert crowded == {}


def test_a_name_stands_for_one_thing():
    """Of functions and classes that other files may import; ignite's `Engine` has ignite's name."""
    homes = {}
    for path in MODULES:
        for node in tree_of(path).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_":
                homes.setdefault(node.name, []).append(name_of(path))
    twice = {name: files for name, files in homes.items() if len(files) > 1}
    assert twice.keys() == {"Engine"}, twice


def test_every_room_says_what_it_is_for():
    silent = [
        name_of(path)
        for path in MODULES
        if path.name == "__init__.py" and not ast.get_docstring(tree_of(path))
    ]
    assert silent == []


def test_each_library_is_known_by_one_file():
    known = {
        library: [name_of(path) for path in MODULES if library in third_parties(path)]
        for library in ONE_FILE_KNOWS
    }
    assert known == ONE_FILE_KNOWS


def sends(path):
    """What a module uses of that part of torch.distributed by which ranks send."""
    names = set(torch.distributed.distributed_c10d.__all__)
    homes = ("torch.distributed", "torch.distributed.distributed_c10d")
    for module, name in imported(path):
        is_home = module in homes and (not name or name in names)
        if is_home or "collectives" in str(module) or name in ("distributed", "distributed_c10d"):
            yield f"{module} {name}".strip()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Attribute) and node.attr in names:
            owner = ast.unparse(node.value)
            yield from [ast.unparse(node)] * owner.endswith(("distributed", "distributed_c10d"))


def test_one_room_sends_to_other_ranks():
    found = {name_of(path): list(sends(path)) for path in MODULES}
    rooms = {Path(name).parent for name, ways in found.items() if ways}
    assert rooms == {Path("engine/ranks")}, found


def test_ways_to_send_are_seen(tmp_path, monkeypatch):
    sources = [
        *("import torch.distributed as dist", "from torch.distributed import all_reduce"),
        *("from torch import distributed", "torch.distributed.all_reduce(x)"),
        *("import torch.distributed._functional_collectives", "torch.distributed.barrier()"),
    ]
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    for number, source in enumerate(sources):
        (path := tmp_path / f"{number}.py").write_text(source)
        assert list(sends(path)), source


def test_a_library_that_only_some_need_is_imported_when_it_is_used():
    late = {"plotly", "jinja2", "psutil", "rich", "tensorboardX", "tqdm", "ignite", "torchmetrics"}
    early = {name_of(path): late & third_parties(path, everywhere=False) for path in MODULES}
    for name in BRIDGE:  # what these rooms export is imported late itself
        early[name] -= {"ignite"}
    assert {name: found for name, found in early.items() if found} == {}


def test_the_loop_knows_nothing_of_torch():
    files = [path for pattern in WITHOUT_TORCH for path in ROOT.glob(pattern)]
    runtime = [name_of(path) for path in files if "torch" in third_parties(path, everywhere=False)]
    assert len(files) > len(WITHOUT_TORCH)
    assert runtime == []


def test_an_engine_runs_where_torch_is_not_even_imported(processes):
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
    processes.run(script, fresh=True)


def test_inside_the_package_imports_are_relative():
    assert [name_of(path) for path in MODULES if "camshaft" in third_parties(path)] == []


HARMLESS = {
    # A `.metadata` of torch is a pickle: of its instructions and classes, a list is taken, and no
    # class is called; what lies beside it is read with `weights_only=True`.
    "handlers/bridges/dcp/directory.py": [
        "import {'pickle'}",
        "torch.load",
        "weights_only",
    ],
    "engine/late.py": [
        "import_module(f'.{name}', package)",
        "import_module(homes[name], package)",
    ],  # of a table in the source
    "handlers/bridges/trackers/tracker.py": ["import_module(library)"],  # named in the source
    "handlers/tools/configs/run_config.py": ["instantiate"],  # a config is code, as a script is
    "handlers/checkpoint/directory/pt_export.py": ["torch.save"],  # others ask for .pt
    "handlers/checkpoint/directory/anyones.py": ["torch.load", "weights_only"],  # =True
    "handlers/checkpoint/format/quantized.py": ["import_module(QUANTIZED[name])"],  # of a table
}
UNPICKLERS = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
RUNNERS = {"eval", "exec", "compile", "__import__", "load_module", "run_path", "instantiate"}
LOADERS = {"torch.load", "torch.save", "yaml.load", "numpy.load", "np.load", "pandas.read_pickle"}


def runs_what_it_reads(tree):
    """What in a module could run what lies in a file."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    is_argument = any(
        isinstance(node, ast.arg) and node.arg == "compile" for node in ast.walk(tree)
    )
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
            if name == "compile" and is_argument and id(node) not in called:
                continue  # the argument of `supervised`, which is called nowhere
            if own or name in LOADERS:
                yield name
        imports_by_name = isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func)
        if imports_by_name and not isinstance(node.args[0], ast.Constant):
            yield ast.unparse(node)
        if isinstance(node, ast.keyword) and node.arg in {"weights_only", "allow_pickle"}:
            yield str(node.arg)
        if isinstance(node, ast.Constant) and node.value in UNPICKLERS | {"__import__"}:
            yield repr(node.value)


def test_nothing_in_the_source_can_run_what_it_reads():
    found = {name_of(path): list(runs_what_it_reads(tree_of(path))) for path in MODULES}
    assert {name: ways for name, ways in found.items() if ways} == HARMLESS


def test_ways_to_run_what_is_read_are_seen():
    sources = [
        *("import pickle", "from pickle import loads", "import _pickle as p", "import dill.source"),
        *("from torch.serialization import pickle", "torch.serialization.pickle.load(f)"),
        *("eval('1')", "run = eval", "exec(text)", "compile(t, '', 'exec')", "__import__(name)"),
        *("importlib.import_module(name)", "getattr(sys, 'modules')['pickle']", "torch.load(f)"),
        *("from importlib import import_module\nimport_module(name)", "yaml.load(f)"),
        *("hydra.utils.instantiate(config)", "instantiate(config)"),
        *("def f(compile): compile(t)", "run = compile", "numpy.load(f)"),
        *("anything(f, weights_only=False)", "anything(f, allow_pickle=True)"),
    ]
    assert [source for source in sources if not list(runs_what_it_reads(ast.parse(source)))] == []


def test_the_examples_in_docstrings_are_true():
    modules = [importlib.import_module("camshaft")]
    for room in ROOMS:
        package = importlib.import_module(f"camshaft.{room}")
        walked = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        modules += [package, *(importlib.import_module(each.name) for each in walked)]
    failed, ran = [], 0
    for module in modules:
        if ">>>" not in Path(module.__file__).read_text():
            continue
        failures, tests = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
        failed += [module.__name__] * failures  # doctest prints what it expected
        ran += bool(tests)
        assert tests, module.__name__
    assert failed == []
    assert ran > 20


def test_everything_public_says_in_one_sentence_what_it_is():
    offenders = []
    for name in ("camshaft", "camshaft.handlers", "camshaft.engine.ranks"):
        module = importlib.import_module(name)
        for each in getattr(module, "__all__", vars(module)):
            thing = getattr(module, each)
            if each.startswith("_") or not getattr(thing, "__module__", "").startswith("camshaft"):
                continue
            first = thing.__doc__.splitlines()[0]
            if not first.rstrip().endswith((".", "`.", ":")) or len(first) > 100:
                offenders.append(f"{name}.{each}: {first}")
    assert offenders == []
