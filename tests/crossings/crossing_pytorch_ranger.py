"""pytorch-ranger: RAdam with slow weights."""

from crossing import exact, trained_by


@exact("pytorch-ranger", "Optimizers", "supervised(model, Ranger(model.parameters()), loss)")
def test_ranger(folder):
    """Ranger: RAdam with slow weights."""
    from pytorch_ranger import Ranger

    return trained_by(lambda model: Ranger(model.parameters(), lr=0.01))
