"""Runs that were interrupted, and what their checkpoints hold, on a device and between two."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from camshaft import Events, supervised
from camshaft.engine.state import capture_generators, restore_generators
from camshaft.handlers import Checkpoint, checkpoints, latest


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_run_in_two_processes_is_the_run_in_one_to_the_last_bit(
    device, run_script, tmp_path, precision
):
    def run(name, most, seed):
        return json.loads(run_script("train.py", precision, tmp_path / name, most, seed))

    whole = run("whole", 0, 2)
    first, rest = run("parts", 14, 2), run("parts", 0, 99)
    assert (first["iteration"], rest["iteration"]) == (14, 24)
    assert first["losses"] + rest["losses"] == whole["losses"]
    assert rest["digest"] == whole["digest"]


def large(device, *handlers):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(8)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return supervised(model, optimizer, nn.functional.mse_loss, device=device).add(*handlers)


BATCHES = [(torch.ones(4, 512), torch.zeros(4, 512))] * 12


def test_a_save_holds_the_moment_of_the_save_although_training_goes_on(device, tmp_path):
    """On a GPU, each save copies into the same pinned memory, while a thread writes."""
    handler = Checkpoint(tmp_path, when=Events.ITERATION_COMPLETED(every=3), keep=latest(9))
    engine, then = large(device), {}

    @engine.on(Events.SAVING)
    def copy(state):
        weights = engine.objects["model"].state_dict()
        moments = engine.objects["optimizer"].state[engine.objects["model"][0].weight]
        then[state.iteration] = [each.clone() for each in (*weights.values(), *moments.values())]

    engine.add(handler)
    engine.run(BATCHES, max_epochs=1)
    saved = {each.manifest.iteration: each for each in checkpoints(tmp_path)}
    assert saved.keys() == then.keys() == {3, 6, 9, 12}
    for iteration, copies in then.items():
        weights = saved[iteration].state_dict("model")
        for name, copy in zip(weights, copies, strict=False):
            assert weights[name].device.type == "cpu"
            assert torch.equal(weights[name], copy.cpu()), (iteration, name)
        moments = saved[iteration].state_dict("optimizer")["state"][0]
        for name, copy in zip(moments, copies[len(weights) :], strict=True):
            assert torch.equal(moments[name], copy.cpu()), (iteration, name)


def test_a_checkpoint_of_a_device_loads_on_the_cpu_and_back(device, tmp_path):
    def run(where, most):
        engine = large(where, Checkpoint(tmp_path, resume=True))
        state = engine.run(BATCHES, max_iterations=most)
        return list(engine.objects["model"].parameters()), state

    first, _ = run(device, 4)
    on_cpu, state = run("cpu", 4)
    assert state.iteration == 4
    assert all(torch.equal(a.cpu(), b) for a, b in zip(first, on_cpu, strict=True))
    further, _ = run("cpu", 6)
    back, _ = run(device, 6)
    assert {each.device.type for each in back} == {device.type}
    assert all(torch.equal(a, b.cpu()) for a, b in zip(further, back, strict=True))
    _, state = run(device, 12)
    assert state.iteration == 12


def test_a_process_that_sees_fewer_devices_gets_the_generator_of_the_one_it_used(monkeypatch):
    put = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # torch's, where there is none
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_rng_state", put.append)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", put.append)
    rng, states = capture_generators(), [[number] * 4 for number in range(4)]
    packed = [bytes(each) for each in states]
    for devices in ({"cuda": packed, "cuda_current": 2}, {"cuda": packed[:1], "cuda_current": 0}):
        restore_generators(replace(rng, devices=devices))
    third, first = put
    assert [third.tolist(), first.tolist()] == [states[2], states[0]]
