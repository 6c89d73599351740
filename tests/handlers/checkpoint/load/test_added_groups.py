"""Groups that a run adds to its optimizer are added again when it resumes, by names of weights."""

import logging
import os
import signal

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import StepLR

from camshaft import Events, supervised
from camshaft.handlers import EMA, Checkpoint, LRSchedule
from camshaft.handlers.schedules import linear

KILLS = [2, 4, 5, 7, 10]
"""Before the first group comes (at 4), before its first save, behind it; so for the second (7)."""


def data():
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(4, 4, generator=generator), torch.randn(4, 2)) for _ in range(3)]


def adam(layers, names=False):
    last = layers[2]
    return AdamW([*last.named_parameters()] if names else last.parameters(), 0.05)


def unfreeze(model, optimizer, number, **settings):
    model[number].requires_grad_(True)
    optimizer.add_param_group({"params": [*model[number].parameters()], **settings})


def killed(model, optimizer):
    os.kill(os.getpid(), signal.SIGKILL)


def train(directory=None, ends=None, make=adam, schedule=None, change=unfreeze, **options):
    """The weights and rates of a run that unfreezes a layer in its second and third epoch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    model[:2].requires_grad_(False)
    optimizer, handler = make(model), options.pop("handler", {})
    engine = supervised(model, optimizer, nn.functional.mse_loss, **options)
    if schedule is not None:
        engine.add(schedule(optimizer))
    engine.add(EMA(0.9))
    if directory is not None:
        each = Events.ITERATION_COMPLETED(every=2) | Events.EPOCH_COMPLETED
        handler = {"resume": True} | handler
        engine.add(Checkpoint(directory, when=each, background=False, **handler))
    engine.on(Events.EPOCH_STARTED(at=2))(lambda state: change(model, optimizer, 1, lr=0.01))
    engine.on(Events.EPOCH_STARTED(at=3))(lambda state: change(model, optimizer, 0, lr=0.02))
    for at, end in (ends or {}).items():
        engine.on(Events.ITERATION_COMPLETED(at=at))(lambda state, end=end: end(model, optimizer))
    torch.manual_seed(5)
    engine.run(data(), max_epochs=4)
    weights = [each.tolist() for each in model.parameters()]
    averages = [each.tolist() for each in engine.objects["ema"].parameters()]
    return [weights, averages, [group["lr"] for group in optimizer.param_groups]]


def pieces(optimizer):
    return LRSchedule(linear(final=0.1))


def steps(optimizer):
    return LRSchedule(StepLR(optimizer, 2, gamma=0.5))


@pytest.mark.quick(options=1)
@pytest.mark.parametrize(
    "options",
    [
        {"schedule": pieces, "accumulate": 2},
        {},
        {"schedule": steps, "make": lambda layers: SGD(layers[2].parameters(), 0.1, momentum=0.9)},
    ],
)
def test_a_run_that_unfreezes_by_new_groups_is_the_same_after_each_kill(
    options, tmp_path, in_child
):
    whole = train(**options)  # which imports what the children need
    assert len(whole[2]) == 3
    for at in KILLS:
        _, status = in_child(lambda at=at: train(tmp_path / f"{at}", {at: killed}, **options))
        assert status == -signal.SIGKILL
        resumed, _ = in_child(lambda at=at: train(tmp_path / f"{at}", **options))
        assert resumed == whole, at


def test_a_run_that_is_killed_several_times_adds_the_groups_each_time(tmp_path, in_child):
    whole = train()
    for at in KILLS:
        in_child(lambda at=at: train(tmp_path, {at: killed}))
    assert in_child(lambda: train(tmp_path))[0] == whole


class StopError(Exception):
    pass


def stopped(directory, at, **options):
    """A run of this process that an error ends, so that it does not save."""

    def stop(model, optimizer):
        raise StopError

    with pytest.raises(StopError):
        train(directory, ends={at: stop}, **options)


def nameless(model, optimizer, number, **settings):
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))], **settings})


def parametrized(model, optimizer, number, **settings):
    parametrizations.weight_norm(model[number])


@pytest.mark.filterwarnings("ignore:the run has changed")
@pytest.mark.parametrize("change", [nameless, parametrized])
def test_what_no_start_makes_again_is_told_at_that_save_in_each_process(change, tmp_path, caplog):
    stopped(tmp_path, 3, change=change)
    with caplog.at_level(logging.WARNING, "camshaft"):
        stopped(tmp_path / "new", 5, change=change)
        assert caplog.text.count("no start of this script could resume") == 1
        caplog.clear()
        stopped(tmp_path, 5, change=change)  # from the checkpoint before the change
        assert caplog.text.count("no start of this script could resume") == 1
    with pytest.raises(ValueError, match="it does not fit this script"):
        train(tmp_path, change=change)


def test_a_function_of_an_added_group_is_told_of_and_one_that_each_group_has_is_not(
    tmp_path, caplog
):
    class Ruled(SGD):
        def __init__(self, params):
            super().__init__(params, 0.1)
            self.defaults["rule"] = self.param_groups[0]["rule"] = unfreeze

    def own(model, optimizer, number, **settings):
        unfreeze(model, optimizer, number, rule=named, **settings)

    def named(*_):
        pass

    options = {"make": lambda layers: Ruled(layers[2].parameters())}
    with caplog.at_level(logging.WARNING, "camshaft"):
        stopped(tmp_path / "same", 5, **options)
        assert train(tmp_path / "same", **options) == train(**options)
        assert caplog.text == ""
        stopped(tmp_path / "own", 5, change=own, **options)
    assert "a group that the run has added to 'optimizer' has a 'rule', which" in caplog.text


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_an_optimizer_of_another_library_gets_its_groups_again_too(momentum, tmp_path):
    class Own(SGD):
        pass

    options = {"make": lambda layers: Own(layers[2].parameters(), 0.1, momentum)}
    whole = train(**options)
    for at in KILLS:
        stopped(tmp_path, at, **options)
    assert train(tmp_path, **options) == whole


def test_groups_of_named_parameters_have_their_names_again(tmp_path):
    def named(model, optimizer, number, **settings):
        model[number].requires_grad_(True)
        params = [(f"{number}.{name}", each) for name, each in model[number].named_parameters()]
        optimizer.add_param_group({"params": params, **settings})

    options = {"make": lambda layers: adam(layers, names=True), "change": named}
    stopped(tmp_path, 8, **options)
    assert train(tmp_path, **options) == train(**options)


def test_a_group_that_the_edited_script_makes_no_more_is_refused(tmp_path):
    def two(layers):
        return SGD([{"params": layers[n].parameters(), "lr": 0.1} for n in (2, 1)])

    def one(layers):
        return SGD(layers[2].parameters(), 0.1)

    def nothing(*_, **__):
        pass

    stopped(tmp_path, 5, make=two, change=nothing)
    says = r"groups of 'optimizer' hold \[2, 2\] parameters in the checkpoint and \[2\]"
    with pytest.raises(ValueError, match=says):
        train(tmp_path, make=one, change=nothing)


def test_groups_are_not_added_to_an_optimizer_whose_settings_or_schedule_begin_anew(tmp_path):
    def slower(layers):
        return AdamW(layers[2].parameters(), 0.01)

    stopped(tmp_path, 5, schedule=steps)
    options = {"schedule": steps, "make": slower, "handler": {"override": ["optimizer.lr"]}}
    with pytest.raises(ValueError, match="groups of 'optimizer' hold"):
        train(tmp_path, **options)
    with pytest.raises(ValueError, match="groups of 'optimizer' hold"):
        train(tmp_path, schedule=steps, handler={"reset": ["scheduler"]})


def test_a_group_that_a_function_of_started_adds_is_refused_at_the_first_save(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    optimizer = SGD(model[1].parameters(), 0.1)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    engine.add(Checkpoint(tmp_path, resume=True))
    engine.on(Events.STARTED)(lambda state: unfreeze(model, optimizer, 0))
    with pytest.raises(ValueError, match="Make it so before the run"):
        engine.run(data(), max_epochs=1)
