"""Run on three ranks: what one of them runs otherwise is an error on all, before a batch."""

import logging
from functools import partial
from pathlib import Path

import pytest
import torch
from checks import make
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, Subset

from camshaft import Engine, Events, on_rank, ranks, supervised
from camshaft import loader as camshaft_loader
from camshaft.handlers import (
    Checkpoint,
    ClipGradNorm,
    EarlyStopping,
    GradNorm,
    HangWatchdog,
    ProgressBar,
    SpikeGuard,
    TimeHandlers,
    Validate,
)

BATCHES = [(torch.ones(2, 2), torch.ones(2, 1))] * 3


class LocalWriter:
    """A handler of a script."""

    def attach(self, engine):
        engine.on(Events.ITERATION_COMPLETED)(lambda state: None)


def script(
    *handlers,
    lr=0.1,
    optimizer=torch.optim.SGD,
    width=1,
    kind=torch.float32,
    loss=nn.functional.mse_loss,
    **settings,
):
    model = nn.Sequential(nn.Linear(2, width, dtype=kind), nn.BatchNorm1d(width, dtype=kind))
    if settings.pop("reverse", False):
        model = nn.Sequential(*reversed(model))
    return supervised(model, optimizer(model.parameters(), lr), loss, **settings).add(*handlers)


def differs(message, usual, other, odd=2, **limits):
    """Rank `odd` has an engine and limits of its own; all say so, and none has read a batch."""
    seen, (make_engine, own) = [], other if ranks.rank() == odd else usual
    engine = make_engine()
    engine.on(Events.LOADING)(seen.append)
    with pytest.raises(ValueError, match=message) as error:
        engine.run(map(seen.append, BATCHES), **{"max_epochs": 2, **own})
    assert "the ranks do not run the same: " in str(error.value)
    assert not seen
    told = ranks.gathered(str(error.value))
    assert told == [told[0]] * 3


def alone_differs(message, odd=2, **given):
    differs(message, (script, {}), (partial(script, **given), {}), odd)


def settings_of_a_rank_are_named_with_the_values_of_all():
    alone_differs(r": rank 2 has optimizer.lr=0.01 where the others have 0.1\. Give", lr=0.01)
    alone_differs("rank 0 has optimizer.lr=0.01 where the others have 0.1", odd=0, lr=0.01)
    adam = "rank 2 has Update.optimizer=Adam where the others have SGD"
    alone_differs(adam, optimizer=torch.optim.Adam)
    decay = partial(torch.optim.SGD, weight_decay=0.5)
    alone_differs("optimizer.weight_decay=0.5 where the others have 0", optimizer=decay)
    alone_differs("Update.accumulate=2 where the others have 1", accumulate=2)
    alone_differs(r"autocast\(torch.bfloat16\) where the others have None", precision="bf16")
    alone_differs("loss_fn=l1_loss where the others have mse_loss", loss=nn.functional.l1_loss)
    smooth, plain = (partial(script, loss=nn.CrossEntropyLoss(label_smoothing=x)) for x in (0.1, 0))
    differs("label_smoothing=0.1", (plain, {}), (smooth, {}))


def objects_of_a_rank_are_named_with_their_forms():
    alone_differs(r"model.0.weight=float32 \[3, 2\] where the others have float32 \[1", width=3)
    alone_differs(r"model.0.weight=float64 \[1, 2\] where .*float32 \[1, 2\]", kind=torch.float64)
    alone_differs("order of the parameters|model.0.weight", reverse=True)

    def frozen():
        engine = script()
        engine.objects["model"][0].weight.requires_grad_(False)
        return engine

    differs(
        r"\[1, 2\], frozen where the others have float32 \[1, 2\]\.", (script, {}), (frozen, {})
    )


def handlers_of_a_rank_are_named():
    given = partial(script, EarlyStopping("loss", mode="min"))
    differs(
        r"2 has EarlyStopping\(loss\)=nothing where the others have Early",
        (given, {}),
        (script, {}),
    )
    differs(
        r"2 has EarlyStopping\(loss\)=EarlyStopping where the others have noth",
        (script, {}),
        (given, {}),
    )
    patient = partial(script, EarlyStopping("loss", mode="min", patience=9))
    differs(r"EarlyStopping\(loss\).patience=9 where", (given, {}), (patient, {}))
    often, seldom = (partial(script, ClipGradNorm(norm)) for norm in (1.0, 2.0))
    differs(r"ClipGradNorm.max_norm=2.0 where the others have 1.0", (often, {}), (seldom, {}))
    new, old = (partial(script, Checkpoint("runs", resume=each)) for each in (None, True))
    differs("Checkpoint.resume=True where the others have None", (new, {}), (old, {}))
    validated = partial(script, Validate(BATCHES, name="val"))
    differs(r"rank 2 has Validate\(val\)=nothing where the others", (validated, {}), (script, {}))

    def by_the_clock():
        engine = script()
        engine.on(Events.ITERATION_COMPLETED(seconds=5))(print)
        return engine

    differs(r"rank 1 has print\(\)=.* where", (script, {}), (by_the_clock, {}), odd=1)


