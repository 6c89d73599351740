"""adan-pytorch: an optimizer that may restart itself."""

from crossing import exact, trained_by


@exact("adan-pytorch", "Optimizers", "supervised(model, Adan(model.parameters()), loss)")
def test_adan(folder):
    """Adan with a `restart_cond`, a function that stays the script's."""
    from adan_pytorch import Adan

    def often(state):
        return state["step"] % 8 == 0

    return trained_by(lambda model: Adan(model.parameters(), lr=0.01, restart_cond=often))
