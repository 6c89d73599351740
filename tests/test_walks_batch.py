"""The way of a micro-batch through the package: how many files and calls somebody has to read."""

import gc
import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

import camshaft
from camshaft import Events, supervised
from camshaft.handlers import ClipGradNorm, JSONLines, LRSchedule

PACKAGE = str(Path(camshaft.__file__).parent)
BATCHES = 100
LATER = 50
"""So many batches into a run, the looks at its beginning are over."""


class Walks:
    """Batches that note, each time another one is read, what was called since the one before."""

    def __init__(self, batch):
        self.batch, self.found, self._calls = batch, [], []

    def __len__(self):
        return BATCHES

    def __iter__(self):
        for _ in range(BATCHES):
            self.found.append(self._calls)
            self._calls = []
            yield self.batch

    def profile(self, frame, event, _):
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PACKAGE):
            self._calls.append(file)


def walks(*handlers):
    """The files of the calls of each batch, in windows of two, with clipping and a schedule."""
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, cross_entropy, accumulate=2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    engine.add(ClipGradNorm(1.0), LRSchedule(schedule), *handlers)
    data = Walks((torch.randn(8, 4), torch.randint(0, 2, (8,))))
    previous = sys.getprofile()
    gc.disable()  # what a collection calls is nobody's doing here
    sys.setprofile(data.profile)
    try:
        engine.run(data, max_epochs=1)
    finally:
        sys.setprofile(previous)
        gc.enable()
    return data.found


def test_a_micro_batch_passes_few_files_and_calls():
    without_a_step, with_a_step = walks()[LATER + 1 : LATER + 3]
    assert len(set(without_a_step)) <= 7
    assert len(without_a_step) <= 14
    assert 20 < len(with_a_step) <= 46
    assert len(set(with_a_step)) <= 12


def test_a_row_of_a_log_takes_few_calls(tmp_path):
    log = JSONLines(tmp_path / "rows.jsonl", when=Events.ITERATION_COMPLETED)
    without_rows, with_rows = (each[LATER + 2] for each in (walks(), walks(log)))
    assert 20 < len(with_rows) - len(without_rows) <= 40
