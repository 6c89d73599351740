"""ignite's examples, small: once with its own engine and once with the bridge, the same weights.

Each function takes the module from which a script imports its engine, and is otherwise what
ignite's example of this name does, in other words and with small data.
"""

import ignite.engine
import pytest
import torch
from ignite.contrib.engines import common
from ignite.handlers import (
    EarlyStopping,
    ModelCheckpoint,
    PiecewiseLinear,
    create_lr_scheduler_with_warmup,
    global_step_from_engine,
)
from ignite.metrics import Accuracy, Loss
from sklearn.datasets import load_digits
from torch import nn
from torch.distributions import Categorical
from torch.utils.data import DataLoader, TensorDataset

import camshaft.handlers.bridges.ignite


def digits(batch_size):
    """The digits that scikit-learn ships, for training and for validation."""
    found = load_digits()
    pixels = torch.tensor(found.data, dtype=torch.float32)[:400] / 16
    data = TensorDataset(pixels, torch.tensor(found.target)[:400])
    train, val = torch.utils.data.random_split(data, [300, 100])
    return DataLoader(train, batch_size, shuffle=True), DataLoader(val, 100)


def cifar10(engines, directory):
    """With warm-up, a schedule by iterations, running averages, checkpoints, early stopping."""
    train, val = digits(50)
    model = nn.Sequential(nn.Linear(64, 32), nn.Dropout(0.2), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True)
    criterion = nn.CrossEntropyLoss()
    most = len(train) * 4
    schedule = create_lr_scheduler_with_warmup(
        PiecewiseLinear(optimizer, "lr", milestones_values=[(0, 0.2), (most, 0.0)]),
        warmup_start_value=0.0,
        warmup_end_value=0.2,
        warmup_duration=len(train),
    )

    def step(engine, batch):
        model.train()
        loss = criterion(model(batch[0]), batch[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"batch loss": loss.item()}

    trainer = engines.Engine(step)
    to_save = {"trainer": trainer, "model": model, "optimizer": optimizer}
    common.setup_common_training_handlers(
        trainer=trainer,
        to_save=to_save,
        save_every_iters=5,
        output_path=str(directory),
        lr_scheduler=schedule,
        output_names=["batch loss"],
        with_pbars=False,
    )
    metrics = {"Accuracy": Accuracy(), "Loss": Loss(criterion)}
    evaluator = engines.create_supervised_evaluator(model, metrics=metrics)
    log = []

    @trainer.on(engines.Events.EPOCH_COMPLETED(every=2) | engines.Events.COMPLETED)
    def validate(engine):
        log.append((engine.state.metrics["batch loss"], dict(evaluator.run(val).metrics)))

    best = ModelCheckpoint(
        *(directory, "best"),
        n_saved=2,
        score_name="accuracy",
        score_function=ModelCheckpoint.get_default_score_fn("Accuracy"),
        global_step_transform=global_step_from_engine(trainer),
    )
    evaluator.add_event_handler(engines.Events.COMPLETED, best, {"model": model})
    score = ModelCheckpoint.get_default_score_fn("Accuracy")
    evaluator.add_event_handler(engines.Events.COMPLETED, EarlyStopping(3, score, trainer))
    trainer.run(train, max_epochs=4)
    log += sorted(each.name for each in directory.iterdir())
    return model, log


class Line:
    """An environment: walk to the end of a line, left or right, before the time is over."""

    def reset(self, seed):
        self.place, self.time = 0, 0
        return torch.tensor([0.0, 0.0])

    def step(self, action):
        self.place, self.time = self.place + (1 if action else -1), self.time + 1
        done = abs(self.place) == 4 or self.time == 30
        seen = torch.tensor([float(self.place), self.time / 30])
        return seen, 1.0 if self.place == 4 else -0.1, done


def reinforce(engines, directory):
    policy = nn.Sequential(nn.Linear(2, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    world, probabilities, rewards, log = Line(), [], [], []

    def step(engine, number):
        chances = Categorical(logits=policy(engine.state.observation))
        action = chances.sample()
        probabilities.append(chances.log_prob(action))
        engine.state.observation, reward, done = world.step(action.item())
        rewards.append(reward)
        engine.state.reward += reward
        if done:
            engine.terminate_epoch()
            engine.state.timestep = number

    trainer = engines.Engine(step)
    trainer.state.running = 0.0

    @trainer.on(engines.Events.EPOCH_STARTED)
    def reset():
        torch.manual_seed(543 + trainer.state.epoch)
        trainer.state.observation = world.reset(seed=543 + trainer.state.epoch)
        trainer.state.reward = 0.0

    @trainer.on(engines.Events.EPOCH_COMPLETED)
    def learn():
        trainer.state.running = 0.1 * trainer.state.reward + 0.9 * trainer.state.running
        returns, sum_ = [], 0.0
        for reward in reversed(rewards):
            sum_ = reward + 0.99 * sum_
            returns.insert(0, sum_)
        loss = -(torch.stack(probabilities) * torch.tensor(returns)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rewards.clear()
        probabilities.clear()

    @trainer.on(engines.Events.EPOCH_COMPLETED(every=5))
    def log_episode():
        log.append((trainer.state.epoch, trainer.state.iteration, trainer.state.running))

    @trainer.on(engines.Events.EPOCH_COMPLETED)
    def finish():
        if trainer.state.running > 0.3:
            log.append((trainer.state.running, trainer.state.timestep))
            trainer.should_terminate = True

    trainer.run(range(1000), max_epochs=30)
    return policy, log


@pytest.mark.parametrize("example", [cifar10, reinforce])
@pytest.mark.slow
def test_an_example_of_ignite_runs_with_its_import_changed_to_the_same_bits(example, tmp_path):
    ends = []
    for engines in (ignite.engine, camshaft.handlers.bridges.ignite):
        torch.manual_seed(11)
        directory = tmp_path / engines.__name__
        directory.mkdir()
        model, log = example(engines, directory)
        weights = {name: value.tolist() for name, value in model.state_dict().items()}
        ends.append((weights, log, torch.get_rng_state().tolist()))
    assert ends[0][1]
    assert ends[1] == ends[0]
