"""What a step computes, beside a loop written by hand; on a GPU the host runs ahead of it."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from camshaft import Events, count_tokens, supervised
from camshaft.handlers import Average, ClipGradNorm

KINDS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def made(device):
    torch.manual_seed(0)
    layers = (nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
    model = nn.Sequential(*layers).to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def batches(count=12):
    draw = torch.Generator().manual_seed(1)
    return [
        (torch.randn(8, 16, generator=draw), torch.randint(4, (8,), generator=draw))
        for _ in range(count)
    ]


def by_hand(device, precision):
    model, optimizer = made(device)
    kind, losses = KINDS[precision], []
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    torch.manual_seed(2)
    for batch in batches():
        input, target = (each.to(device) for each in batch)
        optimizer.zero_grad()
        with torch.autocast(device.type, kind, enabled=kind is not None):
            loss = cross_entropy(model(input), target)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    return model, optimizer, losses


def leaves(*states):
    found = torch.utils._pytree.tree_leaves([each.state_dict() for each in states])
    return [each.cpu() if isinstance(each, torch.Tensor) else each for each in found]


def are_equal(some, others):
    return all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        for a, b in zip(some, others, strict=True)
    )


@pytest.mark.parametrize("precision", KINDS)
def test_a_run_is_the_loop_written_by_hand_to_the_last_bit(device, precision):
    model, optimizer = made(device)
    engine = supervised(model, optimizer, cross_entropy, device=device, precision=precision)
    engine.add(ClipGradNorm(1.0))
    losses = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: losses.append(state.metrics["loss"]))
    torch.manual_seed(2)
    engine.run(batches(), max_epochs=1)
    expected_model, expected_optimizer, expected_losses = by_hand(device, precision)
    assert torch.equal(torch.stack(losses), torch.stack(expected_losses))
    assert are_equal(leaves(model, optimizer), leaves(expected_model, expected_optimizer))


@pytest.mark.slow
def test_weights_of_targets_and_means_without_nan_copy_no_number_to_the_device():
    """torch.where with a number does, and the host waits for the copy."""
    copied = []

    class Numbers(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            if str(function).startswith(("aten.where.Scalar", "aten.scalar_tensor")):
                copied.append(str(function))
            return function(*arguments, **(keywords or {}))

    model, optimizer = made("cpu")
    loss_fn = nn.CrossEntropyLoss(reduction="sum")
    engine = supervised(model, optimizer, loss_fn, weight=count_tokens)
    engine.add(Average("loss", skip_nan=True))
    with Numbers():
        engine.run(batches(3), max_epochs=1)
    assert copied == []
    with Numbers():
        torch.where(torch.ones(1) > 0, torch.ones(1), 0)
    assert copied  # the mode sees one
