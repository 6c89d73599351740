"""Norms of weights."""

import pytest
import torch

from camshaft import Engine, Events
from camshaft.handlers import WeightNorms


def build(model, **arguments):
    engine = Engine(lambda state, batch: None, objects={"model": model, "sizes": {}})
    return engine.add(WeightNorms(**arguments))


def test_the_norm_is_that_of_all_weights_and_of_each_parameter_if_asked_for():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    metrics = build(model, each=True).run([1], max_epochs=1).metrics
    together = torch.cat([each.detach().flatten() for each in model.parameters()]).norm()
    torch.testing.assert_close(metrics["weight_norm"], together)
    assert not metrics["weight_norm"].requires_grad
    for name, each in model.named_parameters():
        torch.testing.assert_close(metrics[f"weight_norm/{name}"], each.detach().norm())
    assert build(model).run([1], max_epochs=1).metrics.keys() == {"weight_norm"}


def test_half_precision_does_not_overflow():
    model = torch.nn.Linear(1, 2, bias=False).half()
    torch.nn.init.constant_(model.weight, 60000)
    norm = build(model).run([1], max_epochs=1).metrics["weight_norm"]
    assert float(norm) == pytest.approx(60000 * 2**0.5, rel=1e-6)


def test_it_measures_by_its_trigger():
    engine = build(torch.nn.Linear(1, 1), when=Events.ITERATION_COMPLETED(every=3))
    seen = []
    engine.on(Events.ITERATION_COMPLETED)(lambda s: seen.append("weight_norm" in s.metrics))
    engine.run(range(4), max_epochs=1)
    assert seen == [False, False, True, True]


def test_a_model_without_weights_has_no_norm():
    assert build(torch.nn.ReLU()).run([1], max_epochs=1).metrics == {}


def test_a_name_that_no_model_has_is_refused_as_the_run_starts():
    engine = build(torch.nn.Linear(1, 1), object="sizes")
    with pytest.raises(ValueError, match=r"object='sizes'.* its modules are 'model'"):
        engine.run([1], max_epochs=1)
