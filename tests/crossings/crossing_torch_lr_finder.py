"""torch-lr-finder: a search before the run."""

import torch
from crossing import Trial, digits, exact, network
from torch.nn.functional import cross_entropy


@exact(
    "torch-lr-finder",
    "Schedules",
    "LRFinder(model, optimizer, loss).range_test(loader); finder.reset()",
    note="A script that is started again makes the search again; `find_lr` is skipped at a resume.",
)
def test_before(folder):
    """LRFinder before the run, reset after it."""
    from torch_lr_finder import LRFinder

    from camshaft import supervised

    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 0.001)
    loader = torch.utils.data.DataLoader(digits(), 4, shuffle=True)
    finder = LRFinder(model, optimizer, cross_entropy, device="cpu")
    finder.range_test(loader, end_lr=1, num_iter=10)
    best = finder.history["lr"][torch.tensor(finder.history["loss"]).argmin()]
    finder.reset()
    optimizer.param_groups[0]["lr"] = best / 10
    return Trial(supervised(model, optimizer, cross_entropy), loader)
