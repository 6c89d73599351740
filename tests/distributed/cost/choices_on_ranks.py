"""Run on two ranks: how many messages each choice costs in a step, under DDP and on shards."""

import sys
from itertools import product
from pathlib import Path

import torch
from counter import Messages
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(Path(__file__).parents[1]))
import checks

from camshaft import Engine, Events, Stage, Update, ranks, supervised
from camshaft.handlers import ClipGradNorm, GradNorm, NonFiniteGuard, SpikeGuard

BATCHES = [(torch.ones(2, 4), torch.ones(2, 2))] * 3
HANDLERS = {
    NonFiniteGuard("skip"): (0, 1),
    NonFiniteGuard("raise", late=True): (0, 0),
    SpikeGuard(): (0, 1),
    GradNorm(): (0, 1),
    ClipGradNorm(1.0): (0, 1),
    SpikeGuard(metric="loss"): (1, 1),
    GradNorm(check=True): (2, 3),
}


def wrapped(is_sharded):
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    return fully_shard(model) if is_sharded else DistributedDataParallel(model)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.01)


def count(engine, data=BATCHES):
    """The messages of Camshaft in the second of three iterations."""
    messages = Messages(ranks.rank())

    @engine.on(Events.ITERATION_STARTED, stage=Stage.MEASURE)
    def note(state):
        messages.place = state.iteration

    with messages:
        engine.run(data, max_epochs=1)
    return messages.of("camshaft").get(2, (0, 0))[0]


def each_handler_sends_what_the_page_says():
    for (handler, expected), is_sharded in product(HANDLERS.items(), (False, True)):
        model = wrapped(is_sharded)
        engine = supervised(model, sgd(model), mse_loss, device="cpu").add(handler)
        assert count(engine) == expected[is_sharded], (handler, is_sharded)


def targets_are_one_message_a_window():
    for is_sharded in (False, True):
        model = wrapped(is_sharded)
        options = {"weight": lambda output: len(output.target), "device": "cpu"}
        assert count(supervised(model, sgd(model), mse_loss, **options)) == 1


def a_scaler_asks_where_each_rank_has_a_part():
    for is_sharded in (False, True):
        model = wrapped(is_sharded)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        update = Update(sgd(model), model=model, scaler=scaler)

        def step(state, batch, model=model, update=update):
            with update.micro_batch(state):
                update(state, mse_loss(model(batch[0]), batch[1]))

        engine = Engine(step, update, objects={"model": model, "optimizer": update.optimizer})
        assert count(engine) == 2 * is_sharded


def what_is_averaged_when_a_window_closes_is_five_with_the_gradients():
    model = wrapped(False)
    update = Update(sgd(model), model=model, sync="close")
    assert count(supervised(model, update, mse_loss, device="cpu")) == 5


def batches_of_unknown_number_are_two():
    model = wrapped(False)
    data = (each for each in BATCHES)
    assert count(supervised(model, sgd(model), mse_loss, device="cpu"), data) == 2


def guards_ask_where_a_hook_may_leave_different_gradients():
    for guard, expected in ((NonFiniteGuard("skip"), 1), (SpikeGuard(), 2)):
        model = wrapped(False)
        model.register_comm_hook(
            None, lambda _, bucket: torch.futures.collect_all([]).then(lambda _: bucket.buffer())
        )
        engine = supervised(model, sgd(model), mse_loss, device="cpu").add(guard)
        assert count(engine) == expected, guard


CHECKS = [
    each_handler_sends_what_the_page_says,
    targets_are_one_message_a_window,
    a_scaler_asks_where_each_rank_has_a_part,
    what_is_averaged_when_a_window_closes_is_five_with_the_gradients,
    batches_of_unknown_number_are_two,
    guards_ask_where_a_hook_may_leave_different_gradients,
]

checks.make(CHECKS)