def settings_of_handlers_and_of_objects_are_named_together():
    differs(
        r"rank 2 has Update.accumulate=2 where .*; rank 2 has optimizer.lr=0.5 where",
        *((script, {}), (partial(script, lr=0.5, accumulate=2), {})),
    )


def handlers_in_another_order_are_named():
    """Messages of two handlers of one event would meet each other."""
    first, other = SpikeGuard(metric="loss"), GradNorm(check=True)
    usual, odd = partial(script, first, other), partial(script, other, first)
    differs(
        r"rank 2 has the order of handlers=.*, GradNorm, SpikeGuard.* where the others have .*, "
        "SpikeGuard.*, GradNorm",
        *((usual, {}), (odd, {})),
    )
    given = partial(script, EarlyStopping("loss", mode="min"))
    with pytest.raises(ValueError, match="do not run the same") as error:
        (given if ranks.rank() else script)().run(BATCHES, max_epochs=1)
    assert "order" not in str(error.value)


class Rows(torch.utils.data.Dataset):
    """Ten samples; a rank may have some of its own, or be told its number."""

    def __init__(self, value=0.0, *, length=10, rank=0):
        self.values, self.rank = torch.full((length, 2), value), rank

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.values[index], torch.ones(1)


class Part(torch.utils.data.Sampler):
    """A sampler of a script, which deals samples out to the ranks."""

    def __iter__(self):
        return iter(range(ranks.rank(), 9, 3))

    def __len__(self):
        return 3


def warnings_of(loader):
    """What a run over a loader says on rank 0, where it says it."""
    messages, handler = [], logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logging.getLogger("camshaft").addHandler(handler)
    for _ in range(2):
        Engine(lambda state, batch: None).run(loader, max_epochs=1)
    logging.getLogger("camshaft").removeHandler(handler)
    return ranks.gathered(messages)[0]


def samples_that_all_ranks_read_are_a_warning_with_what_to_do():
    ones = torch.utils.data.SubsetRandomSampler(range(4))
    for loader in (
        DataLoader(Rows(), 2, shuffle=True),
        DataLoader(Rows(), 2),
        DataLoader(Rows(), None),
        DataLoader(Rows(), 2, sampler=ones),
        DataLoader(Rows(float(ranks.rank() == 2)), 2),  # two of the three
    ):
        (message,) = warnings_of(loader)
        assert message.startswith("the ranks read the same 10 samples: this DataLoader does not")
        assert "loader(dataset, batch_size, training=True)" in message


class Stream(torch.utils.data.IterableDataset):
    """Twelve samples; each rank reads every n-th one."""

    def __init__(self, step=1, first=0):
        self.own = range(first, 12, step)

    def __iter__(self):
        return (torch.full((2,), float(each)) for each in self.own)


def streams_that_all_ranks_read_are_a_warning_and_others_are_none():
    size, rank = ranks.world_size(), ranks.rank()
    (message,) = warnings_of(DataLoader(Stream()))
    assert message.startswith("ranks read the same samples: each goes through the whole Stream")
    assert "ranks.data_rank()" in message
    assert warnings_of(DataLoader(Stream(size, rank))) == []
    assert warnings_of(DataLoader(Stream(), 4)) == []  # too short to tell


def samples_of_each_rank_are_none():
    rank, rows = ranks.rank(), Rows()
    draws = torch.utils.data.WeightedRandomSampler([1.0] * 10, 9)
    for loader in (
        camshaft_loader(rows, 6, training=True),
        DataLoader(rows, 2, sampler=DistributedSampler(rows)),
        DataLoader(rows, 2, sampler=Part()),
        DataLoader(rows, 2, sampler=draws),
        DataLoader(Rows(float(rank)), 2),
        DataLoader(Rows(rank=rank), 2),
        DataLoader(Subset(Rows(), range(rank, 9, 3)), 2),
        DataLoader(rows, 2, sampler=torch.utils.data.SubsetRandomSampler(range(rank, 9, 3))),
        [*DataLoader(rows, 2)],
    ):
        assert warnings_of(loader) == [], loader
    ranks.data_parallel(None)
    assert warnings_of(DataLoader(rows, 2, shuffle=True)) == []
    ranks.data_parallel(torch.distributed.device_mesh.init_device_mesh("cpu", (3,)))


