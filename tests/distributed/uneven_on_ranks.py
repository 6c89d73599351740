"""Run on two ranks that have different numbers of batches: 5 on rank 0 and 3 on rank 1."""

import logging
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import checks
import pytest
import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from camshaft import Engine, Events, ranks, seed_everything, supervised
from camshaft.handlers import Checkpoint, Validate, checkpoints

DIRECTORY = Path(sys.argv[1])
COUNTS = 5, 3


class Unsized:
    """What it holds, without a length."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


class Messages(logging.Handler):
    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


class Sent:
    """Counts what torch sends, in a `with` block."""

    NAMES = "gather", "all_gather_object"

    def __enter__(self):
        self.count, self.own = dict.fromkeys(self.NAMES, 0), {}
        for name in self.NAMES:
            self.own[name] = getattr(dist, name)
            setattr(dist, name, self._counting(name))
        return self

    def _counting(self, name):
        def send(*args, **kwargs):
            self.count[name] += 1
            return self.own[name](*args, **kwargs)

        return send

    def __exit__(self, *error):
        for name, function in self.own.items():
            setattr(dist, name, function)


def linear():
    torch.manual_seed(0)
    return torch.nn.Linear(3, 1, dtype=torch.float64)


def samples(rank, count):
    options = {"generator": torch.Generator().manual_seed(rank + 1), "dtype": torch.float64}
    return torch.randn(2 * count, 3, **options), torch.randn(2 * count, 1, **options)


def batches(rank=None):
    rank = ranks.rank() if rank is None else rank
    inputs, targets = samples(rank, COUNTS[rank])
    return list(zip(inputs.split(2), targets.split(2), strict=True))


def expected(epochs, window=2):
    """The weights after steps over the first three batches of both ranks, on one."""
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pairs = list(zip(batches(0), batches(1), strict=False))
    for _ in range(epochs):
        for first in range(0, len(pairs), window):
            held = [batch for pair in pairs[first : first + window] for batch in pair]
            optimizer.zero_grad()
            (sum(mse_loss(model(x), y) for x, y in held) / len(held)).backward()
            optimizer.step()
    return model.weight.detach()


def told():
    """The messages that this rank got since the last time."""
    messages, MESSAGES.messages = MESSAGES.messages, []
    return messages


def all_ranks_end_with_the_shortest_and_windows_close_there():
    for data, says in [
        (batches(), "the ranks have 3 to 5 batches an epoch: each epoch ends with the first"),
        (Unsized(batches()), "1 of 2 ranks have a batch 4 in epoch 1, and the others have none"),
        (batches() if ranks.rank() else Unsized(batches()), "1 of 2 ranks have a batch 4"),
    ]:
        model = DistributedDataParallel(linear())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        engine, seen = supervised(model, optimizer, mse_loss, accumulate=2), []
        engine.on(Events.LOADING | Events.EPOCH_COMPLETED)(
            lambda state, seen=seen: seen.append((state.epoch_length, state.iteration))
        )
        state = engine.run(data, max_epochs=2)
        length = 3 if isinstance(data, list) and says.startswith("the ranks") else None
        assert seen == [(length, 0), (length, 3), (length, 6)], seen
        assert (state.stop_reason, state.iteration, state.step) == ("max_epochs", 6, 4)
        weight = model.module.weight.detach()
        assert torch.allclose(weight, expected(2), rtol=0, atol=1e-9), (weight, expected(2))
        first, second = ranks.gathered(weight.tolist())
        assert first == second
        messages = told()
        assert [message.startswith(says) for message in messages] == [True] * (ranks.rank() == 0)


def a_limit_at_the_end_of_the_shortest_completes_the_epoch_on_all():
    engine, completed = Engine(lambda state, batch: None), []
    engine.on(Events.EPOCH_COMPLETED)(lambda state: completed.append(state.epoch))
    engine.run(batches(), max_iterations=6)
    assert completed == [1, 2]
    told()


def ranks_that_train_apart_are_told_once():
    def skip_alone(state, model):
        if state.iteration == 2 and ranks.rank() == 1:
            state.skip_step()

    def thaw(state, model):
        model.requires_grad_(state.iteration >= 2)

    for change in (skip_alone, thaw):
        torch.manual_seed(0)
        frozen = torch.nn.Linear(3, 3).double().requires_grad_(change is not thaw)
        both = DistributedDataParallel(torch.nn.Sequential(frozen, linear()))
        optimizer = torch.optim.SGD(both.parameters(), lr=0.1)
        engine = supervised(both, optimizer, mse_loss)
        engine.on(Events.BACKWARD_COMPLETED)(
            lambda state, frozen=frozen, change=change: change(state, frozen)
        )
        engine.run(batches()[:3], max_epochs=3)
        messages = told()
        assert len(messages) == (ranks.rank() == 0), messages
        assert all("the ranks have other weights" in each for each in messages)


def ranks_without_an_average_are_told_that_each_trains_a_model_of_its_own():
    def trained(averages=False, alone=False, hook=None):
        with ranks.alone() if alone else nullcontext():
            model = linear() if hook is None else DistributedDataParallel(linear())
            if hook is not None:
                model.register_comm_hook(None, hook)
            engine = supervised(model, torch.optim.SGD(model.parameters(), lr=0.1), mse_loss)
            if averages:
                engine.on(Events.BACKWARD_COMPLETED)(lambda state: average(model))
            engine.run(batches()[:3], max_epochs=2)
        return [each for each in told() if "each one trains a model of its own" in each]

    def average(model):
        for each in model.parameters():
            each.grad.copy_(ranks.total(each.grad) / 2)

    def own(_, bucket):
        """What a hook of local SGD does between two averages."""
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    assert len(trained()) == (ranks.rank() == 0)
    assert not trained(averages=True)
    assert not trained(hook=own)
    assert not trained(alone=True)


def who_wants_an_error_gets_it_on_every_rank():
    engine = Engine(lambda state, batch: None)
    with pytest.raises(ValueError, match=r"^the ranks have 3 to 5 batches an epoch; deal samples"):
        engine.run(batches(), max_epochs=1, uneven="error")
    with pytest.raises(ValueError, match=r"^1 of 2 ranks have a batch 4 in epoch 1"):
        engine.run(Unsized(batches()), max_epochs=1, uneven="error")
    assert engine.run(batches()[:3], max_epochs=2, uneven="error").iteration == 6
    assert engine.run(Unsized(batches()[:3]), max_epochs=2, uneven="error").iteration == 6


def a_rank_without_a_batch_is_an_error_on_every_rank():
    for kind in (list, Unsized):
        data = kind(batches() if ranks.rank() else [])
        with pytest.raises(ValueError, match="epoch 1 found no batch: the data is empty.*another"):
            Engine(lambda state, batch: None).run(data, max_epochs=1)
    told()


def an_iterator_that_ends_on_one_rank_ends_the_run_on_all():
    for data in (iter(batches()), iter(batches()) if ranks.rank() else batches()):
        engine, completed = Engine(lambda state, batch: None), []
        engine.on(Events.COMPLETED)(
            lambda state, completed=completed: completed.append(state.epoch)
        )
        state = engine.run(data, max_epochs=3)
        assert (state.stop_reason, state.iteration, completed) == ("data_ended", 3, [1])
    told()


def a_run_whose_last_epoch_found_no_common_batch_can_be_carried_on():
    engine = Engine(lambda state, batch: None)
    state = engine.run(iter(batches()), max_epochs=3, epoch_length=3)
    assert (state.stop_reason, state.epoch, state.iteration) == ("data_ended", 1, 3)
    engine.run(range(2), state=state)
    assert (state.stop_reason, state.epoch, state.iteration) == ("max_epochs", 3, 7)
    told()


def equal_numbers_are_compared_once_an_epoch_and_unknown_ones_at_each_batch():
    engine = Engine(lambda state, batch: None)
    for data, options, sent in [
        # Whether the ranks are alike; what one asks for after each epoch, and at the beginning and
        # the end; lengths, at first and for each epoch; weights, after epochs 1 and 2.
        (range(7), {}, (1 + 3 + 3 + 4 + 2, 0)),
        (Unsized(range(7)), {}, (1 + 3 * 8 + 3 + 3 + 4 + 2, 0)),
        (Unsized(range(7)), {"uneven": "ignore"}, (0, 0)),
    ]:
        with Sent() as found:
            engine.run(data, max_epochs=3, **options)
        assert tuple(found.count.values()) == sent, found.count
    with Sent() as found:
        engine.evaluate(range(3 + ranks.rank()))
    assert tuple(found.count.values()) == (0, 0)


def evaluations_may_have_different_numbers_of_batches():
    model = DistributedDataParallel(linear())
    engine = supervised(model, torch.optim.SGD(model.parameters(), lr=0.1), mse_loss)
    state = engine.add(Validate(batches())).run(batches()[:3], max_epochs=1)
    x, y = (torch.cat(each) for each in zip(*batches(0), *batches(1), strict=True))
    loss = mse_loss(model.module(x), y).item()
    assert abs(float(state.metrics["val/loss"]) - loss) < 1e-9


def a_compiled_model_is_evaluated_like_a_plain_one():
    def train(wrap):
        torch.manual_seed(0)
        layers = torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)
        model = torch.nn.Sequential(*layers)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        engine = supervised(wrap(DistributedDataParallel(model)), optimizer, mse_loss, accumulate=2)
        uneven, losses = [(torch.ones(2, 2), torch.ones(2, 1))] * (1 + 2 * ranks.rank()), []
        engine.add(Validate(uneven, when=Events.ITERATION_COMPLETED))
        engine.on(Events.ITERATION_COMPLETED)(lambda s: losses.append(float(s.metrics["val/loss"])))
        torch.manual_seed(ranks.rank())
        engine.run([(torch.randn(4, 2), torch.randn(4, 1)) for _ in range(3)], max_epochs=2)
        return losses, [each.tolist() for each in model.buffers()]

    plain = train(lambda model: model)
    assert train(partial(torch.compile, backend="eager")) == plain
    first, second = ranks.gathered(plain)
    assert first == second  # one model on both ranks


def each_rank_can_draw_its_own_numbers_while_the_shuffle_stays_one():
    drawn, samples = [], []
    for per_rank in (False, True):
        seed_everything(7, per_rank=per_rank)
        drawn.append(torch.rand(3).tolist())
    loader = DataLoader(range(10), 2, sampler=DistributedSampler(range(10)))
    Engine(lambda state, batch: samples.extend(batch.tolist())).run(loader, max_epochs=2)
    (alike, first), (again, second) = ranks.gathered(drawn)
    assert alike == again == first != second  # the seed is the first rank's own
    own, others = ranks.gathered([samples[:5], samples[5:]])
    assert all(sorted(a + b) == [*range(10)] for a, b in zip(own, others, strict=True))
    assert own[0] != own[1]


def torchs_join_lets_a_rank_go_on_alone():
    model = DistributedDataParallel(linear())
    engine = supervised(model, torch.optim.SGD(model.parameters(), lr=0.1), mse_loss)
    with model.join():
        state = engine.run(batches(), max_epochs=1, uneven="ignore")
    assert state.step == COUNTS[ranks.rank()]
    first, second = ranks.gathered(model.module.weight.tolist())
    assert first == second


def train(directory, known, stop_at=None):
    """Three epochs, shuffled and with noise; left and carried on after an iteration."""
    torch.manual_seed(5 + ranks.rank())
    model = DistributedDataParallel(linear())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, mse_loss, accumulate=2)
    engine.add(Checkpoint(directory, resume=True))
    if stop_at:
        stop = Events.ITERATION_COMPLETED(at=stop_at)
        engine.on(stop)(lambda state: state.interrupt("a signal"))
    data = TensorDataset(*samples(ranks.rank(), COUNTS[ranks.rank()]))
    loader = DataLoader(data, 2, shuffle=True, collate_fn=noisy)
    state = engine.run(loader if known else Unsized(loader), max_epochs=3)
    return state.iteration, model.module.weight.tolist()


def noisy(pairs):
    inputs, targets = map(torch.stack, zip(*pairs, strict=True))
    return inputs + torch.randn(()), targets


def a_resumed_run_is_the_same_run():
    for known in (True, False):
        whole = train(DIRECTORY / f"{known}", known)
        assert whole[0] == 9
        for stop_at in (2, 3):
            directory = DIRECTORY / f"{known}-{stop_at}"
            train(directory, known, stop_at)
            torch.rand(3)
            assert train(directory, known) == whole, (known, stop_at)
    told()


def outside_of_epochs_all_ranks_do_what_one_asks_for():
    for event in (Events.LOADING, Events.STARTED, Events.EPOCH_COMPLETED, Events.COMPLETED):
        for number, name in enumerate(("save", "stop", "interrupt")):
            engine = Engine(lambda state, batch: None)
            directory = DIRECTORY / f"{event.name}-{name}"
            engine.add(Checkpoint(directory, when=Events.ITERATION_COMPLETED(at=5)))

            @engine.on(event(at=1))
            def ask(state, name=name, alone=number % 2):
                if ranks.rank() == alone:
                    getattr(state, name)("why")

            state = engine.run(batches(1), max_epochs=2)
            found = state.iteration, [each.manifest.reason for each in checkpoints(directory)]
            assert ranks.gathered(found) == [found] * 2, (event, name, found)
            told()


MESSAGES = Messages()
logging.getLogger("camshaft").addHandler(MESSAGES)
checks.make(globals())
