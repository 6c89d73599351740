"""lion-pytorch: an optimizer that follows signs."""

from crossing import exact, trained_by


@exact("lion-pytorch", "Optimizers", "supervised(model, Lion(model.parameters()), loss)")
def test_lion(folder):
    """Lion with decoupled weight decay."""
    from lion_pytorch import Lion

    return trained_by(
        lambda model: Lion(
            model.parameters(), lr=0.01, weight_decay=0.1, decoupled_weight_decay=True
        )
    )
