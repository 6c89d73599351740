"""Frozen layers, and groups of parameters by patterns of names."""

import json
import re

import pytest
import torch
from torch import nn
from torch.nn import Parameter

from camshaft import Engine, Events, supervised
from camshaft.handlers import (
    Checkpoint,
    Freeze,
    History,
    JSONLines,
    LRSchedule,
    Validate,
    describe_groups,
    norms_and_biases,
    parameter_groups,
)
from camshaft.handlers.fine_tuning.parameter_groups import group_name, matches
from camshaft.handlers.schedules import linear

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


@pytest.mark.parametrize("stop_at", [3, 6])
def test_what_the_script_freezes_or_thaws_by_itself_stays_so_after_a_resume(stop_at, tmp_path):
    def script_of(*handlers):
        engine, model, _ = script(Freeze("head.*", until=Events.EPOCH_STARTED(at=2)), *handlers)
        bias = model.head.bias
        engine.on(Events.ITERATION_STARTED(at=2))(lambda state: bias.requires_grad_(True))
        engine.on(Events.ITERATION_STARTED(at=5))(lambda state: bias.requires_grad_(False))
        return engine, model

    whole, expected = script_of()
    whole.run(BATCHES, max_epochs=3)
    first, carried = script_of(Checkpoint(tmp_path))
    first.on(Events.ITERATION_COMPLETED(at=stop_at))(lambda state: state.interrupt("pause"))
    state = first.run(BATCHES, max_epochs=3)
    second, model = script_of(Checkpoint(tmp_path, resume=True))
    second.run(BATCHES, max_epochs=3)
    first.run(BATCHES, max_epochs=3, state=state)
    assert values(model) == values(expected) == values(carried)


def test_a_finished_run_that_is_started_again_and_carried_on_stays_frozen(tmp_path):
    for _ in range(2):
        save = Checkpoint(tmp_path, when=Events.COMPLETED, resume=True)
        engine, model, _ = script(Freeze("backbone.*"), save)
        before = values(model.backbone)
        state = engine.run(BATCHES, max_epochs=1)
    engine.run(BATCHES, max_epochs=2, state=state)
    assert values(model.backbone) == before


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
    with pytest.raises(ValueError, match=r"Freeze\('backbon\.\*'\) matches no parameter;"):
        engine.run(BATCHES, max_epochs=1)
    with pytest.raises(ValueError, match=r"Freeze\(object='model'\).* its modules are none"):
        Engine(lambda state, batch: None, Freeze("a")).run([1], max_epochs=1)


class SmallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        self.head = nn.Linear(3, 1)

    def forward(self, input):
        return self.head(self.backbone(input))


def names_in(model, groups):
    by_id = {id(each): name for name, each in model.named_parameters()}
    return {group["name"]: [by_id[id(each)] for each in group["params"]] for group in groups}


def test_the_first_pattern_that_matches_takes_a_parameter_and_the_rest_are_the_default():
    model = SmallNet()
    patterns = {
        "*.bias": {"weight_decay": 0.0, "name": "biases"},
        re.compile(r"backbone\..*"): {"lr": 0.01},
    }
    groups = parameter_groups(model, patterns)
    assert names_in(model, groups) == {
        "biases": ["backbone.0.bias", "backbone.1.bias", "head.bias"],
        "backbone": ["backbone.0.weight", "backbone.1.weight"],
        "default": ["head.weight"],
    }
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.01, 0.1]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.0, 0.01, 0.01]


def test_norms_and_biases_without_weight_decay_are_one_line():
    model = SmallNet()
    groups = parameter_groups(model, {norms_and_biases: {"weight_decay": 0.0}})
    assert names_in(model, groups)["default"] == ["backbone.0.weight", "head.weight"]


def test_frozen_parameters_are_left_out_unless_they_are_to_be_thawed():
    model = SmallNet()
    model.backbone.requires_grad_(False)
    assert names_in(model, parameter_groups(model, {})) == {"default": ["head.weight", "head.bias"]}
    assert len(parameter_groups(model, {"head.*": {}}, frozen=True)[1]["params"]) == 4


def test_shared_parameters_are_in_one_group():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    groups = parameter_groups(model, {"0.*": {"lr": 1.0}})
    assert [len(group["params"]) for group in groups] == [2, 1]
    torch.optim.SGD(groups, 0.1)


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ({"backbon.*": {}}, r"'backbon\.\*' matches no parameter; there are 'backbone.0.weight'"),
        ({"*": {}, "head.*": {}}, "all .* 'head.*' matches are taken by patterns before it"),
        ({"frozen.*": {}}, "all .* 'frozen.*' matches are frozen; .* frozen=True"),
        ({"head.*": {"name": "default"}}, "two groups have one name"),
    ],
)
def test_a_group_that_would_be_empty_is_an_error_that_says_why(patterns, message):
    model = SmallNet()
    model.frozen = nn.Linear(1, 1).requires_grad_(False)
    with pytest.raises(ValueError, match=message):
        parameter_groups(model, patterns)


