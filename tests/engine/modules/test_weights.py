"""Weights of one module in the place of another's, for a while."""

import copy

import pytest
import torch
from torch import nn

from camshaft import Engine, Events, supervised
from camshaft.engine.modules import exchange, lend, pairs_of, twin, weights_of
from camshaft.handlers import Checkpoint, Export, checkpoints


class Tied(nn.Module):
    """Two names for one weight, a buffer that is saved and one that is not."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.rand(3))
        self.register_buffer("mask", torch.rand(3), persistent=False)

    def forward(self, input):
        return self.second(self.first(input)) * self.scale


def pair(kind=Tied):
    torch.manual_seed(0)
    return kind(), kind()


def copies(module):
    return {name: tensor.detach().clone() for name, tensor in weights_of(module).items()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def test_tied_weights_are_one_and_buffers_that_are_not_saved_count():
    assert list(weights_of(Tied())) == [
        *("first.weight", "first.bias", "second.bias"),
        *("scale", "mask"),
    ]


def test_what_is_lent_is_there_inside_and_all_is_back_afterwards_in_the_same_objects():
    lent = {}
    model, average = pair()
    before, its, ids = copies(model), copies(average), [id(p) for p in model.parameters()]
    with lend(model, average, lent):
        assert equal(copies(model), its)
    assert equal(copies(model), before)
    assert equal(copies(average), its)
    assert [id(p) for p in model.parameters()] == ids
    assert lent == {}


def test_an_exception_inside_puts_all_back():
    lent = {}
    model, average = pair()
    before, its = copies(model), copies(average)
    with pytest.raises(ZeroDivisionError), lend(model, average, lent):
        raise ZeroDivisionError
    assert equal(copies(model), before)
    assert equal(copies(average), its)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_meanwhile_everybodys_own_weights_are_known_under_all_their_names(dtype):
    lent = {}
    model, _ = pair(lambda: Tied().to(dtype))
    average = twin(model)
    for tensor in weights_of(average).values():
        tensor.data.add_(1e-4)  # less than a bfloat16 can tell
    before, its = copies(model), copies(average)
    with lend(model, average, lent):
        own = lent[model]
        assert set(own) >= model.state_dict().keys()
        assert all(torch.equal(own[name], before[name]) for name in before)
        held = lent[average] or weights_of(average)
        assert all(torch.equal(held[name], its[name]) for name in its)
    assert equal(copies(model), before)
    assert equal(copies(average), its)


def test_weights_of_16_bits_have_a_twin_of_32():
    made = twin(nn.Linear(2, 1).bfloat16())
    assert {p.dtype for p in made.parameters()} == {torch.float32}
    assert not any(p.requires_grad for p in made.parameters())
    assert twin(nn.Linear(2, 1).double()).weight.dtype == torch.float64


def test_a_graph_recorded_before_is_good_for_its_backward_pass():
    lent = {}
    model, average = pair(lambda: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)))
    expected = copy.deepcopy(model)
    expected(torch.ones(1, 2)).sum().backward()
    loss = model(torch.ones(1, 2)).sum()
    with lend(model, average, lent):
        pass
    loss.backward()
    assert torch.equal(model[0].weight.grad, expected[0].weight.grad)


def test_weights_that_are_lent_are_not_lent_again():
    lent = {}
    (model, average), other = pair(), Tied()
    with (
        lend(model, average, lent),
        pytest.raises(RuntimeError, match="lent already"),
        lend(model, other, lent),
    ):
        pass
    with lend(model, other, lent):
        pass


def test_modules_of_another_kind_are_refused_by_the_names_that_differ():
    with pytest.raises(ValueError, match=r"Tied do not fit into a Linear.*first\.bias"):
        pairs_of(nn.Linear(2, 1), Tied())
    with pytest.raises(ValueError, match="do not fit into a Linear: weight"):
        exchange(nn.Linear(2, 1), nn.Linear(3, 1))


def test_an_engine_evaluates_with_the_weights_of_another_object():
    model, average = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    nn.init.constant_(average.weight, 2.0)
    engine = supervised(
        torch.nn.DataParallel(model),
        torch.optim.SGD(model.parameters(), 0.1),
        nn.functional.l1_loss,
    )
    engine.objects["ema"] = average
    data = [(torch.ones(3, 1), torch.zeros(3, 1))]
    assert engine.evaluate(data).metrics["loss"] == 1
    assert engine.evaluate(data, weights="ema").metrics["loss"] == 2
    assert engine.evaluate(data, weights={"model": "ema"}).metrics["loss"] == 2
    assert (model.weight.item(), average.weight.item()) == (1, 2)
    with engine.using("ema"):
        assert engine.evaluate(data).metrics["loss"] == 2
        assert torch.is_grad_enabled()


def test_who_has_no_such_object_is_told_which_modules_there_are():
    engine = Engine(lambda state, batch: None, objects={"net": nn.Linear(1, 1), "count": 3})
    with pytest.raises(ValueError, match=r"needs 'ema' to be a module .* those are 'net'"):
        engine.evaluate([1], weights={"net": "ema"})
    with pytest.raises(ValueError, match=r"needs 'model' .* write weights=\{'generator': 'ema'\}"):
        engine.evaluate([1], weights="net")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("background", [True, False])
def test_what_is_written_inside_holds_each_modules_own_weights(tmp_path, background, dtype):
    model = nn.Linear(1, 1, bias=False).to(dtype)
    average = twin(model)
    nn.init.constant_(model.weight, 1.0)
    nn.init.constant_(average.weight, 2.0001 if dtype == torch.bfloat16 else 2.0)
    written = average.weight.item()
    engine = Engine(lambda state, batch: None, objects={"model": model, "ema": average})
    never = Events.EPOCH_COMPLETED(at=99)
    checkpoint = Checkpoint(tmp_path / "run", when=never, background=background)
    export = Export(tmp_path / "ema", "ema", when=never, background=background)
    engine.add(checkpoint, export)

    @engine.on(Events.ITERATION_COMPLETED)
    def write(state):
        with engine.using("ema"):
            assert model.weight.item() == 2  # in bfloat16 too
            for each in (checkpoint, export):
                state.save("inside", by=each)
                each.save(state)
            state.control.saves.clear()

    engine.run([1], max_iterations=1)
    first = checkpoints(tmp_path / "run")[0]
    assert first.state_dict("model")["weight"].item() == 1
    assert first.state_dict("ema")["weight"].item() == written
    assert checkpoints(tmp_path / "ema")[0].state_dict("ema")["weight"].item() == written
