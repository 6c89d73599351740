"""What a run changes and `objects=` does not name is told of at a save."""

import copy
import random
import warnings
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, LinearLR, SequentialLR
from torch.optim.swa_utils import AveragedModel

from camshaft import Engine, EventEnum, Events, Update, supervised
from camshaft.handlers import EMA, Checkpoint, LRSchedule

BATCHES = [torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])] * 4
TOLD = "no checkpoint holds"


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def adam(module):
    return torch.optim.Adam(module.parameters(), lr=0.01)


def told(engine, directory, epochs=2, **given):
    """The warnings of a run that saves itself after each epoch."""
    engine.add(Checkpoint(directory / str(random.random()), **given))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "The epoch parameter")  # SequentialLR of torch 2.8
        engine.run(BATCHES, max_epochs=epochs)
    assert {each.filename for each in caught} <= {__file__}
    return "\n".join(str(each.message) for each in caught)


def dqn(named, every=2, soft=False, free=False):
    """A Q network, and a target network that is moved by hand, in several ways."""
    model = net()
    target = copy.deepcopy(model).eval()
    if not free:
        target.requires_grad_(False)
    optimizer = adam(model)
    update = Update(optimizer)

    def step(state, batch):
        with torch.no_grad():
            goal = 1 + 0.9 * target(batch)
        update(state, nn.functional.mse_loss(model(batch), goal))
        if soft:
            for ours, theirs in zip(target.parameters(), model.parameters(), strict=True):
                ours.data.mul_(0.5).add_(theirs.data, alpha=0.5)
        elif state.iteration % every == 0:
            target.load_state_dict(model.state_dict())

    objects = {"model": model, "optimizer": optimizer} | ({"target": target} if named else {})
    return Engine(step, objects=objects), model


@pytest.mark.parametrize("soft", [False, True])
def test_a_target_network_that_the_step_moves_is_told_of_with_the_line_to_write(tmp_path, soft):
    text = told(dqn(named=False, soft=soft)[0], tmp_path)
    assert text.count(TOLD) == 1
    assert text.startswith("the run changes target (Sequential), and no checkpoint holds it, so")
    assert 'before it starts: engine.objects["target"] = target' in text


def test_of_many_objects_the_first_are_named(tmp_path):
    models = [nn.Linear(2, 1) for _ in range(82)]

    def step(state, batch):
        for model in models:
            model.bias.data += 1.0

    text = told(Engine(step), tmp_path)
    assert "models[9] (Linear), ..., and no checkpoint holds them" in text
    assert text.endswith('engine.objects["9"] = models[9]')


@pytest.mark.parametrize(("free", "soft"), [(0, 0), (1, 0), (1, 1), (0, 1)])
def test_a_target_network_that_is_named_resumes_and_nothing_is_told(tmp_path, free, soft):
    engine, model = dqn(named=True, soft=soft, free=free)
    assert told(engine, tmp_path, epochs=3) == ""
    for epochs in (2, 3):
        again, resumed = dqn(named=True, soft=soft, free=free)
        again.add(Checkpoint(tmp_path / "run", resume=True))
        again.run(BATCHES, max_epochs=epochs)
    assert [*map(torch.Tensor.tolist, model.state_dict().values())] == [
        *map(torch.Tensor.tolist, resumed.state_dict().values())
    ]


def test_a_target_that_moves_after_the_first_save_is_told_of_too(tmp_path):
    assert told(dqn(named=False, every=10)[0], tmp_path, epochs=2) == ""
    assert TOLD in told(dqn(named=False, every=10)[0], tmp_path, epochs=4)


def stepping(kind):
    """A process function that reaches a target network in another way, and moves it."""
    model, target = net(), net().requires_grad_(False)
    optimizer = adam(model)
    update = Update(optimizer)

    def move(target):
        target[0].weight.mul_(0.9)

    def train(state, batch):
        update(state, model(batch).pow(2).mean())

    def of_partial(target, state, batch, *, nets=None):
        train(state, batch)
        move(target if nets is None else nets["target"])

    def default(state, batch, target=target):
        train(state, batch)
        move(target)

    def helped(state, batch):
        train(state, batch)
        help_()

    def help_():
        [move(each) for each in [target]]

    nets = SimpleNamespace(q=model, target=target)

    def held(state, batch):
        train(state, batch)
        move(nets.target)

    class Agent:
        def __init__(self, target):
            self.nets = {"q": [model], "target": target}

        def learn(self, state, batch):
            train(state, batch)
            move(self.nets["target"])

        def __call__(self, state, batch):
            self.learn(state, batch)

    agent = Agent(target)

    def through(state, batch):
        agent.learn(state, batch)

    found = {
        "partial": partial(of_partial, target),
        "keyword": partial(of_partial, None, nets={"target": target}),
        **{"default": default, "helper": helped, "namespace": held, "global": by_global},
        **{"method": agent.learn, "callable": agent, "agent": through},
    }
    if kind == "global":
        globals().update(TARGET=target, TRAIN=train)
    return Engine(found[kind], objects={"model": model, "optimizer": optimizer})


TARGET = TRAIN = None


def by_global(state, batch):
    TRAIN(state, batch)
    TARGET[0].weight.mul_(0.9)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("partial", "target"), ("keyword", "nets['target']"), ("default", "target")),
        *(("helper", "target"), ("namespace", "nets.target"), ("global", "TARGET")),
        *(("method", "self.nets['target']"), ("callable", "self.nets['target']")),
        ("agent", "agent.nets['target']"),
    ],
)
def test_it_is_found_wherever_the_step_has_it_from(tmp_path, kind, name):
    text = told(stepping(kind), tmp_path)
    assert text.startswith(f"the run changes {name} (Sequential), and no checkpoint")
    assert (
        f'engine.objects["{name.strip("]").strip(chr(39)).split(chr(39))[-1].split(".")[-1]}"]'
        in text
    )


