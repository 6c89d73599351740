"""Run under torchrun on two ranks: what is averaged when, and that it is right."""

import warnings
from functools import partial
from itertools import product

import checks
import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from camshaft import Engine, Events, Update, ranks, supervised
from camshaft.handlers import ClipGradNorm, GradNorm, NonFiniteGuard

WINDOWS = [0, 1], [2, 3], [4]
"""The numbers of the batches of each window, where two are accumulated."""


class Model(torch.nn.Module):
    """Two layers, of which the second is only used on demand."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a = torch.nn.Linear(3, 1, bias=False, dtype=torch.float64)
        self.b = torch.nn.Linear(3, 1, bias=False, dtype=torch.float64)
        self.register_buffer("seen", torch.zeros(1))  # in a message of its own, unless told not to

    def forward(self, x, both=True):
        self.seen += 1
        return self.a(x) + self.b(x) if both else self.a(x)


def distributed(**options):
    """A model on ranks, its optimizer, and a list of what it has sent."""
    model, sent = DistributedDataParallel(Model(), **options), []

    def hook(state, bucket):
        sent.append(bucket.index())
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda future: future.value()[0] / 2)

    model.register_comm_hook(None, hook)
    return model, sgd(model), sent


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def batches(rank, count=5, size=4):
    generator = torch.Generator().manual_seed(rank + 1)
    options = {"generator": generator, "dtype": torch.float64}
    return [
        (torch.randn(size, 3, **options), torch.randn(size, 1, **options)) for _ in range(count)
    ]


class Unsized:
    def __iter__(self):
        return iter(batches(ranks.rank()))


def check(model, loss_of, windows=WINDOWS):
    """Equal on both ranks, and to steps with `loss_of(model, window)` on one, to 1e-9."""
    weights = torch.cat([each.detach().reshape(-1) for each in model.parameters()])
    first, second = ranks.gathered(weights.tolist())
    assert first == second
    expected = Model()
    optimizer = sgd(expected)
    for window in windows:
        optimizer.zero_grad()
        loss_of(expected, window).backward()
        optimizer.step()
    wanted = torch.cat([each.detach().reshape(-1) for each in expected.parameters()])
    assert torch.allclose(weights, wanted, rtol=0, atol=1e-9), (weights, wanted)


def mean(model, window, missing=(), both=lambda number: True):
    """The loss over the batches of both ranks that are there."""
    losses = [
        mse_loss(model(x, both(i)), y)
        for rank in (0, 1)
        for i, (x, y) in enumerate(batches(rank))
        if i in window and (rank, i) not in missing
    ]
    return sum(losses) / len(losses)


def supervised_sends_one_message_a_window():
    own = batches(ranks.rank())
    for data, sync, messages in [
        (own, "last", 3),
        (Unsized(), "last", 2),  # the short window is averaged by hand
        (own, "close", 0),
        (Unsized(), "close", 0),
    ]:
        model, optimizer, sent = distributed()
        update = Update(optimizer, model=model, accumulate=2, sync=sync)
        engine = supervised(model, update, mse_loss)
        state = engine.add(GradNorm(check=True)).run(data, max_epochs=1)
        assert (len(sent), state.step) == (messages, 3), (sync, sent)
        check(model, mean)


def a_step_of_ones_own_does_so_with_micro_batch_and_is_right_without():
    for inside, messages in [(True, 3), (False, 5)]:
        model, optimizer, sent = distributed()
        update = Update(optimizer, model=model, accumulate=2)

        def step(state, batch, update=update, model=model, inside=inside):
            if inside:
                with update.micro_batch(state):
                    update(state, mse_loss(model(batch[0]), batch[1]))
            else:
                update(state, mse_loss(model(batch[0]), batch[1]))

        Engine(step).run(batches(ranks.rank()), max_epochs=1)
        assert len(sent) == messages, sent
        check(model, mean)


def an_update_that_was_not_told_of_its_model_says_so_once_where_that_is_slower():
    for options, weight, told in [
        ({"accumulate": 2}, None, 1),
        ({"accumulate": 1}, None, 0),
        ({"accumulate": 1}, 4, 0),
    ]:
        model, optimizer, sent = distributed()
        update = Update(optimizer, **options)

        def step(state, batch, update=update, model=model, weight=weight):
            update(state, mse_loss(model(batch[0]), batch[1]), weight=weight)

        with warnings.catch_warnings(record=True) as caught:
            Engine(step).run(batches(ranks.rank()), max_epochs=2)
        assert len(sent) == 10, sent
        says = [str(each.message) for each in caught if each.category is UserWarning]
        assert len(says) == told, says
        assert all("averages gradients 2 times a step" in each for each in says)
    with pytest.raises(ValueError, match=r"does not know it: Update\(optimizer, model=model\)"):
        supervised(model, update, mse_loss)


def a_layer_that_only_the_first_micro_batch_uses_is_averaged_too():
    model, optimizer, sent = distributed(find_unused_parameters=True)
    update = Update(optimizer, model=model, accumulate=2)

    def step(state, batch):
        with update.micro_batch(state):
            update(state, mse_loss(model(batch[0], state.iteration % 2 == 1), batch[1]))

    Engine(step).run(batches(ranks.rank(), 4), max_epochs=1)
    assert len(sent) == 2, sent
    check(model, lambda m, w: mean(m, w, both=lambda i: i % 2 == 0), WINDOWS[:2])


def each_rank_may_skip_micro_batches_of_its_own_if_windows_average():
    missing = {(1, 0), (1, 1), (0, 2), (0, 4), (1, 4)}
    model, optimizer, _ = distributed()
    update = Update(optimizer, model=model, accumulate=2, sync="close")

    def step(state, batch):
        with update.micro_batch(state):
            there = (ranks.rank(), state.iteration - 1) not in missing
            update(state, mse_loss(model(batch[0]), batch[1]) if there else None)  # no forward

    assert Engine(step).run(batches(ranks.rank()), max_epochs=1).step == 2
    check(model, lambda m, w: mean(m, w, missing), WINDOWS[:2])


def otherwise_that_is_an_error_and_no_hang():
    model, optimizer, _ = distributed()
    update = Update(optimizer, model=model, accumulate=2)
    with pytest.raises(RuntimeError, match="sync='close'"):
        Engine(lambda state, batch: update(state, None)).run([1], max_epochs=1)


def a_static_graph_trains_and_is_refused_where_passes_do_not_average():
    """Torch 2.13 ends such a pass with an assertion of its reducer."""
    model = DistributedDataParallel(Model(), static_graph=True)
    assert supervised(model, sgd(model), mse_loss).run(batches(ranks.rank()), max_epochs=2).step
    check(model, mean, [[0], [1], [2], [3], [4]] * 2)
    for options in ({"accumulate": 2}, {"split": 2}):
        engine = supervised(model, sgd(model), mse_loss, **options)
        with pytest.raises(ValueError, match="leave static_graph=True out"):
            engine.run(batches(ranks.rank()), max_epochs=1)


def targets_are_counted_over_ranks_and_one_may_have_none():
    tokens = [[3, 1, 7, 2, 5], [2, 0, 0, 0, 4]]

    def total(rank, number, model):
        x, y = (each[: tokens[rank][number]] for each in batches(rank, size=7)[number])
        return mse_loss(model(x), y, reduction="sum")

    def over_all(model, window):
        own = [(rank, number) for rank in (0, 1) for number in window]
        targets = sum(tokens[rank][number] for rank, number in own)
        return sum(total(rank, number, model) for rank, number in own) / targets

    half = partial(torch.tensor, dtype=torch.half)
    kinds = [int, int], [float, torch.tensor], [half, torch.tensor], [half, int]  # by rank
    for sync, kind in product(("last", "close"), kinds):
        model, optimizer, _ = distributed()
        update = Update(optimizer, model=model, accumulate=2, sync=sync)

        def step(state, number, update=update, model=model, kind=kind[ranks.rank()]):
            with update.micro_batch(state):
                weight = kind(tokens[ranks.rank()][number])
                update(state, total(ranks.rank(), number, model), weight=weight)

        Engine(step).run(range(5), max_epochs=1)
        check(model, over_all)


def a_weight_on_one_rank_only_is_an_error_on_both_before_any_gradient_is_sent():
    for way, accumulate in product(("last", "close", None), (1, 2)):
        model, optimizer, sent = distributed()
        options = {} if way is None else {"model": model, "sync": way}
        update = Update(optimizer, accumulate=accumulate, **options)

        def step(state, batch, update=update, model=model):
            with update.micro_batch(state):
                loss = mse_loss(model(batch[0]), batch[1], reduction="sum")
                update(state, loss, weight=4 if ranks.rank() else None)

        with pytest.raises(ValueError, match="rank 0: loss without a weight, rank 1: loss with"):
            Engine(step).run(batches(ranks.rank()), max_epochs=1)
        assert not sent


def ranks_ask_for_the_kind_of_weights_once():
    (model, optimizer, _), asked, send = distributed(), [], dist.all_gather_object
    update = Update(optimizer, model=model)
    engine = supervised(model, update, mse_loss)

    def noted(found, value, **options):
        asked.append(value)
        return send(found, value, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_gather_object", noted)
        engine.run(batches(ranks.rank()), max_epochs=2)
    assert asked.count("loss without a weight") == 1, asked


def targets_are_counted_while_the_backward_pass_goes_on():
    for weight in (4, torch.tensor(4)):
        (model, optimizer, _), order, send = distributed(), [], dist.all_reduce
        update = Update(optimizer, model=model, accumulate=2)

        def noted(tensor, *args, order=order, send=send, **options):
            order.append("gradients" if tensor.numel() > 1 else "targets")
            return send(tensor, *args, **options)

        def step(state, batch, update=update, model=model, weight=weight, order=order):
            with update.micro_batch(state):
                loss = mse_loss(model(batch[0]), batch[1], reduction="sum")
                loss.register_hook(lambda _: order.append("backward"))
                update(state, loss, weight=weight)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dist, "all_reduce", noted)
            Engine(step).run(batches(ranks.rank()), max_epochs=1)
        once = ["targets", "backward", "gradients"]
        assert order == [*["backward", *once] * 2, *once], order
        check(model, mean)


def parts_of_a_batch_are_one_message():
    model, optimizer, sent = distributed()
    engine = supervised(model, optimizer, mse_loss, accumulate=2, split=3)
    engine.run(batches(ranks.rank()), max_epochs=1)
    assert len(sent) == 3, sent
    check(model, mean)


def searching_along_a_line_is_the_same_search_on_both():
    for accumulate in (1, 2):
        model, _, _ = distributed()
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, line_search_fn="strong_wolfe")
        engine = supervised(model, optimizer, mse_loss, accumulate=accumulate)
        engine.run(batches(ranks.rank(), 2), max_epochs=2)
        first, second = ranks.gathered([each.tolist() for each in model.parameters()])
        assert first == second


def shards_are_right_whether_the_length_is_known_or_not():
    for data in (batches(ranks.rank()), Unsized()):
        model = fully_shard(Model())
        supervised(model, sgd(model), mse_loss, accumulate=2, device="cpu").run(data, max_epochs=1)
        whole = Model()
        weights = {name: each.full_tensor() for name, each in model.named_parameters()}
        whole.load_state_dict(weights, strict=False)
        check(whole, mean)


def gradients_that_differ_are_found():
    model = Model()
    engine = supervised(model, sgd(model), mse_loss).add(GradNorm(check=True))
    with pytest.raises(RuntimeError, match="at step 1: their norm is rank 0 has"):
        engine.run(batches(ranks.rank()), max_epochs=1)


def several_optimizers_make_one_step_of_averaged_gradients():
    for sync, messages in (("last", 3), ("close", 0)):
        model, _, sent = distributed()
        each = [torch.optim.SGD([one], lr=0.1) for one in model.parameters()]
        update = Update(each, model=model, accumulate=2, sync=sync)
        engine = supervised(model, update, mse_loss).add(GradNorm(check=True))
        state = engine.run(batches(ranks.rank()), max_epochs=1)
        assert (len(sent), state.step) == (messages, 3), (sync, sent)
        check(model, mean)


def several_optimizers_make_one_step_of_sharded_gradients():
    model = Model()
    fully_shard(model)
    each = [torch.optim.SGD([one], lr=0.1) for one in model.parameters()]
    engine = supervised(model, {"a": each[0], "b": each[1]}, mse_loss, accumulate=2)
    state = engine.add(GradNorm(), NonFiniteGuard("skip")).run(batches(ranks.rank()), max_epochs=1)
    assert state.step == 3
    weights = [one.full_tensor().tolist() for one in model.parameters()]
    whole = Model()
    optimizer = sgd(whole)
    for window in WINDOWS:
        optimizer.zero_grad()
        mean(whole, window).backward()
        optimizer.step()
    for own, wanted in zip(weights, whole.parameters(), strict=True):
        assert torch.allclose(torch.tensor(own), wanted.detach().float(), rtol=0, atol=1e-6)


def nan_on_one_rank_is_skipped_by_both():
    model, optimizer, _ = distributed()
    engine, rows = supervised(model, optimizer, mse_loss).add(NonFiniteGuard("skip")), []
    engine.on(Events.ITERATION_COMPLETED)(lambda s: rows.append((s.step, s.output.loss)))
    data = batches(ranks.rank())
    if ranks.rank() == 1:
        data[2][0][0, 0] = float("nan")
    state = engine.run(data, max_epochs=1)
    assert [step for step, _ in rows] == [1, 2, 2, 3, 4]
    assert bool(rows[2][1].isnan()) == (ranks.rank() == 1)
    assert state.metrics["skipped_steps"] == 1
    check(model, mean, [[0], [1], [3], [4]])


def gradients_that_ddp_averages_need_no_question_about_their_readers():
    model, changed = DistributedDataParallel(Model()), []
    engine = supervised(model, sgd(model), mse_loss)
    engine.add(NonFiniteGuard("skip"), GradNorm(), ClipGradNorm(1e9))

    @engine.on(Events.ITERATION_STARTED(at=2))
    def attach(state):
        if ranks.rank() == 1:  # the other rank knows nothing of it, and waits for nobody
            engine.on(Events.GRADIENTS_READY)(lambda state: changed.append(state.step))

    state = engine.run(batches(ranks.rank()), max_epochs=1)
    assert state.step == 5
    assert len(changed) == (4 if ranks.rank() == 1 else 0)
    check(model, mean, [[0], [1], [2], [3], [4]])


checks.make(globals())
