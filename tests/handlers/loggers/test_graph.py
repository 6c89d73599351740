"""The graph of a model."""

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from camshaft import Events, supervised
from camshaft.handlers.loggers import TensorBoard

EACH = Events.ITERATION_COMPLETED


def test_the_graph_of_a_model_is_shown_and_the_run_is_the_same(tmp_path):
    def weights(**arguments):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            *(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5))
        )
        model[1].eval()  # is frozen, and stays so
        if arguments:
            arguments = {"graph": (model, torch.ones(4, 2))}
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
        engine.add(TensorBoard(tmp_path / f"{bool(arguments)}", when=EACH, **arguments))
        engine.run([(torch.ones(4, 2), torch.zeros(4, 3))] * 3, max_epochs=1)
        assert not model[1].training
        return model.state_dict()

    plain, drawn = weights(), weights(graph=True)
    assert all(torch.equal(plain[name], drawn[name]) for name in plain)
    events = EventAccumulator(str(tmp_path / "True")).Reload()
    names = [node.name for node in events.Graph().node]
    assert any("Linear" in name for name in names)


def test_a_model_that_cannot_be_traced_costs_its_graph_and_not_the_log(shown, caplog):
    class Untraceable(torch.nn.Module):
        def forward(self, inputs):
            raise RuntimeError("not for tracing")

    events = shown({"loss": 1.0}, graph=(Untraceable(), torch.ones(1)))
    assert len(events.Scalars("loss")) == 1
    assert "not for tracing" in caplog.text