def limits_data_and_environment_of_a_rank_are_named():
    for name in ("max_epochs", "max_iterations", "max_steps", "epoch_length"):
        differs(f"rank 2 has {name}=7 where", (script, {name: 5}), (script, {name: 7}))
    differs("rank 2 has uneven='error' where", (script, {}), (script, {"uneven": "error"}))
    for seed, size in ((1, 2), (0, 4)):
        own = (seed, size) if ranks.rank() == 2 else (0, 2)
        sampler = DistributedSampler(range(12), seed=own[0])
        message = rf"seed={seed}\) on 3 ranks, {3 * size} samples a batch' where the others"
        with pytest.raises(ValueError, match=message):
            script().run(DataLoader(range(12), own[1], sampler=sampler), max_epochs=1)
    torch.set_float32_matmul_precision("high" if ranks.rank() == 2 else "highest")
    with pytest.raises(ValueError, match="rank 2 has torch.get_float32_matmul_precision"):
        script().run(BATCHES, max_epochs=1)
    torch.set_float32_matmul_precision("highest")


def what_is_each_ranks_own_stays_silent():
    torch.manual_seed(ranks.rank())
    engine = script(
        on_rank(0, LocalWriter()),
        TimeHandlers(),
        Validate(BATCHES[: 1 + ranks.rank()], when=Events.COMPLETED),
    )
    if ranks.rank() == 0:
        engine.on(Events.EPOCH_COMPLETED)(lambda state: None)
        engine.add(ProgressBar(), HangWatchdog(60), LocalWriter())
    engine.run(BATCHES, max_epochs=1)


def a_handler_of_one_rank_that_waits_for_all_says_so_on_that_rank():
    engine = Engine(lambda state, batch: state.metrics.update(loss=1.0))
    engine.add(on_rank(0, EarlyStopping("loss", mode="min")))
    if ranks.rank() == 0:
        with pytest.raises(RuntimeError, match=r"EarlyStopping\(loss\).look is of this rank alone"):
            engine.run(BATCHES, max_epochs=1, uneven="ignore")


def a_function_of_one_rank_that_waits_for_all_says_so_on_that_rank():
    asked = []

    def asks(state):
        with pytest.raises(RuntimeError, match="asks is of this rank alone"):
            ranks.any_rank(True)
        asked.append(state.iteration)

    engine = script()
    engine.on(Events.ITERATION_COMPLETED)(lambda state: ranks.any_rank(True))
    if ranks.rank() == 0:
        engine.on(Events.ITERATION_COMPLETED)(asks)
    engine.run(BATCHES, max_epochs=1)
    assert asked == [1, 2, 3] * (ranks.rank() == 0)


def functions_of_other_names_may_send_to_each_other():
    found = []

    def leads(state):
        found.extend(ranks.gathered("first"))

    def follows(state):
        found.extend(ranks.gathered("other"))

    engine = script()
    engine.on(Events.COMPLETED)(leads if ranks.rank() == 0 else follows)
    engine.run(BATCHES, max_epochs=1)
    assert found == ["first", "other", "other"]


def ranks_of_one_copy_may_hold_stages_of_it():
    ranks.data_parallel(None)
    stage = script(width=1 + ranks.rank(), lr=0.1 * (1 + ranks.rank()))
    Engine(stage.process, objects=stage.objects).run([], max_epochs=0)
    with pytest.raises(ValueError, match=r"rank 2 has max_epochs=1 where the others have 0"):
        Engine(print).run(BATCHES, max_epochs=int(ranks.rank() == 2))
    ranks.data_parallel(torch.distributed.device_mesh.init_device_mesh("cpu", (3,)))


def a_rank_that_says_otherwise_who_reads_different_data_is_named():
    if ranks.rank() == 1:
        ranks.data_parallel(None)
    with pytest.raises(ValueError, match="rank 1 has ranks that read different data=1 where"):
        script().run(BATCHES, max_epochs=1)
    ranks.data_parallel(torch.distributed.device_mesh.init_device_mesh("cpu", (3,)))


def runs_leave_no_file_open():
    counts = []
    for _ in range(4):
        script().run(BATCHES, max_epochs=1)
        counts.append(len([*Path("/proc/self/fd").glob("*")]))
    assert counts[1:] == [counts[0]] * 3


def models_of_their_own_compare_nothing():
    lr = 0.1 * (1 + ranks.rank())
    assert script(lr=lr).run(BATCHES, max_epochs=1, uneven="ignore").step == 3
    if ranks.rank() == 0:
        assert script().run(BATCHES, max_epochs=1, uneven="ignore").step == 3


make(globals())
