"""The largest batch that fits: real steps until memory runs out, and everything as it was."""

from itertools import repeat

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from camshaft import Engine, Update, supervised
from camshaft.handlers import JSONLines, find_batch_size


class Room(nn.Module):
    """A model that has room for so many samples, forward, on the way back, or in the step."""

    def __init__(self, forward=None, backward=None):
        super().__init__()
        self.layer, self.norm = nn.Linear(3, 1), nn.BatchNorm1d(3)
        self.room, self.room_backward = forward, backward
        self.tried = []

    def forward(self, x):
        y = self.layer(self.norm(x))
        self.tried.append(len(x))
        if self.room is not None and len(x) > self.room:
            raise torch.OutOfMemoryError(f"no room for {len(x)}")
        if self.room_backward is not None and len(x) > self.room_backward:
            y.register_hook(self.refuse)
        return y

    def refuse(self, gradient):
        raise torch.OutOfMemoryError("no room on the way back")


class Hungry(torch.optim.Adam):
    """Runs out of memory in its step, half way, when a batch was larger than this."""

    model, room = None, 0

    def step(self, closure=None):
        result = super().step(closure)
        if self.model.tried[-1] > self.room:
            raise torch.OutOfMemoryError("no room for the moments")
        return result


def data(count=1000):
    return TensorDataset(torch.randn(count, 3), torch.randn(count, 1))


def build(model, optimizer=torch.optim.Adam, **arguments):
    return supervised(model, optimizer(model.parameters(), lr=0.1), mse_loss, **arguments)


def weights(engine):
    model, optimizer = engine.objects["model"], engine.objects["optimizer"]
    tensors = [each.tolist() for each in model.state_dict().values()]
    return tensors, optimizer.state_dict(), [each.grad for each in model.parameters()]


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("room", [2, 37, 64, 999])
def test_it_is_the_largest_size_that_fits(where, room):
    model = Room(**{where: room})
    engine = build(model, accumulate=2)
    loader = DataLoader(data(), 16, shuffle=True)
    before, generator = weights(engine), torch.get_rng_state()
    assert find_batch_size(engine, loader) == room
    assert weights(engine) == before
    assert torch.equal(torch.get_rng_state(), generator)
    assert model.tried == []  # a plain attribute, as it was
    assert find_batch_size(engine, loader, multiple_of=2) == room // 2 * 2


def test_sizes_are_doubled_then_bisected_and_each_is_tried_by_two_whole_steps(caplog):
    engine, tried = build(Room(forward=100), accumulate=3), []

    def make(size):
        tried.append(size)
        return torch.randn(size, 3), torch.randn(size, 1)

    steps = []
    engine.objects["optimizer"].register_step_post_hook(lambda *_: steps.append(tried[-1]))
    caplog.set_level("INFO", "camshaft")
    assert find_batch_size(engine, make, start=32, multiple_of=8) == 96
    assert tried == [32, 64, 128, 96, 112, 104]
    assert steps == [32, 32, 64, 64, 96, 96]
    assert "a batch of 112 samples does not fit" in caplog.text


def test_the_optimizers_state_counts_too():
    model = Room()
    engine = build(model, Hungry)
    engine.objects["optimizer"].model, engine.objects["optimizer"].room = model, 50
    assert find_batch_size(engine, data()) == 50
    assert engine.objects["optimizer"].state == {}


def test_a_data_set_is_the_limit_and_each_sample_is_read_once(tmp_path):
    class Counted(TensorDataset):
        def __getitem__(self, index):
            read.append(index)
            return super().__getitem__(index)

    read = []
    engine = build(Room()).add(JSONLines(tmp_path / "rows"))
    assert find_batch_size(engine, Counted(torch.randn(70, 3), torch.randn(70, 1))) == 70
    assert read == [*range(70)]
    assert find_batch_size(engine, data(), most=300) == 300
    assert not (tmp_path / "rows").exists()


def test_a_stream_of_samples_and_a_collate_function():
    class Stream(IterableDataset):
        def __iter__(self):
            return repeat(1.0, 30)

    def collate(samples):
        return torch.full((len(samples), 3), 1.0), torch.zeros(len(samples), 1)

    engine = build(Room(forward=11))
    loader = DataLoader(Stream(), 4, collate_fn=collate)
    assert find_batch_size(engine, loader) == 11
    with pytest.raises(ValueError, match=r"the data ends after 30 samples.*pass most=30"):
        find_batch_size(build(Room()), loader)
    assert find_batch_size(build(Room()), loader, most=30) == 30


def test_float16_steps_that_are_skipped_do_not_count():
    """Otherwise the optimizer's state would not be there, and the size too large."""
    model = Room()
    optimizer = Hungry(model.parameters(), lr=0.1)
    optimizer.model, optimizer.room = model, 20
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    engine = supervised(model, Update(optimizer, scaler=scaler), mse_loss, precision="fp16")
    assert find_batch_size(engine, data()) == 20
    assert scaler.state_dict()["scale"] == 2.0**24


def test_a_step_of_ones_own():
    model = Room(forward=21)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(state, batch):
        optimizer.zero_grad()
        model(batch[0]).mean().backward()
        optimizer.step()

    engine = Engine(step, objects={"model": model, "optimizer": optimizer})
    assert find_batch_size(engine, data()) == 21


def test_mistakes_are_told():
    engine = build(Room())
    with pytest.raises(TypeError, match="got a list for the data; it needs a DataLoader"):
        find_batch_size(engine, [(torch.ones(1, 3), torch.ones(1, 1))])
    with pytest.raises(TypeError, match="batch_size=None"):
        find_batch_size(engine, DataLoader(data(), batch_size=None))
    with pytest.raises(ValueError, match=r"start=0\): needs a number of samples"):
        find_batch_size(engine, data(), start=0)
    with pytest.raises(ValueError, match="there are 3 samples at the most"):
        find_batch_size(engine, data(3), multiple_of=8)
    with pytest.raises(torch.OutOfMemoryError, match="not even a batch of 2"):
        find_batch_size(build(Room(forward=0)), data(), multiple_of=2)
    with pytest.raises(ZeroDivisionError):
        find_batch_size(engine, lambda size: 1 / 0)


@pytest.mark.gpu
def test_on_a_device_it_is_what_really_fits():
    torch.cuda.set_per_process_memory_fraction(2**31 / torch.cuda.mem_get_info()[1])
    try:
        model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(3)))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        engine = supervised(model.cuda(), optimizer, mse_loss, device="cuda")

        def make(size):
            return torch.zeros(size, 4096), torch.zeros(size, 4096)

        size = find_batch_size(engine, make, start=256, multiple_of=64)
        assert engine.run([make(size)] * 4, max_epochs=1).step == 4
        with pytest.raises(torch.OutOfMemoryError):
            engine.run([make(size + size // 4)] * 4, max_epochs=1)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
