"""Modules that load in a way of their own are asked first, and what they hold compared later."""

import warnings

import pytest
import torch
from torch import nn
from torch.optim import Adam

from camshaft import Engine, Events, Update, supervised
from camshaft.handlers import Checkpoint

ENDS = {"when": Events.ITERATION_COMPLETED(every=2), "resume": True, "background": False}


def data():
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(4, 4, generator=generator), torch.randn(4, 2, generator=generator))
        for _ in range(6)
    ]


def run(make, directory=None, until=None, at=None, change=None):
    torch.manual_seed(0)
    model = make()
    optimizer = Adam(model.parameters(), 0.05)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    if directory is not None:
        engine.add(Checkpoint(directory, **ENDS))
    if at is not None:
        engine.on(Events.ITERATION_STARTED(at=at))(lambda state: change(model, optimizer))
    engine.run(data(), max_epochs=1, max_iterations=until)
    return model.state_dict()


def is_exact(make, directory, **more):
    run(make, directory, until=3, **more)
    resumed, whole = run(make, directory, **more), run(make, **more)
    return resumed.keys() == whole.keys() and all(
        torch.equal(resumed[name], whole[name])
        for name in whole
        if isinstance(whole[name], torch.Tensor)
    )


def lazy():
    return nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.Tanh(), nn.LazyLinear(2))


