"""What ranks have otherwise than each other is saved for each of them; weights are compared."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from camshaft import Engine
from camshaft.handlers import Checkpoint
from camshaft.handlers.checkpoint import checkpoints

SCRIPT = Path(__file__).with_name("apart_on_ranks.py")


@pytest.mark.slow
def test_an_optimizer_divided_among_ranks_a_replay_buffer_and_a_sampler_go_on_on_each_rank(
    processes, tmp_path
):
    results = processes.run_ranks(2, SCRIPT, tmp_path)
    first, second = (json.loads(each.stdout) for each in results)
    for name in ("goes on", "beside shards"):
        assert (first[name], second[name]) == (True, True), name
    assert all(one != other for one, other in zip(*first["apart"], strict=True))

    # Weights that ranks average are compared at each save, not at the first one alone.
    for each in (first, second):
        assert each["averaged"] is None
        assert "hold other values of 'bias' of objects['model']" in each["between"]
        assert "If they average it now and then, save when they have" in each["between"]
    assert [each.manifest.iteration for each in checkpoints(tmp_path / "between")] == [2]

    # An average of a sharded model hides nothing that no start could resume from.
    assert "the groups of 'optimizer' hold [2, 2] parameters" in results[0].stderr

    # A communication hook goes on if its state is named, and else it is told of.
    assert (first["hooked"], second["hooked"]) == (True, True)
    assert results[0].stderr.count("what the Fading of a communication hook counts") == 1

    # Each state is of one of two ranks, and here is one process.
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    objects = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1)}
    engine = Engine(lambda state, batch: None, objects=objects)
    override = ["optimizer.class", "optimizer.lr", "seen", "sampler"]
    engine.add(Checkpoint(tmp_path / "parts", resume=True, override=override))
    with pytest.raises(ValueError, match="'optimizer' had another state on each of 2 ranks: start"):
        engine.run([1], max_epochs=1)
