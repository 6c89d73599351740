"""fairscale: an optimizer that scales its rate, and one on shards."""

import torch
from crossing import Trial, digits, exact, network, told, trained_by


@exact("fairscale", "Optimizers", "supervised(model, AdaScale(SGD(...), ...), loss, accumulate=2)")
def test_adascale(folder):
    """AdaScale around SGD, which scales the rate by the variance within a window of two batches."""
    from fairscale.optim import AdaScale

    from camshaft import supervised

    model = network()
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    optimizer = AdaScale(sgd, world_size=1, num_gradients_to_accumulate=2)
    engine = supervised(model, optimizer, torch.nn.functional.cross_entropy, accumulate=2)
    return Trial(engine, torch.utils.data.DataLoader(digits(40), 4, shuffle=True))


@told(
    "fairscale",
    "Optimizers",
    "fully_shard(model), whose optimizer has a state on each rank",
    match="consolidate_state_dict",
)
def test_oss(folder):
    """OSS, whose state is on all ranks."""
    from fairscale.optim import OSS

    torch.distributed.init_process_group("gloo", f"file://{folder}/group", rank=0, world_size=1)
    return trained_by(lambda model: OSS(model.parameters(), torch.optim.Adam, lr=0.01))
