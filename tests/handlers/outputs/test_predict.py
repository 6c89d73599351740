"""Predictions in files: whole, in order, on any number of ranks, and carried on after a kill."""

import json
import signal

import pytest
import torch
from safetensors.torch import load_file
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Engine, Events, supervised
from camshaft.handlers import EMA, Collect, Predictions, predict


class LeftError(Exception):
    """Ends a pass in its middle."""


class Noisy(torch.nn.Module):
    """Adds random numbers to what it makes."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x) + torch.rand(len(x), 1)


def build():
    torch.manual_seed(0)
    model = Noisy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return supervised(model, optimizer, torch.nn.functional.mse_loss)


def loader(samples=20, size=3):
    generator = torch.Generator().manual_seed(1)
    options = {"generator": generator}
    data = TensorDataset(torch.randn(samples, 3, **options), torch.randn(samples, 2, **options))
    return DataLoader(data, size)


def leave(engine, at):
    @engine.evaluation.on(Events.ITERATION_STARTED)
    def fail(state):
        if state.iteration == at:
            raise LeftError


def test_what_is_read_back_is_what_collect_has_in_memory(tmp_path):
    engine = build()
    torch.manual_seed(5)
    found = predict(engine, loader(), tmp_path, megabytes=1e-4)
    torch.manual_seed(5)
    expected = engine.add(Collect()).evaluate(loader()).collected["outputs"]
    loaded = Predictions(tmp_path).load()
    assert torch.equal(loaded["prediction"], expected["prediction"])
    assert torch.equal(loaded["target"], expected["target"])
    assert len(found) == 20
    for number, sample in enumerate(found):
        assert torch.equal(sample["prediction"], expected["prediction"][number])
    assert [*Predictions(tmp_path)][3].keys() == {"prediction", "target"}


def test_texts_and_tensors_of_any_length_come_back_sample_by_sample(tmp_path):
    def step(state, batch):
        return {"text": [str(x) for x in batch], "row": [torch.ones(x) for x in batch]}

    found = predict(Engine(step), [[1, 2], [3]], tmp_path, seconds=0)
    assert [sample["text"] for sample in found] == ["1", "2", "3"]
    assert [sample["row"].tolist() for sample in found] == [[1], [1, 1], [1, 1, 1]]


@pytest.mark.parametrize("at", [2, 5, 7])
def test_a_pass_that_was_left_carries_on_as_if_it_had_not_been(tmp_path, at):
    torch.manual_seed(5)
    whole = build()
    losses, batches = [], []
    whole.evaluation.on(Events.COMPLETED)(lambda state: losses.append(state.metrics["loss"]))
    expected = predict(whole, loader(), tmp_path / "whole").load()
    torch.manual_seed(5)
    left = build()
    leave(left, at)
    with pytest.raises(LeftError):
        predict(left, loader(), tmp_path / "parts", megabytes=1e-5)
    with pytest.raises(ValueError, match=r"not complete: rank-0-of-1. Call predict\(\) again"):
        Predictions(tmp_path / "parts").load()
    torch.manual_seed(99)
    engine = build()
    engine.evaluation.on(Events.ITERATION_COMPLETED)(lambda s: batches.append(s.iteration))
    engine.evaluation.on(Events.COMPLETED)(lambda state: losses.append(state.metrics["loss"]))
    found = predict(engine, loader(), tmp_path / "parts").load()
    assert batches == [*range(at, 8)]
    assert torch.equal(found["prediction"], expected["prediction"])
    assert torch.equal(losses[0], losses[-1])
    batches.clear()
    predict(engine, loader(), tmp_path / "parts")
    assert batches == []


KILLED = """
    import os, sys, torch
    from camshaft import Engine, Events
    from camshaft.handlers import predict

    def step(state, batch):
        print("batch", state.iteration, flush=True)
        return {"x": batch + torch.rand(len(batch))}

    engine = Engine(step)
    if len(sys.argv) > 2:
        @engine.evaluation.on(Events.ITERATION_COMPLETED(at=int(sys.argv[2])))
        def die(state):
            os.kill(os.getpid(), 9)
    torch.manual_seed(0)
    found = predict(engine, list(torch.arange(40.0).split(2)), sys.argv[1], seconds=1e-9)
    print(found.load()["x"].tolist())
