"""adam-mini: one second moment for each block of a parameter."""

from crossing import exact, trained_by


@exact(
    "adam-mini", "Optimizers", "supervised(model, Adam_mini(model.named_parameters(), ...), loss)"
)
def test_adam_mini(folder):
    """Adam_mini, which finds embeddings and heads by the names of parameters."""
    from adam_mini import Adam_mini

    return trained_by(
        lambda model: Adam_mini(model.named_parameters(), lr=0.01, dim=64, n_heads=4, verbose=False)
    )
