"""What the right scripts share: each trains as its loop does, and Camshaft says nothing."""

import logging

import pytest
import torch

from camshaft import Engine, Update, supervised
from camshaft.handlers import Checkpoint


class Train:
    """Trains by the loop that most scripts have, or by an engine with these handlers."""

    def __init__(self, handlers=None):
        self.handlers = handlers

    def __call__(self, optimizer, loss_of, data, epochs, after=None, clip=None, own=(), **objects):
        """Train by `loss_of(batch)`; `own` are handlers that do what the loop does besides.

        An engine has a step of its own, which calls `after()` as the loop does.
        """
        after = after or (lambda: None)
        if self.handlers is None:
            for _ in range(epochs):
                for batch in data:
                    optimizer.zero_grad()
                    loss_of(batch).backward()
                    if clip:
                        torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], clip)
                    optimizer.step()
                    after()
            return None
        update = Update(optimizer)

        def step(state, batch):
            loss = loss_of(batch)
            if state.training:
                update(state, loss)
            state.metrics["loss"] = loss.detach()
            after()

        engine = Engine(step, update, *own, objects={**objects, "optimizer": optimizer})
        engine.add(*self.handlers).run(data, max_epochs=epochs)
        return engine

    def supervised(self, model, optimizer, loss_fn, data, epochs, **options):
        """Train by the loop on pairs, or by `supervised`."""
        if self.handlers is None:
            return self(optimizer, lambda batch: loss_fn(model(batch[0]), batch[1]), data, epochs)
        engine = supervised(model, optimizer, loss_fn, **options).add(*self.handlers)
        engine.run(data, max_epochs=epochs)
        return engine


@pytest.fixture
def equals(tmp_path, caplog):
    """Compares a script with its loop: the same script is called with either way to train.

    A script makes its models and data anew, trains them, and returns what it has trained. Where it
    has a loop of its own, that is what it runs if `train.handlers` is None. A Python warning is an
    error in all tests; here a word of the logger is one, too.
    """

    def compare(script):
        torch.manual_seed(0)
        by_loop = [each.clone() for each in tensors(script(Train()))]
        torch.manual_seed(0)
        with caplog.at_level(logging.WARNING, "camshaft"):
            trained = script(Train([Checkpoint(tmp_path / "run", resume=True)]))
        assert caplog.messages == []
        found = [*tensors(trained)]
        assert len(found) == len(by_loop) > 0
        assert all(map(torch.equal, found, by_loop))

    return compare


def tensors(trained):
    """The weights of modules, and tensors as they are."""
    for each in trained:
        if isinstance(each, torch.nn.Module):
            yield from each.state_dict().values()
        else:
            yield torch.as_tensor(each)