"""


@pytest.mark.slow
def test_after_a_kill_no_batch_of_a_shard_is_computed_again(processes, tmp_path):
    whole = processes.run(KILLED, tmp_path / "whole").stdout.splitlines()
    for at in (9, 14):
        processes.run(KILLED, tmp_path / "parts", at, code=-signal.SIGKILL)
    *lines, found = processes.run(KILLED, tmp_path / "parts").stdout.splitlines()
    assert lines == [f"batch {number}" for number in range(14, 21)]
    assert json.loads(found) == json.loads(whole[-1])


RANKS = """
    import os, sys, torch
    import ignite.distributed as idist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
    from camshaft import Events, count_tokens, ranks, supervised
    from camshaft.handlers import predict

    idist.initialize("gloo")
    rank, directory, dies = ranks.rank(), sys.argv[1], len(sys.argv) > 2

    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(1, 3).double()

        def forward(self, x, labels=None):
            logits = self.layer(x)
            loss = None
            if labels is not None:
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
            return {"loss": loss, "logits": logits}

    model = DistributedDataParallel(Tagger())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    engine = supervised(model, optimizer, weight=count_tokens, accumulate=2)

    # One rank has no label in its last batch.
    x = torch.arange(24.0).double().view(2, 2, 2, 3, 1) / 24
    labels = torch.randint(3, (2, 2, 2, 3))
    labels[0, 0, 1:] = labels[1, 1] = -100
    batches = [[{"x": x[r, b], "labels": labels[r, b]} for b in (0, 1)] for r in (0, 1)]
    alone = Tagger()
    flat = [each for part in batches for each in part]
    together = {name: torch.cat([each[name] for each in flat]) for name in ("x", "labels")}
    expected = alone(**together)["loss"]
    assert abs(engine.evaluate(batches[rank]).metrics["loss"] - expected) < 1e-12
    if not dies:
        engine.run(batches[rank], max_epochs=1)
        expected.backward()
        for ours, theirs in zip(model.parameters(), alone.parameters()):
            assert torch.allclose(ours, theirs - theirs.grad, rtol=0, atol=1e-12)

    engine = supervised(torch.nn.Identity())
    samples = torch.arange(41)
    data = TensorDataset(samples)
    sampler = DistributedSampler(data, shuffle=False)
    if dies and rank == 1:
        @engine.evaluation.on(Events.ITERATION_STARTED(at=4))
        def die(state):
            os.kill(os.getpid(), 9)
    computed = []
    engine.evaluation.on(Events.ITERATION_COMPLETED)(lambda state: computed.append(state.iteration))
    found = predict(engine, DataLoader(data, 4, sampler=sampler), directory, seconds=1e-9)
    assert found.load()["prediction"].tolist() == samples.tolist()
    assert [sample["prediction"].item() for sample in found] == samples.tolist()
    assert len(found) == 41
    print(computed)
    idist.finalize()
