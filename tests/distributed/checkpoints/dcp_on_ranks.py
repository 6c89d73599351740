"""Run on any number of ranks: a model of FSDP2 with AdamW goes to and from DCP directories."""

import sys
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss

from camshaft import ranks, supervised
from camshaft.handlers import Checkpoint, load_dcp, load_matching

FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


def made(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
    if torch.distributed.is_initialized():
        for layer in (model[0], model[2]):
            fully_shard(layer)
        fully_shard(model)
    groups = [{"params": [*model[0].parameters()]}, {"params": [*model[2].parameters()], "lr": 0.5}]
    return model, torch.optim.AdamW(groups, lr=0.1, betas=(0.8, 0.9))


def step(model, optimizer):
    torch.manual_seed(1)
    model(torch.randn(4, 5)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def whole(model, optimizer):
    """All weights and states, in the order of names, and the settings of the groups."""
    own, state = get_state_dict(model, optimizer)
    found = {f"model.{name}": each for name, each in own.items()}
    for name, each in state["state"].items():
        found |= {f"state.{name}.{key}": value for key, value in each.items()}
    tensors = {k: e.full_tensor() if hasattr(e, "full_tensor") else e for k, e in found.items()}
    return {**dict(sorted(tensors.items())), "groups": state["param_groups"]}


def same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        if isinstance(one[name], torch.Tensor):
            assert torch.equal(one[name], other[name]), name
        else:
            assert one[name] == other[name], name


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    task, folder = sys.argv[1], Path(sys.argv[2])
    truth = folder / "truth.pt"
    model, optimizer = made(0 if task == "write" else 2)
    if task == "write":  # by torch, in both forms
        step(model, optimizer)
        own, state = get_state_dict(model, optimizer)
        dcp.save({"model": own, "optim": state}, checkpoint_id=folder / "nested")
        own, state = get_state_dict(model, optimizer, options=FLAT)
        dcp.save({**own, "optimizer": state}, checkpoint_id=folder / "flat")
        content = whole(model, optimizer)
        if ranks.rank() == 0:
            torch.save(content, truth)
    if task == "read":  # by us
        expected = torch.load(truth)
        load_dcp(folder / "nested", {"model": model, "optim": optimizer})
        same(whole(model, optimizer), expected)
        model, optimizer = made(3)
        load_dcp(folder / "flat", {"optimizer": optimizer, "": model})
        same(whole(model, optimizer), expected)
        model, _ = made(4)
        assert not load_matching(model, folder / "nested").unused
        for name, each in model.state_dict().items():
            assert torch.equal(each.full_tensor(), expected[f"model.{name}"])
    if task == "run":  # a run of ours, whose checkpoint is exported
        engine = supervised(model, optimizer, mse_loss).add(Checkpoint(folder / "run"))
        torch.manual_seed(1)
        engine.run([(torch.randn(4, 5), torch.randn(4, 3))] * 3, max_epochs=1)
        content = whole(model, optimizer)
        if ranks.rank() == 0:
            torch.save(content, truth)
    if task == "load":  # by torch what we have exported
        for options in (StateDictOptions(), FLAT):
            model, optimizer = made(5)
            own, state = get_state_dict(model, optimizer, options=options)
            content = {"model": own, "optimizer": state}
            dcp.load(content, checkpoint_id=folder / "exported")
            set_state_dict(
                model,
                optimizer,
                model_state_dict=content["model"],
                optim_state_dict=content["optimizer"],
                options=options,
            )
            same(whole(model, optimizer), torch.load(truth))
