"""Checkpoints without the frozen weights: they resume exactly, or say that they cannot."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Events, supervised
from camshaft.handlers import EMA, Checkpoint, Freeze, RestoreBest, checkpoints

INPUTS = torch.linspace(-1, 1, 36).reshape(9, 4)
BODY = {"body.weight", "body.bias"}


class Model(nn.Module):
    """A body that comes from elsewhere, and a head that is trained."""

    def __init__(self, pretrained=5):
        super().__init__()
        torch.manual_seed(pretrained)
        self.body, self.norm = nn.Linear(4, 8), nn.BatchNorm1d(8)
        torch.manual_seed(0)
        self.head = nn.Sequential(nn.Dropout(0.3), nn.Linear(8, 1))

    def forward(self, batch):
        return self.head(self.norm(self.body(batch)))


def build(directory, *handlers, pretrained=5, frozen=False, freeze=True, **options):
    model = Model(pretrained)
    if freeze:
        model.body.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    options = {"resume": True, "when": Events.ITERATION_COMPLETED, "frozen": frozen} | options
    return engine.add(*handlers, Checkpoint(directory, **options))


def run(engine, iterations=9, seed=0):
    torch.manual_seed(seed)
    data = TensorDataset(INPUTS, INPUTS[:, :1])
    state = engine.run(DataLoader(data, 3, shuffle=True), max_iterations=iterations)
    weights = {name: each.state_dict() for name, each in engine.objects.items()}
    return repr((weights, state.metrics, torch.rand(2)))


def names(directory, object="model"):
    return {*checkpoints(directory)[-1].state_dict(object)}


@pytest.mark.parametrize("left_at", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 5))])
def test_a_run_without_its_frozen_weights_resumes_exactly(tmp_path, left_at):
    handlers = lambda: (EMA(0.5), RestoreBest("loss", when=Events.ITERATION_COMPLETED))  # noqa: E731
    whole = run(build(tmp_path / "whole", *handlers()))
    run(build(tmp_path / "parts", *handlers()), left_at)
    assert names(tmp_path / "parts") == {*Model().state_dict()} - BODY
    assert names(tmp_path / "parts", "ema") == names(tmp_path / "parts", "best")
    assert names(tmp_path / "parts", "ema") == names(tmp_path / "parts")
    assert run(build(tmp_path / "parts", *handlers()), seed=9) == whole


def test_an_average_that_has_not_begun_is_saved_where_its_model_is(tmp_path):
    run(build(tmp_path, EMA(0.5, when=Events.STEP_COMPLETED(after=5))), 3)
    assert names(tmp_path, "ema") == names(tmp_path) == {*Model().state_dict()} - BODY


def test_other_frozen_weights_than_those_of_the_run_are_an_error_that_names_them(tmp_path):
    run(build(tmp_path), 3)
    with pytest.raises(
        ValueError, match=r"2 frozen weights of 'model', such as 'body\.\w+', are not"
    ):
        run(build(tmp_path, pretrained=6))


def test_a_checkpoint_without_frozen_weights_is_resumed_by_a_script_that_saves_them(tmp_path):
    whole = run(build(tmp_path / "whole"))
    run(build(tmp_path / "parts"), 4)
    assert run(build(tmp_path / "parts", frozen=True)) == whole
    assert names(tmp_path / "parts") == {*Model().state_dict()}


@pytest.mark.parametrize(
    "left_at", [5, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 4, 8))]
)
def test_weights_that_thaw_or_freeze_later_are_saved_from_when_they_have_changed(tmp_path, left_at):
    def script(directory):
        thawed = Freeze("body.*", until=Events.ITERATION_STARTED(at=4))
        again = Freeze("body.*", when=Events.ITERATION_STARTED(at=6))
        return build(directory, thawed, again, freeze=False)

    whole = run(script(tmp_path / "whole"))
    run(script(tmp_path / "parts"), left_at)
    assert names(tmp_path / "parts").issuperset(BODY) == (left_at > 3)
    assert run(script(tmp_path / "parts"), seed=9) == whole
    assert names(tmp_path / "parts").issuperset(BODY)


def test_a_copy_of_the_model_that_moves_without_gradients_is_saved(tmp_path):
    def script(directory):
        engine = build(directory)
        model = engine.objects["model"]
        slow = engine.objects["slow"] = copy.deepcopy(model).requires_grad_(False).eval()

        @engine.on(Events.STEP_COMPLETED)
        def follow(state):
            for own, new in zip(slow.head.parameters(), model.head.parameters(), strict=True):
                own.data = own.data * 0.5 + new.data * 0.5

        return engine

    whole = run(script(tmp_path / "whole"))
    run(script(tmp_path / "parts"), 4)
    assert {"head.1.weight", "head.1.bias"} <= names(tmp_path / "parts", "slow")
    assert not BODY & names(tmp_path / "parts", "slow")
    assert run(script(tmp_path / "parts"), seed=9) == whole


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.complex64, torch.bool])
def test_weights_of_each_type_are_told_apart(dtype):
    from camshaft.handlers.checkpoint.weights import checksums

    class Holder(nn.Module):
        def __init__(self, values):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(values).to(dtype), requires_grad=False)

    first, same = Holder([[0.0, 1.0], [1.0, 1.0]]), Holder([[0.0, 1.0], [1.0, 1.0]])
    assert checksums(first) == checksums(same)
    assert checksums(first) != checksums(Holder([[1.0, 0.0], [1.0, 1.0]]))


@pytest.mark.parametrize("pieces", [1, 256])
def test_a_checksum_counts_each_number_by_its_place_however_many_are_added_at_once(
    pieces, monkeypatch
):
    from camshaft.handlers.checkpoint import weights as frozen

    piece = frozen.AT_ONCE * pieces
    monkeypatch.setattr(frozen, "PIECE", piece)
    values = torch.arange(3 * frozen.AT_ONCE + 7, dtype=torch.int32) % 1000
    places = torch.arange(len(values))
    expected = (values.long() * (places % piece + places // piece + 1)).sum()
    assert frozen.checksum(values) == expected
