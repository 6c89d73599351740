"""ranger21: an optimizer with a schedule of its own."""

from crossing import exact, trained_by


@exact("ranger21", "Optimizers", "supervised(model, Ranger21(model.parameters(), ...), loss)")
def test_ranger21(folder):
    """Ranger21, which counts epochs and steps and changes its rate by them."""
    from ranger21 import Ranger21

    return trained_by(
        lambda model: Ranger21(
            model.parameters(),
            lr=0.01,
            num_epochs=3,
            num_batches_per_epoch=11,
            logging_active=False,
        )
    )
