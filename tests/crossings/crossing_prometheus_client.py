"""prometheus_client: numbers for a server that asks for them."""

from crossing import adam, exact, network, trained_by

from camshaft import Events


@exact(
    "prometheus_client",
    "Logs",
    "gauge.set(state.iteration)  # in a function of an event",
    note="A Counter begins again in each process, as Prometheus expects it.",
)
def test_gauges(folder):
    """Gauges that are set from the metrics and the clocks of the run."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    loss = Gauge("loss", "of the last batch", registry=registry)
    batches = Gauge("batches", "since the run began", registry=registry)
    trial = trained_by(adam, network, result=lambda: generate_latest(registry))

    @trial.engine.on(Events.ITERATION_COMPLETED)
    def show(state):
        loss.set(float(state.metrics["loss"]))
        batches.set(state.iteration)

    return trial
