"""Run on any number of ranks: the digits example in float64 or float32, and what it ends with."""

import importlib.util
import json
import sys
from pathlib import Path

import torch

from camshaft import Events, ranks

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits.py"

spec = importlib.util.spec_from_file_location("digits", EXAMPLE)
digits = importlib.util.module_from_spec(spec)
spec.loader.exec_module(digits)

directory, epochs, bits, stop_at = Path(sys.argv[1]), *sys.argv[2:]
load_data, supervised = digits.load_data, digits.supervised
losses, samples = {}, {}


def load_wide_data(batch_size):
    """The same data in float64."""
    loaders = load_data(batch_size)
    data = loaders[0].dataset.dataset
    data.tensors = (data.tensors[0].double(), data.tensors[1])
    return loaders


def noting(*arguments):
    """The engine of the example, which also notes what each step is of."""
    engine = supervised(*arguments)

    @engine.on(Events.ITERATION_COMPLETED)
    def note(state):
        images = state.batch[0].flatten(1)
        numbers = torch.arange(1.0, 65.0, dtype=images.dtype)
        samples[state.iteration] = (images @ numbers).tolist() if state.share else []

    @engine.on(Events.EPOCH_COMPLETED)
    def note_losses(state):
        names = ("val/loss", "val/accuracy", "accuracy")
        losses[state.epoch] = [float(state.metrics[name]) for name in names]

    if int(stop_at):
        stop = Events.ITERATION_COMPLETED(at=int(stop_at))
        engine.on(stop)(lambda state: state.interrupt("enough"))
    return engine


if bits == "64":
    torch.set_default_dtype(torch.float64)
    digits.load_data = load_wide_data
digits.supervised = noting
with ranks.process_group():
    engine, test = digits.main(["--directory", str(directory / "run"), "--max-epochs", epochs])
    weights = [each.detach().flatten() for each in engine.objects["model"].parameters()]
    found = {
        "weights": torch.cat(weights).tolist(),
        "losses": losses,
        "samples": samples,
        "test": [float(test.metrics[name]) for name in ("loss", "accuracy")],
    }
    (directory / f"{ranks.rank()}.json").write_text(json.dumps(found))
    ranks.gathered(None)
    del engine, test  # gloo's threads abort if DDP outlives the group
