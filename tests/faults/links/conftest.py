"""Everything that writes to a run's directory, or is told of one: each in a run of two epochs."""

import inspect
import logging

import pytest
import torch

from camshaft import Engine, Events, Stage, handlers
from camshaft.handlers import (
    CSV,
    Checkpoint,
    Export,
    Fingerprints,
    HangWatchdog,
    ImageFiles,
    Journal,
    JSONLines,
    Local,
    LocalCheckpoint,
    Mirror,
    Profile,
    RankLogs,
    Steering,
    TensorBoard,
    ValidateElsewhere,
    checkpoints,
    export_dcp,
    fetch,
    follow,
    latest,
    predict,
)
from camshaft.handlers.loggers import Embedding, Image
from camshaft.handlers.tools import checkpoints as commands
from camshaft.handlers.tools.report import write_report

BATCHES = [1.0, 2.0]
EACH = Events.ITERATION_COMPLETED
SAVES = {"keep": latest(9), "retries": 0}


def step(state, batch):
    logging.getLogger("script").warning("batch %s", batch)
    pixels = torch.full((1, 2, 2), 1 / batch)
    state.metrics.update(loss=1 / batch, input=Image(pixels))
    state.metrics["points"] = Embedding(torch.eye(2), ["a", "b"], torch.zeros(2, 1, 2, 2))


def run(*handlers, epochs=1):
    """Train for so many epochs; `handlers` go on where an earlier run has left a checkpoint."""
    model = torch.nn.Linear(2, 1)
    Engine(step, *handlers, objects={"model": model}).run(BATCHES, max_epochs=epochs)


def after(command):
    """A command about a run that is over."""

    def use(directory, epochs):
        command(directory)

    use.prepare = lambda directory: run(
        Checkpoint(directory, **SAVES),
        JSONLines(directory / "rows.jsonl"),
        ImageFiles(directory / "images"),
        Journal(directory),
        epochs=2,
    )
    return use


def handler(make):
    """Handlers of a run that goes on with an earlier one by a `Checkpoint` elsewhere."""

    def use(directory, epochs):
        elsewhere = directory.parent / f"{directory.name} saves"
        run(Checkpoint(elsewhere, resume=True, **SAVES), make(directory), epochs=epochs)

    return use


def mirrored(directory, epochs):
    """A run that a store has copies of."""
    mirror = Mirror(f"file://{directory.parent}/{directory.name} saves")
    rows = JSONLines(directory / "rows.jsonl", when=EACH)
    run(Checkpoint(directory, resume=True, **SAVES), rows, mirror, epochs=epochs)


def fetched(directory, epochs):
    """What a store has of a run that goes on elsewhere, after each epoch."""
    store = directory.parent / f"{directory.name} saves"
    elsewhere = store / "elsewhere"
    mirror = Mirror(f"file://{store}/store")
    for epoch in range(1, epochs + 1):
        rows = JSONLines(elsewhere / "rows.jsonl", when=EACH)
        run(Checkpoint(elsewhere, resume=True, **SAVES), rows, mirror, epochs=epoch)
        fetch(f"file://{store}/store", directory)


def followed(directory, epochs):
    """A run that awaits results, and in its middle the script that writes them."""

    class Evaluator:
        def attach(self, engine):
            engine.on(Events.ITERATION_STARTED | Events.COMPLETED, stage=Stage.MEASURE)(self.look)

        def look(self, state):
            for saved in follow(directory, idle=0):
                saved.write({"loss": 0.5})

    awaits = ValidateElsewhere(lag=1, when=EACH, patience=0.1)
    saves = Checkpoint(directory, resume=True, background=False, **SAVES)
    run(Evaluator(), awaits, saves, epochs=epochs)


def predictions(directory, epochs):
    data = [torch.full((2,), each) for each in BATCHES]
    found = predict(Engine(lambda state, batch: {"double": 2 * batch}), data, directory)
    assert len(list(found)) == 2 * len(BATCHES)


WRITERS = {
    "Checkpoint": lambda d, n: run(Checkpoint(d, resume=True, **SAVES), epochs=n),
    "Checkpoint(start_over)": lambda d, n: run(Checkpoint(d, start_over=True, **SAVES), epochs=n),
    "Local": lambda d, n: run(
        Local(d, when=EACH), Checkpoint(d.with_name("shared"), resume=True), epochs=n
    ),
    "LocalCheckpoint": lambda d, n: run(LocalCheckpoint(d, resume=True, **SAVES), epochs=n),
    "Export": lambda d, n: run(Export(d, **SAVES), epochs=n),
    "Journal": handler(Journal),
    "JSONLines": handler(lambda d: JSONLines(d / "rows.jsonl", when=EACH)),
    "Fingerprints": handler(lambda d: Fingerprints(d / "prints.jsonl")),
    "CSV": handler(lambda d: CSV(d / "rows.csv", when=EACH)),
    "ImageFiles": handler(ImageFiles),
    "TensorBoard": handler(TensorBoard),
    "RankLogs": handler(RankLogs),
    "HangWatchdog": handler(lambda d: HangWatchdog(path=d / "hang.txt")),
    "Profile": handler(Profile),
    "Steering": handler(Steering),
    "Mirror": mirrored,
    "fetch": fetched,
    "follow": followed,
    "predict": predictions,
    "report": after(lambda d: write_report([d], d / "report.html")),
    "export": after(lambda d: commands.export(d, d / "weights.pt", None)),
    "export_dcp": after(lambda d: export_dcp(checkpoints(d).latest(), d / "weights")),
    "prune": after(lambda d: commands.prune(d, latest(1), dry_run=False)),
    "prune --strip": after(lambda d: commands.prune(d, latest(1), dry_run=False, strip=True)),
    "inspect": after(lambda d: commands.inspect(d, as_json=False, verify=True)),
}
QUICK = {"Checkpoint", "Local", "Journal", "JSONLines", "CSV", "ImageFiles", "HangWatchdog"}
"""One of each kind; the others write in one of these ways, or ask before all else."""
LONG = {"Mirror", "fetch", "follow"}
"""Each of their runs waits for another process, or for results."""
LIBRARIES = {"Aim", "ClearML", "Comet", "MLflow", "SwanLab", "Trackio", "WandB"}
"""Trackers open their files themselves."""
ELSEWHERE = {"MemorySnapshot", "Predictions", "ProgressBar", "checkpoints", "load_matching"}
ELSEWHERE |= {"load_dcp", "run_config"}
"""Writes on a CUDA device only, writes to a stream, or reads what others here write; a config is
written in the way of the `Journal` beside it."""


def told_of_a_path():
    """All exported names whose arguments name a path."""
    for name in handlers.__all__:
        parameters = inspect.signature(getattr(handlers, name)).parameters
        if {"directory", "path", "file"} & parameters.keys():
            yield name


def pytest_generate_tests(metafunc):
    if "writer" in metafunc.fixturenames:
        marks = dict.fromkeys(WRITERS.keys() - QUICK, pytest.mark.slow)
        marks |= dict.fromkeys(LONG, pytest.mark.soak)
        each = [pytest.param(use, marks=marks.get(name, ())) for name, use in WRITERS.items()]
        metafunc.parametrize("writer", each, ids=WRITERS)


@pytest.fixture
def writers():
    return WRITERS


@pytest.fixture
def left_out():
    """What takes a path and is not among the writers."""
    return set(told_of_a_path()) - WRITERS.keys() - LIBRARIES - ELSEWHERE
