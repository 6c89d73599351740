"""On ranks: runs on what accelerate or Fabric has prepared, beside that library's own loop.

Arguments: the library, a directory, and what to do: "compare", "whole", "kill" or "resume".
"""

import os
import signal
import sys
from itertools import chain
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.regression import MeanSquaredError

from camshaft import Engine, Events, ranks, supervised
from camshaft.handlers import Checkpoint, ClipGradNorm, LRSchedule, Metrics, Validate, checkpoints

LIBRARY, DIRECTORY, TASK = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
EPOCHS = 3


def launch():
    """The library's own object, which makes the process group."""
    if LIBRARY == "accelerate":
        from accelerate import Accelerator

        return Accelerator(cpu=True)
    from lightning_fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp")
    fabric.launch()
    return fabric


def prepared(library, seed=0):
    """A model with dropout, its optimizer and shuffled batches, prepared; and the model inside."""
    torch.manual_seed(seed)
    inputs = torch.arange(60.0).reshape(30, 2) / 60
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    if seed:  # the process that resumes may begin with other numbers
        torch.manual_seed(seed + ranks.rank())
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    size = 8 // ranks.world_size()  # of a rank's batch: 8 samples over all ranks
    loader, val_loader = DataLoader(data, size, shuffle=True), DataLoader(data, size)
    if LIBRARY == "accelerate":
        return net, *library.prepare(net, optimizer, loader, val_loader)
    model, optimizer = library.setup(net, optimizer)
    return net, model, optimizer, *library.setup_dataloaders(loader, val_loader)


def loop(library):
    """The library's own loop."""
    net, model, optimizer, loader, _ = prepared(library)
    for _ in range(EPOCHS):
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            library.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    return net


def by_hand(library):
    """The library's own step, in an engine that is told of each step."""
    net, model, optimizer, loader, _ = prepared(library)

    def step(state, batch):
        loss = nn.functional.mse_loss(model(batch[0]), batch[1])
        library.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        state.fire(Events.STEP_COMPLETED)

    engine = Engine(step, objects={"model": model, "optimizer": optimizer})
    assert engine.run(loader, max_epochs=EPOCHS).step == EPOCHS * len(loader)
    return net


def with_supervised(library):
    net, model, optimizer, loader, _ = prepared(library)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    assert engine.objects["model"] is net
    engine.run(loader, max_epochs=EPOCHS)
    return net


def saved_run(library, directory, seed=0, dies_at=None, **limits):
    """A run with accumulation, schedule, validation and checkpoints in the middle of epochs."""
    net, model, optimizer, loader, val_loader = prepared(library, seed)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * 2)
    engine = supervised(model, optimizer, nn.functional.mse_loss, accumulate=2).add(
        ClipGradNorm(1.0),
        LRSchedule(schedule),
        Metrics({"error": MeanSquaredError()}),
        Validate(val_loader),
        Checkpoint(directory, when=Events.ITERATION_COMPLETED(every=2), resume=True),
    )

    @engine.on(Events.ITERATION_COMPLETED(at=dies_at or 10**6))
    def die(state):
        checkpoint = state.engine.handlers["Checkpoint"]
        checkpoint.wait(state)
        ranks.any_rank(False)
        if ranks.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    if TASK == "resume":

        @engine.on(Events.ITERATION_COMPLETED)
        def show(state):
            numbers = ranks.gathered((state.batch[0][:, 0] * 30).round().tolist())
            print(state.iteration, sorted(chain(*numbers)))

    messages = count_messages(model)
    state = engine.run(loader, max_epochs=EPOCHS, **limits)
    return net, state, messages


