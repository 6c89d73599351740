"""What an exception says when memory runs out."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from camshaft import Engine, supervised
from camshaft.handlers import MemorySnapshot
from camshaft.handlers.guards import memory_snapshot


def run_out(*handlers):
    model = torch.nn.Linear(512, 512)
    optimizer = torch.optim.AdamW(model.parameters())
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss).add(*handlers)
    batches = [(torch.zeros(8, 512), torch.zeros(8, 512))] * 2
    steps = []

    def forward(*_):
        steps.append(1)
        if len(steps) == 2:
            raise torch.cuda.OutOfMemoryError("tried to allocate 2 GiB")

    model.register_forward_hook(forward)
    with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
        engine.run(batches, max_epochs=1)
    return "\n".join(caught.value.__notes__)


def test_every_run_out_of_memory_says_what_takes_less():
    assert "split=8" in run_out()
    with pytest.raises(ZeroDivisionError) as caught:
        Engine(lambda state, batch: 1 / 0).run([1], max_epochs=1)
    assert "split" not in "\n".join(caught.value.__notes__)


def test_the_note_has_the_batch_and_the_sizes_of_weights_gradients_and_optimizer(tmp_path):
    note = run_out(MemorySnapshot(tmp_path))
    assert "(8, 512) torch.float32" in note
    table = dict(line.rsplit(maxsplit=1) for line in note.splitlines() if line[-3:].isdigit())
    mebi = (512 * 512 + 512) * 4 / 2**30
    assert table["model"] == f"{mebi:.3f}"
    assert table["optimizer"] == f"{2 * mebi:.3f}"
    assert "gradients of model" in table


@pytest.mark.gpu
def test_torchs_snapshot_is_saved_with_the_lines_that_allocated(tmp_path):
    def process(state, batch):
        return torch.empty(1 << 60, device="cuda")

    with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
        Engine(process, MemorySnapshot(tmp_path)).run([1], max_epochs=1)
    assert "memory_viz" in "\n".join(caught.value.__notes__)
    assert (tmp_path / "memory-rank0.pickle").stat().st_size > 0


@pytest.mark.skipif(
    torch.version.cuda is not None and not torch.cuda.is_available(),
    reason="a torch for CUDA finds no device where this test says that there is one",
)
def test_a_snapshot_takes_the_place_of_no_link(tmp_path, monkeypatch):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "memory-rank0.pickle").symlink_to(tmp_path / "mine")
    allocator = SimpleNamespace(
        _record_memory_history=lambda **_: None,
        _dump_snapshot=lambda path: Path(path).write_bytes(b"blocks"),
    )
    monkeypatch.setattr(memory_snapshot, "CUDA", allocator)  # of torch, for a machine without one
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    note = run_out(MemorySnapshot(tmp_path))
    assert "no snapshot was saved: " in note
    assert "memory-rank0.pickle is not a regular file but a link" in note
    assert (tmp_path / "mine").read_text() == "mine"
    (tmp_path / "memory-rank0.pickle").unlink()
    assert "memory-rank0.pickle shows each block" in run_out(MemorySnapshot(tmp_path))
    assert (tmp_path / "memory-rank0.pickle").read_bytes() == b"blocks"
