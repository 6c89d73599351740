"""MLflow on a SQLite file, read back by its own client."""

from functools import partial

import pytest

from camshaft import Engine
from camshaft.handlers.loggers import MLflow, Text

from .runs import EACH, HPARAMS, engine_of, fail_and_resume

pytestmark = pytest.mark.filterwarnings("ignore")  # of its own making


@pytest.fixture(scope="module", autouse=True)
def library():
    """Imported when a test is run: to import it takes seconds."""
    pytest.importorskip("mlflow", reason='needs pip install "camshaft[mlflow]"')


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    """One store for all tests: to make its tables takes a while."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where artifacts go


def build(uri, experiment, fail_at=None, **arguments):
    return engine_of(MLflow(experiment, uri=uri, when=EACH, **arguments), fail_at, ("note", "seen"))


def the_run(uri, name):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    [run] = client.search_runs([client.get_experiment_by_name(name).experiment_id])

    def rows(metric):
        history = client.get_metric_history(run.info.run_id, metric)
        return sorted((each.step, each.value) for each in history)

    return client, run, rows


@pytest.mark.slow
def test_rows_parameters_and_media_are_there(uri):
    build(uri, "first", hparams=HPARAMS, name="mine").run(range(3), max_epochs=1)
    client, run, rows = the_run(uri, "first")
    assert rows("loss") == [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3))]
    assert rows("epoch") == [(1, 1), (2, 1), (3, 1)]
    assert run.data.params == {"lr": "0.1", "model/width": "8"}
    assert run.info.run_name == "mine"
    assert run.info.status == "FINISHED"
    found = [
        each.path
        for name in ("note", "seen")
        for each in client.list_artifacts(run.info.run_id, name)
    ]
    assert found == ["note/2.md", "seen/2.png"]


@pytest.mark.slow
def test_a_resumed_run_is_the_same_run_with_no_row_twice_or_missing(uri):
    fail_and_resume(partial(build, uri, "second"))
    _, _, rows = the_run(uri, "second")
    assert [step for step, _ in rows("loss")] == list(range(1, 9))
    assert [step for step, _ in rows("epoch")] == list(range(1, 9))


@pytest.mark.slow
def test_names_that_are_not_allowed_cost_no_row(uri, caplog):
    def train_step(state, batch):
        state.metrics.update({"</script> é": 1.0, "../a": 2.0, "loss": 3.0, "": 4.0, "b//c": 5.0})
        state.metrics["a\nb"] = Text("words")

    def engine():
        return Engine(train_step, MLflow("names", uri=uri, when=EACH))

    engine().run(range(2), max_epochs=1)
    assert not [each for each in caplog.records if each.name == "camshaft"]
    client, run, rows = the_run(uri, "names")
    for name in ("_/script_ é", "__/a", "loss", "_", "b/_/c"):
        assert [step for step, _ in rows(name)] == [1, 2], name
    assert len(client.list_artifacts(run.info.run_id, "a_b")) == 2


@pytest.mark.slow
def test_two_names_that_are_one_for_mlflow_are_told_once(uri, caplog):
    def train_step(state, batch):
        state.metrics.update({"error<5": 1.0, "error>5": 2.0, "error": 3.0})

    Engine(train_step, MLflow("two names", uri=uri, when=EACH)).run(range(3), max_epochs=1)
    [told] = [each.message for each in caplog.records if each.name == "camshaft"]
    assert "'error<5' and 'error>5'" in told
    assert "'error_5'" in told


@pytest.mark.slow
def test_a_file_is_written_at_once_and_a_server_by_a_thread(uri):
    assert not MLflow("x", uri=uri).background
    assert MLflow("x", uri="http://localhost:5000").background
    assert MLflow("x").background


@pytest.mark.slow
def test_a_store_that_cannot_be_opened_costs_a_warning(tmp_path, caplog):
    (tmp_path / "file").touch()
    engine = build(f"sqlite:///{tmp_path}/file/mlflow.db", "third")
    assert engine.run(range(3), max_epochs=1).iteration == 3
    [warning] = [each for each in caplog.records if each.name == "camshaft"]
    assert "MLflow" in warning.getMessage()
