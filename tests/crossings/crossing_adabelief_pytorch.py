"""adabelief-pytorch: an optimizer that believes in gradients near their mean."""

from crossing import exact, trained_by


@exact("adabelief-pytorch", "Optimizers", "supervised(model, AdaBelief(model.parameters()), loss)")
def test_adabelief(folder):
    """AdaBelief with rectification."""
    from adabelief_pytorch import AdaBelief

    return trained_by(lambda model: AdaBelief(model.parameters(), lr=0.01, print_change_log=False))
