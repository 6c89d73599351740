"""The example of PPO, whose environments are saved with the run, and the recipes for them."""

import argparse
import json
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from camshaft import Engine, Events
from camshaft.handlers import Checkpoint

ROOT = Path(__file__).parents[2]
PPO = ROOT / "examples" / "ppo.py"
PAGE = ROOT / "docs" / "guides" / "memory.md"


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(PPO))


def options(**changed):
    usual = {"carts": 3, "time": 8, "passes": 2, "batch_size": 10, "clip": 0.2, "lr": 0.01}
    return argparse.Namespace(**(usual | {"seed": 5} | changed))


def weights(model):
    return [each.detach().clone() for each in model.parameters()]


def same(some, others):
    return all(map(torch.equal, some, others))


def test_its_steps_are_those_of_a_loop_by_hand(example):
    torch.manual_seed(0)
    model, rates = example["ActorCritic"](), []
    engine = example["build"](model, options())
    engine.on(Events.GRADIENTS_READY)(
        lambda state: rates.append(state.optimizer.param_groups[0]["lr"])
    )
    state = engine.run(range(4), max_steps=24)  # 24 places a rollout, 3 parts, 2 passes
    assert (state.iteration, state.step) == (4, 24)
    assert rates == pytest.approx([0.01 * (1 - step / 24) for step in range(24)])

    torch.manual_seed(0)
    by_hand = example["ActorCritic"]()
    optimizer = torch.optim.Adam(by_hand.parameters(), lr=0.01, eps=1e-5)
    carts, rates = example["Carts"](3, 5), iter(rates)
    for _ in range(4):
        seen, chosen, fallen = [], [], []
        for _ in range(8):
            seen.append(torch.from_numpy(carts.places).float())
            with torch.no_grad():
                chances = torch.distributions.Bernoulli(logits=by_hand(seen[-1])[:, 0])
            chosen.append(chances.sample())
            fallen.append(torch.from_numpy(carts.step(chosen[-1].numpy())[1]).float())
        seen.append(torch.from_numpy(carts.places).float())
        with torch.no_grad():
            logits, values = by_hand(torch.stack(seen)).unbind(2)
        better, later = [], torch.zeros(3)
        for time in (7, 6, 5, 4, 3, 2, 1, 0):
            goes_on = 1 - fallen[time]
            surprise = 1 + 0.99 * goes_on * values[time + 1] - values[time]
            later = surprise + 0.99 * 0.95 * goes_on * later
            better.insert(0, later)
        better, values = torch.cat(better), values[:-1].flatten()
        places, actions = torch.cat(seen[:-1]), torch.cat(chosen)
        old = torch.distributions.Bernoulli(logits=logits[:-1].flatten()).log_prob(actions)
        for _ in range(2):
            for part in torch.randperm(24).split(10):
                outputs = by_hand(places[part])
                policy = torch.distributions.Bernoulli(logits=outputs[:, 0])
                ratio = torch.exp(policy.log_prob(actions[part]) - old[part])
                gain = (better[part] - better[part].mean()) / (better[part].std() + 1e-8)
                surrogate = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain)
                errors = (outputs[:, 1] - (better + values)[part]) ** 2
                loss = -surrogate.mean() + 0.5 * errors.mean() - 0.01 * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(by_hand.parameters(), 0.5)
                optimizer.param_groups[0]["lr"] = next(rates)
                optimizer.step()
    assert same(weights(model), weights(by_hand))


def test_left_in_the_middle_of_episodes_it_goes_on_as_the_same_run(example, tmp_path):
    def run(directory, at=None, reset=()):
        torch.manual_seed(0)
        model, left = example["ActorCritic"](), []
        engine = example["build"](model, options())
        engine.add(Checkpoint(directory, resume=True, reset=list(reset)))
        if at is not None:
            engine.on(Events.ITERATION_COMPLETED(at=at))(lambda state: state.interrupt("asked to"))
        state = engine.run(range(6), max_steps=36)
        memory = state.memory.saved["engine.process"]
        left += [torch.tensor(memory.carts.places), torch.tensor(memory.length)]
        left += [torch.tensor([each.random() for each in memory.carts.generators])]
        return [*weights(model), *left]

    whole = run(tmp_path / "whole")
    for at in (2, 5):
        first = run(tmp_path / f"{at}", at)
        assert (first[-3].abs() > 0.06).any(1).all()  # each cart is somewhere in an episode
        assert same(run(tmp_path / f"{at}"), whole)
    run(tmp_path / "forgetful", 2)
    assert not same(run(tmp_path / "forgetful", reset=["engine.process"]), whole)