def test_lazy_modules_resume(tmp_path):
    assert is_exact(lazy, tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_traced", [False, True])
def test_a_quantization_aware_run_resumes(is_traced, tmp_path):
    from torch.ao import quantization
    from torch.ao.quantization import quantize_fx

    def make():
        layers = nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if is_traced:
                mapping = quantization.get_default_qat_qconfig_mapping("x86")
                inputs = (torch.zeros(2, 4),)
                model = nn.Sequential(*layers).train()
                return quantize_fx.prepare_qat_fx(model, mapping, inputs)
            model = nn.Sequential(quantization.QuantStub(), *layers, quantization.DeQuantStub())
            model.train().qconfig = quantization.get_default_qat_qconfig("x86")
            return quantization.prepare_qat(model)

    assert is_exact(make, tmp_path)


class Points(nn.Module):
    """Its rows grow in a run; it takes as many as a checkpoint has."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Parameter(torch.randn(3, 2))

    def forward(self, batch):
        return self.rows.sum(0) * batch.sum(1, keepdim=True)

    def _load_from_state_dict(self, state, prefix, *rest):
        self.rows.data = torch.empty_like(state[f"{prefix}rows"])
        super()._load_from_state_dict(state, prefix, *rest)


def grow(model, optimizer):
    points = model[0]
    old, new = points.rows, nn.Parameter(torch.cat([points.rows.detach()] * 2))
    kept = optimizer.state.pop(old)
    optimizer.state[new] = {k: torch.cat([v, v]) if v.ndim else v for k, v in kept.items()}
    points.rows = optimizer.param_groups[0]["params"][0] = new


def test_a_module_that_takes_other_shapes_resumes_with_its_optimizer(tmp_path):
    assert is_exact(lambda: nn.Sequential(Points()), tmp_path, at=2, change=grow)


def test_a_module_that_does_not_take_what_was_saved_is_told(tmp_path):
    class Stays(Points):
        def _load_from_state_dict(self, state, prefix, *rest):
            state[f"{prefix}rows"] = state[f"{prefix}rows"][:3]
            nn.Module._load_from_state_dict(self, state, prefix, *rest)

    def make():
        return nn.Sequential(Stays())

    run(make, tmp_path, until=3, at=2, change=grow)
    with pytest.raises(ValueError, match=r"float32\[6, 2\] in the checkpoint, float32\[3, 2\]"):
        run(make, tmp_path, at=2, change=grow)


class Scene:
    """Owns parameters and their optimizer, and makes both anew when it loads."""

    def __init__(self):
        self.points = nn.Parameter(torch.zeros(2, 1))
        self.optimizer = Adam([self.points], 0.1)

    def put(self, points):
        state = self.optimizer.state.pop(self.points, None)
        self.points = self.optimizer.param_groups[0]["params"][0] = nn.Parameter(points)
        if state:
            grown = {k: torch.cat([v, v]) if v.ndim else v for k, v in state.items()}
            self.optimizer.state[self.points] = grown

    def state_dict(self):
        return {"points": self.points.detach(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, saved):
        self.put(saved["points"].clone())
        self.optimizer.load_state_dict(saved["optimizer"])


@pytest.mark.parametrize("is_named", [False, True])
def test_an_object_that_owns_growing_parameters_is_loaded_before_their_optimizer(
    is_named, tmp_path
):
    def script(directory, until):
        scene = Scene()
        update = Update(scene.optimizer)

        def step(state, batch):
            update(state, (scene.points - 1).square().sum())
            if state.iteration == 3:
                scene.put(torch.cat([scene.points.detach()] * 2))

        objects = {"optimizer": scene.optimizer} if is_named else {}
        objects["scene"] = scene
        engine = Engine(step, update, Checkpoint(directory, **ENDS), objects=objects)
        engine.run(range(10), max_epochs=1, max_iterations=until)
        return scene.points.detach().flatten()

    script(tmp_path / "parts", 5)
    resumed = script(tmp_path / "parts", 10)
    assert resumed.shape == (4,)
    assert torch.equal(resumed, script(tmp_path / "whole", 10))


def test_an_expanded_buffer_is_put_back_and_stays_expanded(tmp_path):
    class Counts(nn.Linear):
        def __init__(self):
            super().__init__(4, 2)
            self.register_buffer("seen", torch.ones(1, 2).expand(3, 2))

        def forward(self, batch):
            self.seen[0].add_(1)
            assert self.seen.stride(0) == 0
            return super().forward(batch) / self.seen[2, 0]

    assert is_exact(Counts, tmp_path)


def test_an_error_of_the_script_s_own_tensor_is_no_damage(tmp_path):
    def make():
        model = nn.Linear(4, 2)
        with torch.inference_mode():
            model.register_buffer("table", torch.ones(3))
        return model

    run(make, tmp_path, until=3)
    with pytest.raises(ValueError, match="'model' has not taken all its weights") as error:
        run(make, tmp_path)
    assert "broken" not in str(error.value)


class Renames(nn.Linear):
    """Saves its weight under another name, and takes it back under that."""

    def __init__(self):
        super().__init__(4, 2)
        self.register_state_dict_post_hook(self.rename)
        self.register_load_state_dict_pre_hook(self.take)

    @staticmethod
    def rename(module, state, prefix, meta):
        state[f"{prefix}kernel"] = state.pop(f"{prefix}weight")

    @staticmethod
    def take(module, state, prefix, *rest):
        state[f"{prefix}weight"] = state.pop(f"{prefix}kernel")


def test_a_module_with_names_of_its_own_resumes(tmp_path):
    assert is_exact(lambda: nn.Sequential(Renames()), tmp_path)


def test_a_key_that_a_hook_adds_is_no_weight(tmp_path):
    def make():
        model = nn.Linear(4, 2)

        def add(module, state, prefix, meta):
            state[f"{prefix}version"] = torch.ones(2)

        model.register_state_dict_post_hook(add)
        return model

    assert is_exact(make, tmp_path)


def test_tied_weights_extra_state_and_parametrizations_resume(tmp_path):
    class Counts(nn.Linear):
        calls = 0

        def forward(self, batch):
            self.calls += 1
            return super().forward(batch) / self.calls

        def get_extra_state(self):
            return {"calls": self.calls, "all": torch.ones(self.calls)}

        def set_extra_state(self, state):
            self.calls = state["calls"]

    def make():
        model = nn.Sequential(Counts(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))
        model[1].weight = model[0].weight
        nn.utils.parametrizations.weight_norm(model[2])
        return model

    assert is_exact(make, tmp_path)