def test_what_is_no_dict_is_refused():
    with pytest.raises(TypeError, match="pattern -> options"):
        parameter_groups(SmallNet(), ["head.*"])


def test_the_table_shows_sizes_what_trains_and_options():
    model = SmallNet()
    groups = parameter_groups(model, {"head.*": {"lr": 0.5}})
    model.backbone[0].requires_grad_(False)
    table = describe_groups(torch.optim.SGD(groups, 0.1, momentum=0.9)).splitlines()
    assert table[1].startswith("head           2         4          4  lr=0.5, momentum=0.9")
    assert table[2].startswith("default        4        15          6  lr=0.1")
    assert table[3] == "total          6        19         10"


def test_rates_are_logged_by_the_names_of_the_groups():
    model = SmallNet()
    optimizer = torch.optim.SGD(parameter_groups(model, {"backbone.*": {"lr": 0.01}}), 0.1)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    engine.add(LRSchedule(linear()))
    state = engine.run([(torch.ones(2, 2), torch.ones(2, 1))] * 2, max_epochs=1)
    assert state.metrics["lr/backbone"] == 0.005
    assert state.metrics["lr/default"] == 0.05


def test_constant_rates_are_in_each_row_by_the_names_of_the_groups(tmp_path):
    model = SmallNet()
    optimizer = torch.optim.SGD(parameter_groups(model, {"backbone.*": {"lr": 0.01}}), 0.1)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    engine.add(JSONLines(tmp_path / "rows.jsonl", when=Events.ITERATION_COMPLETED))
    engine.run([(torch.ones(2, 2), torch.ones(2, 1))] * 2, max_epochs=1)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [(row["lr/backbone"], row["lr/default"]) for row in rows] == [(0.01, 0.1)] * 2


MATRIX = Parameter(torch.zeros(2, 2))


def test_a_glob_a_regular_expression_and_a_function_mean_whole_names():
    assert matches("layers.[01].*", "layers.1.weight", MATRIX)
    assert not matches("layers", "layers.1.weight", MATRIX)
    assert matches(re.compile(r".*\.weight"), "layers.1.weight", MATRIX)
    assert not matches(re.compile("layers"), "layers.1.weight", MATRIX)
    assert matches(lambda name, parameter: parameter.ndim == 2, "anything", MATRIX)
    assert not norms_and_biases("embedding.weight", MATRIX)
    assert norms_and_biases("norm.weight", Parameter(torch.zeros(2)))


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("backbone.*", "backbone"),
        ("*", "*"),
        (".*", ".*"),
        (norms_and_biases, "norms_and_biases"),
        (re.compile(r"backbone\..*"), "backbone"),
        (re.compile("backbone.layer1.*"), "backbone.layer1*"),
        (re.compile(r"^layers\.[0-3]\..*$"), "layers.[0-3]"),
        (re.compile(r"\w+\.(?:weight|bias)"), "*.(weight|bias)"),
        (re.compile(r"layers\.\d+\.attention\..*"), "layers.*.attention"),
        (re.compile(r".*?\.bias\Z"), "*.bias"),
        (re.compile(re.escape("head.0-1.weight")), "head.0-1.weight"),
        (re.compile("a+"), "a+"),
        (re.compile(".*"), "*"),
        (re.compile(r"a\\.+"), "a\\*"),
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_groups_have_names_that_people_can_read(pattern, name):
    assert group_name(pattern) == name
    assert Freeze(pattern).name == name


def test_a_regular_expression_gives_a_metric_a_readable_name_and_is_shown_whole_in_errors():
    model = SmallNet()
    groups = parameter_groups(model, {re.compile(r"backbone\.\d+\..*"): {"lr": 0.01}})
    optimizer = torch.optim.SGD(groups, lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    history = History(when=Events.ITERATION_COMPLETED)
    engine.add(history).run([(torch.ones(2, 2), torch.ones(2, 1))], max_epochs=1)
    assert history["lr/backbone.*"] == [0.01]
    with pytest.raises(ValueError, match=r"'encoder\\\\\.\.\*' matches no parameter"):
        parameter_groups(model, {re.compile(r"encoder\..*"): {}})
    alike = {re.compile(r"\w+\.weight"): {}, re.compile(r".*\.weight"): {}}
    with pytest.raises(ValueError, match=r"two groups have one name: .*; give one of them another"):
        parameter_groups(model, alike)