def test_also_in_a_handler_and_for_optimizers_schedules_averages_and_objects_of_ones_own(tmp_path):
    class Normalizer:
        mean = 0.0

        def state_dict(self):
            return {"mean": self.mean}

        def load_state_dict(self, saved):
            self.mean = saved["mean"]

    model, critic, norm = net(), net(), Normalizer()
    optimizer, critic_optimizer = adam(model), adam(critic)
    schedule, scaler = ExponentialLR(optimizer, 0.9), torch.amp.GradScaler("cpu", growth_interval=1)
    average = AveragedModel(model)
    update = Update(optimizer)

    def step(state, batch):
        norm.mean = 0.9 * norm.mean + 0.1 * float(batch.mean())
        scaler.scale(critic(batch).mean()).backward()
        scaler.step(critic_optimizer)
        scaler.update()
        update(state, (model(batch) - norm.mean).pow(2).mean())

    engine = Engine(step, objects={"model": model, "optimizer": optimizer})

    @engine.on(Events.EPOCH_COMPLETED)
    def after(state):
        schedule.step()
        average.update_parameters(model)

    text = told(engine, tmp_path)
    changed = "norm (Normalizer)", "scaler (GradScaler)", "critic (Sequential)"
    changed += "critic_optimizer (Adam)", "schedule (ExponentialLR)", "average (AveragedModel)"
    assert all(each in text.split(", and no checkpoint holds them")[0] for each in changed), text
    assert text.split(", and no checkpoint")[0].count("(") == 6  # and nothing else
    assert "or engine.add(LRSchedule(schedule)) in place of schedule.step()" in text


def test_the_line_to_write_takes_no_name_that_an_object_has(tmp_path):
    class Gan(EventEnum):
        CRITIC_UPDATED = "critic_updated"

    model, critic = net(), net()
    optimizer = adam(model)
    update, sharpen = Update(optimizer), Update(adam(critic), event=Gan.CRITIC_UPDATED)

    def step(state, batch):
        sharpen(state, critic(model(batch).repeat(1, 2)).mean())
        update(state, model(batch).mean())

    text = told(Engine(step, objects={"model": model, "optimizer": optimizer}), tmp_path)
    assert 'engine.objects["critic"] = critic; ' in text
    assert text.endswith('engine.objects["sharpen_optimizer"] = sharpen.optimizer')


class Teaching(nn.Module):
    def __init__(self, teacher):
        super().__init__()
        self.teacher, self.loss = teacher, nn.CrossEntropyLoss(weight=torch.ones(1))

    def loss_of(self, prediction, target):
        return self.loss(prediction, target * 0)

    def forward(self, prediction, batch):
        return (prediction - self.teacher(batch)).pow(2).mean()


def test_what_is_right_is_not_told_of(tmp_path):
    model, critic, teacher = net(), net(), net().requires_grad_(False).eval()
    optimizer, sgd = adam(model), torch.optim.SGD(critic.parameters(), lr=0.1)
    both, loss = nn.ModuleDict({"model": model, "critic": critic}), Teaching(teacher)
    wrapped, layer = nn.DataParallel(model), model[0]
    loader = torch.utils.data.DataLoader(BATCHES, generator=torch.Generator())
    warmup, decay = LinearLR(optimizer), ExponentialLR(optimizer, 0.9)
    schedule = SequentialLR(optimizer, [warmup, decay], [2])
    update, unused, history = Update(optimizer), net(), []

    class Agent:
        """Has a state_dict of its own, which holds all its networks."""

        def __init__(self):
            self.actor = net()
            self.optimizer = adam(self.actor)

        def state_dict(self):
            return {"actor": self.actor.state_dict(), "optimizer": self.optimizer.state_dict()}

        def load_state_dict(self, saved):
            raise NotImplementedError

        def learn(self, batch):
            self.optimizer.zero_grad()
            self.actor(batch).mean().backward()
            self.optimizer.step()

    agent = Agent()
    actor = agent.actor

    def step(state, batch):
        agent.learn(batch)
        sgd.zero_grad()
        both["critic"](batch).mean().backward()
        sgd.step()  # has no state
        update(state, loss(wrapped(batch), batch) + 0 * layer(batch).mean() + 0 * actor.training)
        history.append((len(loader), warmup.get_last_lr(), decay.last_epoch))
        return unused

    objects = {"model": model, "optimizer": optimizer, "critic": critic, "agent": agent}
    engine = Engine(step, LRSchedule(schedule), EMA(), objects=objects)
    engine.on(Events.EPOCH_COMPLETED)(
        lambda state: engine.evaluate(()) if state.epoch > 9 else None
    )
    assert TOLD not in told(engine, tmp_path, epochs=4)
    assert TOLD not in told(Engine(lambda s, b: agent.learn(b), objects=vars(agent)), tmp_path)
    pair = {"prepare_batch": lambda batch: (batch, batch[:, :1])}
    assert TOLD not in told(supervised(model, optimizer, loss.loss_of, **pair), tmp_path)


def test_a_step_may_name_what_the_script_makes_after_the_run(tmp_path):
    def step(state, batch):
        return batch if state.iteration < 99 else later(batch)

    assert not told(Engine(step), tmp_path)

    def later(batch):
        return step(None, batch)


def test_without_a_checkpoint_nothing_is_looked_at():
    dqn(named=False)[0].run(BATCHES, max_epochs=2)
