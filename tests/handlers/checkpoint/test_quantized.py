"""torchao's optimizers, whose states have 8 or 4 bits, and its training in float8."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim.lr_scheduler import LambdaLR

from camshaft import Events, supervised
from camshaft.handlers import Checkpoint, ClipGradNorm, LRSchedule
from camshaft.handlers.checkpoint.format import Encoder, decode
from camshaft.handlers.checkpoint.format.quantized import QUANTIZED

optim = pytest.importorskip("torchao.optim", exc_type=ImportError)
OPTIMIZERS = ["AdamW8bit", "AdamW4bit", "AdamWFp8"]


@pytest.fixture(autouse=True)
def without_compiling():
    """These optimizers compile their step, which takes seconds and changes nothing here."""
    with torch.compiler.set_stance("force_eager"):
        yield


def made(optimizer):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
    own = getattr(optim, optimizer)(model.parameters(), lr=1e-2)
    engine = supervised(model, own, mse_loss)
    engine.add(ClipGradNorm(1.0), LRSchedule(LambdaLR(own, lambda step: 1 / (1 + step))))
    return engine, model, own


def batches():
    numbers = torch.Generator().manual_seed(1)
    return [tuple(torch.randn(2, 8, 64, generator=numbers)) for _ in range(8)]


def bits(model, optimizer):
    """The bytes of the weights and of all parts of the states of their optimizer."""
    found = list(model.parameters())
    for state in optimizer.state.values():
        for each in state.values():
            names = each.__tensor_flatten__()[0] if hasattr(each, "__tensor_flatten__") else ()
            found += [getattr(each, name) for name in names] or [each]
    return [each.detach().contiguous().view(-1).view(torch.uint8).tolist() for each in found]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_whose_optimizer_keeps_few_bits_resumes_to_the_same_bits(name, tmp_path):
    engine, model, optimizer = made(name)
    engine.run(batches(), max_epochs=3)
    kinds = {type(each).__name__ for each in optimizer.state[model[0].weight].values()}
    assert kinds & set(QUANTIZED)

    left, *_ = made(name)
    left.add(Checkpoint(tmp_path))
    left.on(Events.ITERATION_COMPLETED(at=13))(lambda state: state.interrupt("test"))
    left.run(batches(), max_epochs=3)

    resumed, again, theirs = made(name)
    resumed.add(Checkpoint(tmp_path, resume=True))
    state = resumed.run(batches(), max_epochs=3)
    assert state.iteration == 24
    assert bits(again, theirs) == bits(model, optimizer)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_of_few_bits_is_read_back_as_what_it_was(name):
    _, model, optimizer = made(name)
    model(torch.ones(2, 64)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    encoder = Encoder()
    encoded = encoder.encode(state, "optimizer")
    read = decode(encoded, encoder.tensors)
    own, other = state["state"][0]["exp_avg"], read["state"][0]["exp_avg"]
    assert type(other) is type(own)
    assert other.__tensor_flatten__() == own.__tensor_flatten__()
    assert torch.equal(other.dequantize(), own.dequantize())


def test_only_these_classes_are_put_together():
    _, model, optimizer = made("AdamW8bit")
    model(torch.ones(2, 64)).sum().backward()
    optimizer.step()
    encoder = Encoder()
    encoded = encoder.encode(optimizer.state[model[0].weight]["exp_avg"], "mean")
    name, parts, rest = encoded["!quantized"]
    assert name == "OptimState8bit"
    for wrong in (
        ["Popen", parts, rest],
        [name, {}, rest],
        [name, parts, []],
        [name, parts, ["os.system", True]],
        [name, parts],
        name,
    ):
        with pytest.raises(ValueError, match="invalid|unpack"):
            decode({"!quantized": wrong}, encoder.tensors)
    empty = {**encoder.tensors, "mean.scale": torch.zeros(0)}
    with pytest.raises(ValueError, match="invalid OptimState8bit"):
        decode(encoded, empty)


def test_without_torchao_the_error_says_what_to_install(monkeypatch):
    _, model, optimizer = made("AdamW8bit")
    model(torch.ones(2, 64)).sum().backward()
    optimizer.step()
    encoder = Encoder()
    encoded = encoder.encode(optimizer.state[model[0].weight]["exp_avg"], "mean")
    monkeypatch.setitem(__import__("sys").modules, "torchao.optim.subclass_8bit", None)
    with pytest.raises(ValueError, match="pip install torchao"):
        decode(encoded, encoder.tensors)
    assert math.isfinite(optimizer.param_groups[0]["lr"])
