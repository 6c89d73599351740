"""torchopt: optimizers for differentiable steps."""

from crossing import told, trained_by


@told(
    "torchopt",
    "Optimizers",
    "torch.optim.Adam; those of torchopt are no `torch.optim.Optimizer`",
    match="needs a torch.optim.Optimizer",
)
def test_adam(folder):
    """torchopt.Adam."""
    import torchopt

    return trained_by(lambda model: torchopt.Adam(model.parameters(), lr=0.01))
