"""torch: its own optimizers and averages that keep more than moments."""

import torch
from crossing import exact, network, told, trained_by


@exact("torch", "Optimizers", 'supervised(model, {"muon": Muon(...), "adamw": AdamW(...)}, loss)')
def test_muon(folder):
    """torch.optim.Muon for matrices and AdamW for the rest."""

    def two(model):
        matrices = [each for each in model.parameters() if each.ndim == 2]
        rest = [each for each in model.parameters() if each.ndim != 2]
        return {"muon": torch.optim.Muon(matrices, 0.02), "adamw": torch.optim.AdamW(rest, 0.01)}

    return trained_by(two)


@exact("torch", "Averages", 'engine.objects["average"] = AveragedModel(model, ...)')
def test_averaged_model(folder):
    """AveragedModel with the exponential average and buffers, updated after each step."""
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    def beside(model, optimizer):
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
        return {"average": average}, lambda: average.update_parameters(model)

    return trained_by(
        lambda model: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), beside=beside
    )


@exact("torch", "Optimizers", "supervised(model, torch.optim.LBFGS(model.parameters()), loss)")
def test_lbfgs(folder):
    """LBFGS with a line search."""
    return trained_by(
        lambda model: torch.optim.LBFGS(
            model.parameters(), lr=0.5, max_iter=3, history_size=4, line_search_fn="strong_wolfe"
        ),
        lambda: network()[:2].append(torch.nn.Linear(64, 4)),
        by_hand=None,
    )


@exact("torch", "Averages", "AveragedModel(model, multi_avg_fn=with_schedule)")
def test_average_with_schedule(folder):
    """AveragedModel whose decay grows with the number of updates."""
    from torch.optim.swa_utils import AveragedModel

    def with_schedule(averages, weights, updates):
        decay = min(0.99, 1 - 1 / (updates + 1) ** 0.75)
        torch._foreach_lerp_(averages, weights, 1 - float(decay))

    def beside(model, optimizer):
        average = AveragedModel(model, multi_avg_fn=with_schedule)
        return {"average": average}, lambda: average.update_parameters(model)

    return trained_by(lambda model: torch.optim.Adam(model.parameters(), 0.01), beside=beside)


@told(
    "torch",
    "Optimizers",
    "fully_shard(model), whose optimizer has a state on each rank",
    match="ZeroRedundancyOptimizer",
)
def test_zero_redundancy(folder):
    """ZeroRedundancyOptimizer in a process group."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    torch.distributed.init_process_group("gloo", f"file://{folder}/group", rank=0, world_size=1)
    return trained_by(
        lambda model: ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    )


@exact("torch", "Schedules", "LRSchedule(lambda optimizer, horizon: SequentialLR(optimizer, ...))")
def test_sequence(folder):
    """SequentialLR of a warm-up and a cosine with restarts."""
    from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts, LinearLR, SequentialLR

    def sequence(optimizer):
        pieces = [
            LinearLR(optimizer, 0.1, total_iters=5),
            CosineAnnealingWarmRestarts(optimizer, 9),
        ]
        return SequentialLR(optimizer, pieces, [5])

    return trained_by(lambda model: torch.optim.RAdam(model.parameters(), 0.01), schedule=sequence)