def count_messages(model):
    """The averages that DDP takes, each of which it asks this hook to take."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    from camshaft.engine.modules import uncompiled

    sent = []

    def hook(group, bucket):
        sent.append(bucket.index())
        return allreduce_hook(group, bucket)

    uncompiled(model).register_comm_hook(None, hook)
    return sent


def same(net, other):
    return all(
        torch.equal(a, b)
        for a, b in zip(net.state_dict().values(), other.state_dict().values(), strict=True)
    )


def compare(library):
    wanted = loop(library)
    assert same(by_hand(library), wanted)
    assert same(with_supervised(library), wanted)

    whole, state, messages = saved_run(library, DIRECTORY / "whole")
    assert state.step == EPOCHS * 2
    assert len(messages) == state.step, messages  # once a window
    first, second = ranks.gathered(state.metrics["val/error"].item())
    with torch.no_grad():
        inputs = torch.arange(60.0).reshape(30, 2) / 60
        own = nn.functional.mse_loss(whole.eval()(inputs), inputs.sum(1, keepdim=True))
    assert first == second
    assert abs(first - own.item()) < 1e-7  # each sample once
    cut, state, _ = saved_run(library, DIRECTORY / "cut", max_iterations=6)
    assert (state.epoch, state.iteration_in_epoch) == (2, 2)
    cut, state, _ = saved_run(library, DIRECTORY / "cut", seed=7)
    assert state.step == EPOCHS * 2
    assert same(cut, whole)
    saved = checkpoints(DIRECTORY / "cut").latest()
    assert list(saved.state_dict("model")) == ["0.weight", "0.bias", "2.weight", "2.bias"]


def refuse_what_cannot_be(library):
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    if LIBRARY == "fabric":
        from lightning_fabric import Fabric

        mixed = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
        net, optimizer = mixed.setup(net, optimizer)
        with pytest.raises(ValueError, match=r"fabric.backward.*supervised\(..., precision='bf16'"):
            supervised(net, optimizer, nn.functional.mse_loss)
        return
    from accelerate import Accelerator, DataLoaderConfiguration
    from accelerate.optimizer import AcceleratedOptimizer

    scaled = AcceleratedOptimizer(optimizer, scaler=torch.amp.GradScaler("cpu"))
    with pytest.raises(ValueError, match=r"scale would not be saved.*precision='fp16'"):
        supervised(net, scaled, nn.functional.mse_loss)
    config = DataLoaderConfiguration(dispatch_batches=True)
    dispatching = Accelerator(cpu=True, dataloader_config=config)
    loader = dispatching.prepare(DataLoader(range(8), 2))
    with pytest.raises(TypeError, match=r"DataLoaderDispatcher.*dispatch_batches=False"):
        Engine(lambda state, batch: None).run(loader, max_epochs=1)
    config = DataLoaderConfiguration(use_seedable_sampler=True)
    seeded = Accelerator(cpu=True, dataloader_config=config)
    saved_run(seeded, DIRECTORY / "seeded", max_iterations=6)
    with pytest.raises(ValueError, match="seed"):
        saved_run(seeded, DIRECTORY / "seeded", seed=7)
    cut = saved_run(seeded, DIRECTORY / "seeded")[0]
    assert same(cut, saved_run(seeded, DIRECTORY / "seeded whole")[0])
    accumulating = Accelerator(cpu=True, gradient_accumulation_steps=4)
    wrapped = accumulating.prepare(optimizer)
    with pytest.raises(ValueError, match=r"steps=4.*lose its gradients.*accumulate=4\)"):
        Engine(lambda state, batch: None, objects={"model": net, "optimizer": wrapped})


library = launch()
assert ranks.is_distributed()
with ranks.process_group():  # the one that the library has made
    assert ranks.world_size() == ranks.local_world_size() == int(os.environ["WORLD_SIZE"])
    assert ranks.local_rank() == ranks.rank()
    if TASK == "compare":
        compare(library)
        refuse_what_cannot_be(library)
    else:
        dies_at = 7 if TASK == "kill" else None
        saved_run(library, DIRECTORY, seed=5 if TASK == "resume" else 0, dies_at=dies_at)
print("done")
