"""The engines of random runs: steps of several kinds, over models with random parts."""

from dataclasses import dataclass, field
from functools import partial

import torch
from torch import nn
from torch.nn.functional import mse_loss

from camshaft import Engine, EventEnum, Update
from camshaft import supervised as usual


class Own(EventEnum):
    """Events of a script's own."""

    CRITIC_UPDATED = "critic updated"
    PING = "ping"


class Features(nn.Module):
    """Two numbers of a row of any length."""

    def forward(self, inputs):
        return torch.stack([inputs.mean(1) / 20, inputs[:, 1]], 1)


def net(dropout=0.3, norm=False):
    """A small model that draws random numbers, and may have buffers."""
    middle = [nn.BatchNorm1d(3)] if norm else []
    return nn.Sequential(Features(), nn.Linear(2, 3), *middle, nn.Dropout(dropout), nn.Linear(3, 1))


OTHERS = {
    "AMSGrad": partial(torch.optim.Adam, lr=0.02, amsgrad=True, foreach=False),
    "NAdam": partial(torch.optim.NAdam, lr=0.02),
    "RMSprop": partial(torch.optim.RMSprop, lr=0.01, momentum=0.5, centered=True),
    "Rprop": torch.optim.Rprop,
    "ASGD": partial(torch.optim.ASGD, t0=2),
    "Adafactor": torch.optim.Adafactor,
    "LBFGS": partial(torch.optim.LBFGS, lr=0.05, max_iter=2, history_size=2),
}


def optimizer_of(model, kind):
    """An optimizer by its name, with one or two groups."""
    if kind == "Adam":
        return torch.optim.AdamW(model.parameters(), 0.02)
    if kind in OTHERS:
        return OTHERS[kind](model.parameters())
    first, *others = model.parameters()
    groups = [{"params": [first], "lr": 0.01}, {"params": others}]
    return torch.optim.SGD(groups, 0.03, momentum=0.9)


def supervised(accumulate=1, kind="SGD", dropout=0.3, norm=False, **options):
    """The engine of the usual case."""
    model = net(dropout, norm)
    return usual(model, optimizer_of(model, kind), mse_loss, accumulate=accumulate, **options)


def scaled(accumulate=1, kind="SGD"):
    """The usual case with a scaler, which skips the first steps and grows often."""
    model = net()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**18, growth_interval=2)
    update = Update(optimizer_of(model, kind), model=model, accumulate=accumulate, scaler=scaler)
    engine = usual(model, update, mse_loss, precision="fp16")
    engine.objects["scaler"] = scaler
    return engine


@dataclass
class Memory:
    """What a process function remembers."""

    hidden: torch.Tensor | None = None
    seen: list = field(default_factory=list)


def recurrent(accumulate=1, kind="SGD", broken=()):
    """A step of one's own with a memory; its loss is NaN in the iterations `broken`."""
    model = nn.ModuleDict({"features": Features(), "cell": nn.RNN(2, 1)})
    optimizer = optimizer_of(model, kind)
    update = Update(optimizer, accumulate=accumulate)

    def step(state, batch):
        memory = state.recall(step, Memory)
        if state.iteration_in_epoch == 1:
            memory.hidden = None
        inputs, targets = batch
        outputs, hidden = model["cell"](model["features"](inputs), memory.hidden)
        memory.hidden = hidden.detach()
        loss = mse_loss(outputs, targets)
        if state.training:
            memory.seen.append(round(float(inputs[0, 0])))
            loss = loss * float("nan") if state.iteration in broken else loss
            state.metrics["loss"] = loss.detach()
            update(state, loss)
        state.metrics["loss"] = loss.detach()
        return {"loss": loss.detach()}

    return Engine(step, update, objects={"model": model, "optimizer": optimizer})


def two(first=1, second=1, every=1, kind="SGD"):
    """Two models with an optimizer each, the second one's steps with an event of their own."""
    model, critic = net(), net(0.0)
    optimizer, other = optimizer_of(model, kind), optimizer_of(critic, "Adam")
    update = Update(optimizer, accumulate=first)
    criticise = Update(other, accumulate=second, event=Own.CRITIC_UPDATED)

    def step(state, batch):
        inputs, targets = batch
        outputs = model(inputs)
        loss = mse_loss(outputs, targets) + 0.1 * critic(inputs).mean().detach()
        state.metrics["loss"] = loss.detach()
        if state.training and state.iteration % every == 0:
            judged = mse_loss(critic(inputs), outputs.detach())
            state.metrics["critic"] = judged.detach()
            criticise(state, judged)
        if state.training:
            update(state, loss)
        return {"loss": loss.detach()}

    objects = {"model": model, "critic": critic, "optimizer": optimizer, "other": other}
    return Engine(step, update, criticise, objects=objects)
