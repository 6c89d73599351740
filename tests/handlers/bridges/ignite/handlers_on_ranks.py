"""Run on two ranks: handlers of ignite on both engines, with other data on each rank."""

import io
import json
import math
import sys
import warnings
from pathlib import Path

import ignite.distributed as idist
import torch
from ignite.engine import Events
from ignite.handlers import (
    BasicTimeProfiler,
    Checkpoint,
    CosineAnnealingScheduler,
    DiskSaver,
    EMAHandler,
    FastaiLRFinder,
    ProgressBar,
    TerminateOnNan,
    create_lr_scheduler_with_warmup,
)
from ignite.handlers.tensorboard_logger import TensorboardLogger
from ignite.metrics import Accuracy
from sides import (
    BATCHES,
    EPOCHS,
    ByCamshaft,
    ByIgnite,
    batches,
    both,
    same,
)


def attach(side):
    """Attach everything to one side; gives what is to be compared after its run."""
    trainer, folder = side.trainer, directory / type(side).__name__
    Accuracy().attach(trainer, "accuracy")
    cosine = CosineAnnealingScheduler(side.optimizer, "lr", 0.2, 0.01, BATCHES * EPOCHS)
    warm = create_lr_scheduler_with_warmup(cosine, 0.0, 4)
    trainer.add_event_handler(Events.ITERATION_STARTED, warm)
    average = EMAHandler(side.model, 0.1, momentum_warmup=0.5, warmup_iters=7)
    average.attach(trainer)
    timer, console, rates = BasicTimeProfiler(), io.StringIO(), []
    timer.attach(trainer)
    bar = {"persist": True, "mininterval": 0, "bar_format": "{desc}[{n}/{total}]{postfix}"}
    ProgressBar(**bar, file=console).attach(trainer, ["accuracy"])
    to_save = {"model": side.model, "optimizer": side.optimizer, "trainer": trainer}
    saver = Checkpoint(to_save, DiskSaver(folder, require_empty=False), n_saved=2)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)
    if idist.get_rank() == 0:
        board = TensorboardLogger(log_dir=folder / "board")
        board.attach_output_handler(
            trainer, Events.EPOCH_COMPLETED, tag="training", metric_names="all"
        )
        trainer.add_event_handler(Events.COMPLETED, lambda engine: board.close())

    @trainer.on(Events.ITERATION_COMPLETED)
    def note(engine):
        rates.append(side.optimizer.param_groups[0]["lr"])

    return {"average": average, "timer": timer, "console": console, "rates": rates}


def results(given, side):
    """What a run of one side has left."""
    folder = directory / type(side).__name__
    return {
        "weights": side.weights(),
        "average": given["average"].ema_model.state_dict(),
        "rates": given["rates"],
        "console": given["console"].getvalue(),
        "measured": sorted(given["timer"].get_results()),
        "files": {path.name: torch.load(path) for path in sorted(folder.glob("*.pt"))},
    }


def finder_of(kind):
    side, finder = kind(1e-4), FastaiLRFinder()
    kept = {"model": side.model, "optimizer": side.optimizer}
    options = {"num_iter": 20, "end_lr": 3.0}
    with (
        finder.attach(side.trainer, kept, lambda output: output["loss"], **options) as trainer,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        trainer.run(data)
    return finder.get_results()


def end_by_nan(side):
    nan = TerminateOnNan(lambda output: output["loss"])
    side.trainer.add_event_handler(Events.ITERATION_COMPLETED, nan)


idist.initialize("gloo")
directory, rank = Path(sys.argv[1]), idist.get_rank()
data = batches(rank)
given, sides = both(attach, data)
one, other = map(results, given, sides)
damaged = [(inputs * math.nan if n == 3 else inputs, y) for n, (inputs, y) in enumerate(data)]
_, ended = both(end_by_nan, damaged)
finders = [finder_of(kind) for kind in (ByIgnite, ByCamshaft)]
found = {
    "equal": {name: same(one[name], other[name]) for name in one},
    "files": len(one["files"]),
    "shown": "Epoch [3/3]: [6/6]" in one["console"],
    "rates": len(set(one["rates"])),
    "ended": [ended[0].trainer.state.iteration, ended[1].state.iteration],
    "finders": finders[0] == finders[1] and len(finders[0]["lr"]) > 10,
}
(directory / f"rank-{rank}.json").write_text(json.dumps(found))
idist.finalize()
