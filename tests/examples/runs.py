"""What runs of examples leave: rows, and the checkpoint of the same run to the last bit."""

import json
import time

import torch
from safetensors.torch import load_file

from camshaft.handlers.checkpoint import checkpoints


def rows_of(directory):
    """The rows of a run; none if it has not written any."""
    path = directory / "rows.jsonl"
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""  # the last may be torn
    return [json.loads(line) for line in whole.splitlines()]


def killed_in_mid_epoch(processes, directory, *command):
    """Kill a script, as by kill -9, once it has saved a checkpoint; the manifest of that one."""
    with processes.start(*command) as process:
        while not checkpoints(directory) and process.poll() is None:
            time.sleep(0.005)
        process.kill()
    assert process.returncode == -9
    return checkpoints(directory).latest().manifest


def check_same_run(ours, theirs, *objects):
    """Two directories hold the same rows, weights, moments and schedule, to the bit."""
    assert rows_of(ours) == rows_of(theirs)
    one, two = (checkpoints(each).latest().path for each in (ours, theirs))
    assert one.name == two.name
    for name in objects or ("model",):
        file = f"{name}.safetensors"
        assert (one / file).read_bytes() == (two / file).read_bytes()
    tensors, others = (load_file(each / "train.safetensors") for each in (one, two))
    keys = [key for key in others if not key.startswith("run.")]  # generators nobody draws from
    assert keys
    assert all(torch.equal(tensors[key], others[key]) for key in keys)