def test_the_advantages_end_with_an_episode(example):
    values = torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    found = example["advantages_of"](values, torch.tensor([[0.0], [1.0], [0.0]]), 0.5, 0.5)
    last = 1 + 0.5 * 8 - 4
    second = 1 - 2  # its pole has fallen: nothing follows
    assert found.flatten().tolist() == [1 + 0.5 * 2 - 1 + 0.25 * second, second, last]


@pytest.mark.slow
def test_in_seconds_its_poles_stand_many_times_as_long(processes, tmp_path):
    result = processes.run(PPO, "--directory", tmp_path)
    assert int(re.search(r"^60 rollouts: (\d+) steps an episode$", result.stdout, re.M)[1]) > 150
    rows = [json.loads(row) for row in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert rows[0]["length"] < 30
    assert [row["step"] for row in rows] == [16 * row["iteration"] for row in rows]
    assert rows[-1]["lr"] == pytest.approx(3e-3 / 960)


def recipe(name):
    """What the block of the page that defines a class leaves."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    (block,) = (each for each in blocks if f"class {name}:" in each)
    found = {"np": np}
    exec(block[: block.find("\n\n\ndef rollout")] if "def rollout" in block else block, found)
    return found[name]


def test_the_vector_of_the_page_goes_on_in_the_middle_of_its_episodes(tmp_path):
    walkers_of_the_page = recipe("Walkers")

    def run(directory, at=None):
        seen = []

        def rollout(state, number):
            walkers = state.recall(rollout, walkers_of_the_page)
            seen.extend(walkers.step(-np.sign(walkers.places))[0].tolist() for _ in range(7))

        engine = Engine(rollout).add(Checkpoint(directory, resume=True))
        if at is not None:
            engine.on(Events.ITERATION_COMPLETED(at=at))(lambda state: state.interrupt("asked to"))
        engine.run(range(6), max_epochs=1)
        return seen

    whole = run(tmp_path / "whole")
    assert run(tmp_path / "parts", at=2) + run(tmp_path / "parts") == whole
    assert any(place == 0 for places in whole for place in places)  # episodes that ended


class Drift:
    """An environment in the manner of Gymnasium, with random numbers of its own and no state."""

    def __init__(self, wind=None):
        self.wind = wind

    def reset(self, *, seed):
        self.draws, self.place, self.time = np.random.default_rng(seed), np.zeros(2), 0
        return self.place, {}

    def step(self, action):
        gust = self.draws.normal(size=2) if self.wind is None else self.wind.normal(size=2)
        self.place, self.time = self.place + action + gust, self.time + 1
        return self.place, -abs(self.place).sum(), abs(self.place).max() > 4, self.time == 20, {}


@pytest.mark.parametrize("repeats", [True, False])
def test_a_replayed_environment_is_the_same_and_one_that_does_not_repeat_is_refused(
    repeats, tmp_path
):
    replayed = recipe("Replayed")
    wind = None if repeats else np.random.default_rng(1)

    def run(directory, at=None):
        seen = []

        def rollout(state, number):
            environments = state.recall(
                rollout, lambda: {f"{n}": replayed(Drift(wind), n, every=3) for n in range(3)}
            )
            for each in environments.values():
                for _ in range(5):
                    observation, reward, ended = each.step(0.1 * number)
                    seen.append((observation.tolist(), float(reward), bool(ended)))

        engine = Engine(rollout).add(Checkpoint(directory, resume=True))
        if at is not None:
            engine.on(Events.ITERATION_COMPLETED(at=at))(lambda state: state.interrupt("asked to"))
        engine.run(range(8), max_epochs=1)
        return seen

    if repeats:
        whole = run(tmp_path / "whole")
        assert run(tmp_path / "parts", at=3) + run(tmp_path / "parts") == whole
        assert any(ended for *_, ended in whole)
    else:
        run(tmp_path, at=3)
        with pytest.raises(ValueError, match="does not repeat its episodes"):
            run(tmp_path)


def test_an_environment_that_has_no_state_is_refused_at_the_save(tmp_path):
    def rollout(state, number):
        state.recall(rollout, lambda: {"environment": Drift()})

    engine = Engine(rollout).add(Checkpoint(tmp_path))
    with pytest.raises(TypeError, match="Drift"):
        engine.run(range(2), max_epochs=1)
