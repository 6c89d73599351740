"""torch: what wraps, changes or compiles a model."""

import torch
from crossing import adam, exact, held_out, network, told, trained_by
from torch import nn
from torch.nn.utils import parametrizations, prune

from camshaft import Events
from camshaft.handlers import EMA


@exact("torch", "Models", "parametrizations.spectral_norm(layer)")
def test_parametrizations(folder):
    """weight_norm, spectral_norm and orthogonal, with an EMA and evaluations."""

    def model():
        made = network()
        parametrizations.spectral_norm(made[0])
        made.append(parametrizations.orthogonal(nn.Linear(4, 4)))
        parametrizations.weight_norm(made[3])
        return made

    return trained_by(adam, model, EMA(0.9), held_out())


@exact("torch", "Models", "nn.utils.spectral_norm(layer)  # the older one")
def test_old_spectral_norm(folder):
    """The older spectral_norm, which keeps its vectors in buffers and works by a hook."""

    def model():
        made = network()
        nn.utils.spectral_norm(made[0])
        return made

    return trained_by(adam, model, held_out())


@exact("torch", "Models", 'prune.l1_unstructured(layer, "weight", 0.5)  # before the run')
def test_pruned(folder):
    """A layer that is pruned before the run."""

    def model():
        made = network()
        prune.l1_unstructured(made[0], "weight", 0.5)
        return made

    return trained_by(adam, model, held_out())


@told(
    "torch",
    "Models",
    'prune.identity(layer, "weight") before the run; prune.l1_unstructured(...) in the run',
    match="weight_orig",
)
def test_pruned_on_the_way(folder):
    """A layer that is pruned in the run, where a started script makes it whole."""
    trial = trained_by(adam, network, by_hand=None)

    @trial.engine.on(Events.ITERATION_COMPLETED(at=2))
    def cut(state):
        prune.l1_unstructured(trial.engine.objects["model"][0], "weight", 0.5)

    return trial


@exact("torch", "Models", 'prune.identity(layer, "weight")  # before the run, then prune in it')
def test_pruned_further(folder):
    """A layer that has its mask from the start, and is pruned in the run."""

    def model():
        made = network()
        prune.identity(made[0], "weight")
        return made

    trial = trained_by(adam, model, by_hand=None)

    @trial.engine.on(Events.EPOCH_COMPLETED)
    def cut(state):
        prune.l1_unstructured(trial.engine.objects["model"][0], "weight", 0.2)

    return trial


@exact("torch", "Models", "supervised(torch.compile(model), optimizer, loss)")
def test_compiled(folder):
    """torch.compile of a model with dropout; the backend is eager."""

    def model():
        return torch.compile(network(), backend="eager")

    return trained_by(adam, model, EMA(0.9), held_out(), by_hand=None)
