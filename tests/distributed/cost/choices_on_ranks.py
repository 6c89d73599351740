"""Run on two ranks: how many messages each choice costs in a step, under DDP and on shards."""

import sys
from itertools import product
from pathlib import Path

import pytest
import torch
from counter import Messages
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(Path(__file__).parents[1]))
import checks

from camshaft import Engine, Events, Stage, Update, ranks, supervised
from camshaft.handlers import ClipGradNorm, ClipGradValue, GradNorm, NonFiniteGuard, SpikeGuard

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


def four():
    return [NonFiniteGuard("skip"), SpikeGuard(window=2), GradNorm(), ClipGradNorm(0.01)]


def all_that_read_the_norm_share_one_message_on_shards():
    model = wrapped(True)
    engine = supervised(model, sgd(model), mse_loss, device="cpu").add(*four())
    assert count(engine) == 1
    model = wrapped(False)
    assert count(supervised(model, sgd(model), mse_loss, device="cpu").add(*four())) == 0


def whoever_may_change_gradients_has_the_norm_asked_for_again():
    def halve(state):  # by .data, which torch does not count as a change
        for parameter in state.engine.objects["model"].parameters():
            parameter.grad.to_local().data.mul_(0.5)

    for is_everywhere, norm in product((True, False), (1.0, None)):
        model = wrapped(True)
        handlers = [NonFiniteGuard("skip"), GradNorm(), ClipGradNorm(norm)] if norm else four()
        engine = supervised(model, sgd(model), mse_loss, device="cpu").add(*handlers)
        if is_everywhere or ranks.rank() == 0:
            engine.on(Events.GRADIENTS_READY, stage=Stage.MEASURE)(
                halve if is_everywhere else lambda state: None
            )
        assert count(engine) == len(handlers)
    model = wrapped(True)
    found = []
    engine = supervised(model, sgd(model), mse_loss, device="cpu")
    engine.add(GradNorm(name="before"))
    engine.on(Events.GRADIENTS_READY, stage=Stage.MEASURE)(halve)
    engine.add(ClipGradNorm(1e9), ClipGradValue(1e-4), GradNorm(name="none"))

    @engine.on(Events.STEP_COMPLETED)
    def note(state):
        found.append((state.metrics["grad_norm/before"], state.metrics["grad_norm"]))

    engine.run(BATCHES, max_epochs=1)
    assert all(after == before / 2 > 0 for before, after in found), found


def a_handler_of_one_rank_that_looks_like_a_reader_of_the_norm_changes_no_message():
    class Own:
        norm_type = 2.0

        def attach(self, engine):
            engine.on(Events.ITERATION_COMPLETED)(lambda state: None)

    model = wrapped(True)
    engine = supervised(model, sgd(model), mse_loss, device="cpu").add(NonFiniteGuard("skip"))
    if ranks.rank() == 0:
        engine.add(Own())
    assert count(engine) == 1


def who_leaves_on_one_rank_in_mid_run_changes_no_message():
    for handlers in ([NonFiniteGuard("skip"), GradNorm()], [NonFiniteGuard("skip")]):
        model = wrapped(True)
        engine = supervised(model, sgd(model), mse_loss, device="cpu").add(*handlers)
        engine.on(Events.GRADIENTS_READY)(reads)

        @engine.on(Events.ITERATION_STARTED(at=2))
        def leave(state, engine=engine):
            if ranks.rank() == 0:
                engine.off(reads)

        assert engine.run(BATCHES, max_epochs=1).step == 3


def who_comes_in_mid_run_and_may_change_gradients_is_an_error_where_a_norm_is_shared():
    for is_shared in (True, False):
        model = wrapped(True)
        handlers = [NonFiniteGuard("skip")] * is_shared + [GradNorm()]
        engine = supervised(model, sgd(model), mse_loss, device="cpu").add(*handlers)

        @engine.on(Events.ITERATION_STARTED(at=2))
        def come(state, engine=engine):
            engine.on(Events.GRADIENTS_READY)(reads)

        if is_shared:
            with pytest.raises(RuntimeError, match=r"reads\(\) was attached .* in mid-run"):
                engine.run(BATCHES, max_epochs=1)
        else:
            assert engine.run(BATCHES, max_epochs=1).step == 3


def reads(state):
    """A function that sees gradients, and might change them."""


def shared_norms_give_the_bits_of_norms_of_their_own():
    """A function on the events makes each handler ask by itself; one batch has a NaN on a rank."""

    def run(is_shared):
        torch.manual_seed(0)
        model = fully_shard(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)))
        rows = []
        engine = supervised(model, sgd(model), mse_loss, device="cpu").add(*four())
        if not is_shared:
            engine.on(Events.BACKWARD_COMPLETED)(lambda state: None)

        @engine.on(Events.ITERATION_COMPLETED)
        def note(state):
            skipped = state.metrics.get("skipped_steps", 0)
            rows.append((state.step, skipped, float(state.metrics["grad_norm"])))

        draw = torch.Generator().manual_seed(ranks.rank())
        data = [tuple(torch.randn(2, n, generator=draw) for n in (4, 2)) for _ in range(8)]
        data[4][0][0, 0] = float("nan") if ranks.rank() == 1 else 1.0
        data[6][1].fill_(1e3)  # a spike
        engine.run(data, max_epochs=1)
        weights = torch.cat([each.full_tensor().reshape(-1) for each in model.parameters()])
        return rows, weights.tolist()

    shared, apart = run(True), run(False)
    assert shared == apart
    assert shared[0][-1][:2] == (6, 2)


def a_norm_that_overflows_is_no_gradient_that_is_not_finite():
    huge = [(torch.full((2, 4), 1e19), torch.full((2, 2), -1e19))] * 2

    def loss(output, target):
        return (output * target.sign()).mean() * 1e10

    model = wrapped(True)
    engine = supervised(model, sgd(model), loss, device="cpu")
    engine.add(NonFiniteGuard("skip", metric=None), GradNorm())
    state = engine.run(huge, max_epochs=1)
    assert state.step == 2
    assert state.metrics["grad_norm"].isinf()


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


checks.make(globals())
