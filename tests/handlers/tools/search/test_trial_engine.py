"""Who takes part in a trial: the process function, and handlers that may change a step."""

import re
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import mse_loss

from camshaft import Engine, Events, supervised
from camshaft.handlers import EarlyStopping, Freeze, find_lr


def test_frozen_layers_stay_frozen_and_a_handler_may_stay_out():
    @dataclass
    class Scale:
        in_trials: bool

        def attach(self, engine):
            engine.on(Events.GRADIENTS_READY)(self.scale)

        def scale(self, state):
            raise AssertionError("a trial has called this")

    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    engine = supervised(model, torch.optim.SGD(model.parameters(), lr=0.1), mse_loss)
    engine.add(Freeze(re.compile(r"[01]\..*")), Scale(in_trials=False))
    wanted = []
    model.register_forward_pre_hook(
        lambda *_: wanted.append([each.requires_grad for each in model.parameters()])
    )
    find_lr(engine, [(torch.randn(4, 3), torch.randn(4, 1))], steps=3)
    assert wanted == 3 * [[False] * 4 + [True] * 2]
    assert all(each.requires_grad for each in model.parameters())
    assert all(each.training for each in model.modules())


def test_a_bare_engine_shares_names_so_that_memories_are_found():
    class Counts:
        def attach(self, engine):
            engine.on(Events.COMPLETED)(self.end)

        def end(self, state):
            raise AssertionError("a trial has called this")

    counts = Counts()

    def step(state, batch):
        memory = state.recall(counts, dict)
        memory["n"] = memory.get("n", 0) + batch
        return memory["n"]

    engine = Engine(step, counts)
    assert engine.bare(lambda each: False).run([1, 2], max_epochs=1).output == 3


def test_a_function_attached_to_either_engine_is_not_attached_to_the_other():
    calls = []
    engine = Engine(lambda state, batch: batch)
    bare = engine.bare(lambda each: True)
    engine.on(Events.COMPLETED)(lambda state: calls.append("engine"))
    bare.signal(Events.COMPLETED).connect(lambda state: calls.append("bare"))
    bare.run([1], max_epochs=1)
    engine.run([1], max_epochs=1)
    assert calls == ["bare", "engine"]
    assert len(engine.attached) == 1


def test_a_handler_of_a_bare_engine_is_none_of_the_engine():
    engine, guard = Engine(lambda state, batch: None), EarlyStopping("loss")
    engine.bare(lambda each: False).add(guard)
    assert engine.handlers == {}
    assert engine.attached == []
    assert engine.add(guard).handlers == {"EarlyStopping(loss)": guard}
