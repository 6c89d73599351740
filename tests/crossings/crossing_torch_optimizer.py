"""torch-optimizer: a collection of optimizers."""

from crossing import exact, told, trained_by


@exact("torch-optimizer", "Optimizers", "supervised(model, Shampoo(model.parameters()), loss)")
def test_shampoo(folder):
    """Shampoo."""
    from torch_optimizer import Shampoo

    return trained_by(lambda model: Shampoo(model.parameters(), lr=0.1))


@told(
    "torch-optimizer",
    "Optimizers",
    "pytorch_optimizer.Lookahead",
    match="'Lookahead' object has no attribute",
)
def test_lookahead(folder):
    """Lookahead around Yogi, which has no `state_dict` with torch 2."""
    from torch_optimizer import Lookahead, Yogi

    return trained_by(lambda model: Lookahead(Yogi(model.parameters(), lr=0.01), k=4))
