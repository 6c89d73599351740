"""The first save is read back: what no start of the script could load is refused, or loads."""

import enum
import logging

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer

from camshaft import Engine, Events, Update, supervised
from camshaft.handlers import Checkpoint

ENDS = {"when": Events.ITERATION_COMPLETED(every=2), "resume": True, "background": False}


def data():
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(4, 4, generator=generator), torch.randn(4, 2, generator=generator))
        for _ in range(6)
    ]


def net():
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def run(make, directory=None, until=None, at=None, change=None):
    """The weights after a run, which may be stopped at an iteration and changed at another."""
    torch.manual_seed(0)
    model, optimizer = make()
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    if directory is not None:
        engine.add(Checkpoint(directory, **ENDS))
    if at is not None:
        engine.on(Events.ITERATION_COMPLETED(at=at))(lambda state: change(model, optimizer))
    engine.run(data(), max_epochs=1, max_iterations=until)
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def is_exact(make, directory, **more):
    run(make, directory, until=3, **more)
    return torch.equal(run(make, directory, **more), run(make, **more))


class Counts(Optimizer):
    """Keeps what is no parameter's under a key of its own, in nested containers."""

    key = "k"

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})
        self.state[self.key] = {"seen": [torch.zeros(1), {"sum": torch.tensor(0.0)}]}

    @torch.no_grad()
    def step(self, closure=None):
        count, inner = self.state[self.key]["seen"]
        count += 1
        inner["sum"] += 2
        for each in self.param_groups[0]["params"]:
            each.sub_(0.1 / float(count + inner["sum"]) * each.grad)


@pytest.mark.parametrize("key", ["k", None, ("a", 1), 999, 1.5, "0"])
def test_a_key_of_the_state_that_is_no_parameter_is_loaded(key, tmp_path):
    kind = type("Keyed", (Counts,), {"key": key})
    assert is_exact(lambda: ((model := net()), kind(model.parameters())), tmp_path)


def test_a_key_that_is_also_the_number_of_a_parameter_is_refused(tmp_path):
    kind = type("Keyed", (Counts,), {"key": 0})
    with pytest.raises(ValueError, match=r"state of 'optimizer' has a key 0, as state_dict"):
        run(lambda: ((model := net()), kind(model.parameters())), tmp_path)


class Plain:
    """No subclass of Optimizer; calls parameters by their addresses in this process."""

    def __init__(self, params, call=id):
        self.params, self.call = list(params), call
        self.states = {each: {"m": torch.zeros_like(each)} for each in self.params}

    @torch.no_grad()
    def step(self):
        for each in self.params:
            momentum = self.states[each]["m"]
            momentum.mul_(0.9).add_(each.grad)
            each.sub_(0.1 * momentum)
            each.grad = None

    def state_dict(self):
        return {"states": {self.call(each): own for each, own in self.states.items()}}

    def load_state_dict(self, saved):
        own = {self.call(each): each for each in self.params}
        for name, state in saved["states"].items():
            if name in own:
                self.states[own[name]].update(state)


class Pairs(Plain):
    def state_dict(self):
        return {"states": [[self.call(each), own] for each, own in self.states.items()]}

    def load_state_dict(self, saved):
        super().load_state_dict({"states": dict(saved["states"])})


class InOrder(Plain):
    def load_state_dict(self, saved):
        for own, state in zip(self.states.values(), saved["states"].values(), strict=True):
            own.update(state)


def by_hand(directory, kind, call):
    torch.manual_seed(0)
    model = net()
    own = kind(model.parameters(), call)

    def step(state, batch):
        model(batch[0]).square().sum().backward()
        own.step()
        state.fire(Events.STEP_COMPLETED)

    objects = {"model": model, "own": own}
    Engine(step, Checkpoint(directory, **ENDS), objects=objects).run(data(), max_epochs=1)


CALLS = {
    "id": id,
    "address of the data": torch.Tensor.data_ptr,
    "text": lambda each: f"p{id(each)}",
    "tuple": lambda each: (id(each), "m"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", [Plain, Pairs])
def test_a_state_by_addresses_of_this_process_is_refused(call, kind, tmp_path):
    with pytest.raises(TypeError, match=rf"a {kind.__name__}, and .*each id\(...\) and data_ptr"):
        by_hand(tmp_path, kind, CALLS[call])
    assert [*tmp_path.glob("iteration*")] == []


def test_a_state_by_addresses_that_is_loaded_in_order_is_taken(tmp_path):
    by_hand(tmp_path, InOrder, id)
    assert [*tmp_path.glob("iteration*")]


class OldForm(SGD):
    """Calls parameters by their ids, as torch did once, and loads them by their order."""

    def state_dict(self):
        own, saved = self.param_groups[0]["params"], super().state_dict()
        state = {id(own[n]): each for n, each in saved["state"].items()}
        return {
            "state": state,
            "param_groups": [{**saved["param_groups"][0], "params": [*map(id, own)]}],
        }

    def load_state_dict(self, saved):
        (group,) = saved["param_groups"]
        numbers = {each: n for n, each in enumerate(group["params"])}
        state = {numbers[key]: each for key, each in saved["state"].items()}
        params = [*numbers.values()]
        super().load_state_dict({"state": state, "param_groups": [{**group, "params": params}]})


def test_ids_that_a_list_puts_in_order_are_taken(tmp_path):
    assert is_exact(
        lambda: ((model := net()), OldForm(model.parameters(), 0.1, momentum=0.9)), tmp_path
    )


class HoldsGroup(Optimizer):
    """Its state holds the whole group, whose rate it uses; from the beginning, or only later."""

    is_early = True

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})
        if self.is_early:
            self.hold()

    def hold(self):
        for each in self.param_groups[0]["params"]:
            self.state[each].setdefault("group", self.param_groups[0])

    @torch.no_grad()
    def step(self, closure=None):
        self.hold()
        for each in self.param_groups[0]["params"]:
            each.sub_(self.state[each]["group"]["lr"] * each.grad)


