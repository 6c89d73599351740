"""singd: natural gradients without inverses."""

from crossing import told, trained_by


@told(
    "singd",
    "Optimizers",
    "a subclass whose `state_dict` gives the tensors of its matrices",
    match="DenseMatrix",
)
def test_singd(folder):
    """SINGD, whose state holds objects of the library."""
    from singd.optim.optimizer import SINGD

    return trained_by(lambda model: SINGD(model, lr=0.01, T=3, warn_unsupported=False))
