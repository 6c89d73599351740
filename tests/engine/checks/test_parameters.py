"""Parameters that no optimizer trains, optimizers of other modules, teachers that drift."""

import warnings

import pytest
import torch
from torch import nn

from camshaft import Engine, Events, Update, supervised
from camshaft.handlers import EMA, SWA, Freeze, LRSchedule, RestoreBest, Validate

BATCHES = [(torch.ones(3, 2), torch.ones(3, 1))] * 2


def sgd(*modules):
    return torch.optim.SGD([each for module in modules for each in module.parameters()], lr=0.1)


def run(objects, *handlers, data=BATCHES):
    """The warnings of a run that trains nothing, as one text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Engine(lambda state, batch: None, *handlers, objects=objects).run(data, max_epochs=2)
    assert {each.filename for each in caught} <= {__file__}  # the line of the script
    return "\n".join(str(each.message) for each in caught)


def test_trainable_parameters_that_no_optimizer_holds_are_told_of_once_in_a_run():
    model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 4), nn.Linear(4, 1))
    text = run({"model": model, "optimizer": sgd(model[0])})
    expected = (
        "no optimizer of this engine holds these trainable parameters of objects['model'], so"
    )
    assert text.startswith(expected)
    assert ": 1.weight, 1.bias, 2.weight, ... (4 in all). Make the optimizer after" in text
    assert text.count("trainable parameters") == 1


@pytest.mark.parametrize(
    ("key", "meant"),
    [("lrr", "lr"), ("weigth_decay", "weight_decay"), ("name", ""), ("lr_scale", "")],
)
def test_a_misspelled_setting_of_a_parameter_group_is_told_of(key, meant):
    model = nn.Linear(2, 1)
    groups = [{"params": [model.weight], key: 0.5}, {"params": [model.bias]}]
    text = run({"model": model, "optimizer": torch.optim.SGD(groups, lr=0.1)})
    assert ("does not read" in text) == bool(meant)
    assert f"has '{key}', which the optimizer does not read: '{meant}' was" in text or not meant


@pytest.mark.parametrize(("rates", "told"), [((0.1, 0.1), 1), ((0.05, 0.1), 0), ((0.0, 0.0), 0)])
def test_a_layer_decay_that_nothing_applies_is_told_of(rates, told):
    model = nn.Linear(2, 1)
    groups = [
        {"params": [each], "lr": rate, "lr_scale": scale}
        for each, rate, scale in zip(model.parameters(), rates, (0.5, 1.0), strict=True)
    ]
    text = run({"model": model, "optimizer": torch.optim.SGD(groups)})
    assert text.count("all layers train at one rate. Give LRSchedule a scheduler of timm") == told


class Hiding(nn.Module):
    """Has a layer in a container, where it does not find it."""

    def __init__(self, parts, *, learns=True):
        super().__init__()
        self.parts, self.learns, self.head = parts, learns, nn.Linear(2, 1)

    def forward(self, x):
        (layer,) = self.parts.values() if isinstance(self.parts, dict) else self.parts
        with torch.set_grad_enabled(self.learns):
            hidden = layer(x)
        return self.head(hidden)


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_layers_in_a_plain_container_that_learn_nothing_are_told_of(kind):
    layer = nn.Linear(2, 2)
    model = nn.Sequential(Hiding({"a": layer} if kind is dict else kind([layer])))
    with pytest.warns(UserWarning, match=r"2 parameters in model\.0\.parts,.*ModuleList") as told:
        supervised(model, sgd(model), nn.functional.mse_loss).run(BATCHES, max_epochs=1)
    assert len(told) == 1


def test_layers_in_a_plain_container_on_purpose_are_not_told_of():
    teacher, shared = Hiding([nn.Linear(2, 2)], learns=False), Hiding([nn.Linear(2, 2)])
    shared.owner, trained = shared.parts[0], Hiding([nn.Linear(2, 2)])
    for model, others in (teacher, []), (shared, []), (trained, trained.parts):
        engine = supervised(model, sgd(model, *others), nn.functional.mse_loss)
        engine.run(BATCHES, max_epochs=1)


def test_also_after_a_layer_was_replaced_between_two_runs():
    model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 1))
    engine = supervised(model, sgd(model), nn.functional.mse_loss)
    state = engine.run(BATCHES, max_epochs=1)
    model[1] = nn.Linear(4, 1)
    with pytest.warns(UserWarning, match=r": 1.weight, 1.bias \(2 in all\). Make"):
        engine.run(BATCHES, max_epochs=2, state=state)


def test_an_optimizer_of_parameters_that_the_engine_does_not_know_is_told_of():
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    objects = {"model": model, "optimizer": sgd(model), "critic_optimizer": sgd(other)}
    text = run(objects)
    assert text.startswith("objects['critic_optimizer'] updates parameters of no module among")
    assert text.count("no module among") == 1
    assert run({**objects, "critic": other}) == ""
    text = run({"model": model}, Update(sgd(other)))
    assert "the optimizer of Update updates parameters of no module" in text
    assert "trainable parameters of objects['model'], so that no step changes them" in text


def test_a_parameter_of_no_module_with_an_optimizer_of_its_own_is_no_mistake():
    model, alpha = nn.Linear(2, 1), nn.Parameter(torch.zeros(1))  # as in DARTS
    first, second = sgd(model), torch.optim.SGD([alpha], 0.1)

    def step(state, batch):
        (model(batch[0]) * alpha.exp()).sum().backward()
        for each in (first, second):
            each.step()
            each.zero_grad()

    objects = {"model": model, "optimizer": first, "of_alpha": second}
    Engine(step, objects=objects).run(BATCHES, max_epochs=1)


def test_a_loss_with_weights_that_are_not_trained_is_told_of():
    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, prediction, target):
            return self.weight * (prediction - target).pow(2).mean()

    model, loss = nn.Linear(2, 1), Weighted()
    with pytest.warns(UserWarning, match=r"of objects.'loss_fn'., so .*: weight \(1 in all\)"):
        supervised(model, sgd(model), loss).run(BATCHES, max_epochs=1)
    supervised(model, sgd(model, loss), loss).run(BATCHES, max_epochs=1)


def test_what_is_right_is_not_warned_of():
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    teacher = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4)).requires_grad_(False).eval()
    critic, adapted = nn.Linear(2, 1), nn.Sequential(nn.Linear(2, 2).requires_grad_(False))
    adapted.append(nn.Linear(2, 1))
    schedule = torch.optim.lr_scheduler.StepLR(sgd(critic), 1)  # its optimizer is known by it
    objects = {
        **{"model": model, "optimizer": sgd(model), "teacher": teacher},
        **{"critic": critic, "schedule": schedule},
        **{"adapted": adapted, "adapted_optimizer": sgd(adapted[1])},
        "average": torch.optim.swa_utils.AveragedModel(model),
    }
    averages = [EMA(), SWA(), RestoreBest("loss")]
    for optimizer in (objects["optimizer"], schedule.optimizer, objects["adapted_optimizer"]):
        optimizer.step()

    def step(state, batch):
        state.metrics["loss"] = 1.0
        schedule.step()
        objects["average"].update_parameters(model)

    engine = Engine(step, Freeze("0.*", until=None), *averages, objects=objects)
    engine.run(BATCHES, max_epochs=2)
    assert run({}) == run({"model": model}) == run({"optimizer": sgd(model)}) == ""


def test_layers_that_are_frozen_until_later_are_right_in_one_optimizer():
    model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 1))
    optimizer = sgd(model[1])
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    engine.add(Freeze("0.*"), LRSchedule(torch.optim.lr_scheduler.StepLR(optimizer, 1)))
    engine.run(BATCHES, max_epochs=2)


@pytest.mark.parametrize("how", ["unfrozen", "replaced", "added to the optimizer", "held"])
def test_what_is_unfrozen_or_made_in_mid_run_and_in_no_optimizer_is_told_of_once(how):
    model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 1))
    optimizer = sgd(model if how == "held" else model[1])
    model[0].requires_grad_(False)
    engine = supervised(model, optimizer, nn.functional.mse_loss)

    @engine.on(Events.EPOCH_STARTED(at=2))
    def change(state):
        if how == "replaced":
            model[0] = nn.Linear(2, 4)
        model[0].requires_grad_(True)
        if how == "added to the optimizer":
            optimizer.add_param_group({"params": [*model[0].parameters()]})

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        engine.run(BATCHES, max_epochs=4)
    told = [str(each.message).partition("(2 in all)")[0] for each in caught]
    expected = (
        "no optimizer of this engine holds these trainable parameters of objects['model'], so "
        "that no step changes them: 0.weight, 0.bias "
    )
    assert told == [expected] * (how in ("unfrozen", "replaced"))


def test_after_a_hundred_epochs_what_is_unfrozen_is_told_of_at_a_power_of_two():
    model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 1))
    engine = supervised(model, sgd(model[1]), nn.functional.mse_loss)
    model[0].requires_grad_(False)
    engine.on(Events.EPOCH_STARTED(at=105))(lambda state: model[0].requires_grad_(True))
    epochs = []
    engine.on(Events.EPOCH_STARTED)(lambda state: epochs.append(state.epoch))
    with pytest.raises(UserWarning, match="no optimizer of this engine holds"):
        engine.run(BATCHES[:1], max_epochs=200)
    assert epochs[-1] == 128


def test_a_frozen_teacher_in_training_mode_is_told_of():
    model = nn.Linear(2, 1)
    teacher = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4))
    teacher.requires_grad_(False)
    objects = {"model": model, "optimizer": sgd(model), "teacher": teacher}
    text = run(objects)
    assert text.startswith("objects['teacher'] has no trainable parameter and is in training mode")
    assert "changes its running statistics (1, 2). If it is a teacher" in text
    teacher.eval()
    assert run(objects) == ""


def test_also_where_a_loss_function_holds_the_teacher():
    class Distilled:
        def __init__(self, teacher):
            self.teacher = teacher

        def __call__(self, prediction, target):
            return (prediction - self.teacher(target)).pow(2).mean()

    model, teacher = nn.Linear(2, 1), nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    teacher.requires_grad_(False)
    engine = supervised(model, sgd(model), Distilled(teacher))
    with pytest.warns(UserWarning, match="the module in the loss function has no trainable"):
        engine.run(BATCHES, max_epochs=1)
    teacher.eval()
    engine.run(BATCHES, max_epochs=1)


class TrainedPart:
    """Saves the trained part of a model only."""

    def __init__(self, model):
        self.model = model

    def state_dict(self):
        return {"1.weight": self.model[1].weight}

    def load_state_dict(self, saved):
        self.model[1].weight.data.copy_(saved["1.weight"])


def test_an_object_that_holds_the_model_has_it_evaluated_and_checked():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.Linear(2, 1))
    modes = []

    def step(state, batch):
        modes.append((state.training, model.training, model[1].training))

    update = Update(sgd(model))
    engine = Engine(step, update, objects={"model": TrainedPart(model)})
    engine.add(Validate(BATCHES[:1]))
    engine.run(BATCHES[:1], max_epochs=1)
    assert modes == [(True, True, True), (False, False, False)]
    assert model[1].training
    assert "(4 in all)" in run({"model": TrainedPart(model), "optimizer": sgd(nn.Linear(2, 1))})


def test_an_autocast_around_a_training_run_is_an_error_unless_it_keeps_no_weights():
    model = nn.Linear(2, 1)
    engine = supervised(model, sgd(model), nn.functional.mse_loss)
    with torch.autocast("cpu", torch.bfloat16):
        engine.evaluate(BATCHES)
        with pytest.raises(RuntimeError, match=r'precision="bf16".* cache_enabled=False'):
            engine.run(BATCHES, max_epochs=1)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        engine.run(BATCHES, max_epochs=1)


def test_a_dropout_in_a_plain_list_is_told_of_and_a_hidden_teacher_is_not(recwarn):
    class Several(nn.Module):
        def __init__(self, drops):
            super().__init__()
            self.layer, self.known = nn.Linear(2, 1), nn.Dropout(0.5)
            self.drops = drops
            self.parts = [self.layer, self.known, nn.ReLU(), nn.Dropout(0.0), 3]
            self.teacher = {"one": nn.Sequential(nn.Linear(2, 1), nn.Dropout(0.1))}

        def forward(self, x):
            return self.layer(x)

    for drops in ([nn.Sequential(nn.ReLU(), nn.Dropout(0.5))], [nn.Dropout(0.5).eval()]):
        model = Several(drops)
        engine = supervised(model, torch.optim.SGD(model.parameters()), nn.functional.mse_loss)
        engine.run([(torch.ones(3, 2), torch.ones(3, 1))], max_epochs=1)
    (told,) = recwarn
    assert "model.drops holds Sequential in training mode, also in" in str(told.message)


def test_a_tensor_that_an_optimizer_keeps_in_its_groups_is_no_misspelled_setting():
    class Ivon(torch.optim.SGD):
        def __init__(self, parameters):
            super().__init__(parameters, 1e-3)
            self.defaults["ess"] = 100.0
            self.param_groups[0]["ess"], self.param_groups[0]["hess"] = 100.0, torch.ones(4)

    model = torch.nn.Linear(2, 1)
    engine = supervised(model, Ivon(model.parameters()), torch.nn.functional.mse_loss)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.run([(torch.ones(3, 2), torch.ones(3, 1))], max_epochs=1)


def test_a_learning_rate_by_its_long_name_is_told_of():
    model = nn.Linear(2, 1)
    group = {"params": model.parameters(), "learning_rate": 1e-3, "name": "all", "lr_scale": 0.1}
    engine = supervised(model, torch.optim.SGD([group]), nn.functional.mse_loss)
    with pytest.warns(UserWarning, match="has 'learning_rate', which .*'lr' was probably meant"):
        engine.run([(torch.ones(3, 2), torch.ones(3, 1))], max_epochs=1)