"""


@pytest.mark.slow
def test_on_two_ranks_one_of_which_was_killed_samples_are_in_order_and_each_once(
    processes, tmp_path
):
    results = processes.run_ranks(2, RANKS, tmp_path, "dies", code=None)
    assert results[1].returncode == -signal.SIGKILL
    results = processes.run_ranks(2, RANKS, tmp_path)
    assert [json.loads(each.stdout.splitlines()[-1]) for each in results] == [[], [4, 5]]
    with pytest.raises(ValueError, match=r"of \[2\] ranks, and not of 1"):
        predict(supervised(torch.nn.Identity()), [torch.ones(1)], tmp_path)
    assert len(Predictions(tmp_path)) > 0  # as before


def test_a_shard_is_no_larger_than_asked_for_and_other_tools_read_it(tmp_path):
    predict(build(), loader(100, 10), tmp_path, megabytes=1e-3)  # 16 bytes a sample
    files = sorted(tmp_path.glob("rank-0-of-1/*/outputs.safetensors"))
    counts = [len(load_file(file).get("rows.prediction", ())) for file in files]
    assert counts == [70, 30]


def test_predictions_of_other_weights_or_data_are_not_mixed(tmp_path):
    engine = build()
    predict(engine, loader(), tmp_path)
    with pytest.raises(ValueError, match="of other data: batches 7 -> 4, samples 20 -> 10"):
        predict(engine, loader(10), tmp_path)
    engine.run(loader(), max_epochs=1)
    with pytest.raises(ValueError, match="of other weights: .*; Choose another|or remove this one"):
        predict(engine, loader(), tmp_path)


@pytest.mark.parametrize("kind", [list, loader])
def test_predictions_of_other_data_of_the_same_size_are_not_taken_for_those_of_this_one(
    kind, tmp_path
):
    def data(scale=1.0):
        old = loader().dataset
        new = TensorDataset(old.tensors[0] * scale, old.tensors[1])
        return [*DataLoader(new, 3)] if kind is list else DataLoader(new, 3)

    engine, same = build(), data()
    predict(engine, same, tmp_path)
    state = torch.get_rng_state()
    assert len(predict(engine, same, tmp_path)) == 20
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(ValueError, match=r"of other data: checksum of the first batch \d+ -> \d+"):
        predict(build(), data(2.0), tmp_path)
    assert torch.equal(torch.get_rng_state(), state)


def test_data_that_draw_random_numbers_are_no_other_data(tmp_path):
    class Augmented(TensorDataset):
        def __getitem__(self, index):
            return [each + torch.rand(()) for each in super().__getitem__(index)]

    noisy = DataLoader(Augmented(*loader().dataset.tensors), 3)
    torch.manual_seed(1)
    drawn = predict(build(), noisy, tmp_path).load()["target"]
    torch.manual_seed(2)
    assert torch.equal(predict(build(), noisy, tmp_path).load()["target"], drawn)


def test_the_same_weights_in_other_places_are_other_weights(tmp_path):
    engine = build()
    predict(engine, loader(), tmp_path)
    weight = engine.objects["model"].layer.weight
    weight.data = weight.data.flip(0)
    with pytest.raises(ValueError, match="of other weights"):
        predict(engine, loader(), tmp_path)


def test_the_weights_of_an_average_can_predict(tmp_path):
    engine = build().add(EMA(0.5))
    engine.run(loader(), max_epochs=1)
    predict(engine, loader(), tmp_path / "raw", seed=0)
    found = predict(engine, loader(), tmp_path / "ema", weights="ema", seed=0)
    torch.manual_seed(0)
    expected = engine.add(Collect()).evaluate(loader(), weights="ema", seed=0)
    assert torch.equal(found.load()["prediction"], expected.collected["outputs"]["prediction"])
    raw = Predictions(tmp_path / "raw").load()["prediction"]
    assert not torch.equal(found.load()["prediction"], raw)


def test_a_damaged_shard_is_told_of_when_it_is_read_and_before_the_pass_goes_on(tmp_path):
    engine = build()
    leave(engine, 6)
    with pytest.raises(LeftError):
        predict(engine, loader(), tmp_path, megabytes=1e-5)
    last = max(tmp_path.glob("rank-0-of-1/*/outputs.safetensors"))
    last.write_bytes(last.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"predictions of a damaged shard: .*iteration-0000000005"):
        predict(build(), loader(), tmp_path)


def test_a_shard_that_is_missing_is_noticed(tmp_path):
    predict(build(), loader(), tmp_path, megabytes=1e-5)
    next(tmp_path.glob("rank-0-of-1/iteration-0000000003")).rename(tmp_path / "moved")
    with pytest.raises(ValueError, match="are not complete: rank-0-of-1"):
        Predictions(tmp_path).load()


@pytest.mark.parametrize("again", [False, True])
def test_a_directory_that_is_moved_in_the_middle_is_an_error_and_another_runs_is_left_alone(
    tmp_path, again
):
    engine, place = build(), tmp_path / "found"

    @engine.evaluation.on(Events.ITERATION_STARTED(at=4))
    def move(state):
        place.rename(tmp_path / "elsewhere")
        if again:  # another run begins there
            predict(build(), loader(), place, megabytes=1e-4)

    with pytest.raises(FileNotFoundError, match="was removed or moved while predict wrote there"):
        predict(engine, loader(), place, megabytes=1e-4)
    assert place.exists() == again
    assert len(predict(build(), loader(), place, megabytes=1e-4)) == 20


def test_each_sample_needs_a_row_of_each_part(tmp_path):
    engine = Engine(lambda state, batch: {"made": batch, "mean": batch.mean()})
    with pytest.raises(ValueError, match=r"the output's parts have \[1, 3\] rows; give select="):
        predict(engine, [torch.ones(3)], tmp_path)
    found = predict(engine, [torch.ones(3)], tmp_path, select=lambda output: output["made"])
    assert found.load().tolist() == [1, 1, 1]


def test_afterwards_the_engine_writes_no_more_and_data_without_targets_will_do(tmp_path):
    engine = build()
    inputs = [batch[0] for batch in loader()]
    found = predict(engine, inputs, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    engine.evaluate(loader())
    engine.run(loader(), max_epochs=1)
    assert sorted(tmp_path.rglob("*")) == before
    assert found.load().keys() == {"prediction"}


@pytest.mark.parametrize("name", ["", "nothing"])
def test_a_directory_without_predictions_is_said_to_have_none(tmp_path, name):
    with pytest.raises(ValueError, match="holds no predictions; give the directory that predict"):
        len(Predictions(tmp_path / name))
