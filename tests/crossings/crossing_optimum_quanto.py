"""optimum-quanto: layers whose weights are quantized in each forward pass."""

from crossing import adam, exact, held_out, network, trained_by


@exact("optimum-quanto", "Models", "quantize(model, weights=qint8)  # before the run")
def test_quantized_weights(folder):
    """Quantize with eight bits for weights; training moves the full weights."""
    from optimum.quanto import qint8, quantize

    def model():
        made = network()
        quantize(made, weights=qint8)
        return made

    return trained_by(adam, model, held_out())
