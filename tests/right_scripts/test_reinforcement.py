"""Reinforcement learning and sequences: replay, many updates a batch, and targets by time."""

import copy
import random

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss, smooth_l1_loss

from camshaft import Engine, Events, Update, supervised
from camshaft.handlers import ClipGradNorm


def test_dqn_with_a_target_network_that_a_handler_copies(equals):
    def script(train):
        online = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        target = copy.deepcopy(online)
        optimizer = torch.optim.Adam(online.parameters(), 0.01)
        moves = [torch.randn(8, 3) for _ in range(10)]

        def loss_of(x):
            with torch.no_grad():
                aim = 0.1 + 0.9 * target(x.roll(1, 0)).max(1).values
            return smooth_l1_loss(online(x)[:, 0], aim)

        if train.handlers is None:
            count = 0
            for _ in range(2):
                for x in moves:
                    count += 1
                    optimizer.zero_grad()
                    loss_of(x).backward()
                    optimizer.step()
                    if count % 4 == 0:
                        target.load_state_dict(online.state_dict())
            return online, target
        update = Update(optimizer)
        engine = Engine(lambda state, x: update(state, loss_of(x)), update)
        engine.objects.update(online=online, target=target, optimizer=optimizer)

        @engine.on(Events.ITERATION_COMPLETED(every=4))
        def follow(state):
            target.load_state_dict(online.state_dict())

        engine.add(*train.handlers).run(moves, max_epochs=2)
        return online, target

    equals(script)


def test_a_replay_buffer_that_is_filled_before_the_first_step(equals):
    def script(train):
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        data = [torch.randn(2, 3) for _ in range(12)]
        buffer, draw = [], random.Random(0)

        def loss_of():
            x = torch.cat(draw.sample(buffer, 3))
            return mse_loss(model(x), x[:, :1])

        if train.handlers is None:
            for x in data:
                buffer.append(x)
                if len(buffer) > 4:
                    optimizer.zero_grad()
                    loss_of().backward()
                    optimizer.step()
            return (model,)
        update = Update(optimizer)

        def step(state, x):
            buffer.append(x)
            if len(buffer) > 4:
                update(state, loss_of())

        Engine(step, update, objects={"model": model, "optimizer": optimizer}).run(
            data, max_epochs=1
        )
        return (model,)

    equals(script)


def test_ppo_with_twelve_steps_a_batch_of_episodes(equals):
    def script(train):
        policy, value = nn.Linear(3, 2), nn.Linear(3, 1)
        optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], 0.01)
        rollouts = [(torch.randn(12, 3), torch.randint(2, (12,)), torch.randn(12))] * 3

        def old_of(rollout):
            x, actions, _ = rollout
            with torch.no_grad():
                return policy(x).log_softmax(1).gather(1, actions[:, None])[:, 0]

        def loss_of(rollout, old, chosen):
            x, actions, returns = (each[chosen] for each in rollout)
            log = policy(x).log_softmax(1).gather(1, actions[:, None])[:, 0]
            made = value(x)[:, 0]
            advantage, ratio = (returns - made).detach(), (log - old[chosen]).exp()
            clipped = ratio.clamp(0.8, 1.2)
            surrogate = torch.min(ratio * advantage, clipped * advantage).mean()
            return mse_loss(made, returns) - surrogate

        def parts():
            for _ in range(4):
                yield from torch.randperm(12).split(4)

        if train.handlers is None:
            for rollout in rollouts:
                old = old_of(rollout)
                for chosen in parts():
                    optimizer.zero_grad()
                    loss_of(rollout, old, chosen).backward()
                    nn.utils.clip_grad_norm_([*policy.parameters(), *value.parameters()], 0.5)
                    optimizer.step()
            return policy, value
        update = Update(optimizer)

        def step(state, rollout):
            old = old_of(rollout)
            for chosen in parts():
                update(state, loss_of(rollout, old, chosen))

        objects = {"policy": policy, "value": value, "optimizer": optimizer}
        engine = Engine(step, update, ClipGradNorm(0.5), *train.handlers, objects=objects)
        assert engine.run(rollouts, max_epochs=1).step == 36
        return policy, value

    equals(script)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layer, self.head = nn.Embedding(7, 4), nn.LSTM(4, 5), nn.Linear(5, 3)

    def forward(self, tokens):
        return self.head(self.layer(self.embed(tokens))[0])


def test_a_tagger_whose_targets_are_time_by_batch(equals):
    """Batches of one size, so that a mean over positions is a mean over samples."""

    def loss_of(made, tags):
        return cross_entropy(made.flatten(0, 1), tags.flatten())

    def script(train):
        model = Tagger()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        data = [(torch.randint(7, (6, 4)), torch.randint(3, (6, 4))) for _ in range(5)]
        train.supervised(model, optimizer, loss_of, data, 2)
        return (model,)

    equals(script)


def test_accumulation_with_a_loop_that_divides_where_the_update_does_it(equals):
    def script(train):
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        data = [(x, x[:, :1]) for x in (torch.randn(4, 3) for _ in range(8))]
        if train.handlers is None:
            for _ in range(2):
                for number, (x, target) in enumerate(data):
                    (mse_loss(model(x), target) / 4).backward()
                    if number % 4 == 3:
                        optimizer.step()
                        optimizer.zero_grad()
            return (model,)
        engine = supervised(model, optimizer, mse_loss, accumulate=4)
        engine.add(*train.handlers).run(data, max_epochs=2)
        return (model,)

    equals(script)


def test_lbfgs_whose_closure_computes_the_loss_again(equals):
    def script(train):
        model = nn.Linear(3, 1)
        optimizer = torch.optim.LBFGS(model.parameters(), 0.1)
        data = [(x, x[:, :1]) for x in (torch.randn(6, 3) for _ in range(4))]
        if train.handlers is None:
            for x, target in data:

                def closure(x=x, target=target):
                    optimizer.zero_grad()
                    loss = mse_loss(model(x), target)
                    loss.backward()
                    return loss

                optimizer.step(closure)
            return (model,)
        supervised(model, optimizer, mse_loss).add(*train.handlers).run(data, max_epochs=1)
        return (model,)

    equals(script)
