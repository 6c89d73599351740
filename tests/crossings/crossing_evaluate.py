"""evaluate: metrics of Hugging Face."""

from crossing import adam, exact, network, told, trained_by

from camshaft.handlers import Metrics


def accuracy():
    """A metric as a file of your own defines it; those of the hub would be downloaded."""
    import datasets
    import evaluate

    class Accuracy(evaluate.Metric):
        def _info(self):
            features = {
                "predictions": datasets.Value("int64"),
                "references": datasets.Value("int64"),
            }
            return evaluate.MetricInfo(
                description="", citation="", features=datasets.Features(features)
            )

        def _compute(self, predictions, references):
            pairs = [*zip(predictions, references, strict=True)]
            return {"accuracy": sum(one == other for one, other in pairs) / len(pairs)}

    return Accuracy()


@told(
    "evaluate",
    "Metrics",
    "an adapter with reset, update and compute, which keeps the predictions itself",
    match="not a metric|needs|reset",
)
def test_as_it_is(folder):
    """A metric of evaluate, given to Metrics as it is."""
    return trained_by(adam, network, Metrics({"accuracy": accuracy()}))


@exact(
    "evaluate",
    "Metrics",
    'Metrics({"accuracy": Kept(evaluate.load("accuracy"))}), with Kept as in this test',
    note="Kept has reset, update and compute, and keeps the predictions as lists.",
)
def test_kept(folder):
    """A metric of evaluate behind an adapter that keeps the predictions of an epoch."""

    class Kept:
        def __init__(self, metric):
            self.compute_all = metric.compute
            self.reset()

        def reset(self):
            self.predictions, self.references = [], []

        def update(self, prediction, target):
            self.predictions += prediction.argmax(1).tolist()
            self.references += target.tolist()

        def compute(self):
            found = self.compute_all(predictions=self.predictions, references=self.references)
            return found["accuracy"]

        def state_dict(self):
            return {"predictions": self.predictions, "references": self.references}

        def load_state_dict(self, state):
            self.predictions, self.references = [*state["predictions"]], [*state["references"]]

    return trained_by(adam, network, Metrics({"accuracy": Kept(accuracy())}))