def slower(model, optimizer):
    optimizer.param_groups[0]["lr"] = 0.01


def test_a_group_in_a_state_is_the_group_after_a_resume_too(tmp_path):
    def make():
        return (model := net()), HoldsGroup(model.parameters())

    assert is_exact(make, tmp_path, at=5, change=slower)


def test_a_group_that_would_be_a_copy_after_a_resume_is_refused(tmp_path):
    late = type("Late", (HoldsGroup,), {"is_early": False})
    with pytest.raises(TypeError, match="holds its groups themselves, and after loading copies"):
        run(lambda: ((model := net()), late(model.parameters())), tmp_path)


class Kind(enum.Enum):
    FAST = 1


class Word(enum.StrEnum):
    FAST = "fast"


class Own(SGD):
    pass


@pytest.mark.parametrize(
    "value", [lambda state: True, torch.bfloat16, Kind.FAST, Word.FAST, torch.nn.ReLU]
)
@pytest.mark.parametrize("kind", [SGD, Own])
def test_a_setting_that_the_script_gives_anew_needs_no_saving(value, kind, tmp_path):
    found = []

    def make():
        model = net()
        optimizer = kind([{"params": model.parameters(), "how": value}], 0.1, momentum=0.9)
        found.append(optimizer)
        return model, optimizer

    assert is_exact(make, tmp_path)
    assert found[1].param_groups[0]["how"] is value


def test_another_object_in_a_group_is_refused_with_words_about_optimizers(tmp_path):
    def make():
        return (model := net()), SGD([{"params": model.parameters(), "how": object()}], 0.1)

    says = r"optimizer.param_groups.0.how is a builtins.object.* another optimizer, such as"
    with pytest.raises(TypeError, match=says) as error:
        run(make, tmp_path)
    assert "Remember" not in str(error.value)


def add_a_group(model, optimizer):
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})  # which no module has


def put_a_longer_layer(model, optimizer):
    model[0], model[2] = nn.Linear(4, 5), nn.Linear(5, 2)
    optimizer.param_groups[0]["params"] = [*model.parameters()]
    optimizer.state.clear()


def tag(model, optimizer):
    optimizer.param_groups[0]["tag"] = 3


CHANGES = {
    add_a_group: r"groups of 'optimizer' hold \[4, 1\] parameters in the checkpoint and \[4\]",
    put_a_longer_layer: r"'0.weight' of 'model': float32\[5, 4\] in the checkpoint, float32\[3, 4",
    tag: r"it has no 'tag', which the checkpoint has",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_that_changes_the_form_of_what_the_script_makes_is_told(change, tmp_path, caplog):
    def make():
        return (model := net()), Adam(model.parameters())

    with pytest.raises(ValueError, match=r"no start of this script.*\n.*" + CHANGES[change]):
        run(make, tmp_path / "before", at=1, change=change)
    if change is not tag:  # which no tensor shows
        with caplog.at_level(logging.WARNING, "camshaft"):
            run(make, tmp_path / "after", at=3, change=change)
        assert caplog.text.count("no start of this script could resume") == 1


def test_a_trained_weight_that_a_hook_leaves_out_is_refused_and_a_frozen_one_is_not(tmp_path):
    def make(is_trained):
        model = net()
        model[0].requires_grad_(is_trained)

        def leave_out(module, state, prefix, meta):
            del state[f"{prefix}weight"]

        model[0].register_state_dict_post_hook(leave_out)
        return model, Adam([each for each in model.parameters() if each.requires_grad])

    assert is_exact(lambda: make(False), tmp_path / "frozen")
    with pytest.raises(ValueError, match=r"state_dict\(\) of 'model' leaves out '0.weight'"):
        run(lambda: make(True), tmp_path / "trained")


def test_an_object_may_save_the_optimizer_of_an_update(tmp_path):
    class Both:
        def __init__(self):
            self.model = net()
            self.optimizer = Adam(self.model.parameters())

        def state_dict(self):
            return {"parts": [self.model.state_dict(), self.optimizer.state_dict()]}

        def load_state_dict(self, saved):
            self.model.load_state_dict(saved["parts"][0])
            self.optimizer.load_state_dict(saved["parts"][1])

    both = Both()
    update = Update(both.optimizer)

    def step(state, batch):
        update(state, both.model(batch[0]).square().mean())

    engine = Engine(step, update, Checkpoint(tmp_path, **ENDS), objects={"both": both})
    assert engine.run(data(), max_epochs=1).iteration == 6


def test_zero_redundancy_names_fsdp2(tmp_path):
    class ZeroRedundancyOptimizer(SGD):
        pass

    def make():
        return (model := net()), ZeroRedundancyOptimizer(model.parameters(), 0.1)

    with pytest.raises(TypeError, match=r"ZeroRedundancyOptimizer, .*FSDP2 \(fully_shard\)"):
        run(make, tmp_path)
