"""schedulefree: optimizers with a training and an evaluation mode."""

import torch
from crossing import digits, exact, network, trained_by


@exact(
    "schedulefree", "Optimizers", "supervised(model, AdamWScheduleFree(model.parameters()), loss)"
)
def test_adamw(folder):
    """AdamWScheduleFree."""
    from schedulefree import AdamWScheduleFree

    return trained_by(lambda model: AdamWScheduleFree(model.parameters(), lr=0.01))


@exact(
    "schedulefree",
    "Optimizers",
    'engine.add(Validate(loader, name="val"), RestoreBest("val/loss"))',
    note="Evaluations and the best weights are those of `optimizer.eval()`.",
)
def test_evaluations(folder):
    """SGDScheduleFree with an evaluation each four iterations, and the best weights at the end."""
    from schedulefree import SGDScheduleFree

    from camshaft import Events
    from camshaft.handlers import RestoreBest, Validate

    validate = Validate(
        torch.utils.data.DataLoader(digits(), 8),
        name="val",
        when=Events.ITERATION_COMPLETED(every=4),
    )
    return trained_by(
        lambda model: SGDScheduleFree(model.parameters(), lr=0.1, warmup_steps=5),
        network,
        validate,
        RestoreBest("val/loss"),
        by_hand=None,
    )
