"""Layers that are frozen for a part of the run."""

import pytest
import torch
from torch import nn

from camshaft import Engine, Events, supervised
from camshaft.handlers import Checkpoint, Freeze, Validate

torch.manual_seed(0)
BATCHES = [(torch.randn(4, 2), torch.randn(4, 1)) for _ in range(3)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 3), nn.Dropout(0.5)
        )
        self.head = nn.Linear(3, 1)

    def forward(self, input):
        return self.head(self.backbone(input))


def script(*handlers, model=None):
    torch.manual_seed(1)
    model = Net() if model is None else model
    optimizer = torch.optim.AdamW(model.parameters(), 0.1, weight_decay=0.5)
    engine = supervised(model, optimizer, nn.functional.mse_loss).add(*handlers)
    return engine, model, optimizer


def values(module):
    return {name: each.tolist() for name, each in module.state_dict().items()}


def seen_each_epoch(engine, model, look):
    rows = []
    engine.on(Events.EPOCH_COMPLETED)(lambda state: rows.append(look(model)))
    return rows


def test_what_is_frozen_does_not_move_by_decay_or_running_statistics_until_it_is_thawed():
    engine, model, optimizer = script(Freeze("backbone.*", until=Events.EPOCH_STARTED(at=3)))
    before, head = values(model.backbone), values(model.head)
    rows = seen_each_epoch(engine, model, lambda model: values(model.backbone))
    engine.run(BATCHES, max_epochs=3)
    assert rows[:2] == [before, before]
    assert rows[2]["0.weight"] != before["0.weight"]
    assert rows[2]["1.running_mean"] != before["1.running_mean"]
    assert values(model.head) != head
    assert optimizer.state[model.head.weight]["step"] == 9
    assert optimizer.state[model.backbone[0].weight]["step"] == 3


def test_norms_can_be_left_to_go_on_and_dropout_always_does():
    engine, model, _ = script(Freeze("backbone.*", norms=False))
    before = values(model.backbone)
    modes = seen_each_epoch(engine, model, lambda model: [m.training for m in model.modules()])
    engine.run(BATCHES, max_epochs=1)
    assert modes == [[True] * 7]
    assert values(model.backbone)["1.running_mean"] != before["1.running_mean"]
    assert values(model.backbone)["0.weight"] == before["0.weight"]
    engine, model, _ = script(Freeze("backbone.*"))
    modes = seen_each_epoch(engine, model, lambda model: [m.training for m in model.backbone])
    engine.run(BATCHES, max_epochs=1)
    assert modes == [[True, False, True, True]]
    assert all(module.training for module in model.modules())  # given back


def test_a_norm_without_parameters_is_meant_by_its_name():
    model = nn.Sequential(nn.BatchNorm1d(2, affine=False), nn.Linear(2, 2), nn.Linear(2, 1))
    engine, *_ = script(Freeze("[01].*"), model=model)
    engine.run(BATCHES, max_epochs=1)
    assert model[0].running_mean.tolist() == [0.0, 0.0]


def test_layers_are_unfrozen_one_after_the_other():
    engine, model, _ = script(
        Freeze("backbone.*", until=Events.EPOCH_STARTED(at=2)),
        Freeze("backbone.0.*", until=Events.EPOCH_STARTED(at=3)),
    )
    rows = seen_each_epoch(
        engine, model, lambda m: [m.backbone[n].weight.requires_grad for n in (0, 1, 2)]
    )
    engine.run(BATCHES, max_epochs=3)
    assert rows == [[False] * 3, [False, True, True], [True] * 3]


def test_a_layer_can_be_frozen_later():
    engine, model, _ = script(Freeze("head.*", when=Events.EPOCH_STARTED(at=2)))
    rows = seen_each_epoch(engine, model, lambda model: values(model.head))
    engine.run(BATCHES, max_epochs=3)
    assert rows[0] == rows[1] == rows[2]
    assert model.head.weight.grad is None


def test_everything_is_given_back_as_it_was_found_also_after_an_error():
    model = Net()
    model.backbone[2].weight.requires_grad_(False)
    engine, *_ = script(Freeze("backbone.*", until=Events.EPOCH_STARTED(at=2)), model=model)
    rows = seen_each_epoch(engine, model, lambda m: m.backbone[2].weight.requires_grad)
    engine.on(Events.ITERATION_COMPLETED(at=5))(lambda state: 1 / 0)
    before = [(p.requires_grad) for p in model.parameters()]
    with pytest.raises(ZeroDivisionError):
        engine.run(BATCHES, max_epochs=2)
    assert rows == [False]
    assert [p.requires_grad for p in model.parameters()] == before
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("stop_at", [2, 3, 4, 6, 7])
def test_a_resumed_run_is_the_same_run(stop_at, tmp_path):
    def handlers():
        return (
            Freeze("backbone.*", until=Events.EPOCH_STARTED(at=2)),
            Freeze("backbone.0.*", until=Events.ITERATION_STARTED(at=6)),
            Freeze("head.*", when=Events.ITERATION_STARTED(at=4)),
        )

    whole, expected, _ = script(*handlers())
    whole.run(BATCHES, max_epochs=3)
    first, *_ = script(*handlers(), Checkpoint(tmp_path))
    first.on(Events.ITERATION_COMPLETED(at=stop_at))(lambda state: state.interrupt("pause"))
    first.run(BATCHES, max_epochs=3)
    second, model, _ = script(*handlers(), Checkpoint(tmp_path, resume=True))
    second.run(BATCHES, max_epochs=3)
    assert values(model) == values(expected)


def test_a_state_carried_on_stays_frozen():
    engine, model, _ = script(Freeze("backbone.*", until=Events.EPOCH_STARTED(at=3)))
    before = values(model.backbone)
    state = engine.run(BATCHES, max_epochs=1)
    state = engine.run(BATCHES, max_epochs=2, state=state)
    assert values(model.backbone) == before
    engine.run(BATCHES, max_epochs=3, state=state)
    assert values(model.backbone) != before


def test_evaluation_leaves_it_as_it_is():
    weights = []
    for extra in ([], [Validate(BATCHES, when=Events.ITERATION_COMPLETED)]):
        engine, model, _ = script(Freeze("backbone.*", until=Events.EPOCH_STARTED(at=2)), *extra)
        modes = seen_each_epoch(engine, model, lambda m: m.backbone[1].training)
        engine.run(BATCHES, max_epochs=2)
        assert modes == [False, True]
        weights.append(values(model))
    assert weights[0] == weights[1]


def test_mistakes_are_told_before_anything_runs():
    engine, *_ = script(Freeze("backbon.*"))
    with pytest.raises(ValueError, match=r"Freeze\('backbon'\) matches no parameter; there are"):
        engine.run(BATCHES, max_epochs=1)
    with pytest.raises(ValueError, match=r"Freeze\(object='model'\).* its modules are none"):
        Engine(lambda state, batch: None, Freeze("a")).run([1], max_epochs=1)
