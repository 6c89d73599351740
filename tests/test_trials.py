"""What docs/models.md says of torch's own means, and of samplers of one's own."""

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from camshaft import Engine, Events, Stage, supervised
from camshaft.handlers import Checkpoint, checkpoints


class Root(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, input):
        return (self.weight * input).sqrt()  # of 0: an infinite slope, times 0


def test_anomaly_mode_for_a_stretch_names_what_made_the_first_nan():
    model = Root()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, lambda prediction, target: (prediction * target).sum())
    data = [(torch.zeros(2), torch.zeros(2))] * 4
    with torch.no_grad():
        model.weight.fill_(1.0)
    state = engine.run([(torch.ones(2), torch.ones(2))] * 2, max_iterations=2)
    with (
        torch.autograd.set_detect_anomaly(True),
        pytest.warns(UserWarning, match="Error detected in SqrtBackward0"),
        pytest.raises(RuntimeError, match="returned nan values") as raised,
    ):
        engine.run(data, state=state, max_iterations=4)
    assert "iteration 3" in "".join(raised.value.__notes__)
    assert not torch.is_anomaly_enabled()


class LikeLengths:
    """Batches of neighbours by length, in random order: as in docs/models.md."""

    def __init__(self, lengths, batch_size):
        self.lengths, self.batch_size = lengths, batch_size
        self.generator = torch.Generator().manual_seed(0)

    def __iter__(self):
        noise = torch.rand(len(self.lengths), generator=self.generator)
        order = sorted(range(len(self.lengths)), key=lambda i: (self.lengths[i], noise[i]))
        batches = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        yield from (batches[i] for i in torch.randperm(len(batches), generator=self.generator))

    def __len__(self):
        return len(range(0, len(self.lengths), self.batch_size))


def seen_by(directory, stop_at=None):
    """The samples of each batch until the run ends."""
    texts = [torch.full((1 + number % 7,), float(number)) for number in range(23)]
    sampler = LikeLengths([*map(len, texts)], 4)
    batches = []
    engine = Engine(lambda state, batch: batches.append(batch[:, 0].tolist()))
    engine.add(Checkpoint(directory, resume=True))
    if stop_at is not None:
        stop = Events.ITERATION_COMPLETED(at=stop_at)
        engine.on(stop)(lambda state: state.interrupt("enough"))
    loader = DataLoader(
        texts, batch_sampler=sampler, collate_fn=lambda each: pad_sequence(each, batch_first=True)
    )
    engine.run(loader, max_epochs=3)
    return batches


@pytest.mark.parametrize("stop_at", [1, 5, 6, 8, 12, 17])
def test_a_sampler_of_like_lengths_of_ones_own_resumes_exactly(stop_at, tmp_path):
    whole = seen_by(tmp_path / "whole")
    assert len(whole) == 18
    assert sorted(sum(whole[6:12], [])) == list(range(23))  # noqa: RUF017
    first = seen_by(tmp_path / "cut", stop_at)
    assert first + seen_by(tmp_path / "cut") == whole


def test_whoever_waits_in_saving_finds_the_checkpoint_on_the_disk_and_can_be_removed(tmp_path):
    found = []
    checkpoint = Checkpoint(tmp_path)
    engine = Engine(lambda state, batch: batch).add(checkpoint)

    def upload(state):
        checkpoint.wait(state)
        found.append(checkpoints(tmp_path).latest().path.name)

    engine.on(Events.SAVING, stage=Stage.REPORT)(upload)
    engine.on(Events.EPOCH_COMPLETED(at=2))(lambda state: engine.off(upload))
    engine.run([1, 2], max_epochs=3)
    assert found == ["iteration-0000000002"]
