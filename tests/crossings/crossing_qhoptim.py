"""qhoptim: quasi-hyperbolic optimizers."""

from crossing import exact, trained_by


@exact("qhoptim", "Optimizers", "supervised(model, QHAdam(model.parameters()), loss)")
def test_qhadam(folder):
    """QHAdam."""
    from qhoptim.pyt import QHAdam

    return trained_by(lambda model: QHAdam(model.parameters(), lr=0.01))
